//! Tests of a port's thread with a protocol of single bytes.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ringway_switch::Defect;
use ringway_testing::PATIENCE;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, recv};

use super::access::SocketAccess;
use super::connection::Connection;
use super::connector::Connector;
use super::end::{CALL_BLOCKED, End};
use super::listener::{Files, Listener};
use super::observer::Observer;
use super::pauses::Pauses;
use super::peer::Peer;
use super::role::Role;
use super::service::{Connections, Protocol, Service, Socket, serve};
use super::thread::Thread;

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Connected(bool),
    Fault(&'static str),
    Refused(&'static str),
    Failed(ringway_switch::Role),
    Closed,
    Read(u8),
}

/// Does what the peer's bytes say: `f` ends the connection with a fault, `b` says that a call blocked and ends the
/// connection with the peer, `r` is refused, and `p` panics.
struct Bytes {
    events: Sender<Event>,
    blocked: bool,
}

impl Bytes {
    fn note(&self, event: Event) {
        let _ = self.events.send(event);
    }
}

impl Protocol for Bytes {
    fn serve(&mut self, peer: &Peer<'_>) -> Result<Infallible, End> {
        loop {
            let [readable] = peer.wait([Some(PollFd::new(&**peer.socket, PollFlags::IN))], None)?;
            if !readable {
                continue;
            }
            let mut byte = [0];
            if recv(&**peer.socket, &mut byte[..], RecvFlags::empty()).map_or(0, |(_, count)| count) == 0 {
                return Err(End::Disconnected);
            }
            self.note(Event::Read(byte[0]));
            match byte[0] {
                b'f' => return Err(End::Fault("fault", String::new())),
                b'b' => self.blocked = true,
                b'r' => peer.report_refusal("refused", &"text"),
                b'p' => panic!("injected"),
                other => peer.send(&[other], None)?,
            }
        }
    }

    fn close(&mut self, socket: Arc<Connection>) -> bool {
        drop(socket);
        std::mem::take(&mut self.blocked)
    }

    fn closed(&mut self) {
        self.note(Event::Closed);
    }
}

/// Notes the port's events.
struct Notes(Sender<Event>);

impl Observer for Notes {
    fn connected(&self, on: bool) {
        let _ = self.0.send(Event::Connected(on));
    }

    fn fault(&self, reason: &'static str, _: String) {
        let _ = self.0.send(Event::Fault(reason));
    }

    fn failed(&self, defect: Defect) {
        let _ = self.0.send(Event::Failed(defect.role));
    }

    fn refused(&self, reason: &'static str, _: String) {
        let _ = self.0.send(Event::Refused(reason));
    }
}

/// A running port.
struct Port {
    thread: Option<Thread>,
    path: PathBuf,
    events: Receiver<Event>,
    _folder: tempfile::TempDir,
}

impl Port {
    /// A port whose next pause after a blocked call is the longest one.
    fn new(role: Role) -> Port {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("vm.sock");
        let (sender, events) = channel();
        let observer = Arc::new(Notes(sender.clone()));
        let connector = Connector::open(role, &path, Files::Refused, &SocketAccess::default()).expect("a socket");
        let mut pauses = Pauses::new(role);
        while pauses.after(Some(CALL_BLOCKED), Duration::ZERO) < Duration::from_secs(300) {}
        let mut protocol = Bytes { events: sender, blocked: false };
        let notes = Arc::clone(&observer);
        let thread = Thread::start("lan0:vm", observer, move |stop| {
            let mut connections = Connections { connector, owners: None, keeping: None, left: None };
            serve(&mut connections, &mut protocol, pauses, &*notes, &stop)
        });
        Port { thread: Some(thread.expect("a thread")), path, events, _folder: folder }
    }

    fn connect(&self) -> UnixStream {
        let peer = UnixStream::connect(&self.path).expect("a connection");
        peer.set_read_timeout(Some(PATIENCE)).expect("a time");
        peer
    }

    fn expect(&self, events: &[Event]) {
        for event in events {
            assert_eq!(self.events.recv_timeout(PATIENCE).as_ref(), Ok(event));
        }
    }

    /// Removes the port. The thread has dropped everything that it owned when this returns.
    fn remove(mut self) {
        drop(self.thread.take());
        loop {
            match self.events.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the thread still runs"),
            }
        }
        assert!(!self.path.exists());
    }
}

/// Reads to the end of the stream. A reset is an error.
fn read_to_end(mut peer: UnixStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    peer.read_to_end(&mut bytes).expect("the end, not a reset");
    bytes
}

