//! The netmap dialogue: a connection stays open, asks any number of questions, and has at most one registration.
//!
//! A request that cannot be carried out is refused with its errno, and the connection stays open, as after a failed ioctl. A
//! message that is no request ends the connection. A request is read after the client has read the last answer: a client has at
//! most one unread answer, and thus few descriptors that are in flight.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringway_abi::attach::MessageError;
use ringway_abi::netmap::{Family, Reply, Request, tagged};
use ringway_port::front_end::Process;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::super::region::Registration;
use super::host::{Asker, Change, ClientId, Host, Listed, Refusal};
use super::queue::Queue;
use super::registering::{Registering, Wanted};
use super::send::send_with_descriptors;

/// A connection of this dialogue.
pub(super) struct Open {
    family: Family,
    process: Process,
    user: Option<u32>,
    registration: Option<Box<Registration>>,
    /// The tag of the request that is not answered yet, and its registration.
    pending: Option<(u64, Registering)>,
}

/// What the connection gets as its answer.
pub(super) enum Answer {
    Message(Reply),
    /// The registration that it has now, with descriptors.
    Registration,
    /// The same, as soon as [`Open::registered`] returns the answer.
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
    pub(super) fn begin(message: &[u8], Asker { process, user }: Asker) -> Result<Self, Refusal> {
        let family = match Request::decode(message) {
            Ok(Request::Open(family)) => family,
            Ok(_) => return Err(Refusal::new(Errno::INVAL, "the first message of a netmap connection is Open")),
            Err(error) => return Err(Refusal::new(Errno::INVAL, error.to_string())),
        };
        Ok(Self { family, process, user, registration: None, pending: None })
    }

    pub(super) fn has_registration(&self) -> bool {
        self.registration.is_some()
    }

    /// Returns true if the client waits for the answer to a request.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// The client has gone. Its registration, if one is being made, ends when it has been made.
    pub(super) fn abandon(&self) {
        self.pending.iter().for_each(|(_, registering)| registering.abandon());
    }

    /// Returns the answer to the request for a registration, and the tag of the request, if it can be given now.
    pub(super) fn registered(&mut self) -> Option<(Result<Answer, Refusal>, u64)> {
        let (tag, registering) = self.pending.as_ref()?;
        let (tag, outcome) = (*tag, registering.take()?);
        self.pending = None;
        let answer = outcome.map(|registration| {
            self.registration = Some(registration);
            Answer::Registration
        });
        Some((answer, tag))
    }

    /// Carries out a request, which came with this tag. `tries_for`: how long a registration is tried again; `server`: who is told that it
    /// has been made.
    ///
    /// # Errors
    /// Why the request is refused. The connection stays open.
    pub(super) fn carry_out(
        &mut self,
        host: &mut dyn Host,
        client: ClientId,
        (request, tag): (Request, u64),
        tries_for: Duration,
        server: &Arc<Queue>,
    ) -> Result<Answer, Refusal> {
        let change = match request {
            Request::Open(_) => return Err(Refusal::new(Errno::BUSY, "the connection is open already")),
            Request::Register(_) if self.has_registration() => {
                return Err(Refusal::new(Errno::BUSY, "the connection has a registration already"));
            }
            Request::Register(register) => {
                let wanted = Wanted { client, process: self.process, family: self.family, register, tries_for };
                self.pending = Some((tag, Registering::begin(host.another(), wanted, Arc::clone(server))));
                return Ok(Answer::Later);
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
        host.change(Asker { process: self.process, user: self.user }, &change)?;
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
