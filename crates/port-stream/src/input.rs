//! Frames from the peer.
//!
//! One `recv` fills up to 512 KiB, and frames are delivered from that buffer. The part of a frame behind the last complete
//! frame is moved to the front of the buffer before the next `recv`.
//!
//! The socket reports changes only. After a part of a frame there may be more in it, also the end of the connection, which no event
//! would report again: the input is pending until a `recv` has found nothing.
//!
//! Files beside frames (SCM_RIGHTS) end the connection as `unexpected_descriptors`. From Linux 6.16 on the kernel refuses
//! such files.

use std::io;
use std::sync::Arc;

use ringway_memory::{Mapping, View};
use ringway_port::front_end::receive;
use ringway_switch::{
    Armed, Batch, Discarded, DropReason, Input, InputCapabilities, MAX_FRAME, PortFault, WaitingPlace, WakeOn,
};

use super::connection::SharedConnection;
use super::ended::Ended;
use super::framing::{self, Next, PREFIX_BYTES};

/// Bytes of the receive buffer: enough for more than a batch of usual frames, and for any single frame.
const MEMORY_BYTES: usize = 512 << 10;

/// The same while frames wait for a limit: later ones, perhaps answers that a client waits for, wait behind what was read. Enough for any
/// frame.
const WAITING_BYTES: usize = 128 << 10;

/// Most reads of a visit without a complete frame: a peer may write single bytes.
const MOST_READS: usize = 16;

/// The input of a stream port. One read brings many frames, which are delivered from where the read put them. Before
/// the next read, an incomplete frame at the end is moved to the front of the buffer.
pub struct StreamInput {
    connection: Arc<SharedConnection>,
    bytes: Bytes,
    /// Number of the connection that the bytes came from.
    number: u64,
    /// Where the last batch began.
    begun: usize,
    /// The last read did not find the socket empty.
    may_have_more: bool,
    /// Frames have waited since the socket was found empty.
    has_waiting: bool,
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

    /// Moves the bytes to the front of the buffer. Returns the memory after them, up to `most` bytes in all.
    fn gather(&mut self, most: usize) -> Option<View<'_>> {
        let part = self.end.saturating_sub(self.start);
        if self.start > 0 && part > 0 {
            let _ = self.memory.view(0, part)?.copy_from(self.memory.view(self.start, part)?);
        }
        (self.start, self.end) = (0, part);
        self.memory.view(part, most.saturating_sub(part))
    }
}

impl StreamInput {
    pub fn new(connection: Arc<SharedConnection>) -> io::Result<StreamInput> {
        let bytes = Bytes { memory: Mapping::private(MEMORY_BYTES)?, start: 0, end: 0 };
        Ok(StreamInput { connection, bytes, number: 0, begun: 0, may_have_more: false, has_waiting: false })
    }

    /// Reads until the buffer has a complete frame, or the socket nothing more.
    fn read(&mut self) {
        let number = self.connection.number();
        if number != self.number {
            // What is left of an earlier peer, whose frames may have waited, is not to be that of the next.
            self.bytes.start = self.bytes.end;
            (self.number, self.has_waiting) = (number, false);
        }
        for _ in 0..MOST_READS {
            match self.bytes.next() {
                Next::Frame(_) => return,
                Next::Part => {}
                Next::NoLength(length) => {
                    self.bytes.start = self.bytes.end;
                    self.connection.stop_reading(self.number, Ended::NoLength(length));
                }
            }
            self.may_have_more = self.receive();
            if !self.may_have_more {
                return;
            }
        }
    }

    /// Reads once. Returns false if the socket was found empty, or is no longer there.
    fn receive(&mut self) -> bool {
        let mut guard = self.connection.reading.lock();
        let reading = &mut *guard;
        if reading.number != self.number {
            // The next look begins with the new connection.
            return true;
        }
        let most = if self.has_waiting { WAITING_BYTES } else { MEMORY_BYTES };
        let (Some(socket), Some(room)) = (&reading.socket, self.bytes.gather(most)) else { return false };
        // SAFETY: the view's bytes are mapped and writable while the view lives; nothing else refers to them.
        let received = unsafe { receive(socket, room.as_ptr(), room.len(), &mut reading.files) };
        let ended = match received {
            _ if !reading.files.is_empty() => Ended::Files,
            Ok(count @ 1..) => {
                self.bytes.end = self.bytes.end.saturating_add(count);
                return true;
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => {
                    self.has_waiting = false;
                    return false;
                }
                // The kernel has no memory: nothing was read, and no event tells when there is some.
                Some(libc::ENOBUFS | libc::ENOMEM) => return true,
                _ => Ended::Gone,
            },
            Ok(_) => Ended::Gone,
        };
        drop(guard);
        self.connection.stop_reading(self.number, ended);
        false
    }
}

