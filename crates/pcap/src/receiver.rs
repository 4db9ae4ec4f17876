//! The receiving side of an activated handle: reads, waits and filters.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use libc::{c_int, c_uint, suseconds_t, time_t, timeval};
use ringway_api::http::Failure;

use crate::abi::*;
use crate::device::Device;
use crate::filter::Filter;
use crate::real;
use crate::selectable::Selectable;
use crate::sender::Sender;
use crate::settings::Settings;
use crate::shared::{Activated, Dead, Losses, Shared};
use crate::source::{Frame, Mirror, Ring, Source, Way};
use crate::wait::Sleep;

/// How often a non-blocking read that finds nothing asks whether the source has ended: one system call.
const ENDED_EVERY: u32 = 64;

/// Which frames are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Both,
    In,
    Out,
}

/// The end of a wait.
#[derive(Debug, PartialEq, Eq)]
pub enum Woken {
    /// There may be frames, or a request to break.
    Ready,
    /// The time is over, or the handle does not block.
    Timeout,
    /// No more frames come, for this reason.
    Ended(String),
}

/// Why a device cannot be opened: libpcap's status and the text.
pub type Refusal = (c_int, String);

/// What receives for an activated handle.
pub struct Receiver {
    pub source: Source,
    sleep: Sleep,
    pub direction: Direction,
    pub selectable: Option<Selectable>,
    pub snaplen: usize,
    nanoseconds: bool,
    timeout: Duration,
    filter: Filter,
    /// The last frame of `pcap_next_ex`.
    pub header: pcap_pkthdr,
    /// Its bytes, where they cannot stay in the source.
    copied: Vec<u8>,
    idle_reads: u32,
}

impl Receiver {
    /// Opens the device. Returns what the other threads use of the handle, too.
    pub fn open(device: &Device, settings: &Settings, shared: &Shared) -> Result<(Receiver, Activated), Refusal> {
        let (snaplen, buffer) = (settings.snaplen as usize, settings.buffer_size.max(0) as usize);
        let (source, losses, sender) = match device {
            Device::Port(name) => {
                let attached = Ring::attach(name, buffer).map_err(|error| (status_of(&error), error.to_string()))?;
                let (ring, port, tx) = attached;
                (Source::Port(Box::new(ring)), Losses::Port(Arc::clone(&port)), Some(Sender::new(port, tx)))
            }
            Device::Mirror(name) => {
                let mirror = Mirror::start(name, buffer).map_err(|failure| refusal(&failure))?;
                let losses = Losses::Mirror(Arc::clone(&mirror.lost));
                (Source::Mirror(Box::new(mirror)), losses, None)
            }
        };
        let cannot_sleep = |error: io::Error| (PCAP_ERROR, format!("cannot make a descriptor to wait with: {error}"));
        let sleep = Sleep::new(&source.descriptors(), &shared.breaker).map_err(cannot_sleep)?;
        let nanoseconds = shared.nanoseconds.load(Ordering::Relaxed);
        let precision = c_uint::from(nanoseconds);
        // SAFETY: plain numbers.
        let dead = unsafe { real::pcap_open_dead_with_tstamp_precision(DLT_EN10MB, settings.snaplen, precision) };
        let receiver = Receiver {
            source,
            sleep,
            direction: Direction::Both,
            selectable: None,
            snaplen,
            nanoseconds,
            timeout: Duration::from_millis(settings.timeout.max(0) as u64),
            filter: Filter::default(),
            header: pcap_pkthdr { ts: timeval { tv_sec: 0, tv_usec: 0 }, caplen: 0, len: 0 },
            copied: Vec::new(),
            idle_reads: 0,
        };
        Ok((receiver, Activated::new(Dead(dead), losses, sender)))
    }

