//! Programs whose daemon hangs, or says what no daemon says.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringway_scenes::{Said, ringway};
use ringway_testing::child::Ended;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

/// `ringway exec` of tcpdump with the sockets of a folder.
fn tcpdump(dir: &Path, args: &[&str]) -> Ended {
    let mut command: Command = ringway();
    command.arg("--runtime-dir").arg(dir).args(["exec", "timeout", "--kill-after=1", "900", "tcpdump", "-Z", "root"]);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Ended(command.spawn().unwrap())
}

/// Answers each request on the administration socket, by turns.
fn serve(dir: &Path, answer: impl Fn(UnixStream) + Send + Sync + 'static) {
    let listener = UnixListener::bind(dir.join("control.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            answer(stream);
        }
    });
}

#[test]
fn a_daemon_that_hangs_delays_the_list_of_devices_and_no_more() {
    let dirs = [(); 4].map(|()| tempfile::tempdir().unwrap());
    let [silent, slow, endless, full] = dirs.each_ref().map(|dir| dir.path());
    serve(silent, |stream| drop(stream.try_clone().map(Box::new).map(Box::leak)));
    let slowly = |mut stream: UnixStream, beginning: &str| {
        let _ = stream.write_all(beginning.as_bytes());
        std::thread::spawn(move || {
            stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            // Until the program has gone, or says something.
            while stream.write_all(b"x").is_ok() && stream.read(&mut [0]).is_err() {}
        });
    };
    serve(slow, move |stream| slowly(stream, "HTTP/1.1 200 "));
    serve(endless, move |stream| slowly(stream, "HTTP/1.1 200 OK\r\ncontent-length: 9999999\r\n\r\n[\""));
    // Its queue has room for one connection, which this test makes.
    let queue = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&queue, &SocketAddrUnix::new(full.join("control.sock")).unwrap()).unwrap();
    listen(&queue, 0).unwrap();
    let _first = UnixStream::connect(full.join("control.sock")).unwrap();
    let programs = dirs.each_ref().map(|dir| tcpdump(dir.path(), &["-D"]));
    for program in programs {
        let said: Said = program.output().into();
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(!said.out.contains("Ringway"), "{}", said.out);
    }
}

#[test]
fn an_attach_socket_that_nobody_serves_is_refused_in_time() {
    let (hangs, full) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let queues = [(hangs.path(), 9), (full.path(), 0)].map(|(dir, room)| {
        let queue = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = SocketAddrUnix::new(dir.join("attach.sock")).unwrap();
        bind(&queue, &address).unwrap();
        listen(&queue, room).unwrap();
        let first = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::connect(&first, &address).unwrap();
        (queue, first)
    });
    for program in [&hangs, &full].map(|dir| tcpdump(dir.path(), &["-i", "lan0:a"])) {
        let said: Said = program.output().into();
        assert!(said.code == Some(1) && said.err.to_lowercase().contains("timed out"), "{:?} {}", said.code, said.err);
    }
    drop(queues);
}

#[test]
fn what_no_daemon_says_ends_a_capture_with_a_reason() {
    for (said_by_daemon, wanted) in [
        (
            &b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff"[..],
            "impossible length",
        ),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "the switch is gone"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "neither length nor chunks"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\n\xff\xff\xff\xff", "HTTP status 404"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        serve(dir.path(), move |mut stream| {
            stream.write_all(said_by_daemon).unwrap();
            // The connection stays open.
            Box::leak(Box::new(stream));
        });
        let said: Said = tcpdump(dir.path(), &["-n", "-i", "mirror:a"]).output().into();
        assert!(said.code == Some(1) && said.err.contains(wanted), "{:?} {}", said.code, said.err);
    }
}
