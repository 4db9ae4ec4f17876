//! Reads the bytes of Python objects with the buffer protocol.

use std::mem::MaybeUninit;
use std::slice;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyTypeInfo, ffi};

/// The contiguous bytes of an object, kept for as long as this value lives.
pub(crate) struct Contiguous {
    view: ffi::Py_buffer,
}

impl Contiguous {
    /// Returns the bytes of `object`, whatever the type of its elements.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Contiguous> {
        let mut view = MaybeUninit::<ffi::Py_buffer>::zeroed();
        // SAFETY: the object is alive and the GIL is held. The call fills `view`, or returns an error.
        let result = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), view.as_mut_ptr(), ffi::PyBUF_SIMPLE) };
        if result != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        // SAFETY: filled by the call above.
        Ok(Contiguous { view: unsafe { view.assume_init() } })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.view.buf.is_null() || self.view.len <= 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `len` bytes at `buf` until the view is released. The caller holds the GIL while it
        // copies them, so Python code does not change them meanwhile.
        unsafe { slice::from_raw_parts(self.view.buf.cast(), self.view.len as usize) }
    }
}

impl Drop for Contiguous {
    fn drop(&mut self) {
        // SAFETY: filled by PyObject_GetBuffer, released once, under the GIL that `with_bytes` holds.
        unsafe { ffi::PyBuffer_Release(&raw mut self.view) };
    }
}

/// Calls `with` with the bytes of `object`.
pub(crate) fn with_bytes<R>(object: &Bound<'_, PyAny>, with: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(with(bytes.as_bytes()));
    }
    let not_a_frame = |error: PyErr| {
        let py = object.py();
        if !error.is_instance_of::<PyTypeError>(py) {
            return error;
        }
        let kind = object.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("a frame is a bytes-like object, not {kind}"))
    };
    let bytes = Contiguous::of(object).map_err(not_a_frame)?;
    Ok(with(bytes.bytes()))
}

/// Returns true if `object` has the buffer protocol: then it is a frame, not a batch of frames.
pub(crate) fn has_bytes(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive and the GIL is held.
    PyBytes::is_type_of(object) || unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) } != 0
}
