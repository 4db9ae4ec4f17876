//! Compiles modules: the work of the program `ringway-program-compiler` (feature `compiler`).

use wasmtime::{Engine, OptLevel};

use crate::engine;
use crate::text;

/// Why a module is not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCompiled {
    /// It is no module, or one that cannot be compiled.
    #[error("{0}")]
    Refused(String),
    /// The kernel gives no memory.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
}

impl From<wasmtime::Error> for NotCompiled {
    fn from(error: wasmtime::Error) -> Self {
        let why = text::reason(&error);
        if text::is_out_of_memory(&error) { NotCompiled::OutOfMemory(why) } else { NotCompiled::Refused(why) }
    }
}

/// Compiles a module. Takes some seconds for each MiB, and for some modules much longer.
///
/// # Errors
/// Why it is no module, or one that cannot be compiled.
pub fn compile(module: &[u8]) -> Result<Vec<u8>, NotCompiled> {
    let mut config = engine::config()?;
    config.cranelift_opt_level(OptLevel::Speed);
    Ok(Engine::new(&config)?.precompile_module(module)?)
}
