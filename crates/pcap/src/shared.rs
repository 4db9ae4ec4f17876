//! What any thread may use of a handle at any time, whatever another thread does with it: nothing here waits for the receiving side,
//! and only senders wait for the sending side.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use libc::{c_char, c_int, c_uint};
use ringway_client::Port;

use crate::abi::*;
use crate::breaker::Breaker;
use crate::lock::{self, Lock};
use crate::sender::{Sender, Sending, Waiting};
use crate::{filter, real, text};

/// Whose failure a text tells. Two threads may fail at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Receiving,
    Sending,
}

/// The part of a handle that all threads use.
#[derive(Debug)]
pub struct Shared {
    pub breaker: Breaker,
    /// Reads and sends do not wait.
    pub nonblocking: AtomicBool,
    /// Time stamps have nanoseconds.
    pub nanoseconds: AtomicBool,
    /// Frames that were read. Written by the receiving side alone.
    pub received: AtomicU64,
    /// The text of the last failure of each side.
    failures: [Lock<[c_char; PCAP_ERRBUF_SIZE]>; 2],
    /// The side that failed last.
    failed_last: AtomicUsize,
    activated: OnceLock<Activated>,
}

/// What all threads use of an activated handle.
#[derive(Debug)]
pub struct Activated {
    pub dead: Dead,
    pub losses: Losses,
    /// Absent at a mirror.
    sending: Option<Sending>,
}

const _: () = {
    const fn is_for_all_threads<T: Sync>() {}
    is_for_all_threads::<Shared>();
};

impl Shared {
    pub fn new() -> Shared {
        lock::watch_forks();
        Shared {
            breaker: Breaker::new(),
            nonblocking: AtomicBool::new(false),
            nanoseconds: AtomicBool::new(false),
            received: AtomicU64::new(0),
            failures: [const { Lock::new([0; PCAP_ERRBUF_SIZE]) }; 2],
            failed_last: AtomicUsize::new(Side::Receiving as usize),
            activated: OnceLock::new(),
        }
    }

    /// Activates the handle, once.
    pub fn activate(&self, activated: Activated) {
        let _ = self.activated.set(activated);
    }

    pub fn is_activated(&self) -> bool {
        self.activated.get().is_some()
    }

    /// Keeps the text of a failure, unless that of another failure of the side is being written. Returns `status`.
    pub fn fail(&self, side: Side, status: c_int, text: &str) -> c_int {
        if let Ok(mut buffer) = self.failures[side as usize].try_lock() {
            // SAFETY: the buffer has the size.
            unsafe { text::to_errbuf(buffer.as_mut_ptr(), text) };
        }
        self.failed_last.store(side as usize, Ordering::Release);
        status
    }

    /// Returns the text of the last failure. The text is valid until the same side fails again.
    pub fn error(&self) -> *mut c_char {
        self.failures[self.failed_last.load(Ordering::Acquire)].as_ptr().cast()
    }

    /// Does something with an activated handle.
    pub fn with_activated(&self, act: impl FnOnce(&Activated) -> Result<c_int, String>) -> c_int {
        let Some(activated) = self.activated.get() else { return self.fail_not_activated(Side::Receiving) };
        act(activated).unwrap_or_else(|text| self.fail(Side::Receiving, PCAP_ERROR, &text))
    }

    pub fn fail_not_activated(&self, side: Side) -> c_int {
        self.fail(side, PCAP_ERROR_NOT_ACTIVATED, "this handle hasn't been activated yet")
    }

    /// Requests the end of what waits. Async-signal-safe.
    pub fn break_waits(&self) {
        self.breaker.ask();
        self.wake();
    }

    /// Wakes the threads that sleep, which look again at what they wait for.
    pub fn wake(&self) {
        self.breaker.wake();
        if let Some(sending) = self.activated.get().and_then(|activated| activated.sending.as_ref()) {
            sending.wake();
        }
    }

    /// Sends a frame.
    #[inline]
    pub fn send(&self, frame: &[u8]) -> c_int {
        let Some(activated) = self.activated.get() else { return self.fail_not_activated(Side::Sending) };
        let sent = match &activated.sending {
            Some(sending) => sending.send(frame, Waiting { breaker: &self.breaker, nonblocking: &self.nonblocking }),
            None => Err("send: a mirror is read-only: send from a port of your own, SWITCH:PORT".into()),
        };
        match sent {
            Ok(()) => frame.len() as c_int,
            Err(text) => self.fail(Side::Sending, PCAP_ERROR, &text),
        }
    }
}

impl Activated {
    pub fn new(dead: Dead, losses: Losses, sender: Option<Sender>) -> Activated {
        Activated { dead, losses, sending: sender.map(Sending::new) }
    }

    /// Returns the counters.
    pub fn stats(&self, shared: &Shared) -> pcap_stat {
        let received = shared.received.load(Ordering::Relaxed);
        pcap_stat { ps_recv: received as c_uint, ps_drop: self.losses.lost(), ps_ifdrop: 0 }
    }

    /// Compiles a filter.
    ///
    /// # Safety
    /// As the manual page of `pcap_compile` requires.
    pub unsafe fn compile(
        &self,
        program: *mut bpf_program,
        filter: *const c_char,
        optimise: c_int,
        mask: c_uint,
    ) -> Result<(), String> {
        // SAFETY: by the caller's promise.
        if unsafe { real::pcap_compile(self.dead.0, program, filter, optimise, mask) } != 0 {
            return Err(self.dead.error());
        }
        // SAFETY: libpcap has made the program, with so many instructions.
        let checked =
            filter::check(unsafe { std::slice::from_raw_parts((*program).bf_insns, (*program).bf_len as usize) });
        if checked.is_err() {
            // SAFETY: the same program, which the caller does not get.
            unsafe { real::pcap_freecode(program) };
        }
        checked
    }
}

/// A handle of libpcap's without a device, for its compiler and its dump files; null without libpcap.
#[derive(Debug)]
pub struct Dead(pub *mut pcap_t);

// SAFETY: libpcap's handle belongs to no thread.
unsafe impl Send for Dead {}
// SAFETY: what several threads do with it at the same time reads it only; a program compiles and opens dump files by one thread at a
// time, as libpcap requires.
unsafe impl Sync for Dead {}

impl Dead {
    /// Returns the text of the last failure of libpcap's handle.
    pub fn error(&self) -> String {
        if let Some(why) = real::missing() {
            return why;
        }
        // SAFETY: the handle is open, and its text ends with a zero.
        unsafe { CStr::from_ptr(real::pcap_geterr(self.0)) }.to_string_lossy().into_owned()
    }
}

impl Drop for Dead {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: opened for this value, and closed only here.
            unsafe { real::pcap_close(self.0) };
        }
    }
}

/// Frames that were lost because the program did not read them fast enough.
#[derive(Debug)]
pub enum Losses {
    /// As the switch counts them in the port's memory: a program that has given its rights up can read it.
    Port(Arc<Port>),
    /// As a mirror has read them.
    Mirror(Arc<AtomicU64>),
}

impl Losses {
    fn lost(&self) -> c_uint {
        match self {
            Losses::Port(port) => port.lost(),
            Losses::Mirror(lost) => lost.load(Ordering::Relaxed) as c_uint,
        }
    }
}
