//! A panic of the attach server's thread ends only the connection of the client that it was serving.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringway_abi::attach::{Reply, Request};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::external::ExternalMemory;
use super::server::{AttachServer, ClientId, Grant, Host, NetmapHost, TRAP};

/// Refuses all requests.
struct RefuseAll;

impl NetmapHost for RefuseAll {}

impl Host for RefuseAll {
    fn check(&mut self, _: &Request) -> Result<(), String> {
        Ok(())
    }

    fn attach(&mut self, _: ClientId, _: Request, _: Option<Arc<ExternalMemory>>) -> Result<Grant, String> {
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
    let server = AttachServer::start_with(&path, Box::new(RefuseAll), Duration::from_secs(60)).unwrap();
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
