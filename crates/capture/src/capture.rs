//! A capture: the side of the pollers, which write, and the side of the reader.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::{SystemTime, UNIX_EPOCH};

use ringway_memory::View;
use ringway_switch::{DropReason, Frame, FrameDirection, Tap, TappedFrame};
use rustix::event::{EventfdFlags, eventfd};

use crate::block::{self, EPB_DROPCOUNT, EPB_FLAGS, OPT_COMMENT, OPTIONS_MAX, PACKET, PACKET_HEAD, Tail};
use crate::ring::Ring;

/// The frames of a port that are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Selection {
    /// Frames from and to the client.
    #[default]
    Both,
    /// Frames from the client.
    In,
    /// Frames to the client.
    Out,
}

/// Settings of a capture.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the program, for the file.
    pub program: String,
    /// Name of the interface in the file.
    pub interface: String,
    /// Direction of the captured frames.
    pub selection: Selection,
    /// True to capture dropped frames, too, with the reason as a comment.
    pub drops: bool,
    /// Most bytes stored of each frame.
    pub snaplen: u32,
    /// Most frames to capture. `None`: no limit.
    pub count: Option<u64>,
    /// Bytes of the buffer for frames that are captured and not read yet.
    pub buffer: usize,
}

/// Frame counts of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames written to the file.
    pub captured: u64,
    /// Frames lost because the reader was too slow.
    pub lost: u64,
}

/// The writing side of a capture, which gets the frames.
#[derive(Debug)]
pub struct Capture {
    ring: Ring,
    selection: Selection,
    drops: bool,
    snaplen: usize,
    /// Most frames to capture.
    count: u64,
    /// Number of frames begun; at most `count`.
    begun: AtomicU64,
    captured: AtomicU64,
    lost: AtomicU64,
    /// Lost frames that are not yet noted in the file.
    unreported_lost: AtomicU64,
    /// True after the capture has ended.
    ended: AtomicBool,
    /// True while the reader sleeps or is about to.
    waiting: AtomicBool,
    wake: OwnedFd,
    started: u64,
}

/// The reading side of a capture. Dropping it ends the capture.
#[derive(Debug)]
pub struct Reader {
    capture: Arc<Capture>,
    /// The beginning of the file, as far as it is not read yet.
    begin: Vec<u8>,
    /// Frames that were read.
    frames: u64,
    ended: bool,
}

impl Capture {
    /// Starts a capture. Returns both sides.
    ///
    /// # Errors
    /// The kernel refuses memory or a descriptor.
    pub fn start(options: &Options) -> io::Result<(Arc<Capture>, Reader)> {
        let capture = Arc::new(Capture {
            ring: Ring::new(options.buffer)?,
            selection: options.selection,
            drops: options.drops,
            snaplen: options.snaplen as usize,
            count: options.count.unwrap_or(u64::MAX),
            begun: AtomicU64::new(0),
            captured: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            unreported_lost: AtomicU64::new(0),
            ended: AtomicBool::new(options.count == Some(0)),
            waiting: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            started: now(),
        });
        let begin = block::begin(&options.program, &options.interface, options.snaplen);
        Ok((Arc::clone(&capture), Reader { capture, begin, frames: 0, ended: false }))
    }

    /// Ends the capture. The reader still gets the captured frames, and then the end.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.wake_reader();
    }

    /// Returns the frame counts so far.
    pub fn counts(&self) -> Counts {
        Counts { captured: self.captured.load(Ordering::Relaxed), lost: self.lost.load(Ordering::Relaxed) }
    }

    fn wake_reader(&self) {
        // If the eventfd's counter is full, it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    fn wants(&self, seen: &TappedFrame<'_, '_>) -> bool {
        let way = match self.selection {
            Selection::Both => true,
            Selection::In => seen.way == FrameDirection::In,
            Selection::Out => seen.way == FrameDirection::Out,
        };
        way && (self.drops || seen.dropped.is_none())
    }

    /// Counts a frame to be captured. Returns false when enough frames are captured.
    fn begin(&self) -> bool {
        let more = |begun| (begun < self.count).then_some(begun + 1);
        self.begun.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Writes an Enhanced Packet Block. Returns false when there is no room.
    fn write(&self, seen: &TappedFrame<'_, '_>, time: &[u8; 8]) -> bool {
        let frame = &seen.frame;
        let kept = frame.len().min(self.snaplen);
        let padded = kept.next_multiple_of(4);
        let mut options = Tail::<OPTIONS_MAX>::new();
        let direction: u32 = if seen.way == FrameDirection::In { 1 } else { 2 };
        options.option(EPB_FLAGS, &direction.to_le_bytes());
        let unreported_lost = self.unreported_lost.swap(0, Ordering::Relaxed);
        if unreported_lost > 0 {
            options.option(EPB_DROPCOUNT, &unreported_lost.to_le_bytes());
        }
        if let Some(reason) = seen.dropped {
            comment(&mut options, reason);
        }
        options.end(PACKET_HEAD + padded);
        let len = PACKET_HEAD + padded + options.bytes().len();
        let Some(reservation) = self.ring.reserve(len) else {
            self.unreported_lost.fetch_add(unreported_lost, Ordering::Relaxed);
            return false;
        };
        let bytes = reservation.bytes();
        let at = |offset: usize, source: &[u8]| bytes.sub(offset, source.len()).is_some_and(|to| to.write(source));
        // The interface number is 0, and the memory is zeroed.
        let written = at(12, time)
            && at(20, &(kept as u32).to_le_bytes())
            && at(24, &(frame.len() as u32).to_le_bytes())
            && bytes.sub(PACKET_HEAD, kept).is_some_and(|to| copy(frame, to))
            && at(PACKET_HEAD + padded, options.bytes());
        debug_assert!(written, "the place is as long as the block");
        reservation.publish(u64::from(PACKET) | (len as u64) << 32);
        true
    }
}

