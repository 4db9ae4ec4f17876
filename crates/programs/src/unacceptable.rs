//! Why a module is refused.

use crate::fault::{Fault, FaultKind};

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
    /// Returns true if the same module, started with the same text, is never acceptable. Otherwise another try can be worth it.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::System(_) => false,
            Self::Failed { fault, .. } => fault.kind != FaultKind::Time,
            _ => true,
        }
    }

    /// The system cannot, for this reason.
    pub(crate) fn system(what: &str) -> Self {
        Self::System(what.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_module_stays_and_what_is_wrong_with_the_machine_may_not() {
        let failed = |kind| Unacceptable::Failed { export: "ringway_start", fault: Fault::new(kind, "") };
        assert!([Unacceptable::Module(String::new()), Unacceptable::Interface(2)].iter().all(Unacceptable::is_final));
        for kind in FaultKind::ALL {
            assert_eq!(failed(kind).is_final(), kind != FaultKind::Time, "a busy machine takes time");
        }
        assert!(!Unacceptable::system("no memory").is_final());
    }
}
