//! The connection that a port's own thread serves.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use ringway_runtime::call::send_counted;
use rustix::event::{PollFd, PollFlags};

use super::answers::Answers;
use super::connection::{Connection, MESSAGE_WITHIN};
use super::end::End;
use super::kept::{Kept, Left, warn_closed};
use super::listener::Listener;
use super::observer::Observer;
use super::pauses::BETWEEN;
use super::receiver::{Sent, send};
use super::taking_over::TakingOver;
use super::thread::{Stop, wait};

/// The connected peer of a port. While a peer is connected, further connections are closed at once, so that their users
/// see a closed connection instead of a hypervisor that hangs.
pub struct Peer<'a> {
    /// The connection.
    pub socket: &'a Arc<Connection>,
    /// Becomes readable when the port is being removed.
    pub stop: &'a Stop,
    observer: &'a dyn Observer,
    listener: Option<&'a Listener>,
    /// Further connections wait in the backlog until this time.
    reject_from: Cell<Instant>,
    /// True if a further connection waits to be closed.
    rejects: Cell<bool>,
    refusal_reported: Cell<bool>,
    kept: Option<&'a Kept>,
    left: Cell<Option<Left>>,
    taking_over: Cell<Option<TakingOver>>,
    prepared: RefCell<Prepared>,
}

/// What was prepared to be sent.
pub(super) enum Prepared {
    /// Over a connection that outlives the switch.
    Kept(Answers),
    /// Over another one.
    Bytes(Vec<u8>),
}

/// What outlives the switch of a connection.
pub(super) struct Outliving<'a> {
    pub(super) kept: &'a Kept,
    /// If a predecessor had it.
    pub(super) left: Option<(Left, TakingOver)>,
    pub(super) answers: Answers,
}

