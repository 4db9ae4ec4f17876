//! `ringway-program-compiler`: a WebAssembly module on standard input becomes machine code on standard output.
//!
//! Ringway starts it for each module ([`ringway_programs::Compiler`]). It is no command for users.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::process::ExitCode;

use ringway_programs::{COMPILER, COMPILER_MEMORY, COMPILER_TIME, MODULE_MAX, REFUSED, compile};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, nice, set_parent_process_death_signal, setrlimit};
use rustix::thread::set_no_new_privs;

fn main() -> ExitCode {
    let done = bound_itself().and_then(|()| {
        let mut module = Vec::new();
        std::io::stdin().lock().take(MODULE_MAX as u64).read_to_end(&mut module)?;
        Ok(module)
    });
    let module = match done {
        Ok(module) => module,
        Err(error) => return end(&format!("{COMPILER}: {error}"), 1),
    };
    match compile(&module) {
        Ok(code) => match std::io::stdout().lock().write_all(&code) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => end(&format!("{COMPILER}: {error}"), 1),
        },
        Err(why) => end(&why, REFUSED),
    }
}

/// Bounds what a hostile module can cost, before the module is read.
fn bound_itself() -> std::io::Result<()> {
    bound(Resource::As, COMPILER_MEMORY as u64)?;
    bound(Resource::Cpu, COMPILER_TIME.as_secs())?;
    bound(Resource::Core, 0)?;
    bound(Resource::Nofile, 16)?;
    bound(Resource::Fsize, 0)?;
    set_no_new_privs(true)?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Pollers have their processors first.
    nice(10)?;
    // If the memory of the system or of the service runs out, this process is ended, not the switch. Without /proc it is as it was.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}

/// Lowers a limit to `most`. A limit that is lower stays.
fn bound(resource: Resource, most: u64) -> std::io::Result<()> {
    let before = getrlimit(resource);
    let lower = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    // The signal of the processor's time comes at the lower limit, and can be told from an end by others if the higher is not reached.
    let above = if resource == Resource::Cpu { 5 } else { 0 };
    let maximum = before.maximum.map_or(most + above, |limit| limit.min(most + above));
    Ok(setrlimit(resource, Rlimit { current: lower(before.current), maximum: Some(maximum) })?)
}

fn end(message: &str, code: u8) -> ExitCode {
    // The reader may have gone.
    let _ = std::io::stderr().lock().write_all(message.as_bytes());
    ExitCode::from(code)
}
