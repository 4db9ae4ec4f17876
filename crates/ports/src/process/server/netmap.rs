//! The netmap dialogue: a connection stays open, asks any number of questions, and has at most one registration.
//!
//! A request that cannot be carried out is refused with its errno, and the connection stays open, as after a failed ioctl. A
//! message that is no request ends the connection. A request is read after the client has read the last answer: a client has at
//! most one unread answer, and thus few descriptors that are in flight.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringway_abi::attach::MessageError;
use ringway_abi::netmap::{Family, Register, Reply, Request, tagged};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::super::region::{Extra, Registration};
use super::host::{Change, ClientId, Host, Listed, Refusal};
use super::send::send_with_descriptors;
use crate::front_end::Process;

/// For this time a want of memory may pass in any case: connections may have been closed that the server has not looked at yet.
const LOOKS_AROUND_FOR: Duration = Duration::from_millis(10);

/// The tries of a registration.
#[derive(Clone, Copy)]
struct Tries {
    begun: Instant,
    /// See [`super::limits::TimeLimits::tries_for`].
    within: Duration,
}

impl Tries {
    /// Returns true if there may be another one.
    fn go_on(self) -> bool {
        self.begun.elapsed() < self.within
    }
}

/// A connection of this dialogue.
pub(super) struct Open {
    family: Family,
    process: Process,
    registration: Option<Box<Registration>>,
    /// The tag of the request that is not answered yet, and the tries of its registration.
    pending: Option<(u64, Tries)>,
    /// The registration that is tried again. None: the registration gets its extra buffers.
    retried: Option<Box<Register>>,
    /// The extra buffers wait for closed ports.
    is_waiting: bool,
}

/// What the connection gets as its answer.
pub(super) enum Answer {
    Message(Reply),
    /// The registration that it has now, with descriptors.
    Registration,
    /// The same, as soon as [`Open::proceed`] returns the answer.
    Later,
}

/// A client's message.
pub(super) enum Message {
    Request(Request),
    /// The message is whole and has a valid kind: the program asks for something that cannot be had.
    Refused(Refusal),
}

impl Message {
    /// Decodes a message of a connection that is open.
    ///
    /// # Errors
    /// The message is no request. It ends the connection.
    pub(super) fn decode(message: &[u8]) -> Result<Self, Refusal> {
        match Request::decode(message) {
            Ok(request) => Ok(Self::Request(request)),
            Err(error @ (MessageError::Name(_) | MessageError::Shape(_))) => {
                Ok(Self::Refused(Refusal::new(Errno::INVAL, error.to_string())))
            }
            Err(error) => Err(Refusal::new(Errno::INVAL, error.to_string())),
        }
    }
}

impl Open {
    /// Begins the dialogue by the first message of a connection.
    ///
    /// # Errors
    /// The message is not `Open`. The connection ends.
    pub(super) fn begin(message: &[u8], process: Process) -> Result<Self, Refusal> {
        let family = match Request::decode(message) {
            Ok(Request::Open(family)) => family,
            Ok(_) => return Err(Refusal::new(Errno::INVAL, "the first message of a netmap connection is Open")),
            Err(error) => return Err(Refusal::new(Errno::INVAL, error.to_string())),
        };
        Ok(Self { family, process, registration: None, pending: None, retried: None, is_waiting: false })
    }

    pub(super) fn has_registration(&self) -> bool {
        self.registration.is_some()
    }

    /// Returns true if the client waits for the answer to a request.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns true if its registration is tried again.
    pub(super) fn is_retried(&self) -> bool {
        self.retried.is_some()
    }

    /// Returns true if its request gets on only after a pause.
    pub(super) fn may_pause(&self) -> bool {
        self.is_retried() || self.is_waiting
    }

    /// Tries the registration again, or adds some extra buffers to it. Returns the answer, and the tag of its request, if it can be
    /// given now.
    pub(super) fn proceed(&mut self, host: &mut dyn Host, client: ClientId) -> Option<(Result<Answer, Refusal>, u64)> {
        let (tag, tries) = self.pending?;
        let answer = match self.retried.take() {
            Some(register) => self.register(host, client, register, tries),
            None => Ok(self.add_extra(tries)),
        };
        if matches!(answer, Ok(Answer::Later)) {
            return None;
        }
        self.pending = None;
        Some((answer, tag))
    }

