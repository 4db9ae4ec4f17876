//! The native part of the Python package `ringway`: a process port, and frames as views of its memory.
//!
//! Python programs use the package (`python/ringway`), which documents and types all this; names here are its internals.
//!
//! Locks: a thread that holds a lock of this crate neither runs Python code nor releases the GIL, and a thread that
//! sleeps holds neither. The lock of a `Memory` is the exception: an attach keeps it, and it is locked without the GIL.
//! Making a Python object runs Python code: the collector may free other frames.

#![allow(unsafe_code)]

mod bytes;
mod fork;
mod frame;
mod memory;
mod port;
mod wait;

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use ringway_client::AttachError as ClientError;

create_exception!(ringway, Error, PyException, "Base of the errors of this package.");
create_exception!(ringway, AttachError, Error, "The port cannot be attached, for the reason in the text.");
create_exception!(ringway, PortEnded, Error, "The switch has ended the port, for the reason in the text.");

/// The error of an attach as an exception.
fn attach_error(error: &ClientError) -> PyErr {
    AttachError::new_err(error.to_string())
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    fork::watch(py)?;
    module.add("Error", py.get_type::<Error>())?;
    module.add("AttachError", py.get_type::<AttachError>())?;
    module.add("PortEnded", py.get_type::<PortEnded>())?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<memory::Area>()?;
    module.add_class::<port::Port>()
}
