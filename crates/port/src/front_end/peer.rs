//! The connection that a port's own thread serves.

use std::cell::Cell;
use std::fmt::Display;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::connection::{Connection, MESSAGE_WITHIN};
use super::end::End;
use super::listener::Listener;
use super::observer::Observer;
use super::pauses::BETWEEN;
use super::receiver::{Sent, send};
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
}

impl<'a> Peer<'a> {
    /// The peer at this connection. `listener`: where further ones come.
    pub(super) fn new(
        socket: &'a Arc<Connection>,
        stop: &'a Stop,
        observer: &'a dyn Observer,
        listener: Option<&'a Listener>,
    ) -> Peer<'a> {
        let reject_from = Cell::new(Instant::now());
        let (rejects, refusal_reported) = (Cell::new(false), Cell::new(false));
        Peer { socket, stop, observer, listener, reject_from, rejects, refusal_reported }
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

    /// Sends an answer. Waits, up to `MESSAGE_WITHIN`, for a peer that has to read earlier answers first.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn send(&self, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(), End> {
        let mut until = None;
        loop {
            match send(self.socket, bytes, file) {
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