    /// Registers rings. A refusal that may pass is no answer while there may be another try.
    fn register(
        &mut self,
        host: &mut dyn Host,
        client: ClientId,
        register: Box<Register>,
        tries: Tries,
    ) -> Result<Answer, Refusal> {
        match host.register(client, self.process, self.family, &register) {
            Ok(registration) => {
                self.registration = Some(Box::new(registration));
                Ok(self.add_extra(tries))
            }
            Err(refusal) if may_pass(&refusal, tries) => {
                self.retried = Some(register);
                Ok(Answer::Later)
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Adds some extra buffers to the registration. After the last try it gets those that there are.
    fn add_extra(&mut self, tries: Tries) -> Answer {
        let waits = tries.go_on();
        let extra = self.registration.as_mut().map_or(Extra::Complete, |registration| registration.add_extra(waits));
        self.is_waiting = extra == Extra::Leaving;
        if extra == Extra::Complete { Answer::Registration } else { Answer::Later }
    }

    /// Carries out a request. `tag`: that of the request; `tries_for`: how long a registration is tried again.
    ///
    /// # Errors
    /// Why the request is refused. The connection stays open.
    pub(super) fn carry_out(
        &mut self,
        host: &mut dyn Host,
        client: ClientId,
        request: Request,
        tag: u64,
        tries_for: Duration,
    ) -> Result<Answer, Refusal> {
        let change = match request {
            Request::Open(_) => return Err(Refusal::new(Errno::BUSY, "the connection is open already")),
            Request::Register(_) if self.has_registration() => {
                return Err(Refusal::new(Errno::BUSY, "the connection has a registration already"));
            }
            Request::Register(register) => {
                let tries = Tries { begun: Instant::now(), within: tries_for };
                let answer = self.register(host, client, Box::new(register), tries)?;
                self.pending = matches!(answer, Answer::Later).then_some((tag, tries));
                return Ok(answer);
            }
            Request::Recall if self.has_registration() => return Ok(Answer::Registration),
            Request::Recall => return Err(Refusal::new(Errno::NXIO, "the connection has no registration")),
            Request::Info(name, wish) => {
                return Ok(Answer::Message(Reply::Info(host.info(self.family, &name, &wish)?)));
            }
            Request::List(number) => {
                let Listed { name, switch_index, port_index } = host.list(number)?;
                return Ok(Answer::Message(Reply::Listed { name, switch_index, port_index }));
            }
            Request::Attach(name) => Change::Attach(name),
            Request::Detach(name) => Change::Detach(name),
            Request::New(name) => Change::New(name),
            Request::Delete(name) => Change::Delete(name),
        };
        host.change(&change)?;
        Ok(Answer::Message(Reply::Done))
    }

    /// Sends an answer. `tag`: that of the request.
    ///
    /// # Errors
    /// The client cannot have it.
    pub(super) fn send(&self, socket: &OwnedFd, answer: &Answer, tag: u64) -> Result<(), Errno> {
        match (answer, &self.registration) {
            (Answer::Message(reply), _) => send_with_descriptors(socket, &tagged(reply.encode(), tag), &[]),
            (Answer::Registration, Some(registration)) => {
                let reply = tagged(Reply::Granted(registration.granted().clone()).encode(), tag);
                let descriptors = registration.descriptors();
                send_with_descriptors(socket, &reply, &descriptors)
            }
            (Answer::Registration, None) => Err(Errno::NXIO),
            (Answer::Later, _) => Ok(()),
        }
    }
}

/// Sends the reason for which a connection ends.
pub(super) fn send_end(socket: &OwnedFd, reason: &Refusal) {
    // The client may have disconnected, or may not read. In both cases the end of the connection tells it.
    let _ = rustix::net::send(socket, &reason.reply().encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Returns true if the server tries a refused registration again.
fn may_pass(refusal: &Refusal, tries: Tries) -> bool {
    match refusal.errno {
        Errno::NOMEM if tries.begun.elapsed() < LOOKS_AROUND_FOR => true,
        _ => refusal.is_transient && tries.go_on(),
    }
}
