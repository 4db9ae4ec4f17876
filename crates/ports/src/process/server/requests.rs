//! Messages of clients, and the attach dialogue.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use ringway_abi::attach::{MEMORY, REQUEST_BYTES, Reply, Request};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::super::external::ExternalMemory;
use super::connection::{Connection, State, check_unread};
use super::host::{ClientId, Grant};
use super::send::{send_with_descriptors, unsent};
use super::thread::Server;
use crate::front_end::{accept_files, check_unclosed, close_in_background, peek, peer_process, receive, refuse_files};

/// A message at which the server panics, in tests.
#[cfg(test)]
pub(in crate::process) const TRAP: &[u8] = b"panic";

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
        // SAFETY: `message` is a local array, and nothing else refers to it.
        let received = unsafe { receive(&connection.socket, message.as_mut_ptr(), message.len(), &mut files) };
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
        if let Err(reason) = check_unread(ended.map(|connection| connection.process), process) {
            return self.refuse(id, &reason);
        }
        self.at_host = true;
        let granted = self.host.attach(ClientId(id), request, memory);
        self.at_host = false;
        match granted {
            Err(reason) => self.refuse(id, &reason),
            Ok(grant) => self.grant(id, grant),
        }
    }

    /// Lets a client send the memory that its request speaks of.
    fn ask_for_memory(&mut self, id: u64, request: Request) {
        self.at_host = true;
        let possible = self.host.check(&request);
        self.at_host = false;
        let Some(connection) = self.clients.get_mut(&id) else { return };
        if let Err(reason) = possible.and_then(|()| check_unclosed(connection.process)) {
            return self.refuse(id, &reason);
        }
        connection.takes_files = true;
        accept_files(&connection.socket);
        connection.state = State::Sending(Instant::now() + self.limits.request_within, Box::new(request));
        if send_with_descriptors(&connection.socket, &Reply::SendMemory.encode(), &[]).is_err() {
            self.forget(id, true);
        }
    }

    /// Takes the memory that a client has sent. The message stays in the socket: reading it could close files.
    fn take_memory(&mut self, id: u64) {
        let Some(&Connection { ref socket, state: State::Sending(_, ref request), process, .. }) =
            self.clients.get(&id)
        else {
            // Only the end of the connection of an attached client is waited for.
            return self.forget(id, true);
        };
        let (mut message, mut files) = ([0; MEMORY.len() + 1], Vec::new());
        let len = match peek(socket, &mut message, &mut files) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(0) | Err(_) => return self.forget(id, true),
            Ok(len) => len,
        };
        let request = request.as_ref().clone();
        let bytes = request.external.map_or(0, |external| external.bytes);
        let memory = self.external.map(&message[..len], &files, bytes, peer_process(socket));
        refuse_files(socket);
        close_in_background(process, files);
        match memory {
            Err(error) => self.refuse(id, &error.to_string()),
            Ok(memory) => self.attach(id, request, Some(memory)),
        }
    }

    fn grant(&mut self, id: u64, grant: Grant) {
        let Some(connection) = self.clients.get_mut(&id) else { return };
        connection.state = State::Attached;
        self.asking -= 1;
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
        }
    }
}
