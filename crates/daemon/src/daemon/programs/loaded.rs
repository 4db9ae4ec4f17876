//! A loaded program, and its files.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringway_api::program::ProgramStatus;
use ringway_config::ProgramKeys;
use ringway_forwarding::{CONFIG_MAX, Compiler, Load, MODULE_MAX, Program, ProgramState, Unacceptable};
use ringway_keeper::opener::open_to_read;

use super::wanted::{NotLoaded, Wanted};
pub use ringway_forwarding::Runtime;

/// A program that runs.
#[derive(Clone, Debug)]
pub struct LoadedProgram {
    program: Arc<Program>,
    /// A hash of the module and its text `config`.
    hash: u64,
}

impl LoadedProgram {
    /// Returns the program, for the switch.
    pub fn get(&self) -> Arc<dyn ringway_switch::Program> {
        Arc::clone(&self.program) as Arc<dyn ringway_switch::Program>
    }

    /// Returns true if both are the same running program.
    pub fn is_same(&self, other: &LoadedProgram) -> bool {
        Arc::ptr_eq(&self.program, &other.program)
    }

    /// Returns true if the program was taken out after faults.
    pub fn is_out(&self) -> bool {
        self.program.is_out()
    }

    /// Returns the number of instances.
    pub fn instances(&self) -> usize {
        self.program.instances()
    }

    /// Gives the program a message. Can take a millisecond for each instance: without the daemon's lock.
    ///
    /// # Errors
    /// The program does not take it.
    pub fn tell(&self, message: &str) -> Result<(), String> {
        self.program.tell(message).map_err(|error| error.to_string())
    }

    /// Returns the state and the counters.
    pub fn status(&self) -> ProgramStatus {
        let reading = self.program.read();
        let (state, fault) = match &reading.state {
            ProgramState::Running => ("running", None),
            ProgramState::Failed(fault) => ("failed", Some(fault)),
        };
        let detail =
            fault.map(|fault| format!("taken out after faults, the last: {fault}; to try again, set it again"));
        let age = |at: Instant| at.elapsed().as_secs_f64();
        ProgramStatus {
            state: state.to_owned(),
            detail,
            instances: self.program.instances(),
            batches: reading.batches,
            drops: reading.drops.into_iter().collect(),
            faults: reading.faults.into_iter().map(|(kind, count)| (kind.name().to_owned(), count)).collect(),
            last_fault: reading.last_fault.as_ref().map(|(fault, _)| fault.to_string()),
            last_fault_age: reading.last_fault.as_ref().map(|(_, at)| age(*at)),
            counters: reading.counters.into_iter().collect(),
            gauges: reading.gauges.into_iter().collect(),
            map_entries: reading.entries,
            lost_lines: reading.lost_lines,
        }
    }
}

/// Says whether programs can be loaded at all.
///
/// # Errors
/// What is missing.
pub fn can_load() -> Result<(), String> {
    Compiler::Installed.look().map_err(|error| error.to_string())
}

/// Loads a program. Takes long. Ends early if `stop` becomes true.
///
/// # Errors
/// It cannot be loaded.
pub fn load_one(wanted: &Wanted<LoadedProgram, Runtime>, stop: &AtomicBool) -> Result<LoadedProgram, NotLoaded> {
    let module = read(&wanted.keys.program, MODULE_MAX).map_err(|error| error.to_string())?;
    let config = read_config(&wanted.keys)?;
    let mut hasher = DefaultHasher::new();
    (&module, &config).hash(&mut hasher);
    let hash = hasher.finish();
    let runtime = running(&wanted.runtime)?;
    let before = wanted.before.as_ref();
    if let Some(before) = before.filter(|before| wanted.unless_same && before.hash == hash && !before.is_out()) {
        return Ok(before.clone());
    }
    let load = Load {
        module: &module,
        switch: wanted.switch.as_str(),
        config: &config,
        pollers: wanted.pollers,
        view: &wanted.view,
        before: before.map(|before| &*before.program),
        stop,
    };
    let begun = Instant::now();
    let refused = |why: Unacceptable| NotLoaded { what: why.to_string(), is_final: why.is_final() };
    let program = Program::load(&runtime, load).map_err(refused)?;
    if begun.elapsed() > Duration::from_secs(1) {
        tracing::info!("the program of switch {} took {:.1} s to load", wanted.switch, begun.elapsed().as_secs_f64());
    }
    Ok(LoadedProgram { program, hash })
}

/// Returns the runtime of all programs, which is started for the first one.
fn running(runtime: &Mutex<Option<Arc<Runtime>>>) -> Result<Arc<Runtime>, String> {
    let mut runtime = runtime.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(runtime) = &*runtime {
        return Ok(Arc::clone(runtime));
    }
    let started = Runtime::start().map_err(|error| error.to_string())?;
    *runtime = Some(Arc::clone(&started));
    Ok(started)
}

/// Returns the text `config`, from its file if it has one.
fn read_config(keys: &ProgramKeys) -> Result<Cow<'_, str>, String> {
    if keys.config_file.as_os_str().is_empty() {
        return Ok(Cow::Borrowed(&keys.config));
    }
    let text = read(&keys.config_file, CONFIG_MAX).and_then(|bytes| {
        let invalid = |at| io::Error::other(format!("byte {at} is not UTF-8"));
        String::from_utf8(bytes).map_err(|error| invalid(error.utf8_error().valid_up_to()))
    });
    text.map(Cow::Owned).map_err(|error| format!("config_file {}: {error}", keys.config_file.display()))
}

/// Reads a regular file of at most so many bytes.
fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let file = open_to_read(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::new();
    file.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("it is larger than {} MiB", most >> 20)));
    }
    Ok(bytes)
}
