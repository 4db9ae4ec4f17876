//! What a port does with one connection: receives messages, and answers them. Every end of a connection leaves the function
//! in the state after power on.
//!
//! When a port is removed, its front end's last messages are still handled and answered, because QEMU waits for each answer,
//! and the whole guest waits with QEMU, whether there is a connection or not. A process that is killed cannot answer.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_port::front_end::{CALL_BLOCKED, Connection, End, LateReceiver, Peer, Protocol, Received, Receiver};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{Shutdown, shutdown};

use super::coalescing::Coalescing;
use super::function::Function;
use super::interrupts::Interrupts;
use super::keeping::{Adopted, Keeping};
use super::kept_files::KeptFiles;
use super::message::{HEADER_BYTES, Header, Messages};
use super::reply::Outgoing;
use super::session::{Session, SessionEnd};
use crate::kept::State;

/// After this time without a further message, unmapped memory counts as not replaced.
const SETTLED_AFTER: Duration = Duration::from_millis(2);
/// Most messages handled before the other descriptors are polled again.
const AT_A_TIME: usize = 64;

impl From<SessionEnd> for End {
    fn from(end: SessionEnd) -> End {
        End::Fault(end.name(), end.to_string())
    }
}

/// Serves a function to front ends.
pub struct VfioProtocol {
    function: Arc<dyn Function>,
    interrupts: Arc<Interrupts>,
    /// Becomes readable when signalling an interrupt took too long.
    blocked: OwnedFd,
    /// Becomes readable when an interrupt was triggered while this thread did not poll its connection.
    interrupted: OwnedFd,
}

/// The result of [`Talk::handle_messages`].
enum Progress {
    /// There may be further messages. Some may have been received already, so that the socket need not be readable.
    More,
    /// All messages were handled.
    Done,
    /// All messages were handled, and the thread may sleep until this time.
    SleepUntil(Instant),
}

impl VfioProtocol {
    pub fn new(function: Arc<dyn Function>, interrupts: Arc<Interrupts>) -> io::Result<VfioProtocol> {
        let blocked = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        interrupts.report_blocked_to(blocked.try_clone()?);
        let interrupted = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        interrupts.wake_by(interrupted.try_clone()?);
        Ok(VfioProtocol { function, interrupts, blocked, interrupted })
    }
}

impl Protocol for VfioProtocol {
    const OUTLIVES: bool = true;

    fn start(&mut self) {
        ringway_runtime::use_batch_scheduling();
    }

    fn serve(&mut self, peer: &Peer<'_>) -> Result<Infallible, End> {
        self.interrupts.account().begin_client();
        let (session, input, mut due) = self.begin(peer)?;
        let mut talk = Talk { port: self, peer, session, input, coalescing: Coalescing::default() };
        let result = talk.send(&mut due).and_then(|()| talk.run());
        if matches!(result, Err(End::Stop)) {
            talk.finish();
        }
        result
    }

    fn close(&mut self, socket: Arc<Connection>) -> bool {
        // What was kept of this front end goes with it.
        if let Ok(state) = State::new(false) {
            self.function.note_in(&Arc::new(state));
        }
        drop(socket);
        rustix::io::read(&self.blocked, &mut [0; 8]).is_ok()
    }
}

/// The beginning of a connection: the session, its messages, and answers that a predecessor of this process has not sent.
type Begin<'a> = (Session<'a>, Input, Vec<Outgoing>);

