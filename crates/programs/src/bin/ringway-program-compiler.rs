//! `ringway-program-compiler`: a WebAssembly module on standard input becomes machine code on standard output.
//!
//! Ringway starts it for each module ([`ringway_programs::Compiler`]). It is no command for users.
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use ringway_programs::{
    Bounds, COMPILER, COMPILER_MEMORY, COMPILER_TIME, MODULE_MAX, NotCompiled, OUT_OF_MEMORY, REFUSED, compile,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Resource, Rlimit, Signal, getpriority_process, getrlimit, set_parent_process_death_signal, setpriority_process,
    setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// Pollers have their processors first.
const NICENESS: i32 = 10;
/// Seconds of processor time from the signal that tells it from other ends to the end in any case.
const GRACE: u64 = 5;

fn main() -> ExitCode {
    let done = bound_itself().and_then(|bounds| {
        // Its end can mean that a limit was reached: the reader has to know which.
        writeln!(io::stderr().lock(), "{bounds}")?;
        let mut module = Vec::new();
        io::stdin().lock().take(MODULE_MAX as u64).read_to_end(&mut module)?;
        Ok(module)
    });
    let module = match done {
        Ok(module) => module,
        Err(error) => return end(&format!("{COMPILER}: {error}"), 1),
    };
    match compile(&module) {
        Ok(code) => match io::stdout().lock().write_all(&code) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => end(&format!("{COMPILER}: {error}"), 1),
        },
        Err(NotCompiled::Refused(why)) => end(&why, REFUSED),
        Err(NotCompiled::OutOfMemory(why)) => end(&why, OUT_OF_MEMORY),
    }
}

/// Bounds what a hostile module can cost and do, before the module is read.
fn bound_itself() -> io::Result<Bounds> {
    let memory = bound(Resource::As, COMPILER_MEMORY as u64)?;
    let time = bound_time()?;
    bound(Resource::Core, 0)?;
    bound(Resource::Nofile, 16)?;
    bound(Resource::Fsize, 0)?;
    // Neither processes nor threads, but for root.
    bound(Resource::Nproc, 0)?;
    if getpriority_process(None)? < NICENESS {
        setpriority_process(None, NICENESS)?;
    }
    // If the memory of the system or of the service runs out, this process is ended, not the switch. Without /proc it is as it was.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    drop_privileges()?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have gone before that, and nobody reads any more.
    let stdout = io::stdout();
    let mut reader = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut reader, Some(&Timespec::default()))?;
    if reader[0].revents().contains(PollFlags::ERR) {
        return Err(ErrorKind::BrokenPipe.into());
    }
    Ok(Bounds { time, memory })
}

/// Lowers a limit to `most`. A limit that is lower stays. Returns the limit.
fn bound(resource: Resource, most: u64) -> io::Result<u64> {
    let before = getrlimit(resource);
    let lower = |limit: Option<u64>| limit.map_or(most, |limit| limit.min(most));
    let current = lower(before.current);
    setrlimit(resource, Rlimit { current: Some(current), maximum: Some(lower(before.maximum)) })?;
    Ok(current)
}

/// Bounds the processor time. The signal of the lower limit can be told from an end by others, if the higher one is not reached.
fn bound_time() -> io::Result<Duration> {
    let before = getrlimit(Resource::Cpu);
    let most = COMPILER_TIME.as_secs();
    let maximum = before.maximum.map_or(most + GRACE, |limit| limit.min(most + GRACE));
    let current = before.current.map_or(most, |limit| limit.min(most)).min(maximum.saturating_sub(1));
    if current == 0 {
        let what = format!("it inherits a limit of {maximum} s of processor time, which is too little");
        return Err(io::Error::other(what));
    }
    setrlimit(Resource::Cpu, Rlimit { current: Some(current), maximum: Some(maximum) })?;
    Ok(Duration::from_secs(current))
}

/// Gives up all capabilities, also those that a program which it executed would get.
fn drop_privileges() -> io::Result<()> {
    set_no_new_privs(true)?;
    for number in 0..u64::BITS {
        // Fails for those that the kernel does not know, and for all if this process has none: then it gets none either.
        let _ = remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number));
    }
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

fn end(message: &str, code: u8) -> ExitCode {
    // The reader may have gone.
    let _ = io::stderr().lock().write_all(message.as_bytes());
    ExitCode::from(code)
}
