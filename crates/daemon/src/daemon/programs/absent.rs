//! A build without the feature `programs`: no program can be loaded, and so none runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ringway_api::program::ProgramStatus;

use super::wanted::{NotLoaded, Wanted};

/// There is no runtime.
#[derive(Debug)]
pub enum Runtime {}

/// There is no loaded program.
#[derive(Clone, Debug)]
pub struct LoadedProgram(Infallible);

impl LoadedProgram {
    /// There is none.
    pub fn get(&self) -> Arc<dyn ringway_switch::Program> {
        match self.0 {}
    }

    /// There is none.
    pub fn is_same(&self, _: &LoadedProgram) -> bool {
        match self.0 {}
    }

    /// There is none.
    pub fn instances(&self) -> usize {
        match self.0 {}
    }

    /// There is none.
    ///
    /// # Errors
    /// There is none.
    pub fn tell(&self, _: &str) -> Result<(), String> {
        match self.0 {}
    }

    /// There is none.
    pub fn status(&self) -> ProgramStatus {
        match self.0 {}
    }
}

/// Refuses all programs.
///
/// # Errors
/// Always.
pub fn can_load() -> Result<(), String> {
    Err("this ringway was built without forwarding programs: build it with the feature \"programs\"".to_owned())
}

/// Refuses a program.
///
/// # Errors
/// Always.
pub fn load_one(_: &Wanted<LoadedProgram, Runtime>, _: &AtomicBool) -> Result<LoadedProgram, NotLoaded> {
    Err(can_load().err().unwrap_or_default().into())
}
