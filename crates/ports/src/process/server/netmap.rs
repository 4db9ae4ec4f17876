//! The netmap dialogue: a connection stays open, asks any number of questions, and has at most one registration.
//!
//! A request that cannot be carried out is refused with its errno, and the connection stays open, as after a failed ioctl. A
//! message that is no request, or a client that does not read its answers, ends the connection.

use std::os::fd::OwnedFd;

use ringway_abi::attach::MessageError;
use ringway_abi::netmap::{Family, Reply, Request, tagged};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::super::region::Registration;
use super::host::{Change, ClientId, Host, Listed, Refusal};
use super::send::send_with_descriptors;

/// Most connections of the netmap dialogue. A silent one costs a descriptor.
const MOST_CONNECTIONS: usize = 1024;

/// A connection of this dialogue.
pub(super) struct Open {
    family: Family,
    registration: Option<Box<Registration>>,
}

/// What the connection gets as its answer.
pub(super) enum Answer {
    Message(Reply),
    /// The registration that it has now, with descriptors.
    Registration,
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
    /// Begins the dialogue by the first message of a connection, when `open` other connections have done so.
    ///
    /// # Errors
    /// The message is not `Open`, or too many connections are open. The connection ends.
    pub(super) fn begin(message: &[u8], open: usize) -> Result<Self, Refusal> {
        let family = match Request::decode(message) {
            Ok(Request::Open(family)) => family,
            Ok(_) => return Err(Refusal::new(Errno::INVAL, "the first message of a netmap connection is Open")),
            Err(error) => return Err(Refusal::new(Errno::INVAL, error.to_string())),
        };
        if open >= MOST_CONNECTIONS {
            let text = format!("{open} netmap connections are open: the switch allows no more");
            return Err(Refusal::new(Errno::NFILE, text));
        }
        Ok(Self { family, registration: None })
    }

    pub(super) fn has_registration(&self) -> bool {
        self.registration.is_some()
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// Why the request is refused. The connection stays open.
    pub(super) fn carry_out(
        &mut self,
        host: &mut dyn Host,
        client: ClientId,
        request: Request,
    ) -> Result<Answer, Refusal> {
        let change = match request {
            Request::Open(_) => return Err(Refusal::new(Errno::BUSY, "the connection is open already")),
            Request::Register(_) if self.has_registration() => {
                return Err(Refusal::new(Errno::BUSY, "the connection has a registration already"));
            }
            Request::Register(register) => {
                self.registration = Some(Box::new(host.register(client, self.family, &register)?));
                return Ok(Answer::Registration);
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

    /// Sends an answer. Returns false if the client has let its answers pile up.
    /// `tag`: that of the request.
    pub(super) fn send(&self, socket: &OwnedFd, answer: &Answer, tag: u64) -> bool {
        match (answer, &self.registration) {
            (Answer::Message(reply), _) => send_with_descriptors(socket, &tagged(reply.encode(), tag), &[]),
            (Answer::Registration, Some(registration)) => {
                let reply = tagged(Reply::Granted(registration.granted().clone()).encode(), tag);
                let descriptors = registration.descriptors();
                descriptors.is_some_and(|all| send_with_descriptors(socket, &reply, &all))
            }
            (Answer::Registration, None) => false,
        }
    }
}

/// Sends the reason for which a connection ends.
pub(super) fn send_end(socket: &OwnedFd, reason: &Refusal) {
    // The client may have disconnected, or may not read. In both cases the end of the connection tells it.
    let _ = rustix::net::send(socket, &reason.reply().encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}
