//! Frames from the peer.
//!
//! One `recv` fills up to 512 KiB, and frames are delivered from that buffer. The part of a frame behind the last complete
//! frame is moved to the front of the buffer before the next `recv`, if it does not overlap there: a successor of the switch finds it whole,
//! wherever the switch died (`lasting.rs`).
//!
//! The socket reports changes only. After a part of a frame there may be more in it, also the end of the connection, which no event
//! would report again: the input is pending until a `recv` has found nothing.
//!
//! Files beside frames (SCM_RIGHTS) end the connection as `unexpected_descriptors`. From Linux 6.16 on the kernel refuses
//! such files.

use std::os::fd::AsFd;
use std::sync::Arc;

use ringway_memory::View;
use ringway_port::front_end::receive;
use ringway_switch::{
    Armed, Batch, Discarded, DropReason, Input, InputCapabilities, MAX_FRAME, PortFault, WaitingPlace, WakeOn,
};

use super::connection::SharedConnection;
use super::ended::Ended;
use super::framing::{self, Next, PREFIX_BYTES};
use super::lasting::{INPUT_BYTES, Lasting, Place};

/// Most bytes in the receive buffer while frames wait for a limit: later ones, perhaps answers that a client waits for, wait behind what was read. Enough for any
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
    lasting: Arc<Lasting>,
    place: Place,
}

impl Bytes {
    #[inline]
    fn next(&self) -> Next<'_> {
        next(&self.lasting, self.place.start, self.place.end)
    }

    /// Skips a complete frame, if there is one. Returns its length.
    fn skip(&mut self) -> Option<usize> {
        let Next::Frame(frame) = self.next() else { return None };
        let len = frame.len();
        self.place.start = behind(self.place.start, len);
        Some(len)
    }

    /// Forgets the bytes.
    fn clear(&mut self) {
        self.place.start = self.place.end;
    }

    /// Moves the part of a frame to the front of the buffer, if there is more room than it takes. Returns the memory after it, such that the buffer has
    /// at most `most` bytes.
    fn gather(&mut self, most: usize) -> Option<View<'_>> {
        let Self { lasting, place } = self;
        let part = place.end.saturating_sub(place.start);
        if part <= place.start {
            let _ = lasting.input(0, part)?.copy_from(lasting.input(place.start, part)?);
            place.origin = place.taken();
            lasting.note_origin(place.origin);
            (place.start, place.end) = (0, part);
        }
        lasting.input(place.end, most.saturating_sub(part).min(INPUT_BYTES.saturating_sub(place.end)))
    }

    /// Has a successor go on with the bytes that are not taken yet.
    #[inline]
    fn note_taken(&self) {
        self.lasting.note_taken(self.place.taken());
    }
}

impl StreamInput {
    pub fn new(connection: Arc<SharedConnection>) -> StreamInput {
        let bytes = Bytes { lasting: Arc::clone(&connection.lasting), place: Place::default() };
        StreamInput { connection, bytes, number: 0, begun: 0, may_have_more: false, has_waiting: false }
    }

    /// Begins with the connection that is open now. What is left of an earlier peer, whose frames may have waited, is not to be that of the next.
    #[cold]
    fn begin(&mut self) {
        let guard = self.connection.reading.lock();
        (self.number, self.has_waiting) = (guard.number, false);
        self.bytes.clear();
        let Some(socket) = &guard.socket else { return };
        match self.bytes.lasting.place(guard.kept_number, socket.as_fd()) {
            Some(place) => self.bytes.place = place,
            None => {
                drop(guard);
                self.connection.stop_reading(self.number, Ended::Gone);
            }
        }
    }

    /// Reads until the buffer has a complete frame, or the socket nothing more.
    fn read(&mut self) {
        let number = self.connection.number();
        if number != self.number {
            self.begin();
        }
        for _ in 0..MOST_READS {
            match self.bytes.next() {
                Next::Frame(_) => return,
                Next::Part => {}
                Next::NoLength(length) => {
                    self.bytes.clear();
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
        let most = if self.has_waiting { WAITING_BYTES } else { INPUT_BYTES };
        let Some(socket) = &reading.socket else { return false };
        let Some(room) = self.bytes.gather(most) else { return false };
        // SAFETY: the view's bytes are mapped and writable while the view lives; nothing else refers to them.
        let received = unsafe { receive(socket, room.as_ptr(), room.len(), &mut reading.files) };
        let ended = match received {
            _ if !reading.files.is_empty() => Ended::Files,
            Ok(count @ 1..) => {
                self.bytes.place.received(count, socket.as_fd());
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
        self.begun = self.bytes.place.start;
        let Bytes { lasting, place } = &mut self.bytes;
        let lasting: &Lasting = lasting;
        while batch.room() > 0 {
            match next(lasting, place.start, place.end) {
                Next::Frame(frame) => {
                    place.start = behind(place.start, frame.len());
                    match frame.len() {
                        ..=MAX_FRAME => batch.push(frame, frame.len()),
                        _ => batch.refuse(DropReason::Oversize),
                    }
                }
                // The next read ends a connection that sent an invalid length.
                Next::Part | Next::NoLength(_) => break,
            }
        }
        // Before a frame is delivered: a successor delivers none of them again.
        lasting.note_taken(place.taken());
        Ok(())
    }

    fn release(&mut self) {}

    fn capabilities(&self) -> InputCapabilities {
        InputCapabilities { rewind: true, discard_like: false, waiting: WaitingPlace::Connection }
    }

    fn rewind(&mut self, frames: usize) {
        self.has_waiting = true;
        self.bytes.place.start = self.begun;
        for _ in 0..frames {
            self.bytes.skip();
        }
        self.bytes.note_taken();
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
        self.bytes.note_taken();
        Ok(discarded)
    }

    fn pending(&mut self) -> bool {
        let is_new = self.connection.number() != self.number;
        is_new || self.may_have_more || self.has_frames() || self.connection.has_news()
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
fn next(lasting: &Lasting, start: usize, end: usize) -> Next<'_> {
    lasting.input(start, end.saturating_sub(start)).map_or(Next::Part, framing::next)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use ringway_keeper::Link;
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
        let lasting = Lasting::open(&Link::default(), "stream/a.sock", "lan0:a").expect("memory");
        let connection = Arc::new(SharedConnection::new(lasting).expect("descriptors"));
        let mut input = StreamInput::new(Arc::clone(&connection));
        for (what, bytes, frames, end) in cases {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
            let near = Arc::new(Connection::from(near));
            connection.open(&near, None).expect("an epoll entry");
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