impl VfioProtocol {
    fn begin<'a>(&self, peer: &'a Peer<'_>) -> Result<Begin<'a>, End> {
        let failed = |error: io::Error| End::Fault("out_of_resources", error.to_string());
        let left = peer.kept().zip(peer.take_left());
        if let Some((kept, left)) = left {
            let adopted = Keeping::adopt(kept, left, peer.socket, &self.function, &self.interrupts);
            let adopted = adopted.map_err(|why| {
                End::Fault("not_adopted", format!("the NIC of the switch before this one cannot go on: {why}"))
            })?;
            if let Some(Adopted { keeping, session, receiver, due }) = adopted {
                return Ok((session, Input::Late(receiver, keeping), due));
            }
        }
        let files = KeptFiles::new(peer.kept());
        let session = Session::new(Arc::clone(&self.function), Arc::clone(&self.interrupts), files).map_err(failed)?;
        let Some(kept) = peer.kept() else { return Ok((session, Input::Now(Receiver::new()), Vec::new())) };
        let keeping = Keeping::begin(kept, &*self.function).map_err(failed)?;
        let receiver = LateReceiver::new(peer.socket, &[]).map_err(failed)?;
        Ok((session, Input::Late(receiver, keeping), Vec::new()))
    }
}

/// The messages of a connection as they come.
enum Input {
    /// Each is taken out of the socket at once.
    Now(Receiver<Messages>),
    /// The connection outlives this process: messages are taken when they are handled.
    Late(LateReceiver<Messages>, Keeping),
}

impl Input {
    fn deadline(&self) -> Option<Instant> {
        match self {
            Input::Now(receiver) => receiver.deadline(),
            Input::Late(receiver, _) => receiver.deadline(),
        }
    }

    fn check_deadline(&self, now: Instant) -> Result<(), End> {
        match self {
            Input::Now(receiver) => receiver.check_deadline(now),
            Input::Late(receiver, _) => receiver.check_deadline(now),
        }
    }

    fn receive(&mut self, socket: &Connection) -> Result<Received<Header>, End> {
        Ok(match self {
            Input::Now(receiver) => receiver.receive(socket)?,
            Input::Late(receiver, _) => receiver.receive(socket)?,
        })
    }

    /// Called when there is no complete message. Returns true if there may be more all the same.
    fn settle(&mut self, session: &mut Session<'_>, socket: &Connection) -> Result<bool, End> {
        let Input::Late(receiver, keeping) = self else { return Ok(false) };
        let has_more = receiver.has_more();
        keeping.settle(session, receiver, socket)?;
        Ok(has_more)
    }

    fn handle(&mut self, header: Header, session: &mut Session<'_>, out: &mut Vec<Outgoing>) -> Result<(), End> {
        match self {
            Input::Now(receiver) => {
                let (body, fds) = receiver.take();
                session.handle(header, body, fds, out)?;
            }
            Input::Late(receiver, keeping) => {
                let (body, fds) = receiver.take();
                let bytes = HEADER_BYTES.saturating_add(body.len());
                let handled = session.handle(header, body, fds, out);
                let result = keeping.note(bytes, session, receiver, out, !header.is_register_write());
                handled?;
                result?;
            }
        }
        Ok(())
    }
}

/// The messages of one connection.
struct Talk<'a> {
    port: &'a VfioProtocol,
    peer: &'a Peer<'a>,
    session: Session<'a>,
    input: Input,
    coalescing: Coalescing,
}

