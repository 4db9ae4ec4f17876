//! The settings that the compiler of programs and the process that runs them share.
//!
//! wasmtime writes the settings into the machine code, and refuses machine code with other ones.

use wasmtime::{Config, ModuleVersionStrategy, WasmBacktraceDetails};

use crate::limits::STACK;

/// Machine code for another Ringway is refused.
const VERSION: &str = concat!("ringway ", env!("CARGO_PKG_VERSION"), ", wasmtime 36");

/// WebAssembly 2.0 and tail calls; see the guide for what is not there.
///
/// # Errors
/// wasmtime refuses a setting.
pub(crate) fn config() -> Result<Config, wasmtime::Error> {
    let mut config = Config::new();
    config
        .module_version(ModuleVersionStrategy::Custom(VERSION.to_owned()))?
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
    Ok(config)
}
