//! A port's own thread: serves one front end at a time.
//!
//! While a front end is connected, the thread closes further connections at once. Every end of a connection leaves the
//! function in the state after power on, and the port waits for the next front end.
//!
//! When a port goes, its front end's last messages are still followed and answered, because QEMU waits for each answer, and
//! the whole guest waits with QEMU, whether there is a connection or not. A process that is killed cannot answer.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{Shutdown, shutdown};

use super::message::{MessageError, Messages};
use super::nap::Nap;
use super::session::{Outgoing, Session, SessionEnd};
use super::{Function, Interrupts};
use crate::front_end::{
    Answered, Backoff, CALL_BLOCKED, Connection, Files, HoldUps, Listener, Observer, Received, Receiver, SocketError,
    Stop, Thread, too_slow, unread, wait,
};

/// Pause between two connections, so that front ends that disconnect at once do not occupy a core.
const BETWEEN: Duration = Duration::from_millis(10);
/// Pause after the first faults; it grows later.
const AFTER_FAULT: Duration = Duration::from_millis(100);
/// After this time without a further message, unmapped memory counts as not replaced.
const SETTLED_AFTER: Duration = Duration::from_millis(2);
/// Most messages handled before the other descriptors are polled again.
const AT_A_TIME: usize = 64;

/// Settings of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// `SWITCH:PORT`, for the thread's name.
    pub label: String,
    /// Path of the socket.
    pub socket: PathBuf,
}

/// The running thread of a port. Dropping it ends the thread, its connection and its socket.
pub struct Server {
    _thread: Thread,
}

impl Server {
    /// Listens, and serves `function` to the front ends that connect.
    ///
    /// # Errors
    /// The socket cannot be opened, or the kernel has no descriptors or threads left.
    pub fn start(
        settings: &ServerSettings,
        function: Arc<dyn Function>,
        interrupts: Arc<Interrupts>,
        observer: Arc<dyn Observer>,
    ) -> io::Result<Server> {
        let listener = Listener::bind(&settings.socket, Files::Taken)?;
        let blocked = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        interrupts.report_blocked_to(blocked.try_clone()?);
        let interrupted = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        interrupts.wake_by(interrupted.try_clone()?);
        let thread = Thread::start(&settings.label, Arc::clone(&observer), move |stop| {
            ringway_engine::use_batch_scheduling();
            PortThread { listener, function, interrupts, observer, stop, blocked, interrupted }.run();
        })?;
        Ok(Server { _thread: thread })
    }
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
    listener: Listener,
    function: Arc<dyn Function>,
    interrupts: Arc<Interrupts>,
    observer: Arc<dyn Observer>,
    stop: Stop,
    /// Becomes readable when signalling an interrupt took too long.
    blocked: OwnedFd,
    /// Becomes readable when an interrupt was triggered while this thread did not poll its connection.
    interrupted: OwnedFd,
}

/// The result of [`PortThread::hear`].
enum Heard {
    /// There may be further messages. Some may have been received already, so that the socket need not be readable.
    Some,
    /// All messages were handled.
    All,
    /// All messages were handled, and the thread may sleep until this time.
    Enough(Instant),
}

impl PortThread {
    fn run(self) {
        let (mut hold_ups, mut backoff) = (HoldUps::new(), Backoff::listening(AFTER_FAULT));
        while let Some(socket) = self.stop.or_accept(&self.listener) {
            let since = Instant::now();
            self.observer.connected(true);
            let ended = self.serve(&socket);
            drop(socket);
            let held_up = rustix::io::read(&self.blocked, &mut [0; 8]).is_ok();
            let rest = match ended {
                Ended::Stop => return,
                Ended::Gone if held_up => hold_ups.rest(CALL_BLOCKED, since.elapsed()).unwrap_or(BETWEEN),
                Ended::Gone => BETWEEN,
                Ended::Fault(name, text) => {
                    self.observer.fault(name, text);
                    let lasted = since.elapsed();
                    hold_ups.rest(name, lasted).unwrap_or_else(|| backoff.after_fault(lasted))
                }
            };
            self.observer.connected(false);
            if self.stop.within(rest) {
                return;
            }
        }
    }

    /// Serves one connection to its end.
    fn serve(&self, socket: &Connection) -> Ended {
        let mut session = match Session::new(Arc::clone(&self.function), Arc::clone(&self.interrupts)) {
            Ok(session) => session,
            Err(error) => return Ended::Fault("out_of_resources", error.to_string()),
        };
        let (mut receiver, mut nap) = (Receiver::new(), Nap::default());
        let ended = self.talk(socket, &mut session, &mut receiver, &mut nap);
        if matches!(ended, Ended::Stop) {
            // QEMU (11.1) waits for every answer, also after the connection has ended, and with it the whole guest. No
            // further messages arrive after the shutdown; those that have arrived are handled and answered.
            let _ = shutdown(socket, Shutdown::Read);
            while let Ok(Heard::Some) = self.hear(socket, &mut session, &mut receiver, &mut nap) {}
            let _ = self.settle(socket, &mut session);
        }
        ended
    }

