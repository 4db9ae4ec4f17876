use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ringway_api::http::{self, Limit};

use super::*;

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";

/// The block of a frame of `data`.
fn block(data: &[u8]) -> Vec<u8> {
    let len = (32 + data.len() as u32).to_le_bytes();
    let size = (data.len() as u32).to_le_bytes();
    [&6u32.to_le_bytes()[..], &len, &[0; 12], &size, &size, data, &len].concat()
}

/// A mirror of a connection, and the daemon's end of it.
fn mirror() -> (Mirror, UnixStream) {
    let (near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.write_all(HEAD).unwrap();
    let limit = Limit::begin(Duration::from_secs(60));
    let body = http::answer(OwnedFd::from(near), limit).and_then(|answer| answer.successful(limit)).unwrap();
    (Mirror::of(body), far)
}

#[test]
fn a_program_that_takes_single_frames_does_not_gather_the_capture_in_its_memory() {
    let (mut mirror, mut far) = mirror();
    let blocks = block(&[7; 1024]).repeat(32);
    let daemon = std::thread::spawn(move || while far.write_all(&blocks).is_ok() {});
    let mut taken = 0;
    while taken < 1000 {
        // As a program that waits by the descriptor before each frame.
        let ready = mirror.arm();
        let frame = mirror.next().or_else(|| if mirror.look() { mirror.next() } else { None });
        assert!(frame.is_some() || !ready);
        taken += usize::from(frame.is_some());
        mirror.release();
        let most = 2 * PIECE + (64 << 10);
        assert!(mirror.data.len() <= most, "{} bytes after {taken} frames", mirror.data.len());
    }
    drop(mirror);
    daemon.join().unwrap();
}

#[test]
fn a_damaged_capture_ends_while_its_connection_stays_open() {
    let mut longer = block(&[7; 64]);
    longer[24..28].copy_from_slice(&63u32.to_le_bytes());
    for damaged in [vec![0xff; 12], longer] {
        let (mut mirror, mut far) = mirror();
        far.write_all(&[block(&[7; 64]), damaged].concat()).unwrap();
        assert!(mirror.look() && mirror.next().is_some() && mirror.ended().is_none());
        mirror.release();
        assert!(mirror.arm(), "the damage is to be told");
        assert!(mirror.next().is_none() && !mirror.look() && !mirror.arm());
        assert!(mirror.ended().unwrap().starts_with("the capture has a"));
    }
}
