//! Files attached to messages that take none. Their sender can make the close of a file block (SO_LINGER).

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ringway_abi::attach::{MEMORY, Reply, Request};
use ringway_abi::layout::External;
use ringway_client::Shape;
use ringway_scenes::until;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recv, send, sendmsg, socket_with, sockopt,
};

use crate::scene::Scene;

/// Sends a socket whose last close blocks for an hour. The receiver has to make this close, unless the kernel refuses
/// the message. Returns the peer of the socket's connection.
fn send_lingering(to: impl AsFd, bytes: &[u8]) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
    let socket = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (peer, _) = listener.accept().expect("a connection");
    while send(&socket, &[0; 65_536], SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_ok() {}
    sockopt::set_socket_linger(&socket, Some(Duration::from_secs(3600))).expect("an option");
    let files = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(&files)));
    let sent = sendmsg(to, &[IoSlice::new(bytes)], &mut beside, SendFlags::NOSIGNAL);
    if sent.is_err() {
        // The message was refused, so the socket is closed here, without waiting.
        sockopt::set_socket_linger(&socket, None).expect("an option");
    }
    // The receiver may have been faster: then this close is the last one and lasts until the peer goes.
    std::thread::spawn(|| drop(socket));
    peer
}

#[test]
fn files_beside_frames_of_a_stream_hold_up_no_poller() {
    let scene = Scene::start_with("[switch.lan0]\n[port.evil]\nswitch = \"lan0\"\nkind = \"stream\"\n");
    let socket = scene.daemon.runtime_dir().join("evil.sock");
    // A message that the poller reads, and a message that is not read because the connection ends first.
    for length in [60u32, u32::MAX] {
        let stream = UnixStream::connect(&socket).expect("a port listens");
        scene.daemon.until_state("evil", "up");
        let _ = send(&stream, &length.to_be_bytes(), SendFlags::NOSIGNAL);
        let peers = [(); 3].map(|()| send_lingering(&stream, &[2; 60]));
        scene.bystanders.go_on(2000);
        drop((stream, peers));
        scene.daemon.until_state("evil", "waiting");
    }
    scene.end();
}

#[test]
fn files_beside_requests_hold_up_no_other_client() {
    let scene = Scene::start();
    let attach = SocketAddrUnix::new(scene.daemon.runtime_dir().join("attach.sock")).expect("a path");
    let connection = || -> OwnedFd {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
        connect(&socket, &attach).expect("the daemon listens");
        socket
    };
    let request =
        Request { switch: "lan0".into(), port: "evil".into(), shape: Shape::default(), external: None }.encode();
    // Files with an invalid request, with a valid request, and with a second message that ends the connection.
    let peers = [&b"x"[..], &request, &request].map(|bytes| {
        let socket = connection();
        let peers = [(); 3].map(|()| send_lingering(&socket, bytes));
        let attached = scene.attach("other");
        drop(attached);
        until("the port is gone", || scene.daemon.port("other").is_null());
        drop(socket);
        peers
    });
    scene.bystanders.go_on(500);
    drop(peers);
    until("all ports are gone", || scene.daemon.port("evil").is_null());
    scene.end();
}

#[test]
fn files_whose_close_lasts_do_not_fill_the_daemons_descriptors() {
    let scene = Scene::start();
    let attach = SocketAddrUnix::new(scene.daemon.runtime_dir().join("attach.sock")).expect("a path");
    let folder = format!("/proc/{}/fd", scene.daemon.pid());
    let open = || std::fs::read_dir(&folder).expect("descriptors").count();
    let external = Some(External { bytes: 8 << 20, unit: 64, first: 2 });
    let request = Request { switch: "lan0".into(), port: "evil".into(), shape: Shape::default(), external }.encode();
    // Returns the answer to a request with memory.
    let ask = || {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket");
        connect(&socket, &attach).expect("the daemon listens");
        send(&socket, &request, SendFlags::NOSIGNAL).expect("sent");
        let mut answer = [0; 4096];
        let (_, len) = recv(&socket, &mut answer[..], RecvFlags::empty()).expect("an answer");
        (socket, Reply::decode(&answer[..len]).expect("a reply"))
    };
    let before = open();
    let mut peers = Vec::new();
    let refused = loop {
        let (socket, reply) = ask();
        match reply {
            Reply::SendMemory if peers.len() < 500 => peers.push(send_lingering(&socket, &MEMORY)),
            Reply::Refused(reason) => break reason,
            other => panic!("after {} files: {other:?}", peers.len()),
        }
    };
    assert!(refused.contains("are still being closed"), "{refused}");
    for _ in 0..300 {
        assert!(matches!(ask().1, Reply::Refused(_)));
    }
    until("few descriptors are open", || open() < before + 100);
    // Clients that send no files are served.
    drop(scene.attach("other"));
    scene.bystanders.go_on(500);
    drop(peers);
    until("all files are closed", || open() <= before);
    until("the process may send files again", || ask().1 == Reply::SendMemory);
    scene.end();
}
