//! What a port does with one connection: reads requests, answers them, and ends the connection when a ring breaks.
//! Every end of a connection resets the device.

use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_port::front_end::{ClientFd, Connection, End, Kept, Peer, Protocol, Received, Receiver};
use rustix::event::{PollFd, PollFlags};

use super::device::Device;
use super::end::SessionEnd;
use super::message::{Header, Messages, Request};
use super::resume;
use super::session::Session;
use crate::virtqueue::RingFault;

/// After this time without a further message, the memory table counts as complete.
const SETTLED_AFTER: Duration = Duration::from_millis(20);
/// Time between two looks for the rest of a message. Front ends send messages as a whole.
const LOOK_EVERY: Duration = Duration::from_millis(5);
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
        let mut receiver = Receiver::peeking();
        let mut settle_at = session.is_unsettled().then(|| Instant::now() + SETTLED_AFTER);
        loop {
            // A message stays in the socket until it is complete, and keeps the socket readable.
            let waits = receiver.waits();
            let look_at = waits.then(|| Instant::now() + LOOK_EVERY);
            let until = [receiver.deadline(), settle_at, look_at].into_iter().flatten().min();
            let broken = PollFd::from_borrowed_fd(self.device.broken(), PollFlags::IN);
            let socket = (!waits).then(|| PollFd::new(&**peer.socket, PollFlags::IN));
            let [broken, readable] = peer.wait([Some(broken), socket], until)?;
            if broken {
                return Err(self.ring_fault());
            }
            if readable || waits {
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
    const OUTLIVES: bool = true;

    fn open(&mut self, _: &Arc<Connection>, _: Option<&Kept>) -> io::Result<()> {
        self.device.note_connection(true, 0);
        Ok(())
    }

    fn serve(&mut self, peer: &Peer<'_>) -> Result<Infallible, End> {
        let device = Arc::clone(&self.device);
        let mut session = if peer.kept().is_some() { Session::kept(device) } else { Session::new(device) };
        let result = go_on(peer, &mut session).and_then(|()| self.talk(peer, &mut session));
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

/// Goes on where a predecessor was, if it left this connection.
fn go_on(peer: &Peer<'_>, session: &mut Session) -> Result<(), End> {
    let Some(left) = peer.take_left() else { return Ok(()) };
    let owner = peer.socket.owner().flatten();
    if let Err(why) = resume::resume(session, left, |files| ClientFd::hold_all_left(files, owner)) {
        return Err(peer.cannot_go_on(&why));
    }
    // What the predecessor had taken and not answered.
    peer.send_prepared()
}

/// Handles the requests that have arrived. A request is applied and kept before it is taken out of the socket, and answered afterwards: wherever the
/// switch dies, a successor applies it once, or again with the same result, and answers it once.
///
/// One answer can be lost: that to GET_INFLIGHT_FD has a file, and is no part of what was prepared. The switch would have to die between the two calls
/// that take the request and send the answer.
fn handle_requests(peer: &Peer<'_>, session: &mut Session, receiver: &mut Receiver<Messages>) -> Result<(), End> {
    for _ in 0..AT_A_TIME {
        let header: Header = match receiver.receive(peer.socket)? {
            Received::Message(header) => header,
            Received::Nothing => return Ok(()),
            Received::Gone => return Err(End::Disconnected),
        };
        let (body, fds) = receiver.take();
        let request = Request::decode(header, body, fds).map_err(SessionEnd::from)?;
        let reply = session.handle(header, request)?;
        if let Some(kept) = peer.kept() {
            resume::keep(session, |part, note, files| kept.keep(part, note, files))?;
        }
        let reply = reply.as_ref().map(|reply| reply.encode(header.request));
        if let Some((bytes, None)) = &reply {
            peer.prepare(bytes)?;
        }
        receiver.consume(peer.socket)?;
        match reply {
            Some((bytes, Some(file))) => peer.send(&bytes, Some(file.as_fd()))?,
            _ => peer.send_prepared()?,
        }
    }
    Ok(())
}
