//! `ringway-program-compiler`: a WebAssembly module on standard input becomes machine code on standard output.
//!
//! Ringway starts it for each module ([`ringway_forwarding::Compiler`]). It is no command for users.
#![deny(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use ringway_forwarding::{
    Bounds, COMPILER, COMPILER_MEMORY, COMPILER_TIME, MODULE_MAX, NO_MEMORY, NotCompiled, REFUSED, TOO_MUCH_MEMORY,
    compile,
};
use ringway_sandbox::{Files, give_up_all_but_computing, give_up_files};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, read};
use rustix::process::{
    Resource, Rlimit, Signal, getpriority_process, getrlimit, set_parent_process_death_signal, setpriority_process,
    setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The system's allocator. Ends the process if there is no memory, and says whose fault that is: Rust would end it without that.
struct Saying;

// SAFETY: passes all calls to the system's allocator unchanged, and returns what that returns.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Saying {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        there(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        there(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller promises.
        there(unsafe { System.realloc(place, layout, bytes) }, bytes)
    }
}

#[global_allocator]
static ALLOCATOR: Saying = Saying;

fn there(place: *mut u8, bytes: usize) -> *mut u8 {
    if place.is_null() {
        std::process::exit(without_memory(bytes).into());
    }
    place
}

/// Returns the exit code for a lack of so many bytes of memory. Allocates nothing.
fn without_memory(bytes: usize) -> u8 {
    let mut text = [0; 32];
    let read = SIZE.get().map_or(Err(Errno::BADF), |file| read(file, &mut text));
    // The first number is the address space in pages.
    let digits = text[..read.unwrap_or(0)].iter().take_while(|digit| digit.is_ascii_digit());
    let pages = digits.fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
    let wanted = pages * rustix::param::page_size() as u64 + bytes as u64;
    let limit = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
    // The allocator asks for more than it was asked for.
    if wanted > limit - limit / 8 { TOO_MUCH_MEMORY } else { NO_MEMORY }
}

/// The process's size, as the kernel knows it: read once. What is open can be read when nothing else can be opened.
static SIZE: OnceLock<OwnedFd> = OnceLock::new();

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
        Err(NotCompiled::OutOfMemory(why)) => end(&why, without_memory(0)),
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
    // The library asks the kernel at the first call, by one that is given up.
    let _ = rustix::param::page_size();
    let _ = open(c"/proc/self/statm", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(|file| SIZE.set(file));
    // A machine may not have them: then it has the user's files and all system calls, as before.
    let _ = (give_up_files(&Files::default()), give_up_all_but_computing());
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
