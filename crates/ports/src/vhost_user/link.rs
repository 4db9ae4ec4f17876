//! A port's own thread: owns the socket and serves one front end at a time.
//!
//! While a front end is connected, the thread closes further connections at once, so that their users see a closed connection
//! instead of a hypervisor that hangs. Every end of a connection resets the device, and the port waits for the next front
//! end.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::device::Device;
use super::end::SessionEnd;
use super::message::{Header, MessageError, Messages, Request};
use super::reply::Reply;
use super::session::Session;
use super::{Observer, Role, Settings};
use crate::front_end::{
    Answered, Backoff, CALL_BLOCKED, Connection, Files, HoldUps, Listener, Received, Receiver, SocketError, Stop,
    Thread, too_slow, unread, wait,
};
use crate::virtqueue::RingFault;

/// Pause between two connections, so that front ends that disconnect at once do not occupy a core.
const BETWEEN: Duration = Duration::from_millis(10);
/// Pauses after a fault: of a listening port, of a connecting port at first, and of a connecting port at most.
const AFTER_FAULT_SERVER: Duration = Duration::from_millis(100);
const AFTER_FAULT_CLIENT: Duration = Duration::from_secs(1);
const LONGEST_AFTER_FAULT: Duration = Duration::from_secs(10);
/// After this time without a further message, the memory table counts as complete.
const SETTLED_AFTER: Duration = Duration::from_millis(20);
/// Most requests handled before the other descriptors are polled again.
const AT_A_TIME: usize = 64;

/// The running thread of a port. Dropping it ends the thread, its connection and its socket.
pub struct Link {
    _thread: Thread,
}

impl Link {
    /// Starts to listen, or to try to connect.
    ///
    /// # Errors
    /// The socket cannot be opened, or the kernel has no descriptors or threads left.
    pub fn start(settings: &Settings, device: Arc<Device>, observer: Arc<dyn Observer>) -> io::Result<Link> {
        let way = match settings.role {
            Role::Server => Way::Listen(Listener::bind(&settings.socket, Files::Taken)?),
            Role::Client => Way::Connect(settings.socket.clone()),
        };
        let backoff = match way {
            Way::Listen(_) => Backoff::listening(AFTER_FAULT_SERVER),
            Way::Connect(_) => Backoff::connecting(AFTER_FAULT_CLIENT, LONGEST_AFTER_FAULT),
        };
        let thread = Thread::start(&settings.label, Arc::clone(&observer), move |stop| {
            PortThread { way, device, observer, stop, backoff, hold_ups: HoldUps::new() }.run();
        })?;
        Ok(Link { _thread: thread })
    }
}

/// How connections are made.
enum Way {
    Listen(Listener),
    Connect(PathBuf),
}

/// Why a connection ended.
enum Ended {
    /// The port is being removed.
    Stop,
    /// The front end disconnected.
    Gone,
    /// The front end broke the protocol: the name of the reason and its text.
    Fault(&'static str, String),
}

impl From<SessionEnd> for Ended {
    fn from(end: SessionEnd) -> Ended {
        Ended::Fault(end.name(), end.to_string())
    }
}

impl From<SocketError<MessageError>> for Ended {
    fn from(error: SocketError<MessageError>) -> Ended {
        Ended::Fault(error.name(), error.to_string())
    }
}

struct PortThread {
    way: Way,
    device: Arc<Device>,
    observer: Arc<dyn Observer>,
    stop: Stop,
    backoff: Backoff,
    hold_ups: HoldUps,
}

impl PortThread {
    fn run(mut self) {
        while let Some(socket) = self.next_connection() {
            let since = Instant::now();
            self.device.note_connection(true, 0);
            self.observer.connected(true);
            let mut session = Session::new(Arc::clone(&self.device));
            let ended = self.serve(&socket, &mut session);
            drop(socket);
            let (broken, held_up) = (self.device.fault().map(|fault| fault.queue), self.device.calls_blocked());
            self.device.reset();
            self.device.note_connection(false, 0);
            let rest = match ended {
                Ended::Stop => return,
                Ended::Gone if held_up => self.hold_ups.rest(CALL_BLOCKED, since.elapsed()).unwrap_or(BETWEEN),
                Ended::Gone => BETWEEN,
                Ended::Fault(name, text) => {
                    self.observer.fault(name, text);
                    let lasted = since.elapsed();
                    self.hold_ups.rest(name, lasted).unwrap_or_else(|| self.backoff.after_fault(lasted))
                }
            };
            self.observer.connected(false);
            if let Some(error) = broken.and_then(|queue| session.error_descriptor(queue)) {
                ringway_engine::call(error.as_fd());
            }
            drop(session);
            if self.stop.within(rest) {
                return;
            }
        }
    }

