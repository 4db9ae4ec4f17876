//! Messages of connections of the netmap dialogue, and the registrations that they wait for.

use ringway_abi::netmap::{Reply, tag_of};
use ringway_port::front_end::{Process, peer_user};
use ringway_runtime::warn_limited;
use rustix::io::Errno;

use super::connection::{Seat, State, find_seat};
use super::host::{Asker, ClientId, Refusal};
use super::netmap::{Answer, Message, Open, send_end};
use super::send::unsent;
use super::thread::Server;

impl Server {
    /// Handles the first message of a connection of the netmap dialogue.
    pub(super) fn open_netmap(&mut self, id: u64, message: &[u8]) {
        let Some(connection) = self.clients.get(&id) else { return };
        let process = connection.process;
        let asker = Asker { process, user: peer_user(&connection.socket) };
        let open = Open::begin(message, asker).and_then(|open| {
            self.make_room(process).map_err(|text| Refusal::new(Errno::NFILE, text))?;
            Ok(open)
        });
        match open {
            Err(reason) => self.end_netmap(id, &reason),
            Ok(open) => {
                let Some(connection) = self.clients.get_mut(&id) else { return };
                connection.state = State::Netmap(open);
                self.asking -= 1;
                self.answer(id, &Answer::Message(Reply::Done), tag_of(message));
            }
        }
    }

    /// Makes room for one more connection of a process.
    ///
    /// # Errors
    /// There are too many. The text is for the client.
    fn make_room(&mut self, process: Process) -> Result<(), String> {
        let crowd: Vec<Seat> = self.clients.iter().filter_map(|(id, connection)| connection.seat(*id)).collect();
        let of =
            |process: Process| process.map_or_else(|| "a process".to_owned(), |process| format!("process {process}"));
        let displaced = find_seat(&crowd, process)
            .inspect_err(|text| warn_limited(&format!("attach.sock refuses {}: {text}", of(process))))?;
        if let Some(Seat { id, process, .. }) = displaced {
            let text = "this program has the most netmap connections, and the switch needs one for another program";
            warn_limited(&format!("attach.sock ends a silent connection of {}: {text}", of(process)));
            self.end_netmap(id, &Refusal::new(Errno::NFILE, text));
        }
        Ok(())
    }

    /// Handles a further message of a connection of the netmap dialogue.
    pub(super) fn receive_netmap(&mut self, id: u64, message: &[u8]) {
        let Some(State::Netmap(open)) = self.clients.get_mut(&id).map(|connection| &mut connection.state) else {
            return;
        };
        let tag = tag_of(message);
        let answer = match Message::decode(message) {
            Err(reason) => return self.end_netmap(id, &reason),
            Ok(Message::Refused(refusal)) => Err(refusal),
            Ok(Message::Request(request)) => {
                self.at_host = true;
                let tries_for = self.limits.tries_for;
                let answer = open.carry_out(self.host.as_mut(), ClientId(id), (request, tag), tries_for, &self.queue);
                self.at_host = false;
                answer
            }
        };
        self.answer(id, &answer.unwrap_or_else(|refusal| Answer::Message(refusal.reply())), tag);
    }

    /// Answers a client whose registration was made or refused, unless it has gone.
    pub(super) fn registered(&mut self, id: u64) {
        let Some(State::Netmap(open)) = self.clients.get_mut(&id).map(|connection| &mut connection.state) else {
            return;
        };
        if let Some((answer, tag)) = open.registered() {
            self.answer(id, &answer.unwrap_or_else(|refusal| Answer::Message(refusal.reply())), tag);
            self.watch(id, false);
        }
    }

    /// Sends the answer to the request with this tag. A client that cannot have it is disconnected.
    fn answer(&mut self, id: u64, answer: &Answer, tag: u64) {
        let Some(connection) = self.clients.get(&id) else { return };
        let State::Netmap(open) = &connection.state else { return };
        if let Err(error) = open.send(&connection.socket, answer, tag) {
            match unsent(error) {
                Some(reason) => self.end_netmap(id, &Refusal::new(error, reason)),
                None => self.forget(id, true),
            }
        }
    }

    fn end_netmap(&mut self, id: u64, reason: &Refusal) {
        if let Some(connection) = self.clients.get(&id) {
            send_end(&connection.socket, reason);
        }
        self.forget(id, true);
    }
}
