//! Complete messages, each with the descriptors beside it, of a connection that outlives the switch: many messages are looked at at once, and stay in the
//! socket until they are handled.
//!
//! The kernel counts what was looked at and not taken (SO_PEEK_OFF). With the note of the [`Journal`] it tells a successor whether the bytes of handled
//! messages were taken.

use std::os::fd::AsFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::closer::ClientFd;
use super::connection::{Connection, MESSAGE_WITHIN};
use super::end::End;
use super::files::{peek_bytes, peek_offset, set_peek_offset};
use super::receiver::{Framing, Received, SocketError};

/// Notes for a successor of the switch what is taken from a connection.
pub trait Journal {
    /// `bytes` of the `seen` bytes that were looked at are about to be taken.
    fn taking(&self, seen: usize, bytes: usize);

    /// They are taken.
    fn taken(&self, bytes: usize);
}

/// Receives messages and takes them late: see the description of the module. It owns their descriptors.
pub struct LateReceiver<F: Framing> {
    bytes: Box<[u8]>,
    /// The range of `bytes` that was looked at and not handled. The first message begins at `start`.
    start: usize,
    end: usize,
    /// Bytes from `start` on that are taken already: the beginning of a message.
    ahead: usize,
    /// Bytes of handled messages that are not taken.
    handled: usize,
    /// The decoded header of the first message, and the length of the whole message.
    header: Option<(F::Header, usize)>,
    /// Descriptors of the last message that begins before this place in `bytes`.
    files: (usize, Vec<ClientFd>),
    /// The first bytes that are not taken and came with files: 0 if there are none. Nothing behind them was looked at.
    with_files: usize,
    /// Files come next, and what was looked at before is to be taken first.
    before_files: bool,
    begun: Option<Instant>,
}

impl<F: Framing> LateReceiver<F> {
    const LONGEST: usize = F::HEADER_BYTES + F::MOST_BODY_BYTES;
    const ROOM: usize = Self::LONGEST + F::AHEAD_BYTES;

    /// A receiver for a connection. `rest`: bytes that a predecessor has taken and not handled. Nothing that is in the socket was looked at.
    ///
    /// # Errors
    /// The socket cannot be looked into so, or `rest` is longer than any message.
    pub fn new(socket: &Connection, rest: &[u8]) -> std::io::Result<Self> {
        set_peek_offset(socket, 0)?;
        let mut bytes: Box<[u8]> = vec![0; Self::ROOM].into();
        bytes.get_mut(..rest.len()).ok_or(std::io::ErrorKind::InvalidData)?.copy_from_slice(rest);
        Ok(Self {
            bytes,
            start: 0,
            end: rest.len(),
            ahead: rest.len(),
            handled: 0,
            header: None,
            files: (0, Vec::new()),
            with_files: 0,
            before_files: false,
            begun: (!rest.is_empty()).then(Instant::now),
        })
    }

    /// Takes bytes that a predecessor has handled. `bytes`: those that it has not noted as taken. `taking`: what it had looked at, and what it was
    /// about to take, if it was.
    ///
    /// # Errors
    /// The connection broke.
    pub fn finish(
        socket: &Connection,
        journal: &dyn Journal,
        bytes: usize,
        taking: Option<[usize; 2]>,
    ) -> Result<(), End> {
        let taken = taking.map_or(0, |[seen, most]| seen.saturating_sub(peek_offset(socket)).min(most));
        journal.taken(taken);
        let mut left = bytes.saturating_sub(taken);
        while left > 0 {
            set_peek_offset(socket, 0).map_err(|_| End::Disconnected)?;
            let (count, has_files) = peek_bytes(socket, &mut vec![0; left]).map_err(|_| End::Disconnected)?;
            journal.taking(count, count);
            if count == 0 || has_files && !socket.discard(count, None) {
                return Err(End::Disconnected);
            }
            if !has_files {
                take(socket, count)?;
            }
            journal.taken(count);
            left = left.saturating_sub(count);
        }
        Ok(())
    }