    /// Handles messages until the connection has to end.
    fn talk(
        &self,
        socket: &Connection,
        session: &mut Session,
        receiver: &mut Receiver<Messages>,
        nap: &mut Nap,
    ) -> Ended {
        let (mut settle_at, mut more) = (None, false);
        let (mut turn_away_from, mut refusal_told) = (Instant::now(), false);
        loop {
            let now = Instant::now();
            let others = (now >= turn_away_from).then_some(&self.listener);
            let until = [receiver.deadline(), settle_at, others.is_none().then_some(turn_away_from)];
            let mut fds = vec![
                PollFd::new(&self.stop, PollFlags::IN),
                PollFd::new(socket, PollFlags::IN),
                PollFd::new(&self.blocked, PollFlags::IN),
                PollFd::new(session.unmask(), PollFlags::IN),
            ];
            fds.extend(others.map(|listener| PollFd::new(listener, PollFlags::IN)));
            let until = if more { Some(now) } else { until.into_iter().flatten().min() };
            wait(&mut fds, until);
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            let (stop, heard, blocked, unmasked, other) = (ready(0), ready(1), ready(2), ready(3), ready(4));
            if stop {
                return Ended::Stop;
            }
            if blocked {
                return Ended::Fault(CALL_BLOCKED, "signalling an interrupt's eventfd took too long".into());
            }
            if unmasked {
                session.look_at_unmask();
            }
            if heard || more {
                let heard = self.hear(socket, session, receiver, nap);
                // Also if the connection ended with a request after the refused one.
                if let Some(refusal) = session.take_refusal().filter(|_| !refusal_told) {
                    refusal_told = true;
                    self.observer.refused(refusal.name().unwrap_or("refused"), refusal.to_string());
                }
                more = match heard {
                    Ok(Heard::All) => false,
                    Ok(Heard::Some) => true,
                    Ok(Heard::Enough(until)) => {
                        self.sleep(until, nap);
                        true
                    }
                    Err(ended) => return ended,
                };
                settle_at = session.is_unsettled().then(|| Instant::now() + SETTLED_AFTER);
            }
            let now = Instant::now();
            if settle_at.is_some_and(|at| now >= at) {
                settle_at = None;
                if let Err(ended) = self.settle(socket, session) {
                    return ended;
                }
            }
            if receiver.deadline().is_some_and(|deadline| now >= deadline) {
                return Ended::Fault("message_too_slow", too_slow());
            }
            if other {
                drop(self.listener.accept());
                turn_away_from = now + BETWEEN;
            }
        }
    }

    /// Sleeps while only messages arrive that expect no answer. An interrupt and the end of the port wake the thread.
    fn sleep(&self, until: Instant, nap: &mut Nap) {
        self.interrupts.look_away(true);
        let mut fds = [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.interrupted, PollFlags::IN)];
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let interrupted = poll(&mut fds, Some(&left)).is_ok() && !fds[1].revents().is_empty();
        self.interrupts.look_away(false);
        if interrupted {
            let _ = rustix::io::read(&self.interrupted, &mut [0; 8]);
            nap.interrupted(Instant::now());
        }
    }

    /// Handles the messages that have arrived, at most [`AT_A_TIME`].
    fn hear(
        &self,
        socket: &OwnedFd,
        session: &mut Session,
        receiver: &mut Receiver<Messages>,
        nap: &mut Nap,
    ) -> Result<Heard, Ended> {
        let mut out = Vec::new();
        let (mut messages, mut answered) = (0, false);
        for _ in 0..AT_A_TIME {
            let header = match receiver.receive(socket)? {
                Received::Message(header) => header,
                Received::Nothing if session.is_unsettled() => return Ok(Heard::All),
                Received::Nothing => {
                    self.settle(socket, session)?;
                    let until = nap.after(Instant::now(), messages, answered, || self.function.is_read_soon());
                    return Ok(until.map_or(Heard::All, Heard::Enough));
                }
                Received::Gone => return Err(Ended::Gone),
            };
            (messages, answered) = (messages + 1, answered || !header.no_reply);
            let (body, fds) = receiver.take();
            session.handle(header, body, fds, &mut out)?;
            self.send(socket, &mut out)?;
        }
        Ok(Heard::Some)
    }

    /// Treats the memory mappings as complete, and sends the answers that were withheld meanwhile.
    fn settle(&self, socket: &OwnedFd, session: &mut Session) -> Result<(), Ended> {
        let mut out = Vec::new();
        session.settle(&mut out);
        self.send(socket, &mut out)
    }

    fn send(&self, socket: &OwnedFd, out: &mut Vec<Outgoing>) -> Result<(), Ended> {
        for Outgoing { bytes, file } in out.drain(..) {
            match self.stop.or_send(socket, &bytes, file.as_ref().map(AsFd::as_fd)) {
                Answered::Done => {}
                Answered::Gone => return Err(Ended::Gone),
                Answered::Stop => return Err(Ended::Stop),
                Answered::Unread => return Err(Ended::Fault("replies_unread", unread())),
            }
        }
        Ok(())
    }
}
