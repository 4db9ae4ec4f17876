//! Why a module is refused.

use crate::fault::Fault;

/// Why a module or its start is not acceptable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unacceptable {
    /// The file is no module, or one that cannot be compiled.
    #[error("{0}")]
    Module(String),
    /// The module lacks an export, has one of another type or one too many.
    #[error("{0}")]
    Export(String),
    /// The module imports what there is not.
    #[error("{0}")]
    Import(String),
    /// The module wants too much memory.
    #[error("{0}")]
    Memory(String),
    /// The module was written for another interface.
    #[error("the module is for version {0} of the interface: this Ringway has version 1")]
    Interface(i32),
    /// The module failed while it started.
    #[error("{export} failed: {fault}")]
    Failed {
        /// The export that was called.
        export: &'static str,
        /// What happened.
        fault: Fault,
    },
    /// The program refuses to start, or to take over a state.
    #[error("{0}")]
    Refused(String),
    /// The system cannot do it.
    #[error("{0}")]
    System(String),
}

impl Unacceptable {
    /// The system cannot, for this reason.
    pub(crate) fn system(what: &str) -> Self {
        Self::System(what.to_owned())
    }
}
