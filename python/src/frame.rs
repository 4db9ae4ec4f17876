//! Received frames as Python objects.

use std::ffi::c_int;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;
use ringway_client::Buffer;

/// The buffers of a port that neither a ring nor a frame has, and the number of frames that are alive.
pub(crate) struct Pool {
    spares: Mutex<Vec<Buffer>>,
    alive: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(spares: Vec<Buffer>) -> Arc<Pool> {
        Arc::new(Pool { spares: Mutex::new(spares), alive: AtomicUsize::new(0) })
    }

    pub(crate) fn spares(&self) -> MutexGuard<'_, Vec<Buffer>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frames whose views are not released.
    pub(crate) fn alive(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
    }
}

/// The bytes of a received frame.
pub(crate) enum Received {
    /// In the buffer that it arrived in.
    InPlace(Buffer, usize),
    /// Copied, because it spans several buffers, or no spare buffer was left.
    Copied(Vec<u8>),
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Received::InPlace(buffer, len) => &buffer[..*len],
            Received::Copied(bytes) => bytes,
        }
    }
}

/// What the memoryview of a received frame refers to. Its buffer goes back when the last view is released.
#[pyclass(frozen, module = "ringway._native")]
pub(crate) struct Frame {
    /// `None` only while it is dropped.
    bytes: Option<Received>,
    /// Bytes before the frame.
    prefix: usize,
    pool: Arc<Pool>,
}

impl Frame {
    /// A frame that begins after the first `prefix` bytes of `received`.
    pub(crate) fn new(received: Received, prefix: usize, pool: &Arc<Pool>) -> Frame {
        pool.alive.fetch_add(1, Ordering::Relaxed);
        Frame { bytes: Some(received), prefix, pool: Arc::clone(pool) }
    }

    /// Returns a view of the frame.
    pub(crate) fn view(self, py: Python<'_>) -> PyResult<Bound<'_, PyMemoryView>> {
        PyMemoryView::from(Bound::new(py, self)?.as_any())
    }

    /// The bytes before the frame.
    pub(crate) fn prefix(&self) -> &[u8] {
        self.bytes.as_deref().and_then(|bytes| bytes.get(..self.prefix)).unwrap_or_default()
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().and_then(|bytes| bytes.get(self.prefix..)).unwrap_or_default()
    }
}

#[pymethods]
impl Frame {
    /// # Safety
    /// `view` is null or points to a `Py_buffer`: Python's side of the buffer protocol.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let (start, len) = {
            let bytes = slf.get().bytes();
            (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t)
        };
        // SAFETY: `view` may be filled. The bytes stay where they are as long as the frame lives, to which the view gets
        // a reference. They are marked as read-only.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 1, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }

    fn __repr__(&self) -> String {
        let place = match self.bytes {
            Some(Received::InPlace(..)) => "in its buffer",
            _ => "copied",
        };
        format!("<received frame of {} bytes, {place}>", self.bytes().len())
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(Received::InPlace(buffer, _)) = self.bytes.take() {
            self.pool.spares().push(buffer);
        }
        self.pool.alive.fetch_sub(1, Ordering::Relaxed);
    }
}