impl<'a> Peer<'a> {
    /// The peer at this connection. `listener`: where further ones come. `outliving`: what outlives the switch.
    pub(super) fn new(
        socket: &'a Arc<Connection>,
        stop: &'a Stop,
        observer: &'a dyn Observer,
        listener: Option<&'a Listener>,
        outliving: Option<Outliving<'a>>,
    ) -> Peer<'a> {
        let reject_from = Cell::new(Instant::now());
        let (rejects, refusal_reported) = (Cell::new(false), Cell::new(false));
        let (kept, left, prepared) = match outliving {
            Some(Outliving { kept, left, answers }) => (Some(kept), left, Prepared::Kept(answers)),
            None => (None, None, Prepared::Bytes(Vec::new())),
        };
        let (left, taking_over) = left.unzip();
        let (left, taking_over, prepared) = (Cell::new(left), Cell::new(taking_over), RefCell::new(prepared));
        Peer {
            socket,
            stop,
            observer,
            listener,
            reject_from,
            rejects,
            refusal_reported,
            kept,
            left,
            taking_over,
            prepared,
        }
    }

    /// Waits until one of the descriptors is ready, or until the time `until`. Returns which of them are ready.
    ///
    /// # Errors
    /// The port is being removed.
    pub fn wait<const N: usize>(
        &self,
        events: [Option<PollFd<'_>>; N],
        until: Option<Instant>,
    ) -> Result<[bool; N], End> {
        // The port has gone on with what a predecessor left.
        drop(self.taking_over.take());
        // Not earlier: if the peer has disconnected meanwhile, this is the connection to serve next.
        if self.rejects.take() {
            drop(self.listener.map(Listener::accept));
            self.reject_from.set(Instant::now() + BETWEEN);
        }
        let reject_from = self.reject_from.get();
        let listener = self.listener.filter(|_| Instant::now() >= reject_from);
        let later = (self.listener.is_some() && listener.is_none()).then_some(reject_from);
        let awaited = events.each_ref().map(Option::is_some);
        let mut fds = Vec::with_capacity(N + 2);
        fds.push(PollFd::new(self.stop, PollFlags::IN));
        fds.extend(events.into_iter().flatten());
        fds.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
        wait(&mut fds, [until, later].into_iter().flatten().min());
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        if ready.next() == Some(true) {
            return Err(End::Stop);
        }
        let events = awaited.map(|awaited| awaited && ready.next() == Some(true));
        self.rejects.set(ready.next() == Some(true));
        Ok(events)
    }

    /// Sends an answer, and adds one to the counter of `witness` in the same system call. `refused` is called if the socket has refused an answer
    /// that was counted: the next try counts it again.
    ///
    /// # Errors
    /// As for [`Peer::send`].
    pub fn send_counted(&self, bytes: &[u8], witness: BorrowedFd<'_>, refused: impl Fn()) -> Result<(), End> {
        self.send_by(|| match send_counted(self.socket.as_fd(), bytes, witness) {
            Ok(()) => Sent::Done,
            Err(error) => {
                refused();
                match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => Sent::Full,
                    _ => Sent::Gone,
                }
            }
        })
    }

    /// Where the kind keeps what a successor of the switch needs to go on with the connection; `None`: it will not outlive the switch.
    pub fn kept(&self) -> Option<&Kept> {
        self.kept
    }

    /// Returns what a predecessor of the switch left of the connection, once. `None`: it is a new one.
    pub fn take_left(&self) -> Option<Left> {
        self.left.take()
    }

    /// What a predecessor of the switch left of the connection does not fit. Says so, and returns how the connection ends: its peer connects
    /// again.
    pub fn cannot_go_on(&self, why: &impl Display) -> End {
        if let Some(kept) = self.kept {
            warn_closed(kept.label(), &why.to_string());
        }
        End::Disconnected
    }

    /// Notes an answer, to be sent by [`send_prepared`](Self::send_prepared) once its request was taken out of the socket.
    ///
    /// # Errors
    /// The kernel has no memory left.
    pub fn prepare(&self, bytes: &[u8]) -> Result<(), End> {
        match &mut *self.prepared.borrow_mut() {
            Prepared::Kept(answers) => {
                answers.add(bytes).map_err(|why| End::Fault("out_of_resources", why.to_string()))
            }
            Prepared::Bytes(all) => {
                all.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Sends what was prepared: each answer once, also if the switch dies meanwhile and the connection outlives it.
    ///
    /// # Errors
    /// As of [`send`](Self::send).
    pub fn send_prepared(&self) -> Result<(), End> {
        match &mut *self.prepared.borrow_mut() {
            Prepared::Kept(answers) => self.send_by(|| answers.send(self.socket)),
            Prepared::Bytes(all) if all.is_empty() => Ok(()),
            Prepared::Bytes(all) => self.send(&std::mem::take(all), None),
        }
    }

    /// Sends an answer. Waits, up to `MESSAGE_WITHIN`, for a peer that has to read earlier answers first.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn send(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(), End> {
        self.send_by(|| send(self.socket, bytes, file))
    }

    fn send_by(&self, mut send: impl FnMut() -> Sent) -> Result<(), End> {
        let mut until = None;
        loop {
            match send() {
                Sent::Done => return Ok(()),
                Sent::Gone => return Err(End::Disconnected),
                Sent::Full => {}
            }
            let until = *until.get_or_insert_with(|| Instant::now() + MESSAGE_WITHIN);
            let mut fds = [PollFd::new(self.stop, PollFlags::IN), PollFd::new(&**self.socket, PollFlags::OUT)];
            wait(&mut fds, Some(until));
            if !fds[0].revents().is_empty() {
                return Err(End::Stop);
            }
            if Instant::now() >= until {
                let text = format!("the front end did not read what it asked for within {MESSAGE_WITHIN:?}");
                return Err(End::Fault("replies_unread", text));
            }
        }
    }

    /// Reports the connection's first refused request.
    pub fn report_refusal(&self, reason: &'static str, refusal: &impl Display) {
        if !self.refusal_reported.replace(true) {
            self.observer.refused(reason, refusal.to_string());
        }
    }
}
