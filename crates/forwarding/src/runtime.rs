//! What all programs of a process share: the engine, the compiler, the host functions, and two threads.

use std::sync::Arc;

use wasmtime::{Engine, Linker};

use crate::compiler::Compiler;
use crate::engine;
use crate::host;
use crate::keeper::Keeper;
use crate::modules::Modules;
use crate::state::State;
use crate::ticker::Ticker;
use crate::unacceptable::Unacceptable;

/// What all programs of a process share. Its threads end with the last owner.
pub struct Runtime {
    pub(crate) engine: Engine,
    pub(crate) compiler: Compiler,
    pub(crate) modules: Modules,
    pub(crate) linker: Linker<State>,
    pub(crate) keeper: Keeper,
    pub(crate) ticker: Arc<Ticker>,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

impl Runtime {
    /// Starts the threads. Modules are compiled by [`Compiler::Installed`].
    ///
    /// # Errors
    /// The processor is not supported, or the kernel refuses a thread.
    pub fn start() -> Result<Arc<Runtime>, Unacceptable> {
        Runtime::with(Compiler::Installed)
    }

    /// The same with another compiler.
    ///
    /// # Errors
    /// As for [`Runtime::start`].
    pub fn with(compiler: Compiler) -> Result<Arc<Runtime>, Unacceptable> {
        let system = |what: &str| Unacceptable::System(format!("forwarding programs cannot be run: {what}"));
        let engine =
            engine::config().and_then(|config| Engine::new(&config)).map_err(|error| system(&error.to_string()))?;
        let linker = host::linker(&engine).map_err(|error| system(&error.to_string()))?;
        let ticker = Ticker::start(&engine).map_err(|error| system(&error.to_string()))?;
        let keeper = Keeper::start().map_err(|error| system(&error.to_string()))?;
        let (modules, ticker) = (Modules::default(), Arc::new(ticker));
        Ok(Arc::new(Runtime { engine, compiler, modules, linker, keeper, ticker }))
    }
}
