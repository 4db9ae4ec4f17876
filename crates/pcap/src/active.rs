//! An activated handle: reads, waits, filters and sends.

use std::ffi::CStr;
use std::io;
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::breaker::Breaker;
use crate::device::Device;
use crate::devices;
use crate::filter::{self, Filter};
use crate::http::Failure;
use crate::real;
use crate::selectable::Selectable;
use crate::settings::Settings;
use crate::source::{Frame, Mirror, Ring, Source, Way};
use crate::wait;
use libc::{c_char, c_int, c_uint, suseconds_t, time_t, timeval};

/// How often a non-blocking read that finds nothing, or a non-blocking sender without room, asks whether the source has ended: one
/// system call.
const ENDED_EVERY: u32 = 64;
/// What a non-blocking sender without room is told.
const RING_FULL: &str = "send: the ring is full: the switch has not taken earlier frames yet";
/// Longest wait of a sender for room in the ring: a switch that takes no frame for so long hangs.
const ROOM_WITHIN: Duration = Duration::from_secs(5);
/// Shortest and longest frame that can be sent.
const FRAME: std::ops::RangeInclusive<usize> = 14..=65_535;

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

/// An activated handle.
pub struct Active {
    pub source: Source,
    /// A handle of libpcap's without a device, for its compiler and its dump files; null without libpcap.
    pub dead: *mut pcap_t,
    pub direction: Direction,
    pub nonblocking: bool,
    pub selectable: Option<Selectable>,
    pub snaplen: usize,
    nanoseconds: bool,
    timeout: Duration,
    filter: Filter,
    /// The last frame of `pcap_next_ex`.
    pub header: pcap_pkthdr,
    /// Its bytes, where they cannot stay in the source.
    copied: Vec<u8>,
    received: u64,
    /// The port's lost frames before this handle was opened, if the daemon told.
    lost_before: Option<u64>,
    idle_reads: u32,
    /// Frames that were not sent for want of room.
    refused: u32,
    name: String,
}

impl Active {
    /// Opens the device.
    pub fn open(device: &Device, settings: &Settings) -> Result<Active, Refusal> {
        let (snaplen, buffer) = (settings.snaplen as usize, settings.buffer_size.max(0) as usize);
        let (source, name) = match device {
            Device::Port(name) => {
                let ring = Ring::attach(name, buffer).map_err(|error| (status_of(&error), error.to_string()))?;
                (Source::Port(Box::new(ring)), name.clone())
            }
            Device::Mirror(name) => {
                let mirror = Mirror::start(name, buffer).map_err(|failure| refusal(&failure))?;
                (Source::Mirror(Box::new(mirror)), name.clone())
            }
        };
        let precision = c_uint::from(settings.nanoseconds);
        // SAFETY: plain numbers.
        let dead = unsafe { real::pcap_open_dead_with_tstamp_precision(DLT_EN10MB, settings.snaplen, precision) };
        let lost_before = match &source {
            Source::Port(_) => devices::lost(&name),
            Source::Mirror(_) => None,
        };
        Ok(Active {
            source,
            dead,
            direction: Direction::Both,
            nonblocking: settings.nonblocking,
            selectable: None,
            snaplen,
            nanoseconds: settings.nanoseconds,
            timeout: Duration::from_millis(settings.timeout.max(0) as u64),
            filter: Filter::default(),
            header: pcap_pkthdr { ts: timeval { tv_sec: 0, tv_usec: 0 }, caplen: 0, len: 0 },
            copied: Vec::new(),
            received: 0,
            lost_before,
            idle_reads: 0,
            refused: 0,
            name,
        })
    }

    /// Returns the next frame that is selected, of those that have been found.
    #[inline]
    fn next_found(&mut self) -> Option<Frame> {
        loop {
            let frame = self.source.next()?;
            let selected = match self.direction {
                Direction::Both => true,
                Direction::In => frame.way == Way::In,
                Direction::Out => frame.way == Way::Out,
            };
            if selected && self.filter.accepts(&frame) {
                self.received += 1;
                return Some(frame);
            }
        }
    }

