//! `control.sock` and the commands: garbage, idle connections, mistakes.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use ringway_scenes::{PATIENCE, until};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde_json::Value;

use crate::scene::Scene;

fn say(scene: &Scene, bytes: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(scene.daemon.runtime_dir().join("control.sock")).expect("the daemon listens");
    stream.set_read_timeout(Some(2 * PATIENCE)).expect("a time");
    // The daemon may have closed the connection already.
    let _ = stream.write_all(bytes);
    stream
}

/// Reads until the daemon closes the connection.
fn answer(mut stream: UnixStream) -> String {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the connection does not end cleanly")
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn garbage_half_and_huge_requests_are_refused_and_closed() {
    let scene = Scene::start();
    let mut huge = b"GET /v1/status HTTP/1.1\r\n".to_vec();
    huge.extend(std::iter::repeat_n(b"x: y\r\n", 100_000).flatten());
    let path = [b"GET /", "x".repeat(1 << 20).as_bytes(), b" HTTP/1.1\r\n\r\n"].concat();
    let mut body = b"POST /v1/ports HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000\r\n\r\n".to_vec();
    body.resize(1 << 20, b'{');
    let cases: [(&[u8], &[&str]); 9] = [
        (&[0; 4096], &["400"]),
        (&[0xff; 100], &["400"]),
        (b"\r\n\r\n\r\nno http\r\n\r\n", &["400"]),
        (b"GET /v1/status HTTP/9.9\r\n\r\n", &["400", "505"]),
        (&huge, &["431", "400"]),
        (&path, &["414", "431", "400"]),
        (&body, &["413"]),
        (b"POST /v1/ports HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n", &["400"]),
        (b"GET /../../etc/passwd HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", &["404", "400"]),
    ];
    for (request, codes) in cases {
        let said = answer(say(&scene, request));
        let start = String::from_utf8_lossy(&request[..request.len().min(40)]).into_owned();
        let code = said.split(' ').nth(1).unwrap_or("");
        // If a request is longer than the daemon reads, the reset of the connection may destroy the answer.
        assert!(codes.contains(&code) || (said.is_empty() && request.len() > 8192), "{start:?}: {said:?}");
    }
    let halves: Vec<UnixStream> =
        ["", "G", "GET /v1/status HTTP/1.1\r\nhost:", "POST /v1/ports HTTP/1.1\r\ncontent-length: 5\r\n\r\n{"]
            .map(|half| say(&scene, half.as_bytes()))
            .into();
    scene.daemon.status();
    halves.into_iter().for_each(|half| drop(answer(half)));
    scene.end();
}

#[test]
fn a_thousand_idle_connections_harm_no_port_and_go_without_a_trace() {
    let scene = Scene::start();
    let address = SocketAddrUnix::new(scene.daemon.runtime_dir().join("control.sock")).expect("short enough");
    let mut idle: Vec<OwnedFd> = Vec::new();
    for _ in 0..1000 {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
        // If the kernel's queue is full, the kernel refuses the connection, which is also a valid result.
        if connect(&socket, &address).is_ok() {
            idle.push(socket);
        }
    }
    assert!(idle.len() > 100, "{}", idle.len());
    scene.bystanders.go_on(2000);
    drop(scene.daemon.attach("lan0:x").expect("ports can attach"));
    drop(idle);
    until("the daemon answers", || scene.daemon.ringway(&["status"]).code == Some(0));
    until("the client's port is gone", || scene.daemon.port("x").is_null());
    scene.end();
}

/// Returns the status without counters.
fn settings(scene: &Scene) -> Value {
    let mut status = scene.daemon.status();
    for port in status["ports"].as_array_mut().expect("a list") {
        for counter in ["in", "out", "drops", "kicks", "calls"] {
            port[counter].take();
        }
    }
    serde_json::json!([status["ports"], status["switches"], status["faults"]])
}

#[test]
fn mistaken_commands_say_what_is_right_exit_with_2_and_change_nothing() {
    let scene = Scene::start_with("[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let before = settings(&scene);
    let cases: [(&[&str], &str); 16] = [
        (&["port", "add", "q", "switch=lan0", "kind=process", "colour=red"], "unknown key"),
        (&["port", "add", "q", "switch=lan0", "kind=proces"], "process"),
        (&["port", "add", "q", "switch=lan0", "kind=process", "weight=0"], "1 to 64"),
        (&["port", "add", "q", "switch=lan0", "kind=process", "weight=99999999999999999999"], "1 to 64"),
        (&["port", "add", "q", "switch=lan0", "kind=process", "mac=no"], "not an Ethernet address"),
        (&["port", "add", "q", "switch=lan0"], "kind"),
        (&["port", "add", "q", "switch=lan0", "kind=process", "weight"], "KEY=VALUE"),
        (&["port", "add", "..", "switch=lan0", "kind=process"], "is not a name"),
        (&["port", "add", "a/b", "switch=lan0", "kind=process"], "is not a name"),
        (&["port", "add", "p", "switch=lan0", "kind=process"], "exists already"),
        (&["port", "set", "p", "weight=5", "isolated=perhaps"], "isolated"),
        (&["port", "set", "p", "weight=5", "switch=lan1"], "switch"),
        (&["port", "set", "nobody", "weight=5"], "there is no port \"nobody\""),
        (&["port", "del", "nobody"], "there is no port \"nobody\""),
        (&["port", "del", "lan9:p"], "there is no port \"lan9:p\""),
        (&["fdb", "lan9"], "there is no switch \"lan9\""),
    ];
    for (args, words) in cases {
        let said = scene.daemon.ringway(args);
        assert_eq!(said.code, Some(2), "{args:?}: {}", said.err);
        assert!(said.err.contains(words), "{args:?} does not report {words:?}: {}", said.err);
        assert_eq!(said.out, "", "{args:?}");
        assert_eq!(settings(&scene), before, "{args:?} changed the settings");
    }
    scene.end();
}
