//! Helpers of several kinds' tests: a guest's memory, frames in a batch, a pair of network devices, and the rule of inputs that read
//! descriptors.

mod batch;
mod guest;

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

use ringway_switch::{Armed, BatchStorage, Input, WakeOn};
use ringway_testing::skip::{is_root, note};
use ringway_testing::until;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub use batch::{bytes_of, fill_batch, memory_for};
pub use guest::{Guest, HIGH, LOW, LOW_BYTES};

/// Runs a program, which must succeed.
pub fn program(name: &str, words: &str) {
    let said = Command::new(name).args(words.split(' ')).output().expect("the program is there");
    assert!(said.status.success(), "{name} {words}: {}", String::from_utf8_lossy(&said.stderr));
}

/// Runs `work` in a network namespace with the veth pair `x0` and `w0`, which has the address 10.79.0.1.
pub fn with_pair(work: impl FnOnce() + Send) {
    struct Space(String);
    impl Drop for Space {
        fn drop(&mut self) {
            program("ip", &format!("netns del {}", self.0));
        }
    }
    if !is_root() {
        return note("it makes network namespaces: needs root");
    }
    let number = std::thread::current().name().map_or(0, |name| name.bytes().map(u64::from).sum::<u64>());
    let space = Space(format!("rwx{}-{number}", std::process::id()));
    program("ip", &format!("netns add {}", space.0));
    let inside = || {
        let file = File::open(format!("/run/netns/{}", space.0)).expect("a namespace");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("it is entered");
        for words in [
            "link add x0 type veth peer name w0",
            "addr add 10.79.0.1/24 dev w0",
            "link set w0 address 02:00:00:00:00:01 mtu 9000",
            "link set x0 mtu 9000 up",
            "link set w0 up",
        ] {
            program("ip", words);
        }
        work();
    };
    std::thread::scope(|scope| scope.spawn(inside).join()).expect("it has passed");
}

/// Two ends of a socket that keeps frames apart, as a device's descriptor does.
pub fn frame_sockets() -> (OwnedFd, OwnedFd) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets")
}

/// Visits an input, with batches of `most` frames, until a poller could sleep. After each visit the input is pending, or `is_readable`
/// says that the descriptor that it reads has nothing: a poller that sleeps then misses nothing. Returns the number of frames.
pub fn visit_until_asleep(input: &mut dyn Input, is_readable: impl Fn() -> bool, most: usize) -> usize {
    let mut frames = 0;
    loop {
        let mut batch = BatchStorage::new(most).into_batch();
        input.collect(&mut batch).expect("no fault");
        frames += batch.len();
        drop(batch);
        input.release();
        assert!(input.pending() || !is_readable(), "no event tells of what is left, after {frames} frames");
        let armed = input.arm(WakeOn::Frames);
        assert!(armed == Armed::Pending || !is_readable(), "{armed:?} after {frames} frames");
        input.disarm();
        if armed != Armed::Pending {
            return frames;
        }
    }
}

/// Returns true if something can be read.
pub fn is_readable(descriptor: impl AsFd) -> bool {
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Sends broadcasts from `w0` to `x0`.
pub fn send_from_far_end(frames: usize) {
    let socket = UdpSocket::bind("10.79.0.1:0").expect("a socket");
    socket.set_broadcast(true).expect("an option");
    for _ in 0..frames {
        socket.send_to(&[7; 100], "10.79.0.255:7").expect("a datagram");
    }
}

/// Visits an input that sees its frames in memory, one at a time, until `least` have come. While there are some, the input does not let
/// a poller sleep.
pub fn visit_until_asleep_in_memory(input: &mut dyn Input, least: usize) {
    let mut frames = 0;
    while frames < least {
        until("a frame has come", || input.pending());
        assert_eq!(input.arm(WakeOn::Frames), Armed::Pending, "after {frames} frames");
        input.disarm();
        let mut batch = BatchStorage::new(1).into_batch();
        input.collect(&mut batch).expect("no fault");
        frames += batch.len();
        drop(batch);
        input.release();
    }
}