    /// Returns the next frame. Looks for more frames if those that were found are used up and `look` is set.
    #[inline]
    pub fn next(&mut self, look: bool) -> Option<Frame> {
        if let Some(frame) = self.next_found() {
            return Some(frame);
        }
        if look && self.source.look() { self.next_found() } else { None }
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
    pub fn keep(&mut self, frame: &Frame) -> *const u8 {
        self.header = self.header(frame);
        if self.selectable.is_none() {
            return frame.data;
        }
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
    pub fn wait(&mut self, breaker: &Breaker, deadline: &mut Option<Option<Instant>>) -> Woken {
        if self.nonblocking {
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
        let [wake, end] = self.source.descriptors();
        let waited = wait::readable([wake, end, breaker.descriptor().unwrap_or(wake)], left);
        self.source.disarm();
        let [called, ended, asked] = match waited {
            Ok([false, false, false]) => return Woken::Timeout,
            Ok(ready) => ready,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Woken::Ready,
            Err(error) => return Woken::Ended(format!("poll: {error}")),
        };
        if asked && breaker.descriptor().is_some() {
            breaker.clear();
        }
        if called {
            self.source.clear();
        }
        if ended && !self.source.arm() {
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
        if unsafe { real::pcap_compile(self.dead, program, filter, optimise, mask) } != 0 {
            return Err(self.dead_error());
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

    /// Sends a frame. Waits for room if the handle blocks, until `breaker` is asked.
    pub fn send(&mut self, frame: &[u8], breaker: &Breaker) -> Result<(), String> {
        let Source::Port(ring) = &mut self.source else {
            return Err("send: a mirror is read-only: send from a port of your own, SWITCH:PORT".to_owned());
        };
        if !FRAME.contains(&frame.len()) {
            return Err(format!("send: a frame has {} to {} bytes, not {}", FRAME.start(), FRAME.end(), frame.len()));
        }
        if ring.send(frame) {
            return Ok(());
        }
        if self.nonblocking {
            let asks = self.refused.is_multiple_of(ENDED_EVERY);
            self.refused = self.refused.wrapping_add(1);
            let why = if asks { ring.ended() } else { None };
            return Err(why.map_or_else(|| RING_FULL.to_owned(), |why| format!("send: {why}")));
        }
        let sent = Self::send_later(ring, frame, breaker);
        if let Some(selectable) = &mut self.selectable {
            selectable.settle(&mut self.source);
        }
        sent
    }

    /// Waits for room, and sends.
    fn send_later(ring: &mut Ring, frame: &[u8], breaker: &Breaker) -> Result<(), String> {
        let deadline = Instant::now() + ROOM_WITHIN;
        loop {
            if let Some(why) = ring.ended() {
                return Err(format!("send: {why}"));
            }
            if breaker.is_asked() {
                return Err("send: pcap_breakloop has ended the wait for room in the ring".to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("send: the switch has taken no frame for {} s", ROOM_WITHIN.as_secs()));
            }
            if !ring.arm_send() {
                let [wake, end] = ring.descriptors();
                let waited = wait::readable([wake, end, breaker.descriptor().unwrap_or(wake)], Some(left));
                ring.disarm();
                match waited {
                    Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(format!("send: {error}")),
                    _ => ring.clear(),
                }
            }
            ring.disarm();
            if ring.send(frame) {
                return Ok(());
            }
        }
    }

    /// Returns the counters.
    pub fn stats(&self) -> pcap_stat {
        let lost = match (&self.source, self.lost_before) {
            (Source::Port(_), Some(before)) => devices::lost(&self.name).map_or(0, |now| now.saturating_sub(before)),
            (source, _) => source.lost(),
        };
        pcap_stat { ps_recv: self.received as c_uint, ps_drop: lost as c_uint, ps_ifdrop: 0 }
    }

    /// Returns the text of the last failure of libpcap's handle.
    pub fn dead_error(&self) -> String {
        if let Some(why) = real::missing() {
            return why;
        }
        // SAFETY: the handle is open, and its text ends with a zero.
        unsafe { CStr::from_ptr(real::pcap_geterr(self.dead)) }.to_string_lossy().into_owned()
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if !self.dead.is_null() {
            // SAFETY: opened by `open`, and closed only here.
            unsafe { real::pcap_close(self.dead) };
        }
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
        Failure::Refused(404, text) => (PCAP_ERROR_NO_SUCH_DEVICE, text.clone()),
        Failure::Refused(_, text) => (PCAP_ERROR, format!("the switch refused: {text}")),
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
