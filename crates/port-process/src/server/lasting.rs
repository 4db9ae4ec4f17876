//! Clients of process ports that outlive the switch: their connections and what their ports consist of are with the keeper, and a successor goes on
//! with them. Clients notice nothing.
//!
//! Not so clients that bring memory, and those of the netmap API: their connections end with the switch.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

use ringway_abi::attach::{REQUEST_BYTES, Request};
use ringway_keeper::{Guard, Inherited, Link};
use ringway_port::front_end::{ClientFd, Process, peer_process, wait_until_taken_over};
use ringway_port::port_io::PortIo;
use ringway_runtime::serving::serve;
use ringway_runtime::warn_limited;
use rustix::event::epoll::{self, EventData, EventFlags};

use super::super::client_handles::{ClientHandles, LeftPort};
use super::super::kept_fd::Keeping;
use super::super::open::open_left;
use super::connection::{Connection, State};
use super::host::ClientId;
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

/// Has the keeper hold a client that has just got its port, until its port goes. Otherwise the client ends with the switch.
pub(super) fn keep(keeper: &Link, request: &Request, colour: u32, socket: &ClientFd, ends: &ClientHandles) {
    let Some(positions) = ends.positions.as_ref().filter(|_| keeper.is_kept()) else { return };
    let [memory, kick, call] = ends.descriptors();
    let files: [BorrowedFd<'_>; 5] = [socket.as_fd(), memory, kick, call, positions.file()];
    let name = format!("{NAMES}{}", label_of(request));
    let note = Lasting { request: request.clone(), colour }.encode();
    match Guard::new(keeper, &name, &note, &files, None) {
        Ok(guard) => ends.keeping.begin(guard),
        Err(why) => warn_limited(&format!("{name} will not outlive the switch: {why}")),
    }
}

fn label_of(request: &Request) -> String {
    format!("{}:{}", request.switch, request.port)
}

/// A client that a predecessor left.
struct Left {
    name: String,
    request: Request,
    colour: u32,
    process: Process,
    socket: ClientFd,
    port: LeftPort,
    guard: Guard,
}

/// A client whose port is open again.
struct Opened {
    name: String,
    request: Request,
    colour: u32,
    process: Process,
    // Dropped in this order.
    opened: Result<(PortIo, ClientHandles), String>,
    socket: ClientFd,
    guard: Guard,
}

impl Left {
    fn of(left: Inherited, keeper: &Link) -> Option<Self> {
        let Inherited { name, note, files } = left;
        let guard = Guard::of(keeper, name.clone(), None);
        let [socket, memory, kick, call, positions] = <[OwnedFd; 5]>::try_from(files).ok()?;
        let read = Lasting::decode(&note);
        let read = read.inspect_err(|why| warn_limited(&format!("{name} does not outlive the switch before: {why}")));
        let Lasting { request, colour } = read.ok()?;
        let (process, socket) = (peer_process(&socket), ClientFd::from(socket));
        Some(Self { name, request, colour, process, socket, port: LeftPort { memory, kick, call, positions }, guard })
    }

    /// Maps the memory, which its client decides how long takes.
    fn open(self) -> Opened {
        let Self { name, request, colour, process, socket, port, guard } = self;
        let _serving = serve(&label_of(&request));
        let layout = request.layout(colour).map_err(|why| why.to_string());
        let opened = layout.and_then(|layout| open_left(layout, port, process).map_err(|why| why.to_string()));
        let opened = opened.and_then(|(port, ends)| {
            ends.hold_left(process).map_err(|why| why.to_string())?;
            Ok((port, ends))
        });
        Opened { name, request, colour, process, opened, socket, guard }
    }
}

impl Server {
    /// Goes on with the clients that a predecessor left. Each process's memory is touched by a thread of its own: those that take too long end, and others
    /// do not wait for them.
    pub(super) fn take_over(&mut self, keeper: &Link) {
        let mut by_process: HashMap<Process, Vec<Left>> = HashMap::new();
        // The newest first: of two with one name, the older one had been told to end.
        for left in keeper.inherit_all(NAMES).into_iter().rev().filter_map(|left| Left::of(left, keeper)) {
            by_process.entry(left.process).or_default().push(left);
        }
        let (done, opened) = channel();
        for all in by_process.into_values() {
            let done = done.clone();
            // Without a thread these clients end.
            let _ = std::thread::Builder::new().name("take-over".to_owned()).spawn(move || {
                // Who waited may have given up: what was opened is closed here.
                let _ = all.into_iter().map(Left::open).all(|opened| done.send(opened).is_ok());
            });
        }
        drop(done);
        let until = Instant::now() + self.limits.request_within;
        loop {
            match opened.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(opened) => self.admit(opened),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    warn_limited(
                        "clients of the switch before end with it: their memory keeps the kernel from mapping it",
                    );
                    break;
                }
            }
        }
        // Their ports receive nothing before.
        wait_until_taken_over(until.saturating_duration_since(Instant::now()));
        self.host.taken_over();
    }

    fn admit(&mut self, opened: Opened) {
        let Opened { name, request, colour, process, opened, socket, guard } = opened;
        let _serving = serve(&label_of(&request));
        let id = self.next;
        self.next += 1;
        let state = State::Attached;
        let kept = Keeping::default();
        let mut connection = Connection { socket, state, takes_files: false, process, is_paused: false, kept };
        let taken = opened.and_then(|(port, ends)| {
            ends.keeping.begin(guard);
            connection.kept = ends.keeping.clone();
            self.at = Some(id);
            self.at_host = true;
            let taken = self.host.take_over(ClientId(id), process, &request, colour, port);
            self.at_host = false;
            self.at = None;
            taken?;
            let events = EventFlags::IN | EventFlags::RDHUP;
            epoll::add(&self.epoll, &connection.socket, EventData::new_u64(id), events).map_err(|why| {
                self.detach(id);
                why.to_string()
            })?;
            drop(ends);
            Ok(())
        });
        match taken {
            Ok(()) => _ = self.clients.insert(id, connection),
            Err(why) => {
                warn_limited(&format!("{name} does not outlive the switch before: {why}"));
                connection.send_end(&why);
                self.close(connection);
            }
        }
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
