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
    /// Returns true if the module's bytes alone decide this: the same module is never acceptable. Otherwise another try can be worth it. How a
    /// program starts depends on the machine, the time, and the switch's ports.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Module(_) | Self::Export(_) | Self::Import(_) | Self::Memory(_) | Self::Interface(_) => true,
            Self::Failed { .. } | Self::Refused(_) | Self::System(_) => false,
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
    use crate::fault::FaultKind;

    #[test]
    fn what_the_bytes_of_a_module_decide_is_final_and_nothing_else() {
        let text = String::new;
        let of_bytes = [Unacceptable::Module, Unacceptable::Export, Unacceptable::Import, Unacceptable::Memory];
        assert!(of_bytes.iter().all(|make| make(text()).is_final()) && Unacceptable::Interface(2).is_final());
        let failed = |kind| Unacceptable::Failed { export: "ringway_start", fault: Fault::new(kind, "") };
        assert!(!FaultKind::ALL.into_iter().any(|kind| failed(kind).is_final()));
        assert!(!Unacceptable::Refused(text()).is_final() && !Unacceptable::system("no memory").is_final());
    }
}
