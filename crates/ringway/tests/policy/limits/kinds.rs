//! Limits on ports of every kind: each frame passes or is counted as refused. If the excess waits, no frame is lost and
//! all frames arrive in order.

use std::fs::File;
use std::io::Write;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ringway_api::client::Client;
use ringway_api::limits::LimitStatus;
use ringway_client::Port;
use ringway_scenes::flood::{address, config, drops, frame};
use ringway_scenes::namespace::Namespace;
use ringway_scenes::{Daemon, PATIENCE, send, until};
use ringway_traffic::{E1000Endpoint, E1000Mode, E1000Options, Endpoint, Packed, Split, VirtioEndpoint, VirtioOptions};

/// Frames of one sender, fewer than any ring has room for.
const FRAMES: u32 = 200;
/// Frames that pass at once.
const BURST: u32 = 10;

/// A sender at a port. It keeps its connection.
enum Sender {
    Process(Box<Port>),
    Split(Box<VirtioEndpoint<Split>>),
    Packed(Box<VirtioEndpoint<Packed>>),
    E1000(Box<E1000Endpoint>),
    Stream(UnixStream),
    Tap(UdpSocket),
}

/// Sends all frames from an endpoint, with their numbers.
fn send_all(to: &mut impl Endpoint) {
    for number in 0..FRAMES {
        let frame = numbered(number);
        until("there is room", || to.tx_push(frame.len(), |bytes| bytes.copy_from_slice(&frame)));
        to.tx_flush();
    }
}

fn numbered(number: u32) -> Vec<u8> {
    let mut frame = frame(address(2), 1, 60);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Returns the number of a frame, also if the kernel has put the number into a datagram.
fn number(frame: &[u8]) -> u32 {
    let at = if frame[12..14] == [8, 0] { 42 } else { 14 };
    u32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"))
}

impl Sender {
    /// Attaches a sender to port `p1`.
    fn attach(daemon: &Daemon, kind: &Kind, space: Option<&Namespace>) -> Sender {
        let socket = daemon.runtime_dir().join("p1.sock");
        let virtio = VirtioOptions::default();
        match kind.name {
            "process" => Sender::Process(Box::new(daemon.attach("lan0:p1").expect("the port takes a client"))),
            "split ring" => Sender::Split(Box::new(VirtioEndpoint::attach(&socket, &virtio).expect("a front end"))),
            "packed ring" => Sender::Packed(Box::new(VirtioEndpoint::attach(&socket, &virtio).expect("a front end"))),
            "e1000" | "e1000e" => {
                let mode = if kind.name == "e1000" { E1000Mode::Base } else { E1000Mode::Mapped };
                let options = E1000Options { mode, ..E1000Options::default() };
                Sender::E1000(Box::new(E1000Endpoint::attach(&socket, &options).expect("a front end")))
            }
            "stream" => Sender::Stream(UnixStream::connect(socket).expect("a peer")),
            _ => Sender::Tap(socket_in(space.expect("the port's namespace"))),
        }
    }

    fn send_all(&mut self) {
        match self {
            Sender::Process(port) => {
                (0..FRAMES).for_each(|number| assert!(port.tx().push(&numbered(number))));
                port.flush();
            }
            Sender::Split(endpoint) => send_all(&mut **endpoint),
            Sender::Packed(endpoint) => send_all(&mut **endpoint),
            Sender::E1000(endpoint) => send_all(&mut **endpoint),
            Sender::Stream(socket) => {
                for number in 0..FRAMES {
                    let frame = numbered(number);
                    let length = (frame.len() as u32).to_be_bytes();
                    socket.write_all(&[&length[..], &frame].concat()).expect("the peer reads");
                }
            }
            Sender::Tap(socket) => {
                for number in 0..FRAMES {
                    let _ = socket.send_to(&number.to_be_bytes(), "10.77.0.9:9").expect("the kernel sends");
                }
            }
        }
    }
}

/// Returns a socket that sends from 10.77.0.1 in a namespace.
fn socket_in(space: &Namespace) -> UdpSocket {
    space.ok("ip", &["addr", "add", "10.77.0.1/24", "dev", "p1"]);
    space.ok("ip", &["neigh", "add", "10.77.0.9", "lladdr", "02:00:00:00:00:02", "dev", "p1"]);
    let namespace = File::open(Path::new("/run/netns").join(&space.name)).expect("a namespace");
    let entered = std::thread::spawn(move || {
        rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(rustix::thread::LinkNameSpaceType::Network))
            .expect("the namespace can be entered");
        UdpSocket::bind("10.77.0.1:0").expect("a socket")
    });
    entered.join().expect("a socket")
}

struct Kind {
    name: &'static str,
    /// The configuration keys of the port.
    keys: &'static str,
    /// True if frames can wait in the port's ring, also for a receiver.
    has_ring: bool,
}

const fn kind(name: &'static str, keys: &'static str, has_ring: bool) -> Kind {
    Kind { name, keys, has_ring }
}

