//! The netmap dialogue: a connection stays open, asks any number of questions, and has at most one registration.
//!
//! A request that cannot be carried out is refused with its errno, and the connection stays open, as after a failed ioctl. A
//! message that is no request, or a client that does not read its answers, ends the connection.

use std::os::fd::OwnedFd;

use ringway_abi::attach::MessageError;
use ringway_abi::netmap::{Family, Numbers, PortName, Register, Reply, Request, Wish};
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::super::region::Registration;
use super::{ClientId, Server, State, send_with_descriptors};

/// Most connections of the netmap dialogue. A silent one costs a descriptor.
pub(super) const MOST_CONNECTIONS: usize = 1024;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The error's number.
    pub errno: Errno,
    /// The reason, for users.
    pub text: String,
}

impl Refusal {
    /// A refusal by this errno, for this reason.
    pub fn new(errno: Errno, text: impl Into<String>) -> Self {
        Self { errno, text: text.into() }
    }

    fn unsupported() -> Self {
        Self::new(Errno::OPNOTSUPP, "this switch has no ports for the netmap API")
    }

    fn reply(&self) -> Reply {
        let errno = u16::try_from(self.errno.raw_os_error()).unwrap_or(0);
        Reply::Refused { errno, text: self.text.clone() }
    }
}

/// A port in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The port.
    pub name: PortName,
    /// Number of its switch.
    pub switch_index: u32,
    /// Number of the port in its switch.
    pub port_index: u32,
}

/// A change to a persistent port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Attaches a persistent port to a switch.
    Attach(PortName),
    /// Detaches a persistent port from its switch.
    Detach(PortName),
    /// Makes a persistent port.
    New(String),
    /// Deletes a persistent port.
    Delete(String),
}

/// Answers the requests of the netmap dialogue. Called on the server's thread. By default, all are refused.
pub trait NetmapHost {
    /// Registers a port, or some of its rings, for a client that has no registration yet.
    ///
    /// # Errors
    /// Why the request is refused.
    fn register(&mut self, _client: ClientId, _family: Family, _register: &Register) -> Result<Registration, Refusal> {
        Err(Refusal::unsupported())
    }

    /// Ends a client's registration, which the caller drops afterwards.
    fn unregister(&mut self, _client: ClientId) {}

    /// Returns the numbers that a port has or would get.
    ///
    /// # Errors
    /// Why the request is refused.
    fn info(&mut self, _family: Family, _name: &PortName, _wish: &Wish) -> Result<Numbers, Refusal> {
        Err(Refusal::unsupported())
    }

    /// Returns the port of this number, counted over all switches.
    ///
    /// # Errors
    /// There is none.
    fn list(&mut self, _number: u32) -> Result<Listed, Refusal> {
        Err(Refusal::unsupported())
    }

    /// Changes a persistent port.
    ///
    /// # Errors
    /// Why the request is refused.
    fn change(&mut self, _change: &Change) -> Result<(), Refusal> {
        Err(Refusal::unsupported())
    }
}

/// A connection of this dialogue.
pub(super) struct Open {
    family: Family,
    registration: Option<Box<Registration>>,
}

impl Open {
    pub(super) fn has_registration(&self) -> bool {
        self.registration.is_some()
    }
}

/// Sends the reason for which a connection ends.
pub(super) fn send_end(socket: &OwnedFd, errno: Errno, reason: &str) {
    // The client may have disconnected, or may not read. In both cases the end of the connection tells it.
    let message = Refusal::new(errno, reason).reply().encode();
    let _ = rustix::net::send(socket, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// What the connection gets as its answer.
enum Answer {
    Message(Reply),
    /// The registration that it has now, with descriptors.
    Registration,
}

impl Server {
    /// Handles the first message of a connection, if it belongs to this dialogue.
    pub(super) fn open_netmap(&mut self, id: u64, message: &[u8]) {
        let family = match Request::decode(message) {
            Ok(Request::Open(family)) => family,
            Ok(_) => return self.end_netmap(id, Errno::INVAL, "the first message of a netmap connection is Open"),
            Err(error) => return self.end_netmap(id, Errno::INVAL, &error.to_string()),
        };
        let open = self.clients.values().filter(|c| matches!(c.state, State::Netmap(_))).count();
        if open >= MOST_CONNECTIONS {
            let text = format!("{open} netmap connections are open: the switch allows no more");
            return self.end_netmap(id, Errno::NFILE, &text);
        }
        let Some(connection) = self.clients.get_mut(&id) else { return };
        connection.state = State::Netmap(Open { family, registration: None });
        self.asking -= 1;
        self.answer(id, &Answer::Message(Reply::Done));
    }

    /// Handles a further message of a connection.
    pub(super) fn receive_netmap(&mut self, id: u64, message: &[u8]) {
        let request = match Request::decode(message) {
            Ok(request) => request,
            // The message is whole and has a valid kind: the program asks for something that cannot be had.
            Err(error @ (MessageError::Name(_) | MessageError::Shape(_))) => {
                let refusal = Refusal::new(Errno::INVAL, error.to_string());
                return self.answer(id, &Answer::Message(refusal.reply()));
            }
            Err(error) => return self.end_netmap(id, Errno::INVAL, &error.to_string()),
        };
        self.at_host = true;
        let answer = self.carry_out(id, request);
        self.at_host = false;
        self.answer(id, &answer.unwrap_or_else(|refusal| Answer::Message(refusal.reply())));
    }

    fn carry_out(&mut self, id: u64, request: Request) -> Result<Answer, Refusal> {
        let Some(State::Netmap(open)) = self.clients.get_mut(&id).map(|connection| &mut connection.state) else {
            return Err(Refusal::new(Errno::BADF, "the connection has ended"));
        };
        let host = &mut self.host;
        let change = match request {
            Request::Open(_) => return Err(Refusal::new(Errno::BUSY, "the connection is open already")),
            Request::Register(_) if open.has_registration() => {
                return Err(Refusal::new(Errno::BUSY, "the connection has a registration already"));
            }
            Request::Register(register) => {
                open.registration = Some(Box::new(host.register(ClientId(id), open.family, &register)?));
                return Ok(Answer::Registration);
            }
            Request::Recall if open.has_registration() => return Ok(Answer::Registration),
            Request::Recall => return Err(Refusal::new(Errno::NXIO, "the connection has no registration")),
            Request::Info(name, wish) => {
                return Ok(Answer::Message(Reply::Info(host.info(open.family, &name, &wish)?)));
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

    /// Sends an answer. A client that has let its answers pile up is disconnected.
    fn answer(&mut self, id: u64, answer: &Answer) {
        let Some(connection) = self.clients.get(&id) else { return };
        let State::Netmap(open) = &connection.state else { return };
        let sent = match (answer, &open.registration) {
            (Answer::Message(reply), _) => send_with_descriptors(&connection.socket, &reply.encode(), &[]),
            (Answer::Registration, Some(registration)) => {
                let reply = Reply::Granted(registration.granted().clone()).encode();
                let descriptors = registration.descriptors();
                descriptors.is_some_and(|all| send_with_descriptors(&connection.socket, &reply, &all))
            }
            (Answer::Registration, None) => false,
        };
        if !sent {
            self.forget(id, true);
        }
    }

    fn end_netmap(&mut self, id: u64, errno: Errno, reason: &str) {
        if let Some(connection) = self.clients.get(&id) {
            send_end(&connection.socket, errno, reason);
        }
        self.forget(id, true);
    }
}
