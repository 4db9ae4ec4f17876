//! Compiles modules: the work of the program `ringway-program-compiler` (feature `compiler`).

use wasmtime::{Engine, OptLevel};

use crate::engine;
use crate::text;

/// Compiles a module. Takes some seconds for each MiB, and for some modules much longer.
///
/// # Errors
/// Why it is no module, or one that cannot be compiled.
pub fn compile(module: &[u8]) -> Result<Vec<u8>, String> {
    let mut config = engine::config().map_err(|error| text::reason(&error))?;
    config.cranelift_opt_level(OptLevel::Speed);
    let engine = Engine::new(&config).map_err(|error| text::reason(&error))?;
    engine.precompile_module(module).map_err(|error| text::reason(&error))
}
