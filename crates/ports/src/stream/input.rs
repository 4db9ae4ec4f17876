//! Frames from the peer.
//!
//! One `recv` fills up to 512 KiB, and frames are delivered from that buffer. The part of a frame behind the last complete
//! frame is moved to the front of the buffer before the next `recv`.
//!
//! Files beside frames (SCM_RIGHTS) end the connection as `unexpected_descriptors`. From Linux 6.16 on the kernel refuses
//! such files.

use std::io;
use std::sync::Arc;

use ringway_memory::{Mapping, View};
use ringway_switch::{Armed, Batch, Discarded, DropReason, Input, InputCapabilities, MAX_FRAME, PortFault, WakeOn};

use super::connection::SharedConnection;
use super::ended::Ended;
use super::framing::{self, Next, PREFIX_BYTES};
use crate::front_end::receive;

/// Bytes of the receive buffer: enough for more than a batch of usual frames, and for any single frame.
const MEMORY_BYTES: usize = 512 << 10;

/// The input of a stream port. One read brings many frames, which are delivered from where the read put them. Before
/// the next read, an incomplete frame at the end is moved to the front of the buffer.
pub struct StreamInput {
    connection: Arc<SharedConnection>,
    bytes: Bytes,
    /// Number of the connection that the bytes came from.
    number: u64,
    /// Where the last batch began.
    begun: usize,
}

/// The bytes that were read and not taken yet.
struct Bytes {
    memory: Mapping,
    start: usize,
    end: usize,
}

impl Bytes {
    #[inline]
    fn next(&self) -> Next<'_> {
        next(&self.memory, self.start, self.end)
    }

    /// Skips a complete frame, if there is one. Returns its length.
    fn skip(&mut self) -> Option<usize> {
        let Next::Frame(frame) = self.next() else { return None };
        let len = frame.len();
        self.start = behind(self.start, len);
        Some(len)
    }

    /// Moves the bytes to the front of the buffer. Returns the free memory after them.
    fn gather(&mut self) -> Option<View<'_>> {
        let part = self.end.saturating_sub(self.start);
        if self.start > 0 && part > 0 {
            let _ = self.memory.view(0, part)?.copy_from(self.memory.view(self.start, part)?);
        }
        (self.start, self.end) = (0, part);
        self.memory.view(part, MEMORY_BYTES.saturating_sub(part))
    }
}

impl StreamInput {
    pub fn new(connection: Arc<SharedConnection>) -> io::Result<StreamInput> {
        let bytes = Bytes { memory: Mapping::private(MEMORY_BYTES)?, start: 0, end: 0 };
        Ok(StreamInput { connection, bytes, number: 0, begun: 0 })
    }

    /// Reads from the socket, at most once, and only if the buffer has no complete frame.
    fn read(&mut self) {
        if !matches!(self.bytes.next(), Next::Part) {
            return;
        }
        let mut guard = self.connection.reading.lock();
        let reading = &mut *guard;
        if reading.number != self.number {
            // The bytes are an incomplete frame of an earlier peer.
            self.bytes.end = self.bytes.start;
            self.number = reading.number;
        }
        let (Some(socket), Some(room)) = (&reading.socket, self.bytes.gather()) else { return };
        // SAFETY: the view's bytes are mapped and writable while the view lives; nothing else refers to them.
        let received = unsafe { receive(socket, room.as_ptr(), room.len(), &mut reading.files) };
        match received {
            _ if !reading.files.is_empty() => {
                drop(guard);
                self.connection.stop_reading(self.number, Ended::Files);
            }
            Ok(count @ 1..) => self.bytes.end = self.bytes.end.saturating_add(count),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM)) => {}
            _ => {
                drop(guard);
                self.connection.stop_reading(self.number, Ended::Gone);
            }
        }
    }
}

impl Input for StreamInput {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.read();
        let StreamInput { connection, bytes: Bytes { memory, start, end }, number, begun } = self;
        *begun = *start;
        while batch.room() > 0 {
            match next(memory, *start, *end) {
                Next::Frame(frame) => {
                    *start = behind(*start, frame.len());
                    match frame.len() {
                        ..=MAX_FRAME => batch.push(frame, frame.len()),
                        _ => batch.refuse(DropReason::Oversize),
                    }
                }
                Next::Part => break,
                Next::NoLength(length) => {
                    *start = *end;
                    connection.stop_reading(*number, Ended::NoLength(length));
                    break;
                }
            }
        }
        Ok(())
    }

    fn release(&mut self) {}

    fn capabilities(&self) -> InputCapabilities {
        InputCapabilities { rewind: true, discard_like: false }
    }

    fn rewind(&mut self, frames: usize) {
        self.bytes.start = self.begun;
        for _ in 0..frames {
            self.bytes.skip();
        }
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        let mut discarded = Discarded::default();
        self.read();
        while discarded.frames < most as u64
            && let Some(len) = self.bytes.skip()
        {
            discarded.frames = discarded.frames.saturating_add(1);
            discarded.bytes = discarded.bytes.saturating_add(len as u64);
        }
        Ok(discarded)
    }

    fn pending(&mut self) -> bool {
        matches!(self.bytes.next(), Next::Frame(_))
    }

    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        Armed::with_kick(wake_on == WakeOn::Frames && self.pending())
    }

    fn disarm(&mut self) {}
}

/// Returns the offset after a frame of `len` bytes whose length field is at `start`.
#[inline]
fn behind(start: usize, len: usize) -> usize {
    start.saturating_add(PREFIX_BYTES).saturating_add(len)
}

/// Returns the first item in the bytes from `start` to `end`.
#[inline]
fn next(memory: &Mapping, start: usize, end: usize) -> Next<'_> {
    memory.view(start, end.saturating_sub(start)).map_or(Next::Part, framing::next)
}