impl Input for StreamInput {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.read();
        let StreamInput { bytes: Bytes { memory, start, end }, begun, .. } = self;
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
                // The next read ends a connection that sent an invalid length.
                Next::Part | Next::NoLength(_) => break,
            }
        }
        Ok(())
    }

    fn release(&mut self) {}

    fn capabilities(&self) -> InputCapabilities {
        InputCapabilities { rewind: true, discard_like: false, waiting: WaitingPlace::Connection }
    }

    fn rewind(&mut self, frames: usize) {
        self.has_waiting = true;
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
        self.may_have_more || self.has_frames() || self.connection.has_news()
    }

    fn has_frames(&mut self) -> bool {
        matches!(self.bytes.next(), Next::Frame(_))
    }

    /// The output has frames to count: see [`Sending::take_late`](super::sending::Sending::take_late).
    fn take_event(&mut self) -> bool {
        self.connection.take_news()
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;
    use crate::framing::prefix;
    use ringway_port::front_end::Connection;
    use ringway_port::testing::{is_readable, visit_until_asleep};

    fn frame(len: usize) -> Vec<u8> {
        [&prefix(len)[..], &vec![7; len]].concat()
    }

    #[test]
    fn the_end_is_read_whatever_was_sent_before_it() {
        let large: Vec<u8> = (0..40).flat_map(|_| frame(60_000)).collect();
        let cases: [(&str, Vec<u8>, usize, Ended); 8] = [
            ("nothing", vec![], 0, Ended::Gone),
            ("three bytes", vec![0; 3], 0, Ended::Gone),
            ("a length", prefix(100).to_vec(), 0, Ended::Gone),
            ("a frame", frame(60), 1, Ended::Gone),
            ("a frame and three bytes", [frame(60), vec![0; 3]].concat(), 1, Ended::Gone),
            ("frames that fill batches", frame(60).repeat(16), 16, Ended::Gone),
            (
                "frames and an invalid length",
                [frame(60).repeat(8), vec![255; 4]].concat(),
                8,
                Ended::NoLength(u32::MAX),
            ),
            ("more than the buffer takes", large, 40, Ended::Gone),
        ];
        let connection = Arc::new(SharedConnection::new().expect("descriptors"));
        let mut input = StreamInput::new(Arc::clone(&connection)).expect("memory");
        for (what, bytes, frames, end) in cases {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
            let near = Arc::new(Connection::from(near));
            connection.open(&near).expect("an epoll entry");
            let mut far = UnixStream::from(far);
            far.set_nonblocking(false).expect("a mode");
            let writer = std::thread::spawn(move || {
                // The input may end the connection first.
                let _ = far.write_all(&bytes);
            });
            let has_something =
                || connection.reading.lock().socket.as_ref().is_some_and(|socket| is_readable(&**socket));
            let (mut came, mut ended) = (0, None);
            if frames < 40 {
                writer.join().expect("written");
                came = visit_until_asleep(&mut input, has_something, 4);
                ended = connection.ended();
            } else {
                // The buffers of the socket are smaller than these frames: they come while they are read.
                ringway_testing::until(what, || {
                    let mut batch = ringway_switch::BatchStorage::new(4).into_batch();
                    input.collect(&mut batch).expect("no fault");
                    came += batch.len();
                    drop(batch);
                    input.release();
                    ended = connection.ended();
                    ended.is_some()
                });
                writer.join().expect("written");
            }
            assert_eq!((came, ended), (frames, Some(end)), "{what}");
            assert!(!input.pending(), "{what}");
            connection.close(&near);
        }
    }
}
