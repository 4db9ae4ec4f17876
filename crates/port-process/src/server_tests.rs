//! The attach server's thread and its clients: a panic ends only the connection of the client that it was serving, and who waits for
//! a registration keeps nobody waiting.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;
use ringway_abi::attach::{Reply, Request};
use ringway_abi::netmap::{self, Family, Numbers, PortName, Register, Rings, Wish};
use ringway_port::front_end::Process;
use ringway_testing::PATIENCE;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::external::ExternalMemory;
use super::region::{Region, RegionPort, Registration};
use super::server::{AttachServer, ClientId, Grant, Host, NetmapHost, Refusal, TRAP, TimeLimits};
use ringway_port::port_io::PortIo;

/// No client is late, and no registration is given up.
const PATIENT: TimeLimits = TimeLimits { request_within: PATIENCE, tries_for: PATIENCE };

/// Refuses all requests.
struct RefuseAll;

impl NetmapHost for RefuseAll {}

impl Host for RefuseAll {
    fn check(&mut self, _: &Request) -> Result<(), String> {
        Ok(())
    }

    fn attach(&mut self, _: ClientId, _: Process, _: Request, _: Option<Arc<ExternalMemory>>) -> Result<Grant, String> {
        Err("refused".to_owned())
    }

    fn detach(&mut self, _: ClientId) {}
}