#[test]
fn a_port_is_removed_at_once_whatever_its_thread_waits_for() {
    Port::new(Role::Client).remove();
    Port::new(Role::Server).remove();

    let (port, mut peer) = {
        let port = Port::new(Role::Server);
        let peer = port.connect();
        (port, peer)
    };
    port.expect(&[Event::Connected(true)]);
    peer.write_all(b"a").expect("a byte");
    port.remove();
    read_to_end(peer);

    // In a pause of five minutes.
    let port = Port::new(Role::Server);
    let mut peer = port.connect();
    peer.write_all(b"b").expect("a byte");
    port.expect(&[Event::Connected(true), Event::Read(b'b')]);
    drop(peer);
    port.expect(&[Event::Connected(false), Event::Closed]);
    port.remove();
}

#[test]
fn a_client_port_connects_to_whoever_listens_and_again_afterwards() {
    let port = Port::new(Role::Client);
    for _ in 0..2 {
        let listener = Listener::bind(&port.path, Files::Refused, &SocketAccess::default()).expect("a socket");
        port.expect(&[Event::Connected(true)]);
        let peer = rustix::net::accept(&listener).expect("a connection");
        drop((peer, listener));
        port.expect(&[Event::Connected(false), Event::Closed]);
    }
    port.remove();
}

#[test]
fn further_peers_are_closed_without_a_reset_and_the_first_is_not_harmed() {
    let port = Port::new(Role::Server);
    for _ in 0..3 {
        let mut first = port.connect();
        port.expect(&[Event::Connected(true)]);
        for _ in 0..3 {
            let mut second = port.connect();
            // Fails if the connection is closed already.
            let _ = second.write_all(b"hello");
            assert_eq!(read_to_end(second), b"");
            first.write_all(b"a").expect("a byte");
            let mut answer = [0];
            first.read_exact(&mut answer).expect("an answer");
            port.expect(&[Event::Read(b'a')]);
        }
        drop(first);
        port.expect(&[Event::Connected(false), Event::Closed]);
    }
    port.remove();
}

#[test]
fn a_fault_is_reported_before_the_end_and_a_refusal_once_for_each_connection() {
    let port = Port::new(Role::Server);
    for _ in 0..2 {
        let mut peer = port.connect();
        peer.write_all(b"rrfxxx").expect("bytes");
        port.expect(&[Event::Connected(true), Event::Read(b'r'), Event::Refused("refused"), Event::Read(b'r')]);
        port.expect(&[Event::Read(b'f'), Event::Fault("fault"), Event::Connected(false), Event::Closed]);
        assert_eq!(read_to_end(peer), b"");
    }
    port.remove();
}

#[test]
fn a_panic_of_the_protocol_is_reported_and_ends_the_connection_without_a_reset() {
    let port = Port::new(Role::Server);
    let mut peer = port.connect();
    peer.write_all(b"apxxx").expect("bytes");
    port.expect(&[Event::Connected(true), Event::Read(b'a'), Event::Read(b'p')]);
    port.expect(&[Event::Failed(ringway_switch::Role::Thread)]);
    assert_eq!(read_to_end(peer), b"a");
    port.remove();
}

#[test]
fn peers_that_wait_for_their_turn_read_the_end_when_the_port_is_removed() {
    let port = Port::new(Role::Server);
    let mut peer = port.connect();
    peer.write_all(b"b").expect("a byte");
    port.expect(&[Event::Connected(true), Event::Read(b'b')]);
    drop(peer);
    port.expect(&[Event::Connected(false), Event::Closed]);
    // The port pauses for five minutes, so these stay in the backlog.
    let waiting = [b"".as_slice(), b"hello"].map(|bytes| {
        let mut peer = port.connect();
        peer.write_all(bytes).expect("bytes");
        peer
    });
    port.remove();
    for peer in waiting {
        assert_eq!(read_to_end(peer), b"");
    }
}

/// Notes on its drop whether the socket is still there.
struct Last(PathBuf, Sender<bool>);

impl Protocol for Last {
    fn serve(&mut self, peer: &Peer<'_>) -> Result<Infallible, End> {
        loop {
            let [] = peer.wait([], None)?;
        }
    }

    fn close(&mut self, _: Arc<Connection>) -> bool {
        false
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.exists());
    }
}

#[test]
fn the_socket_is_removed_before_the_protocol_is_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("vm.sock");
    let ((sender, _events), (exists, existed)) = (channel(), channel());
    let access = &SocketAccess::default();
    let socket =
        Socket { label: "lan0:vm", path: &path, role: Role::Server, access, files: Files::Taken, keeper: None };
    let service = Service::start(&socket, Last(path.clone(), exists), Arc::new(Notes(sender)));
    drop(service.expect("a service"));
    assert_eq!(existed.recv_timeout(PATIENCE), Ok(false));
}