/// Returns a limit. If the excess is dropped, one frame per second passes, so that frames are surely refused. If it
/// waits, the rate lets all frames pass in less than a second.
fn limit(waits: bool) -> String {
    let (rate, excess) = if waits { (500, "wait") } else { (1, "drop") };
    format!("{{ frames = \"{rate}pps\", frames_burst = {BURST}, on_excess = \"{excess}\" }}")
}

/// Sends frames from a port of this kind. The limit is at this port or at the receiver.
fn conserves(kind: &Kind, at_ingress: bool, waits: bool) {
    let what = format!("{}, at ingress: {at_ingress}, waits: {waits}", kind.name);
    let space = (kind.name == "tap").then(Namespace::new);
    let netns = space.as_ref().map(|space| format!("netns = \"{}\"\n", space.name)).unwrap_or_default();
    let [mine, other] = if at_ingress { ["ingress", ""] } else { ["", "egress"] };
    let limited = |way: &str| if way.is_empty() { String::new() } else { format!("{way} = {}", limit(waits)) };
    let ports = [format!("{}\n{netns}{}", kind.keys, limited(mine)), limited(other)];
    let config = config(&ports.each_ref().map(String::as_str)).replace("kind = \"process\"\nkind", "kind");
    let daemon = Daemon::start(&config);
    let mut receiver = daemon.attach("lan0:p2").expect("the port takes a client");
    send(&mut receiver, &frame([2, 0, 0, 0, 0xff, 0xff], 2, 60));
    until("the receiver's address is known", || daemon.ok(&["fdb"]).contains("02:00:00:00:00:02"));
    let mut sender = Sender::attach(&daemon, kind, space.as_ref());
    daemon.until_state("p1", "up");
    let client = Client::new(&daemon.runtime_dir()).patience(PATIENCE);
    let tally = || {
        let status = client.status().expect("the daemon answers");
        let port = |name: &str| status.ports.iter().find(|port| port.name == name).expect("a port").clone();
        let limit: Option<LimitStatus> = if at_ingress { port("p1").ingress } else { port("p2").egress };
        (port("p1").input.frames, limit.expect("a limit").tally)
    };

    let began = Instant::now();
    sender.send_all();
    let sending = began.elapsed();
    let mut numbers = Vec::new();
    until("each frame has passed or is refused", || {
        receiver.rx().drain(256, |frame| numbers.push(number(frame)));
        let (taken, tally) = tally();
        let all = tally.passed.frames + tally.refused.all();
        assert!(taken.max(all) <= FRAMES.into(), "{what}: {taken} {tally:?}");
        all == u64::from(FRAMES)
    });
    let (took, passed) = (began.elapsed(), tally().1.passed.frames);
    until("the passed frames arrive", || {
        receiver.rx().drain(256, |frame| numbers.push(number(frame)));
        numbers.len() as u64 >= passed
    });
    assert!(numbers.is_sorted_by(|one, next| one < next), "{what}: {numbers:?}");
    assert_eq!((numbers.len() as u64, tally().0), (passed, FRAMES.into()), "{what}");
    let refused = drops(&daemon, "p1", "rate_limited") + drops(&daemon, "p2", "egress_limited");
    assert_eq!(refused, tally().1.refused.all(), "{what}");
    if waits && (at_ingress || kind.has_ring) {
        assert_eq!(refused, 0, "{what}: frames were refused");
        // One frame passes on credit.
        let least = Duration::from_millis(2) * (FRAMES - BURST - 1);
        assert!(took >= least, "{what}: {took:?}");
        // Frames that the sender had no time to send faster need not wait.
        assert!(tally().1.waits > 0 || sending >= least, "{what}: {sending:?}");
    } else {
        let rate = if waits { 500 } else { 1 };
        let most = u64::from(BURST) + 1 + rate * took.as_millis() as u64 / 1000;
        assert!((u64::from(BURST)..=most).contains(&passed), "{what}: {passed} passed, at most {most} may");
    }
}

fn conserves_everywhere(kind: &Kind) {
    for (at_ingress, waits) in [(true, false), (true, true), (false, false), (false, true)] {
        conserves(kind, at_ingress, waits);
    }
}

#[test]
fn frames_from_a_process_pass_or_are_counted() {
    conserves_everywhere(&kind("process", "kind = \"process\"", true));
}

#[test]
fn frames_from_a_virtual_machine_pass_or_are_counted() {
    conserves_everywhere(&kind("split ring", "kind = \"vhost-user\"", true));
    conserves_everywhere(&kind("packed ring", "kind = \"vhost-user\"", true));
}

#[test]
fn frames_from_an_emulated_nic_pass_or_are_counted() {
    conserves_everywhere(&kind("e1000", "kind = \"e1000\"", true));
    conserves_everywhere(&kind("e1000e", "kind = \"e1000\"\nmodel = \"e1000e\"", true));
}

#[test]
fn frames_from_a_stream_pass_or_are_counted() {
    conserves_everywhere(&kind("stream", "kind = \"stream\"", false));
}

#[test]
fn frames_from_a_device_pass_or_are_counted() {
    conserves_everywhere(&kind("tap", "kind = \"tap\"", true));
}
