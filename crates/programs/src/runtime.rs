//! What all programs of a process share: the compiler, the host functions, and two threads.

use std::sync::Arc;

use wasmtime::{Config, Engine, Linker, OptLevel, WasmBacktraceDetails};

use crate::host;
use crate::keeper::Keeper;
use crate::limits::STACK;
use crate::module::Unacceptable;
use crate::state::State;
use crate::ticker::Ticker;

/// What all programs of a process share. Its threads end with the last owner.
pub struct Runtime {
    pub(crate) engine: Engine,
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
    /// Starts the threads.
    ///
    /// # Errors
    /// The processor is not supported, or the kernel refuses a thread.
    pub fn start() -> Result<Arc<Runtime>, Unacceptable> {
        let system = |what: &str| Unacceptable::System(format!("forwarding programs cannot be run: {what}"));
        let engine = Engine::new(&config()).map_err(|error| system(&error.to_string()))?;
        let linker = host::linker(&engine).map_err(|error| system(&error.to_string()))?;
        let ticker = Ticker::start(&engine).map_err(|error| system(&error.to_string()))?;
        let keeper = Keeper::start().map_err(|error| system(&error.to_string()))?;
        Ok(Arc::new(Runtime { engine, linker, keeper, ticker: Arc::new(ticker) }))
    }
}

/// WebAssembly 2.0 and tail calls; see the guide for what is not there.
fn config() -> Config {
    let mut config = Config::new();
    config
        .cranelift_opt_level(OptLevel::Speed)
        .epoch_interruption(true)
        .max_wasm_stack(STACK)
        .wasm_backtrace(false)
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .generate_address_map(true)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        .wasm_relaxed_simd(false)
        .wasm_tail_call(true)
        .wasm_bulk_memory(true)
        .wasm_simd(true);
    config
}