    /// Returns an error if the message that has begun is not complete in time.
    ///
    /// # Errors
    /// It is not.
    pub fn check_deadline(&self, now: Instant) -> Result<(), End> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Ok(());
        }
        Err(End::Fault("message_too_slow", format!("a message was not whole within {MESSAGE_WITHIN:?}")))
    }

    /// When the message that has begun must be complete.
    pub fn deadline(&self) -> Option<Instant> {
        self.begun.map(|begun| begun.checked_add(MESSAGE_WITHIN).unwrap_or(begun))
    }

    fn have(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Bytes that were looked at and not taken.
    fn seen(&self) -> usize {
        self.handled.saturating_add(self.have().saturating_sub(self.ahead))
    }

    /// Looks into the socket until a message is complete or nothing more can be had now.
    ///
    /// # Errors
    /// The bytes are not a valid message, or too many descriptors came with them.
    pub fn receive(&mut self, socket: &Connection) -> Result<Received<F::Header>, SocketError<F::Error>> {
        loop {
            let have = self.have();
            match self.header {
                Some((header, whole)) if have >= whole => return Ok(Received::Message(header)),
                None if have >= F::HEADER_BYTES => {
                    let bytes = &self.bytes[self.start..][..F::HEADER_BYTES];
                    let (header, body) = F::decode(bytes).map_err(SocketError::Message)?;
                    self.header = Some((header, F::HEADER_BYTES.saturating_add(body.min(F::MOST_BODY_BYTES))));
                    continue;
                }
                _ => {}
            }
            if self.with_files > 0 || self.before_files {
                self.before_files = true;
                return Ok(Received::Nothing);
            }
            self.make_room();
            let result = peek_bytes(socket, &mut self.bytes[self.end..]);
            if have > 0 || result.is_ok() {
                self.begun.get_or_insert_with(Instant::now);
            }
            let (count, has_files) = match result {
                Ok(seen) => seen,
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                Err(Errno::INTR) => continue,
                Err(_) => return Ok(Received::Gone),
            };
            if count == 0 {
                return Ok(Received::Gone);
            }
            if has_files {
                let before = self.seen();
                if set_peek_offset(socket, before).is_err() {
                    return Ok(Received::Gone);
                }
                if before > 0 {
                    self.before_files = true;
                    return Ok(Received::Nothing);
                }
                // The closer looks at the same bytes.
                let files = socket.peek(count).ok_or(SocketError::Descriptors(F::MOST_FDS))?;
                self.with_files = count;
                self.files.0 = self.end.saturating_add(count);
                self.files.1.extend(files);
                if self.files.1.len() > F::MOST_FDS {
                    return Err(SocketError::Descriptors(F::MOST_FDS));
                }
            }
            self.end = self.end.saturating_add(count);
        }
    }

    /// Returns true if there may be more in the socket than [`Received::Nothing`] says: files come next. [`LateReceiver::settle`] first.
    pub fn has_more(&self) -> bool {
        self.before_files
    }

    /// The message is handled: returns its body and its descriptors. The next message may then begin.
    pub fn take(&mut self) -> (&[u8], Vec<ClientFd>) {
        let whole = self.header.take().map_or(F::HEADER_BYTES, |(_, whole)| whole);
        let body = self.start.saturating_add(F::HEADER_BYTES)..self.start.saturating_add(whole);
        (self.start, self.begun) = (body.end, None);
        let ahead = self.ahead.min(whole);
        self.ahead = self.ahead.saturating_sub(ahead);
        self.handled = self.handled.saturating_add(whole.saturating_sub(ahead));
        let is_last = self.files.0 <= self.start;
        let files = if is_last { std::mem::take(&mut self.files.1) } else { Vec::new() };
        (&self.bytes[body], files)
    }

    /// Returns the bytes of a message that has begun. `all`: those that are not taken, too.
    pub fn rest(&self, all: bool) -> &[u8] {
        let end = if all { self.end } else { self.start.saturating_add(self.ahead) };
        self.bytes.get(self.start..end).unwrap_or_default()
    }

    /// Takes the bytes of handled messages from the socket. `all`: and those of the message that has begun; the caller has noted the [`rest`](Self::rest).
    ///
    /// # Errors
    /// The connection broke, or the closer cannot receive.
    pub fn settle(&mut self, socket: &Connection, journal: &dyn Journal, all: bool) -> Result<(), End> {
        self.before_files = false;
        let (mut seen, mut left) = (self.seen(), if all { self.seen() } else { self.handled });
        let with_files = self.with_files;
        if with_files > 0 {
            if left < with_files {
                return Ok(());
            }
            journal.taking(seen, with_files);
            if !socket.discard(with_files, None) {
                return Err(SocketError::<F::Error>::Descriptors(F::MOST_FDS).into());
            }
            journal.taken(with_files);
            (self.with_files, seen) = (0, seen.saturating_sub(with_files));
            left = left.saturating_sub(with_files);
        }
        if left > 0 {
            journal.taking(seen, left);
            take(socket, left)?;
            journal.taken(left);
        }
        self.handled = 0;
        if all {
            self.ahead = self.have();
        }
        Ok(())
    }

    /// Moves the bytes to the beginning of the buffer if the longest message would not fit after `start`.
    fn make_room(&mut self) {
        if self.start.saturating_add(Self::LONGEST) <= self.bytes.len() && self.end < self.bytes.len() {
            return;
        }
        self.bytes.copy_within(self.start..self.end, 0);
        self.files.0 = self.files.0.saturating_sub(self.start);
        (self.start, self.end) = (0, self.have());
    }
}

