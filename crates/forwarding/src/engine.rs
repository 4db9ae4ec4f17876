//! The settings that the compiler of programs and the process that runs them share.
//!
//! wasmtime writes its exact version and the settings into the machine code, and refuses machine code with other ones.

use wasmtime::{Config, WasmBacktraceDetails};

use crate::limits::STACK;

/// WebAssembly 2.0 and tail calls; see the guide for what is not there.
///
/// # Errors
/// wasmtime refuses a setting.
pub(crate) fn config() -> Result<Config, wasmtime::Error> {
    let mut config = Config::new();
    config
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