impl Talk<'_> {
    /// Handles messages until the connection has to end.
    fn run(&mut self) -> Result<Infallible, End> {
        // Of a connection that goes on, memory may wait for its replacement.
        let unsettled = self.session.has_unsettled().then_some(SETTLED_AFTER);
        let mut settle_at =
            unsettled.map(|time| if self.session.is_unsettled() { Instant::now() + time } else { Instant::now() });
        let mut more = false;
        loop {
            let until = [self.input.deadline(), settle_at].into_iter().flatten().min();
            let until = if more { Some(Instant::now()) } else { until };
            let events = [
                Some(PollFd::new(&**self.peer.socket, PollFlags::IN)),
                Some(PollFd::new(&self.port.blocked, PollFlags::IN)),
                Some(PollFd::new(self.session.unmask(), PollFlags::IN)),
            ];
            let [readable, blocked, unmasked] = self.peer.wait(events, until)?;
            if blocked {
                return Err(End::Fault(CALL_BLOCKED, "signalling an interrupt's eventfd took too long".into()));
            }
            if unmasked {
                self.session.look_at_unmask();
            }
            if readable || more {
                let progress = self.handle_messages();
                // Also if the connection ended with a request after the refused one.
                if let Some(refusal) = self.session.take_refusal() {
                    self.peer.report_refusal(refusal.name().unwrap_or("refused"), &refusal);
                }
                more = match progress? {
                    Progress::Done => false,
                    Progress::More => true,
                    Progress::SleepUntil(until) => {
                        self.sleep(until);
                        true
                    }
                };
                settle_at = self.session.is_unsettled().then(|| Instant::now() + SETTLED_AFTER);
            }
            let now = Instant::now();
            if settle_at.is_some_and(|at| now >= at) {
                settle_at = None;
                self.settle()?;
            }
            self.input.check_deadline(now)?;
        }
    }

    /// Handles and answers the messages that have arrived, before the port is removed: QEMU (11.1) waits for every
    /// answer, also after the connection has ended, and with it the whole guest.
    fn finish(&mut self) {
        // No further messages arrive after the shutdown.
        let _ = shutdown(&**self.peer.socket, Shutdown::Read);
        while let Ok(Progress::More) = self.handle_messages() {}
        let _ = self.settle();
    }

    /// Sleeps while only messages arrive that expect no answer. An interrupt and the end of the port wake the thread.
    fn sleep(&mut self, until: Instant) {
        let VfioProtocol { interrupts, interrupted, .. } = self.port;
        interrupts.pause_polling(true);
        let mut fds = [PollFd::new(self.peer.stop, PollFlags::IN), PollFd::new(interrupted, PollFlags::IN)];
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let is_interrupted = poll(&mut fds, Some(&left)).is_ok() && !fds[1].revents().is_empty();
        interrupts.pause_polling(false);
        if is_interrupted {
            let _ = rustix::io::read(interrupted, &mut [0; 8]);
            self.coalescing.interrupted(Instant::now());
        }
    }

    /// Handles the messages that have arrived, at most [`AT_A_TIME`].
    fn handle_messages(&mut self) -> Result<Progress, End> {
        let mut out = Vec::new();
        let (mut messages, mut answered) = (0, false);
        for _ in 0..AT_A_TIME {
            let header = match self.input.receive(self.peer.socket)? {
                Received::Message(header) => header,
                Received::Nothing if self.input.settle(&mut self.session, self.peer.socket)? => continue,
                Received::Nothing if self.session.is_unsettled() => return Ok(Progress::Done),
                Received::Nothing => {
                    self.settle()?;
                    let function = &self.port.function;
                    let until =
                        self.coalescing.after(Instant::now(), messages, answered, || function.expects_register_read());
                    return Ok(until.map_or(Progress::Done, Progress::SleepUntil));
                }
                Received::Gone => return Err(End::Disconnected),
            };
            (messages, answered) = (messages + 1, answered || !header.no_reply);
            self.input.handle(header, &mut self.session, &mut out)?;
            self.send(&mut out)?;
        }
        Ok(Progress::More)
    }

    /// Treats the memory mappings as complete, and sends the answers that were withheld meanwhile.
    fn settle(&mut self) -> Result<(), End> {
        let mut out = Vec::new();
        self.session.settle(&mut out);
        if let Input::Late(receiver, keeping) = &mut self.input
            && !out.is_empty()
        {
            keeping.record(&mut self.session, receiver.rest(false), &out)?;
        }
        self.send(&mut out)
    }

    fn send(&mut self, out: &mut Vec<Outgoing>) -> Result<(), End> {
        match &mut self.input {
            Input::Now(_) => out
                .drain(..)
                .try_for_each(|Outgoing { bytes, file }| self.peer.send(&bytes, file.as_ref().map(AsFd::as_fd))),
            Input::Late(_, keeping) => keeping.send(self.peer, out),
        }
    }
}
