//! Messages of clients, and the attach dialogue.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use ringway_abi::attach::{MEMORY, REQUEST_BYTES, Reply, Request};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use super::super::external::{ExternalMemory, Found};
use super::connection::{Connection, State, check_unread};
use super::host::{ClientId, Grant};
use super::lasting;
use super::mapping::Mapping;
use super::queue::Command;
use super::send::{send_with_descriptors, unsent};
use super::thread::Server;
use ringway_port::front_end::{
    ClientFd, accept_files, check_closing, check_returned, check_unclosed, check_unclosed_ports, close_in_background,
    peek_bytes, peer_process, receive_into, refuse_files, take_files,
};

/// A message at which the server panics, in tests.
#[cfg(test)]
pub(crate) const TRAP: &[u8] = b"panic";

impl Server {
    /// Reads from a connection that has data or has ended.
    pub(super) fn receive_message(&mut self, id: u64) {
        let Some(connection) = self.clients.get(&id) else { return };
        if connection.has_to_read() {
            return self.watch(id, true);
        }
        if connection.takes_files {
            return self.take_memory(id);
        }
        let (mut message, mut files) = ([0; REQUEST_BYTES + 1], Vec::new());
        let received = receive_into(&connection.socket, &mut message, &mut files);
        close_in_background(connection.process, files);
        let len = match received {
            Ok(0) => return self.forget(id, true),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.forget(id, true),
        };
        if matches!(connection.state, State::Attached) {
            return self.refuse(id, "unexpected message: an attached client has nothing more to say");
        }
        #[cfg(test)]
        assert!(&message[..len] != TRAP, "injected");
        if matches!(connection.state, State::Netmap(_)) {
            return self.receive_netmap(id, &message[..len]);
        }
        if ringway_abi::netmap::is_netmap(&message[..len]) {
            return self.open_netmap(id, &message[..len]);
        }
        match Request::decode(&message[..len]) {
            Err(error) => self.refuse(id, &error.to_string()),
            Ok(request) if request.external.is_some() => self.ask_for_memory(id, request),
            Ok(request) => self.attach(id, request, None),
        }
    }

    fn attach(&mut self, id: u64, request: Request, memory: Option<Arc<ExternalMemory>>) {
        let Some(process) = self.clients.get(&id).map(|connection| connection.process) else { return };
        let ended = self.clients.values().filter(|connection| matches!(connection.state, State::Ended));
        let unread = check_unread(ended.map(|connection| connection.process), process);
        if let Err(reason) = unread.and_then(|()| check_returned(process)) {
            return self.refuse(id, &reason);
        }
        if let Err(reason) = check_unclosed_ports(process) {
            return self.refuse(id, &reason);
        }
        self.at_host = true;
        let granted = self.host.attach(ClientId(id), process, request.clone(), memory);
        self.at_host = false;
        match granted {
            Err(reason) => self.refuse(id, &reason),
            Ok(grant) => self.grant(id, &request, grant),
        }
    }

    /// Lets a client send the memory that its request speaks of.
    fn ask_for_memory(&mut self, id: u64, request: Request) {
        self.at_host = true;
        let possible = self.host.check(&request);
        self.at_host = false;
        let Some(connection) = self.clients.get_mut(&id) else { return };
        let possible = possible.and_then(|()| check_closing(connection.process));
        if let Err(reason) = possible.and_then(|()| check_unclosed(connection.process)) {
            return self.refuse(id, &reason);
        }
        if let Err(error) = connection.socket.hold(connection.process) {
            return self.refuse(id, &format!("the switch has no closer for another memory: {error}"));
        }
        connection.takes_files = true;
        accept_files(&connection.socket);
        connection.state = State::Sending(Instant::now() + self.limits.request_within, Box::new(request));
        if send_with_descriptors(&connection.socket, &Reply::SendMemory.encode(), &[]).is_err() {
            self.forget(id, true);
        }
    }

