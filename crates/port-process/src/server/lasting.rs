//! Clients of process ports that outlive the switch: their connections and what their ports consist of are with the keeper, and a successor goes on
//! with them. Clients notice nothing.
//!
//! Not so clients that bring memory, and those of the netmap API: their connections end with the switch.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringway_abi::attach::{REQUEST_BYTES, Request};
use ringway_keeper::{Guard, Inherited, Link};
use ringway_port::front_end::{ClientFd, peer_process};
use ringway_runtime::warn_limited;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::super::client_handles::{ClientHandles, LeftPort};
use super::connection::{Connection, State};
use super::host::{ClientId, Grant};
use super::thread::Server;

/// The beginning of the names of what the keeper holds.
const NAMES: &str = "process/";
/// The version of the note: another one is not understood.
const VERSION: u8 = 1;

/// What the keeper holds of a client: a note, and files in this order.
struct Lasting {
    request: Request,
    colour: u32,
}

impl Lasting {
    // Version, colour, request.
    fn encode(&self) -> Vec<u8> {
        let mut note = vec![VERSION];
        note.extend(self.colour.to_le_bytes());
        note.extend(self.request.encode());
        note
    }

    fn decode(note: &[u8]) -> Result<Self, String> {
        let (colour, request) = match note.split_first() {
            Some((&VERSION, rest)) if rest.len() == 4 + REQUEST_BYTES => rest.split_at(4),
            Some((version, _)) => return Err(format!("what was left is of version {version}")),
            None => return Err("what was left is empty".to_owned()),
        };
        let colour = u32::from_le_bytes(colour.try_into().map_err(|_| "what was left is cut")?);
        Ok(Self { request: Request::decode(request).map_err(|why| why.to_string())?, colour })
    }
}

/// Has the keeper hold a client that has just got its port. `None`: the client ends with the switch.
pub(super) fn keep(
    keeper: &Link,
    request: &Request,
    colour: u32,
    socket: &ClientFd,
    ends: &ClientHandles,
) -> Option<Guard> {
    let positions = ends.positions.as_ref().filter(|_| keeper.is_kept())?;
    let [memory, kick, call] = ends.descriptors();
    let files: [BorrowedFd<'_>; 5] = [socket.as_fd(), memory, kick, call, positions.file()];
    let name = format!("{NAMES}{}:{}", request.switch, request.port);
    let note = Lasting { request: request.clone(), colour }.encode();
    let kept = Guard::new(keeper, &name, &note, &files, None);
    kept.inspect_err(|why| warn_limited(&format!("{name} will not outlive the switch: {why}"))).ok()
}

impl Server {
    /// Goes on with the clients that a predecessor left.
    pub(super) fn take_over(&mut self, keeper: &Link) {
        for Inherited { name, note, files } in keeper.inherit_all(NAMES) {
            let guard = Guard::of(keeper, name.clone(), None);
            let Ok([socket, memory, kick, call, positions]) = <[OwnedFd; 5]>::try_from(files) else { continue };
            let socket = ClientFd::from(socket);
            let id = self.next;
            self.next += 1;
            let left = LeftPort { memory, kick, call, positions };
            let process = peer_process(&socket);
            let connection = Connection {
                socket,
                state: State::Attached,
                takes_files: false,
                process,
                is_paused: false,
                kept: Some(guard),
            };
            self.at = Some(id);
            let taken = Lasting::decode(&note).and_then(|Lasting { request, colour }| {
                self.at_host = true;
                let granted = self.host.take_over(ClientId(id), process, &request, colour, left);
                self.at_host = false;
                self.watch_again(id, &connection, granted?)
            });
            self.at = None;
            match taken {
                Ok(()) => _ = self.clients.insert(id, connection),
                Err(why) => {
                    warn_limited(&format!("{name} does not outlive the switch before: {why}"));
                    connection.send_end(&why);
                    self.close(connection);
                }
            }
        }
        self.host.taken_over();
    }

    /// Serves the connection of a client whose port was made again.
    fn watch_again(&mut self, id: u64, connection: &Connection, grant: Grant) -> Result<(), String> {
        let events = EventFlags::IN | EventFlags::RDHUP;
        let watched = grant
            .ends
            .hold(connection.process)
            .and_then(|()| Ok(epoll::add(&self.epoll, &connection.socket, EventData::new_u64(id), events)?));
        watched.map_err(|why| {
            self.detach(id);
            why.to_string()
        })
    }
}

#[cfg(test)]
mod tests {
    use ringway_abi::Shape;

    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_no_other() {
        let request = Request { switch: "lan0".into(), port: "p".into(), shape: Shape::default(), external: None };
        let note = Lasting { request: request.clone(), colour: 7 }.encode();
        let read = Lasting::decode(&note).expect("a note");
        assert_eq!((read.request, read.colour), (request, 7));
        for length in 0..note.len() {
            assert!(Lasting::decode(&note[..length]).is_err(), "{length} bytes");
        }
        let mut other = note.clone();
        other[0] += 1;
        assert!(Lasting::decode(&other).is_err_and(|why| why.contains("version 2")));
    }
}