/// Adds a comment, for example `dropped: receiver_full`.
fn comment(options: &mut Tail<OPTIONS_MAX>, reason: DropReason) {
    let mut text = [0; 64];
    let parts = ["dropped: ".as_bytes(), reason.name().as_bytes()];
    let mut len = 0;
    for part in parts {
        let part = &part[..part.len().min(text.len() - len)];
        text[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    options.option(OPT_COMMENT, &text[..len]);
}

/// Copies the beginning of a frame to all of `to`. Returns false when the frame is shorter.
fn copy(frame: &Frame<'_, '_>, to: View<'_>) -> bool {
    let mut done = frame.head_len().min(to.len());
    if !to.write(&frame.head().0[..done]) {
        return false;
    }
    for rest in frame.rest() {
        let part = rest.len().min(to.len() - done);
        let piece = to.sub(done, part).zip(rest.sub(0, part));
        if !piece.is_some_and(|(to, from)| to.copy_from(from)) {
            return false;
        }
        done += part;
    }
    done == to.len()
}

/// A frame that is about to be written. Dropping this counts the frame as lost: there was no room, or the thread
/// panicked.
struct UnfinishedFrame<'c>(&'c Capture);

impl Drop for UnfinishedFrame<'_> {
    fn drop(&mut self) {
        self.0.begun.fetch_sub(1, Ordering::Relaxed);
        self.0.lost.fetch_add(1, Ordering::Relaxed);
        self.0.unreported_lost.fetch_add(1, Ordering::Relaxed);
    }
}

impl Tap for Capture {
    fn sees_refused(&self) -> bool {
        self.drops && self.selection != Selection::Out && !self.ended.load(Ordering::Relaxed)
    }

    fn see<'b, 'm: 'b>(&self, frames: &mut dyn Iterator<Item = TappedFrame<'b, 'm>>) {
        if self.ended.load(Ordering::Relaxed) {
            return;
        }
        let time = block::time(now());
        for seen in frames {
            if !self.wants(&seen) {
                continue;
            }
            if !self.begin() {
                break;
            }
            let begun = UnfinishedFrame(self);
            if self.write(&seen, &time) {
                std::mem::forget(begun);
                // The thread that writes the last frame ends the capture, not the one that comes after it.
                if self.captured.fetch_add(1, Ordering::Relaxed) + 1 == self.count {
                    self.ended.store(true, Ordering::Release);
                }
            }
        }
    }

    fn ring(&self) {
        if self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::Relaxed) {
            self.wake_reader();
        }
    }
}

impl Reader {
    /// Appends captured data while `out` has fewer than `enough` bytes. Returns false when the capture has ended and
    /// everything was read.
    pub fn read(&mut self, out: &mut Vec<u8>, enough: usize) -> bool {
        out.append(&mut self.begin);
        if self.ended {
            return false;
        }
        // Read before the frames are taken, so that all frames captured before the end are found.
        let ended = self.capture.ended.load(Ordering::Acquire);
        while out.len() < enough {
            let taken = self.capture.ring.take(
                |word| (word >> 32) as usize,
                |record| {
                    let at = out.len();
                    out.resize(at + record.len(), 0);
                    record.read(&mut out[at..])
                },
            );
            if taken.is_none() {
                break;
            }
            self.frames += 1;
        }
        if ended && self.capture.ring.is_empty() {
            let Counts { captured, lost } = self.counts();
            out.extend(block::statistics(self.capture.started, now(), captured + lost, lost));
            self.ended = true;
        }
        true
    }

    /// Prepares to sleep until [`Reader::wake`] is readable. Returns true if the reader may sleep, and false if there
    /// is something to read.
    pub fn may_sleep(&self) -> bool {
        self.capture.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.capture.ring.is_empty() && !self.capture.ended.load(Ordering::Relaxed) && self.begin.is_empty() {
            return true;
        }
        self.capture.waiting.store(false, Ordering::Relaxed);
        false
    }

    /// Returns an eventfd that becomes readable when there is something to read. Read its eight bytes to reset it.
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.capture.wake.as_fd()
    }

    /// Returns how many frames were read and lost.
    pub fn counts(&self) -> Counts {
        Counts { captured: self.frames, ..self.capture.counts() }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.capture.end();
    }
}

/// Returns the time in nanoseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64)
}