fn client(path: &std::path::Path) -> OwnedFd {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

fn say(client: &OwnedFd, message: &[u8]) {
    send(client, message, SendFlags::NOSIGNAL).unwrap();
}

/// Returns the reason that the server sends before it ends the connection.
fn answer(client: &OwnedFd) -> String {
    let mut message = [0; 4096];
    let (_, len) = recv(client, &mut message[..], rustix::net::RecvFlags::empty()).unwrap();
    match Reply::decode(&message[..len]) {
        Ok(Reply::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_panic_while_a_client_is_served_costs_that_client_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attach.sock");
    let server =
        AttachServer::start_with(&path, &Default::default(), Box::new(RefuseAll), PATIENT, &Default::default())
            .unwrap();
    let others = client(&path);
    // Repeated panics: each ends only the connection of the client that caused it.
    for _ in 0..10 {
        let victim = client(&path);
        say(&victim, TRAP);
        let told = answer(&victim);
        assert!(told.starts_with("a defect of Ringway, please report it") && told.contains("requests.rs:"), "{told}");
        assert_eq!(
            recv(&victim, &mut [0; 16][..], rustix::net::RecvFlags::empty()).unwrap().1,
            0,
            "the connection stays open"
        );
    }
    say(&others, b"no request");
    assert!(!answer(&others).contains("defect"));
    drop(server);
}

/// Refuses registrations for the moment until another client has asked for numbers, and then for good.
#[derive(Clone)]
struct NotYet {
    has_asked: Arc<AtomicBool>,
    tries: Arc<AtomicU32>,
}

impl NetmapHost for NotYet {
    fn another(&self) -> Box<dyn NetmapHost + Send> {
        Box::new(self.clone())
    }

    fn register(&mut self, _: ClientId, _: Process, _: Family, _: &Register) -> Result<Registration, Refusal> {
        self.tries.fetch_add(1, Ordering::SeqCst);
        let has_asked = self.has_asked.load(Ordering::SeqCst);
        let text = if has_asked { "for good" } else { "for the moment" };
        Err(Refusal { is_transient: !has_asked, ..Refusal::new(Errno::BUSY, text) })
    }

    fn info(&mut self, _: Family, _: &PortName, _: &Wish) -> Result<Numbers, Refusal> {
        self.has_asked.store(true, Ordering::SeqCst);
        Err(Refusal::new(Errno::NXIO, "no numbers"))
    }
}

impl Host for NotYet {
    fn check(&mut self, _: &Request) -> Result<(), String> {
        Ok(())
    }

    fn attach(&mut self, _: ClientId, _: Process, _: Request, _: Option<Arc<ExternalMemory>>) -> Result<Grant, String> {
        Err("refused".to_owned())
    }

    fn detach(&mut self, _: ClientId) {}
}

/// Returns the next answer to a client of the netmap dialogue.
fn next(client: &OwnedFd) -> netmap::Reply {
    let mut message = [0; 4096];
    let (_, len) = recv(client, &mut message[..], rustix::net::RecvFlags::empty()).unwrap();
    netmap::Reply::decode(&message[..len]).unwrap()
}

fn open_netmap(path: &std::path::Path) -> OwnedFd {
    let client = client(path);
    say(&client, &netmap::Request::Open(Family([1; 16])).encode());
    assert_eq!(next(&client), netmap::Reply::Done);
    client
}

/// A registration of all rings.
fn register(extra_buffers: u32) -> Register {
    Register {
        name: "lan0:a".parse().unwrap(),
        tx: Rings::All,
        rx: Rings::All,
        exclusive: false,
        wish: Wish::default(),
        extra_buffers,
        region: 0,
        monitor: netmap::Monitor::default(),
        polling: netmap::Polling::default(),
    }
}

#[test]
fn a_registration_that_may_pass_within_a_moment_is_tried_again_and_others_are_served_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attach.sock");
    let tries = Arc::new(AtomicU32::new(0));
    let host = NotYet { has_asked: Arc::default(), tries: Arc::clone(&tries) };
    let server =
        AttachServer::start_with(&path, &Default::default(), Box::new(host), PATIENT, &Default::default()).unwrap();
    let (waits, other) = (open_netmap(&path), open_netmap(&path));
    let register = register(0);
    say(&waits, &netmap::Request::Register(register.clone()).encode());
    // The next request waits for the answer to the first one.
    say(&waits, &netmap::Request::Register(register.clone()).encode());
    ringway_testing::until("it was refused for the moment", || tries.load(Ordering::SeqCst) > 0);
    say(&other, &netmap::Request::Info(register.name.clone(), Wish::default()).encode());
    let text = |reply| match reply {
        netmap::Reply::Refused { text, .. } => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(text(next(&other)), "no numbers");
    assert_eq!([text(next(&waits)), text(next(&waits))], ["for good", "for good"]);
    drop(server);
}

/// Has one port, and one that was closed and is in use until a client asks for numbers.
#[derive(Clone)]
struct WithLeaving {
    port: Arc<RegionPort>,
    leaving: Arc<Mutex<Option<PortIo>>>,
    registered: Arc<AtomicU32>,
}

impl NetmapHost for WithLeaving {
    fn another(&self) -> Box<dyn NetmapHost + Send> {
        Box::new(self.clone())
    }

    fn register(&mut self, _: ClientId, _: Process, _: Family, register: &Register) -> Result<Registration, Refusal> {
        let registration = Registration::new(&self.port, register, [0; 6]);
        self.registered.fetch_add(1, Ordering::SeqCst);
        registration.map_err(|error| Refusal::new(Errno::NOMEM, error.to_string()))
    }

    fn info(&mut self, _: Family, _: &PortName, _: &Wish) -> Result<Numbers, Refusal> {
        drop(self.leaving.lock().take());
        Err(Refusal::new(Errno::NXIO, "no numbers"))
    }
}

impl Host for WithLeaving {
    fn check(&mut self, _: &Request) -> Result<(), String> {
        Ok(())
    }

    fn attach(&mut self, _: ClientId, _: Process, _: Request, _: Option<Arc<ExternalMemory>>) -> Result<Grant, String> {
        Err("refused".to_owned())
    }

    fn detach(&mut self, _: ClientId) {}
}

#[test]
fn a_registration_gets_the_extra_buffers_that_a_closed_port_gives_back_within_a_moment() {
    let wish = Wish { tx_slots: 64, rx_slots: 64, ..Wish::default() };
    let region = Region::new(1, &wish, 2 << 20).unwrap();
    let (_sides, port) = region.open(&wish, 0).unwrap();
    let (leaving, shared) = region.open(&wish, 0).unwrap();
    let free = region.free_buffers();
    drop(shared);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attach.sock");
    let registered = Arc::new(AtomicU32::new(0));
    let host = WithLeaving { port, leaving: Arc::new(Mutex::new(Some(leaving))), registered: Arc::clone(&registered) };
    let server =
        AttachServer::start_with(&path, &Default::default(), Box::new(host), PATIENT, &Default::default()).unwrap();
    let (waits, other) = (open_netmap(&path), open_netmap(&path));
    say(&waits, &netmap::Request::Register(register(u32::MAX)).encode());
    ringway_testing::until("it is registered", || registered.load(Ordering::SeqCst) > 0);
    let name = register(0).name;
    say(&other, &netmap::Request::Info(name, Wish::default()).encode());
    assert!(matches!(next(&other), netmap::Reply::Refused { .. }));
    match next(&waits) {
        netmap::Reply::Granted(granted) => assert_eq!(granted.extra_buffers, free + 128),
        other => panic!("{other:?}"),
    }
    drop(server);
}

/// Waits in each registration, as in a page of the client's memory, for as long as a test likes.
#[derive(Clone, Default)]
struct Stalls {
    hold: Arc<Mutex<()>>,
    entered: Arc<AtomicU32>,
    /// Registrations that were ended.
    ended: Arc<AtomicU32>,
}

impl NetmapHost for Stalls {
    fn another(&self) -> Box<dyn NetmapHost + Send> {
        Box::new(self.clone())
    }

    fn register(&mut self, _: ClientId, _: Process, _: Family, _: &Register) -> Result<Registration, Refusal> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        drop(self.hold.lock());
        Err(Refusal::new(Errno::BUSY, "at last"))
    }

    fn unregister(&mut self, _: ClientId) {
        self.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl Host for Stalls {
    fn check(&mut self, _: &Request) -> Result<(), String> {
        Ok(())
    }

    fn attach(&mut self, _: ClientId, _: Process, _: Request, _: Option<Arc<ExternalMemory>>) -> Result<Grant, String> {
        Err("refused".to_owned())
    }

    fn detach(&mut self, _: ClientId) {}
}

#[test]
fn who_waits_for_the_memory_of_one_client_keeps_no_other_client_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("attach.sock");
    let host = Stalls::default();
    let server =
        AttachServer::start_with(&path, &Default::default(), Box::new(host.clone()), PATIENT, &Default::default())
            .unwrap();
    let (waits, leaves, other) = (open_netmap(&path), open_netmap(&path), open_netmap(&path));
    let held = host.hold.lock();
    for client in [&waits, &leaves] {
        let entered = host.entered.load(Ordering::SeqCst);
        say(client, &netmap::Request::Register(register(0)).encode());
        ringway_testing::until("it waits", || host.entered.load(Ordering::SeqCst) > entered);
    }
    say(&other, &netmap::Request::Info(register(0).name, Wish::default()).encode());
    assert!(matches!(next(&other), netmap::Reply::Refused { .. }));
    let attaches = client(&path);
    say(&attaches, b"no request");
    assert!(!answer(&attaches).is_empty());
    // A client that goes meanwhile has its registration ended when it has gone, and again when it was made.
    drop(leaves);
    ringway_testing::until("the server has noticed", || host.ended.load(Ordering::SeqCst) == 1);
    drop(held);
    match next(&waits) {
        netmap::Reply::Refused { text, .. } => assert_eq!(text, "at last"),
        other => panic!("{other:?}"),
    }
    ringway_testing::until("its thread has ended it", || host.ended.load(Ordering::SeqCst) == 2);
    drop(server);
}
