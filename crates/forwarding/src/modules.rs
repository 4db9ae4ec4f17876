//! The modules that programs have: compiled once each.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use wasmtime::InstancePre;

use crate::state::State;

/// A module that was judged and compiled.
pub(crate) struct Module {
    pub(crate) pre: InstancePre<State>,
    pub(crate) bytes: Box<[u8]>,
}

/// The modules of a runtime's programs.
#[derive(Debug, Default)]
pub(crate) struct Modules(Mutex<Vec<Weak<Module>>>);

impl Modules {
    /// Returns the module that was compiled from these bytes, if a program has it.
    pub(crate) fn of(&self, bytes: &[u8]) -> Option<Arc<Module>> {
        let modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        modules.iter().filter_map(Weak::upgrade).find(|module| *module.bytes == *bytes)
    }

    /// Adds a module, and forgets those that no program has.
    pub(crate) fn add(&self, module: Module) -> Arc<Module> {
        let module = Arc::new(module);
        let mut modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        modules.retain(|module| module.strong_count() > 0);
        modules.push(Arc::downgrade(&module));
        module
    }
}

impl Module {
    /// Returns true if the module exports a function.
    pub(crate) fn has(&self, export: &str) -> bool {
        self.pre.module().get_export(export).is_some()
    }
}