    /// Returns the next frame that is selected, of those that have been found.
    #[inline]
    fn next_found(&mut self, shared: &Shared) -> Option<Frame> {
        loop {
            let frame = self.source.next()?;
            let selected = match self.direction {
                Direction::Both => true,
                Direction::In => frame.way == Way::In,
                Direction::Out => frame.way == Way::Out,
            };
            if selected && self.filter.accepts(&frame) {
                // One thread alone receives.
                shared.received.store(shared.received.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                return Some(frame);
            }
        }
    }

    /// Returns the next frame. Looks for more frames if those that were found are used up.
    #[inline]
    pub fn next(&mut self, shared: &Shared) -> Option<Frame> {
        if let Some(frame) = self.next_found(shared) {
            return Some(frame);
        }
        if self.source.look() { self.next_found(shared) } else { None }
    }

    /// Returns what the program gets with a frame.
    #[inline]
    pub fn header(&self, frame: &Frame) -> pcap_pkthdr {
        let (seconds, nanoseconds) = (frame.time / 1_000_000_000, frame.time % 1_000_000_000);
        let fraction = if self.nanoseconds { nanoseconds } else { nanoseconds / 1000 };
        pcap_pkthdr {
            ts: timeval { tv_sec: seconds as time_t, tv_usec: fraction as suseconds_t },
            caplen: frame.present.min(self.snaplen) as c_uint,
            len: frame.len as c_uint,
        }
    }

    /// Keeps a frame for `pcap_next_ex`. Returns its first byte.
    #[inline]
    pub fn keep(&mut self, frame: &Frame) -> *const u8 {
        self.header = self.header(frame);
        if self.selectable.is_none() { frame.data } else { self.copy(frame) }
    }

    fn copy(&mut self, frame: &Frame) -> *const u8 {
        // The descriptor tells of frames in the ring: this one must not be there any more.
        self.copied.clear();
        // SAFETY: the source keeps `present` bytes until its frame is released, and `caplen` is at most `present`.
        self.copied.extend_from_slice(unsafe { std::slice::from_raw_parts(frame.data, self.header.caplen as usize) });
        self.end_read();
        self.copied.as_ptr()
    }

    /// Releases the last frame, and prepares the program's own wait.
    pub fn end_read(&mut self) {
        self.source.release();
        if let Some(selectable) = &mut self.selectable {
            selectable.settle(&mut self.source);
        }
    }

    /// When a read that begins now ends without a frame; `None`: never.
    pub fn deadline(&self) -> Option<Instant> {
        (!self.timeout.is_zero()).then(|| Instant::now() + self.timeout)
    }

    /// Sleeps until there may be frames. No frame is held.
    pub fn wait(&mut self, shared: &Shared, deadline: &mut Option<Option<Instant>>) -> Woken {
        if shared.nonblocking.load(Ordering::Relaxed) {
            return self.idle();
        }
        let deadline = *deadline.get_or_insert_with(|| self.deadline());
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Woken::Timeout;
        }
        if self.source.arm() {
            self.source.disarm();
            return Woken::Ready;
        }
        if let Some(why) = self.source.known_end() {
            return Woken::Ended(why);
        }
        let slept = self.sleep.sleep(left);
        self.source.disarm();
        let events = match slept {
            Ok(events) if !events.any => return Woken::Timeout,
            Ok(events) => events,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Woken::Ready,
            Err(error) => return Woken::Ended(format!("epoll_wait: {error}")),
        };
        if events.end && !self.source.arm() {
            self.source.disarm();
            if let Some(why) = self.source.ended() {
                return Woken::Ended(why);
            }
        }
        Woken::Ready
    }

    /// What a non-blocking read gets that has found no frame.
    fn idle(&mut self) -> Woken {
        self.idle_reads = self.idle_reads.wrapping_add(1);
        if self.selectable.is_none() && !self.idle_reads.is_multiple_of(ENDED_EVERY) {
            return Woken::Timeout;
        }
        if self.source.arm() {
            self.source.disarm();
            return Woken::Timeout;
        }
        self.source.disarm();
        self.source.ended().map_or(Woken::Timeout, Woken::Ended)
    }

    /// Installs a filter.
    ///
    /// # Safety
    /// `program` is null or a program of libpcap's compiler, or has `bf_len` instructions.
    pub unsafe fn set_filter(&mut self, program: *const bpf_program) -> Result<(), String> {
        if program.is_null() {
            return Err("setfilter: no filter specified".to_owned());
        }
        // SAFETY: by the caller's promise.
        let (len, instructions) = unsafe { ((*program).bf_len, (*program).bf_insns) };
        let program = match instructions.is_null() {
            true => &[],
            // SAFETY: `len` instructions, by the caller's promise. They are copied, so that what is validated is what runs.
            false => unsafe { std::slice::from_raw_parts(instructions, len as usize) },
        };
        self.filter = Filter::of(program)?;
        Ok(())
    }
}

fn status_of(error: &ringway_client::AttachError) -> c_int {
    match error {
        ringway_client::AttachError::Unreachable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            PCAP_ERROR_PERM_DENIED
        }
        _ => PCAP_ERROR,
    }
}

fn refusal(failure: &Failure) -> Refusal {
    let socket = crate::sockets::control();
    match failure {
        Failure::Refused(404, refusal) => (PCAP_ERROR_NO_SUCH_DEVICE, refusal.error.clone()),
        Failure::Refused(_, refusal) => (PCAP_ERROR, format!("the switch refused: {}", refusal.error)),
        Failure::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => (
            PCAP_ERROR_PERM_DENIED,
            format!("may not talk to the ringway daemon at {}: it belongs to another user", socket.display()),
        ),
        Failure::Broken(what) => {
            (PCAP_ERROR, format!("the ringway daemon at {} did not answer: {what}", socket.display()))
        }
        Failure::Io(error) => {
            (PCAP_ERROR, format!("no ringway daemon at {}: {error} (start one with \"ringway run\")", socket.display()))
        }
    }
}
