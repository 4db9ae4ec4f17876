//! A port's own thread: front ends come and go, one at a time.
//!
//! While one is connected, another is turned away at once: its user sees a closed connection instead of a hypervisor
//! that waits for ever. Whatever ends a connection resets the device, and the port waits for the next.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::thread::JoinHandleExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Done, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::OFlags;

use super::device::Device;
use super::end::SessionEnd;
use super::message::{Header, Request};
use super::reply::Reply;
use super::session::Session;
use super::socket::{self, Listener, MESSAGE_WITHIN, Received, Receiver, Sent, SocketError};
use super::{Observer, Role, Settings};

/// A client tries to connect this often.
const TRY_EVERY: Duration = Duration::from_millis(100);
/// Between a connection and the next, so that one that ends at once costs nobody a core.
const BETWEEN: Duration = Duration::from_millis(10);
/// The same after a fault, for a server, and at first for a client, which waits twice as long each time.
const AFTER_FAULT_SERVER: Duration = Duration::from_millis(100);
const AFTER_FAULT_CLIENT: Duration = Duration::from_secs(1);
const LONGEST_AFTER_FAULT: Duration = Duration::from_secs(10);
/// Without a further message for so long, the memory table is whole.
const SETTLED_AFTER: Duration = Duration::from_millis(20);
/// Requests that are followed before anything else is looked at.
const AT_A_TIME: usize = 64;

/// The running thread. Ends when dropped, and its connection and socket with it.
pub struct Link {
    end: Arc<OwnedFd>,
    done: Done<()>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Listens, or begins to try to connect.
    ///
    /// # Errors
    /// The socket cannot be had, or the kernel has no descriptors or threads left.
    pub fn start(settings: &Settings, device: Arc<Device>, observer: Arc<dyn Observer>) -> io::Result<Link> {
        let way = match settings.role {
            Role::Server => Way::Listen(Listener::bind(&settings.socket)?),
            Role::Client => Way::Connect(settings.socket.clone()),
        };
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (alive, done) = channel();
        let after_fault = AFTER_FAULT_CLIENT;
        let port = PortThread { way, device, observer, end: Arc::clone(&end), after_fault, _alive: alive };
        let name = settings.label.chars().take(15).filter(|&c| c != '\0').collect();
        let thread = std::thread::Builder::new().name(name).spawn(move || port.run())?;
        Ok(Link { end, done, thread: Some(thread) })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Only this process has the descriptor; a full counter is as good as a write.
        let _ = rustix::io::write(&*self.end, &1u64.to_ne_bytes());
        let Some(thread) = self.thread.take() else { return };
        // A front end can make its error eventfd block a write: the signal that interrupts pollers ends that, too.
        while self.done.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Timeout) {
            // SAFETY: the thread has not been joined, so that its handle is valid.
            unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGURG) };
        }
        let _ = thread.join();
    }
}

/// How a connection is made.
enum Way {
    Listen(Listener),
    Connect(PathBuf),
}