    /// Waits for the next front end. Returns `None` when the port is being removed.
    fn next_connection(&self) -> Option<Connection> {
        match &self.way {
            Way::Connect(path) => self.stop.or_connect(path, Files::Taken),
            Way::Listen(listener) => self.stop.or_accept(listener),
        }
    }

    /// Serves one connection to its end.
    fn serve(&self, socket: &OwnedFd, session: &mut Session) -> Ended {
        let mut receiver = Receiver::new();
        let (mut settle_at, mut turn_away_from, mut refusal_told) = (None, Instant::now(), false);
        loop {
            let now = Instant::now();
            let listener = match &self.way {
                Way::Listen(listener) if now >= turn_away_from => Some(listener),
                _ => None,
            };
            let later = matches!(self.way, Way::Listen(_)) && listener.is_none();
            let until = [receiver.deadline(), settle_at, later.then_some(turn_away_from)];
            let mut fds = vec![
                PollFd::new(&self.stop, PollFlags::IN),
                PollFd::from_borrowed_fd(self.device.broken(), PollFlags::IN),
                PollFd::new(socket, PollFlags::IN),
            ];
            fds.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
            wait(&mut fds, until.into_iter().flatten().min());
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            if ready(0) {
                return Ended::Stop;
            }
            if ready(1) {
                return match self.device.fault() {
                    Some(fault) => match (fault.what, self.device.quota().take_too_many_holes()) {
                        (RingFault::MemoryLost, Some(text)) => Ended::Fault("memory_holes", text),
                        (what, _) => Ended::Fault(what.name(), fault.to_string()),
                    },
                    None => Ended::Fault("ring_broken", "a ring broke".into()),
                };
            }
            if ready(2) {
                let heard = self.hear(socket, session, &mut receiver);
                // Also if the connection ended with a request after the refused one.
                if let Some(refusal) = session.take_refusal().filter(|_| !refusal_told) {
                    refusal_told = true;
                    self.observer.refused(refusal.name(), refusal.to_string());
                }
                if let Err(ended) = heard {
                    return ended;
                }
                settle_at = session.is_unsettled().then(|| Instant::now() + SETTLED_AFTER);
            }
            let now = Instant::now();
            if receiver.deadline().is_some_and(|deadline| now >= deadline) {
                return Ended::Fault("message_too_slow", too_slow());
            }
            if settle_at.is_some_and(|at| now >= at) {
                settle_at = None;
                if let Err(end) = session.settle() {
                    return end.into();
                }
            }
            if let Some(listener) = listener.filter(|_| ready(3)) {
                drop(listener.accept());
                turn_away_from = now + BETWEEN;
            }
        }
    }

    /// Handles the requests that have arrived.
    fn hear(&self, socket: &OwnedFd, session: &mut Session, receiver: &mut Receiver<Messages>) -> Result<(), Ended> {
        for _ in 0..AT_A_TIME {
            let header: Header = match receiver.receive(socket)? {
                Received::Message(header) => header,
                Received::Nothing => return Ok(()),
                Received::Gone => return Err(Ended::Gone),
            };
            let (body, fds) = receiver.take();
            let request = Request::decode(header, body, fds).map_err(SessionEnd::from)?;
            if let Some(reply) = session.handle(header, request)? {
                self.answer(socket, header.request, &reply)?;
            }
        }
        Ok(())
    }

    /// Sends an answer. Waits for a front end that has to read earlier answers first.
    fn answer(&self, socket: &OwnedFd, request: u32, reply: &Reply) -> Result<(), Ended> {
        let (bytes, file) = reply.encode(request);
        match self.stop.or_send(socket, &bytes, file.map(AsFd::as_fd)) {
            Answered::Done => Ok(()),
            Answered::Gone => Err(Ended::Gone),
            Answered::Stop => Err(Ended::Stop),
            Answered::Unread => Err(Ended::Fault("replies_unread", unread())),
        }
    }
}