/// Takes bytes from the socket that were looked at before.
fn take(socket: &Connection, count: usize) -> Result<(), End> {
    let (mut few, mut many) = ([0; 512], Vec::new());
    let into = match few.get_mut(..count) {
        Some(few) => few,
        None => {
            many.resize(count, 0);
            &mut many[..]
        }
    };
    let mut left = count;
    while left > 0 {
        match recv(socket.as_fd(), &mut into[..left], RecvFlags::DONTWAIT) {
            Ok((_, count @ 1..)) => left = left.saturating_sub(count),
            Err(Errno::INTR) => {}
            _ => return Err(End::Disconnected),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "numbers of tests")]
mod tests {
    use std::cell::Cell;
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;
    use crate::front_end::testing::{new_eventfd, send_files};

    /// A byte that tells how many follow.
    struct Bytes;

    impl Framing for Bytes {
        type Header = u8;
        type Error = std::convert::Infallible;
        const HEADER_BYTES: usize = 1;
        const MOST_BODY_BYTES: usize = 255;
        const MOST_FDS: usize = 2;
        const AHEAD_BYTES: usize = 300;

        fn decode(header: &[u8]) -> Result<(u8, usize), Self::Error> {
            Ok((header[0], header[0].into()))
        }
    }

    /// What a successor finds.
    #[derive(Default)]
    struct Noted {
        taken: Cell<usize>,
        taking: Cell<Option<[usize; 2]>>,
        /// Killed when bytes were taken, before that was noted.
        dies: Cell<bool>,
    }

    impl Journal for Noted {
        fn taking(&self, seen: usize, bytes: usize) {
            self.taking.set(Some([seen, bytes]));
        }

        fn taken(&self, bytes: usize) {
            if !self.dies.get() {
                self.taken.set(self.taken.get() + bytes);
                self.taking.set(None);
            }
        }
    }

    fn pair() -> (Connection, OwnedFd) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
        let near = Connection::from(near);
        near.accept_files(None).expect("a closer");
        (near, far)
    }

    fn message(number: u8) -> Vec<u8> {
        vec![number % 9; usize::from(number % 9) + 1]
    }

    fn receiver(near: &Connection, rest: &[u8]) -> LateReceiver<Bytes> {
        LateReceiver::new(near, rest).expect("a socket")
    }

    fn handle(receiver: &mut LateReceiver<Bytes>, near: &Connection) -> Option<(Vec<u8>, usize)> {
        match receiver.receive(near).expect("messages") {
            Received::Message(_) => {
                let (body, files) = receiver.take();
                Some((body.to_vec(), files.len()))
            }
            _ => None,
        }
    }

    #[test]
    fn a_successor_goes_on_with_the_message_after_the_last_handled_one_whenever_the_process_died() {
        // 0: before anything was taken. 1: when it was noted. 2: when it was taken. 3: when that was noted.
        for death in 0..4 {
            let (near, far) = pair();
            let (noted, mut handled, mut next) = (Noted::default(), 0, 1u8);
            let mut receiver = self::receiver(&near, &[]);
            for round in 0..40u8 {
                for number in 0..7 {
                    let message = message(round.wrapping_mul(7).wrapping_add(number));
                    assert_eq!(send(&far, &message, SendFlags::empty()), Ok(message.len()));
                }
                for _ in 0..5 {
                    let number = next - 1;
                    let (body, files) = handle(&mut receiver, &near).expect("a message");
                    assert_eq!((&body[..], files), (&message(number)[1..], 0), "death {death}, round {round}");
                    (handled, next) = (handled + body.len() + 1, next.wrapping_add(1));
                }
                match death {
                    0 => {}
                    1 => {
                        let seen = receiver.seen();
                        noted.taking(seen, handled - noted.taken.get());
                    }
                    _ => {
                        noted.dies.set(death == 2);
                        receiver.settle(&near, &noted, false).expect("a connection");
                        noted.dies.set(false);
                    }
                }
                let taking = noted.taking.get();
                let untaken = handled - noted.taken.get();
                LateReceiver::<Bytes>::finish(&near, &noted, untaken, taking).expect("a connection");
                assert_eq!(noted.taken.get(), handled);
                receiver = self::receiver(&near, &[]);
                // The others come in the next round: two more each time.
                if round >= 15 {
                    break;
                }
            }
        }
    }

    #[test]
    fn the_beginning_of_a_message_is_taken_so_that_the_socket_is_not_readable_and_goes_on() {
        let (near, far) = pair();
        let (noted, mut receiver) = (Noted::default(), receiver(&near, &[]));
        assert_eq!(send(&far, &[1, 1, 5, 5, 5], SendFlags::empty()), Ok(5));
        assert_eq!(handle(&mut receiver, &near), Some((vec![1], 0)));
        assert_eq!(handle(&mut receiver, &near), None);
        assert_eq!(receiver.rest(true), [5, 5, 5]);
        receiver.settle(&near, &noted, true).expect("a connection");
        assert_eq!((noted.taken.get(), peek_offset(&near)), (5, 0));
        assert_eq!(peek_bytes(&near, &mut [0; 8]), Err(Errno::AGAIN), "nothing is left");
        let mut successor = self::receiver(&near, receiver.rest(false));
        for receiver in [&mut receiver, &mut successor] {
            set_peek_offset(&near, 0).expect("a socket");
            assert_eq!(send(&far, &[5, 5, 5], SendFlags::empty()), Ok(3));
            assert_eq!(handle(receiver, &near), Some((vec![5; 5], 0)));
            receiver.settle(&near, &noted, false).expect("a connection");
        }
        assert_eq!(noted.taken.get(), 11);
    }

    #[test]
    fn files_come_with_their_message_and_stay_in_the_socket_until_it_is_handled() {
        let (near, far) = pair();
        let (noted, mut receiver) = (Noted::default(), receiver(&near, &[]));
        // The next message. What is before files is taken first.
        let next = |receiver: &mut LateReceiver<Bytes>| {
            loop {
                if let Some(message) = handle(receiver, &near) {
                    return message;
                }
                assert!(receiver.has_more(), "files come next");
                receiver.settle(&near, &noted, false).expect("a connection");
            }
        };
        for number in 0..50 {
            assert_eq!(send(&far, &[1, 1], SendFlags::empty()), Ok(2));
            assert_eq!(send_files(&far, &[2, 2, 2], vec![new_eventfd(), new_eventfd()]), Ok(3));
            assert_eq!(send_files(&far, &[3, 3, 3, 3], vec![new_eventfd()]), Ok(4));
            assert_eq!(send(&far, &[1, 1], SendFlags::empty()), Ok(2));
            let mut handled = noted.taken.get();
            for (message, files) in [(vec![1], 0), (vec![2; 2], 2), (vec![3; 3], 1), (vec![1], 0)] {
                let bytes = message.len() + 1;
                assert_eq!(next(&mut receiver), (message.clone(), files), "{number}");
                if number % 3 == 0 {
                    // A process that dies now has not noted the message as handled.
                    LateReceiver::<Bytes>::finish(&near, &noted, handled - noted.taken.get(), None).expect("taken");
                    receiver = self::receiver(&near, &[]);
                    assert_eq!(next(&mut receiver), (message, files), "{number}");
                }
                handled += bytes;
                if number % 2 == 0 {
                    // Another one has noted it.
                    LateReceiver::<Bytes>::finish(&near, &noted, handled - noted.taken.get(), None).expect("taken");
                    receiver = self::receiver(&near, &[]);
                }
            }
            receiver.settle(&near, &noted, false).expect("a connection");
            assert_eq!(noted.taken.get(), 11 * (number + 1));
        }
        drop(far);
        assert!(matches!(receiver.receive(&near), Ok(Received::Gone)));
    }
}
