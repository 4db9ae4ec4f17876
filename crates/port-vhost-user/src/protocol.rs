//! What a port does with one connection: reads requests, answers them, and ends the connection when a ring breaks.
//! Every end of a connection resets the device.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_port::front_end::{Connection, End, Peer, Protocol, Received, Receiver};
use rustix::event::{PollFd, PollFlags};

use super::device::Device;
use super::end::SessionEnd;
use super::message::{Header, Messages, Request};
use super::session::Session;
use crate::virtqueue::RingFault;

/// After this time without a further message, the memory table counts as complete.
const SETTLED_AFTER: Duration = Duration::from_millis(20);
/// Most requests handled before the other descriptors are polled again.
const AT_A_TIME: usize = 64;

impl From<SessionEnd> for End {
    fn from(end: SessionEnd) -> End {
        End::Fault(end.name(), end.to_string())
    }
}

/// Serves a device to front ends.
pub struct VhostProtocol {
    device: Arc<Device>,
    /// The session of the connection that has just ended.
    ended: Option<Session>,
    /// The queue whose ring ended that connection.
    broken: Option<u16>,
}

impl VhostProtocol {
    pub fn new(device: Arc<Device>) -> VhostProtocol {
        VhostProtocol { device, ended: None, broken: None }
    }

    /// Handles requests until the connection has to end.
    fn talk(&self, peer: &Peer<'_>, session: &mut Session) -> Result<Infallible, End> {
        let (mut receiver, mut settle_at) = (Receiver::new(), None);
        loop {
            let until = [receiver.deadline(), settle_at].into_iter().flatten().min();
            let broken = PollFd::from_borrowed_fd(self.device.broken(), PollFlags::IN);
            let socket = PollFd::new(&**peer.socket, PollFlags::IN);
            let [broken, readable] = peer.wait([Some(broken), Some(socket)], until)?;
            if broken {
                return Err(self.ring_fault());
            }
            if readable {
                let handled = handle_requests(peer, session, &mut receiver);
                // Also if the connection ended with a request after the refused one.
                if let Some(refusal) = session.take_refusal() {
                    peer.report_refusal(refusal.name(), &refusal);
                }
                handled?;
                settle_at = session.is_unsettled().then(|| Instant::now() + SETTLED_AFTER);
            }
            let now = Instant::now();
            receiver.check_deadline(now)?;
            if settle_at.is_some_and(|at| now >= at) {
                settle_at = None;
                session.settle()?;
            }
        }
    }

    fn ring_fault(&self) -> End {
        let Some(fault) = self.device.fault() else { return End::Fault("ring_broken", "a ring broke".into()) };
        match (fault.what, self.device.quota().take_holes_exceeded()) {
            (RingFault::MemoryLost, Some(text)) => End::Fault("memory_holes", text),
            (what, _) => End::Fault(what.name(), fault.to_string()),
        }
    }
}

impl Protocol for VhostProtocol {
    fn open(&mut self, _: &Arc<Connection>) -> io::Result<()> {
        self.device.note_connection(true, 0);
        Ok(())
    }

    fn serve(&mut self, peer: &Peer<'_>) -> Result<Infallible, End> {
        let mut session = Session::new(Arc::clone(&self.device));
        let result = self.talk(peer, &mut session);
        self.ended = Some(session);
        result
    }

    fn close(&mut self, socket: Arc<Connection>) -> bool {
        drop(socket);
        self.broken = self.device.fault().map(|fault| fault.queue);
        let blocked = self.device.calls_blocked();
        self.device.reset();
        self.device.note_connection(false, 0);
        blocked
    }

    fn closed(&mut self) {
        let session = self.ended.take();
        if let Some((session, queue)) = session.as_ref().zip(self.broken)
            && let Some(error) = session.error_descriptor(queue)
        {
            ringway_runtime::call(error.as_fd(), self.device.account());
        }
    }
}

/// Handles the requests that have arrived.
fn handle_requests(peer: &Peer<'_>, session: &mut Session, receiver: &mut Receiver<Messages>) -> Result<(), End> {
    for _ in 0..AT_A_TIME {
        let header: Header = match receiver.receive(peer.socket)? {
            Received::Message(header) => header,
            Received::Nothing => return Ok(()),
            Received::Gone => return Err(End::Disconnected),
        };
        let (body, fds) = receiver.take();
        let request = Request::decode(header, body, fds).map_err(SessionEnd::from)?;
        if let Some(reply) = session.handle(header, request)? {
            let (bytes, file) = reply.encode(header.request);
            peer.send(&bytes, file.map(AsFd::as_fd))?;
        }
    }
    Ok(())
}
