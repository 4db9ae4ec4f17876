//! Notices that this process is a child made by `os.fork`.

use std::sync::atomic::{AtomicUsize, Ordering};

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Number of forks between the process that loaded this module and this one.
static GENERATION: AtomicUsize = AtomicUsize::new(0);

/// The process that made a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process(usize);

impl Process {
    pub(crate) fn this() -> Process {
        Process(GENERATION.load(Ordering::Relaxed))
    }
}

/// Runs in a child.
#[pyfunction]
fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Has Python tell of forks from now on.
pub(crate) fn watch(py: Python<'_>) -> PyResult<()> {
    let told = PyDict::new(py);
    told.set_item("after_in_child", wrap_pyfunction!(forked, py)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&told)).map(drop)
}