/// What ended a connection.
enum Ended {
    /// The port is to go.
    Stop,
    /// The front end went.
    Gone,
    /// It broke the rules: the reason's name and its text.
    Fault(&'static str, String),
}

impl From<SessionEnd> for Ended {
    fn from(end: SessionEnd) -> Ended {
        Ended::Fault(end.name(), end.to_string())
    }
}

impl From<SocketError> for Ended {
    fn from(error: SocketError) -> Ended {
        let name = match error {
            SocketError::Message(_) => "bad_message",
            SocketError::Descriptors => "too_many_descriptors",
        };
        Ended::Fault(name, error.to_string())
    }
}

struct PortThread {
    way: Way,
    device: Arc<Device>,
    observer: Arc<dyn Observer>,
    end: Arc<OwnedFd>,
    /// How long a client waits after the next fault.
    after_fault: Duration,
    /// Dropped when the thread ends.
    _alive: Sender<()>,
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
            let broken = self.device.fault().map(|fault| fault.queue);
            self.device.reset();
            self.device.note_connection(false, 0);
            let rest = match ended {
                Ended::Stop => return,
                Ended::Gone => BETWEEN,
                Ended::Fault(name, text) => {
                    self.observer.fault(name, text);
                    self.rest_after_fault(since.elapsed())
                }
            };
            self.observer.connected(false);
            if let Some(error) = broken.and_then(|queue| session.error_descriptor(queue)) {
                signal(error);
            }
            drop(session);
            if self.stops_within(rest) {
                return;
            }
        }
    }

    fn rest_after_fault(&mut self, lasted: Duration) -> Duration {
        if matches!(self.way, Way::Listen(_)) {
            return AFTER_FAULT_SERVER;
        }
        if lasted > LONGEST_AFTER_FAULT {
            self.after_fault = AFTER_FAULT_CLIENT;
        }
        let rest = self.after_fault;
        self.after_fault = (2 * rest).min(LONGEST_AFTER_FAULT);
        rest
    }

    /// Waits; true when the port is to go.
    fn stops_within(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let mut fds = [PollFd::new(&*self.end, PollFlags::IN)];
            wait(&mut fds, Some(until));
            if !fds[0].revents().is_empty() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
        }
    }

    /// The next front end; `None` when the port is to go.
    fn next_connection(&self) -> Option<OwnedFd> {
        loop {
            match &self.way {
                Way::Connect(path) => {
                    if let Ok(socket) = socket::connect(path) {
                        return Some(socket);
                    }
                    if self.stops_within(TRY_EVERY) {
                        return None;
                    }
                }
                Way::Listen(listener) => {
                    let mut fds = [PollFd::new(&*self.end, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
                    wait(&mut fds, None);
                    if !fds[0].revents().is_empty() {
                        return None;
                    }
                    if fds[1].revents().is_empty() {
                        continue;
                    }
                    match listener.accept() {
                        Ok(socket) => return Some(socket),
                        // Out of descriptors, mostly: the front end waits, and so do we.
                        Err(_) if self.stops_within(TRY_EVERY) => return None,
                        Err(_) => {}
                    }
                }
            }
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
                PollFd::new(&*self.end, PollFlags::IN),
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
                    Some(fault) => Ended::Fault(fault.what.name(), fault.to_string()),
                    None => Ended::Fault("ring_broken", "a ring broke".into()),
                };
            }
            if ready(2) {
                if let Err(ended) = self.hear(socket, session, &mut receiver) {
                    return ended;
                }
                settle_at = session.is_unsettled().then(|| Instant::now() + SETTLED_AFTER);
                if let Some(refusal) = session.take_refusal().filter(|_| !refusal_told) {
                    refusal_told = true;
                    self.observer.refused(refusal.name(), refusal.to_string());
                }
            }
            let now = Instant::now();
            if receiver.deadline().is_some_and(|deadline| now >= deadline) {
                let text = format!("a message was not whole within {MESSAGE_WITHIN:?}");
                return Ended::Fault("message_too_slow", text);
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

    /// Follows the requests that have come.
    fn hear(&self, socket: &OwnedFd, session: &mut Session, receiver: &mut Receiver) -> Result<(), Ended> {
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

    /// Sends an answer, to a front end that may have to read earlier ones first.
    fn answer(&self, socket: &OwnedFd, request: u32, reply: &Reply) -> Result<(), Ended> {
        let until = Instant::now() + MESSAGE_WITHIN;
        loop {
            match socket::send(socket, request, reply) {
                Sent::Done => return Ok(()),
                Sent::Gone => return Err(Ended::Gone),
                Sent::Full => {}
            }
            let mut fds = [PollFd::new(&*self.end, PollFlags::IN), PollFd::new(socket, PollFlags::OUT)];
            wait(&mut fds, Some(until));
            if !fds[0].revents().is_empty() {
                return Err(Ended::Stop);
            }
            if Instant::now() >= until {
                let text = format!("the front end did not read what it asked for within {MESSAGE_WITHIN:?}");
                return Err(Ended::Fault("replies_unread", text));
            }
        }
    }
}

/// Waits until one of the descriptors is ready or it is `until`.
fn wait(fds: &mut [PollFd<'_>], until: Option<Instant>) {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_micros(100));
    let left = left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
    if poll(fds, left.as_ref()).is_err() {
        // Interrupted: nothing is ready that the next look will not find.
        fds.iter_mut().for_each(PollFd::clear_revents);
    }
}

/// Tells the front end that a queue broke. It has set the descriptor for that, and may have made it blocking.
fn signal(error: &OwnedFd) {
    let flags = rustix::fs::fcntl_getfl(error).unwrap_or(OFlags::empty());
    if rustix::fs::fcntl_setfl(error, flags | OFlags::NONBLOCK).is_ok() {
        let _ = rustix::io::write(error, &1u64.to_ne_bytes());
    }
}