    /// Has the closer receive the memory that a client has sent: files of a client can make each close wait.
    fn take_memory(&mut self, id: u64) {
        let Some(connection) = self.clients.get_mut(&id) else { return };
        let mut message = vec![0; MEMORY.len() + 1];
        let (deadline, request) = match &connection.state {
            State::Sending(deadline, request) => (*deadline, request.clone()),
            State::Taking(..) => return,
            // Only the end of the connection of an attached client is waited for.
            _ => return self.forget(id, true),
        };
        match peek_bytes(&connection.socket, &mut message) {
            Err(Errno::AGAIN) => return,
            Ok((0, _)) | Err(_) => return self.forget(id, true),
            Ok((len, _)) => message.truncate(len),
        }
        let (data, events) = (EventData::new_u64(id), EventFlags::RDHUP | EventFlags::ET);
        if epoll::modify(&self.epoll, &connection.socket, data, events).is_err() {
            return self.forget(id, true);
        }
        connection.state = State::Taking(deadline, request, None);
        refuse_files(&connection.socket);
        let queue = Arc::clone(&self.queue);
        take_files(&connection.socket, message.len(), move |files| {
            queue.send(Command::Memory(ClientId(id), message, files));
        });
    }

    /// Makes the port of a client whose memory the closer has received.
    pub(super) fn use_memory(&mut self, id: u64, message: &[u8], files: Option<Vec<ClientFd>>) {
        let Some(Connection { socket, state: State::Taking(_, request, mapping), process, .. }) =
            self.clients.get_mut(&id)
        else {
            return;
        };
        let Some(mut files) = files else { return self.refuse(id, "the switch cannot receive the memory: try again") };
        let bytes = request.external.as_ref().map_or(0, |external| external.bytes);
        match self.external.find(message, &mut files, bytes, peer_process(socket)) {
            Err(error) => self.refuse(id, &error.to_string()),
            Ok(Found::Mapped(memory)) => {
                let request = request.as_ref().clone();
                self.attach(id, request, Some(memory));
            }
            Ok(Found::Unmapped(unmapped)) => {
                *mapping = Some(Mapping::begin(unmapped, *process, ClientId(id), Arc::clone(&self.queue)));
            }
        }
    }

    /// Goes on with a client whose memory was mapped, unless it has gone.
    pub(super) fn mapped(&mut self, id: u64) {
        let Some(connection) = self.clients.get(&id) else { return };
        let State::Taking(_, request, Some(mapping)) = &connection.state else { return };
        let Some(outcome) = mapping.take() else { return };
        let request = request.as_ref().clone();
        match outcome.and_then(|memory| self.external.add(memory)) {
            Err(error) => self.refuse(id, &error.to_string()),
            Ok(memory) => self.attach(id, request, Some(memory)),
        }
    }

    fn grant(&mut self, id: u64, request: &Request, grant: Grant) {
        let Some(connection) = self.clients.get_mut(&id) else { return };
        let process = connection.process;
        connection.state = State::Attached;
        self.asking -= 1;
        if let Err(error) = grant.ends.hold(process) {
            return self.refuse(id, &format!("the switch has no closer for the descriptors of another port: {error}"));
        }
        let data = EventData::new_u64(id);
        if connection.takes_files && epoll::modify(&self.epoll, &connection.socket, data, EventFlags::RDHUP).is_err() {
            return self.forget(id, true);
        }
        let bytes = grant.ends.layout.bytes as u64;
        let reply = Reply::Granted { colour: grant.colour, bytes, mac: grant.mac }.encode();
        if let Err(error) = send_with_descriptors(&connection.socket, &reply, &grant.ends.descriptors()) {
            match unsent(error) {
                Some(reason) => self.refuse(id, reason),
                None => self.forget(id, true),
            }
            return;
        }
        // Not before: a client whose switch dies before the answer would wait for it in vain.
        lasting::keep(&self.keeper, request, grant.colour, &connection.socket, &grant.ends);
        connection.kept = grant.ends.keeping.clone();
    }
}
