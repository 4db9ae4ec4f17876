//! Memory of the program that its ports use, and the parts of it that the program writes frames to.

use std::ffi::c_int;
use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyBufferError, PyMemoryError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use ringway_client::{Area as Part, ExternalMemory, TxRing};

use crate::fork::Process;

/// Memory of this program for its ports: they send from it without a copy, and receive into it.
///
/// >>> memory = ringway.Memory(8 << 20)
/// >>> area = memory.take(1 << 20)
/// >>> with ringway.Port("lan0:own", memory=memory) as port:
/// ...     memoryview(area)[:60] = b"\xff" * 6 + b"\2\0\0\0\0\1" + b"\x88\xb5".ljust(48)
/// ...     port.send_from(area, (0, 60))
/// ...     port.wait_sent(timeout=5)
/// 1
/// True
///
/// The memory has `size` zeroed bytes, or is the whole of a memfd, whose descriptor is `fd` (``os.memfd_create`` with
/// ``MFD_ALLOW_SEALING``; it is sealed against shrinking, and stays the caller's). Frames are sent from multiples of `unit`, a power of
/// two from 1 to 64; the memory has less than 2**32 units. Its first two units are reserved.
///
/// A port takes a part of the memory for the buffers of its slots and its spare buffers: `buffer_size` bytes for each. What was taken
/// stays taken. Several ports of this process may use a memory; the switch refuses one that a port of another process uses. Two objects
/// with the same file do not know of each other and give the same parts away. The memory exists as long as this object, a port or an
/// area that use it. It belongs to the process that made it, like a port.
#[pyclass(frozen, module = "ringway")]
pub(crate) struct Memory {
    size: usize,
    unit: u32,
    owner: Process,
    /// Locked without the GIL: an attach keeps it until the daemon has answered.
    memory: Mutex<ExternalMemory>,
}

impl Memory {
    /// Refuses a child of the process that made the memory: both would give the same parts away.
    pub(crate) fn own(&self) -> PyResult<&Memory> {
        if self.owner == Process::this() {
            return Ok(self);
        }
        Err(PyValueError::new_err("the memory belongs to the process that made it, not to its child"))
    }

    /// To be called without the GIL.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ExternalMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Memory {
    #[new]
    #[pyo3(signature = (size=None, *, fd=None, unit=1))]
    fn new(size: Option<usize>, fd: Option<RawFd>, unit: u32) -> PyResult<Memory> {
        if !unit.is_power_of_two() || unit > 64 {
            return Err(PyValueError::new_err(format!("unit {unit} is not possible: a power of two from 1 to 64")));
        }
        let memory = match (size, fd) {
            (Some(size), None) if size > 0 => ExternalMemory::new(size, unit)?,
            (None, Some(fd)) if fd >= 0 => {
                // SAFETY: the caller's descriptor; if it is not open, the kernel refuses its number.
                let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
                ExternalMemory::from_file(file, unit)?
            }
            _ => return Err(PyValueError::new_err("a memory has a size of 1 or more, or the descriptor of a memfd")),
        };
        Ok(Memory { size: memory.bytes(), unit, owner: Process::this(), memory: Mutex::new(memory) })
    }

    /// Takes `size` bytes that nothing else has, from `offset` on or where there is room. They stay taken.
    ///
    /// Raises `MemoryError` if so many are not left in one piece, and `ValueError` if a part of those from `offset` on is taken, reserved
    /// or outside.
    #[pyo3(signature = (size, *, offset=None))]
    fn take(&self, py: Python<'_>, size: usize, offset: Option<usize>) -> PyResult<Area> {
        let memory = self.own()?;
        if size == 0 {
            return Err(PyValueError::new_err("an area has 1 byte or more"));
        }
        let part = py.detach(|| match offset {
            None => memory.lock().take(size),
            Some(offset) => offset.checked_add(size).and_then(|end| memory.lock().take_at(offset..end)),
        });
        let unit = self.unit as usize;
        part.map(|part| Area { part, unit }).ok_or_else(|| match offset {
            None => PyMemoryError::new_err(format!("no {size} bytes are left in one piece")),
            Some(offset) => PyValueError::new_err(format!(
                "the {size} bytes from {offset} on are not free: a part is taken, reserved (the first two units) or outside"
            )),
        })
    }

    /// The number of bytes.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// Frames are sent from multiples of this number of bytes.
    #[getter]
    fn unit(&self) -> u32 {
        self.unit
    }

    fn __repr__(&self) -> String {
        format!("<ringway.Memory of {} bytes, unit {}>", self.size, self.unit)
    }
}

/// A part of a `Memory` that the program has to itself: writable bytes with the buffer protocol, for ``memoryview``, numpy and others.
///
/// >>> area = ringway.Memory(1 << 20).take(4096)
/// >>> view = memoryview(area)
/// >>> view[:5] = b"hello"
/// >>> len(area), view.readonly, bytes(area)[:5]
/// (4096, False, b'hello')
///
/// `Port.send_from` sends from it. The switch reads a frame's bytes until `Port.wait_sent` returns true; changes before it are sent, or
/// not.
#[pyclass(frozen, module = "ringway")]
pub(crate) struct Area {
    part: Part,
    /// The memory's.
    unit: usize,
}

impl Area {
    /// Queues a part as a frame. Returns false when there is no room.
    pub(crate) fn push_to(&self, tx: &mut TxRing, part: Range<usize>) -> PyResult<bool> {
        if tx.takes_from(&self.part, &part) {
            return Ok(tx.push_from(&self.part, part));
        }
        let (Range { start, end }, len, unit) = (part, self.part.len(), self.unit);
        Err(PyValueError::new_err(if start > end || end > len {
            format!("the part ({start}, {end}) is not in the area: it has {len} bytes")
        } else if !(self.part.offset() + start).is_multiple_of(unit) {
            let at = self.part.offset() + start;
            format!("a frame is sent from a multiple of the memory's unit, {unit}: byte {at} of the memory is none")
        } else {
            "the area is of another memory than the port's".to_owned()
        }))
    }
}

#[pymethods]
impl Area {
    /// # Safety
    /// `view` is null or points to a `Py_buffer`: Python's side of the buffer protocol.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let part = &slf.get().part;
        let (start, len) = (part.start().as_ptr().cast(), part.len() as ffi::Py_ssize_t);
        // SAFETY: `view` may be filled. The bytes stay where they are as long as the area lives, to which the view gets a reference. They
        // are written by their address alone: this crate never makes a reference to bytes of an area, and frames are queued by their
        // place.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }

    fn __len__(&self) -> usize {
        self.part.len()
    }

    /// Where the area begins in its memory.
    #[getter]
    fn offset(&self) -> usize {
        self.part.offset()
    }

    fn __repr__(&self) -> String {
        format!("<ringway.Area of {} bytes at {}>", self.part.len(), self.part.offset())
    }
}
