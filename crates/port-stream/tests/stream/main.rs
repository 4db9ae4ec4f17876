//! Stream ports against peers that follow no rules.

mod lan;

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;

use lan::{Event, Lan, Peer, frame, framed};
use ringway_memory::Mapping;
use ringway_port::{Role, State};
use ringway_switch::{Armed, Batch, Discarded, DropReason, Input, PortFault, WakeOn};
use ringway_testing::until;
use rustix::net::{RecvFlags, recv};

/// Valid frame lengths: short, long, and around the end of the private copy.
const LENGTHS: [usize; 10] = [14, 15, 60, 127, 128, 129, 1514, 9014, 65_535, 65_589];

#[test]
fn frames_arrive_whole_however_the_stream_is_cut() {
    let (mut lan, [mut left, mut right]) = Lan::pair();
    let frames: Vec<Vec<u8>> = (0..).zip(LENGTHS).map(|(number, len)| frame(1, 0, len, number)).collect();
    for piece in [1, 2, 3, 5, 17, 1000, 1518, 4096, 100_000, 400_000] {
        // Only short frames are sent one byte at a time.
        let frames = if piece < 17 { &frames[..6] } else { &frames[..] };
        let stream: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
        let mut came = Vec::new();
        for part in stream.chunks(piece) {
            // Bytes that do not fit into the socket's buffer are sent in several parts.
            for part in part.chunks(100_000) {
                left.write(part);
                lan.pass_all(0);
                came.extend(right.receive(usize::MAX));
            }
        }
        assert!(came == frames, "in pieces of {piece} bytes");
    }
    assert_eq!(lan.counters(0).drops().count(), 0);
    assert_eq!(lan.counters(1).drops().count(), 0);
}

#[test]
fn a_batch_takes_what_it_has_room_for_and_the_others_stay_in_order() {
    let (mut lan, [mut left, mut right]) = Lan::pair();
    let frames: Vec<Vec<u8>> = (0..1000).map(|number| frame(1, 0, 60, number)).collect();
    left.write(&frames.iter().flat_map(|frame| framed(frame)).collect::<Vec<_>>());
    assert_eq!(lan.pass(0).frames, 256, "a batch");
    assert!(
        lan.ends[0].input.pending() && lan.ends[0].input.arm(WakeOn::Frames) == Armed::Pending,
        "the poller must not sleep while bytes in the buffer wait"
    );
    assert_eq!(lan.ends[0].input.discard(3).unwrap(), Discarded { frames: 3, bytes: 180 });
    assert_eq!(lan.pass_all(0), 1000 - 256 - 3);
    assert!(!lan.ends[0].input.pending() && lan.ends[0].input.arm(WakeOn::Frames) != Armed::Pending);
    let expected = [&frames[..256], &frames[259..]].concat();
    assert!(right.receive(usize::MAX) == expected);
}

/// Returns the number of whole frames that a peer could read, and whether there is more.
fn unread(peer: &Peer) -> (u64, bool) {
    let mut bytes = vec![0; 16 << 20];
    let (count, _) = recv(&peer.socket, &mut bytes[..], RecvFlags::PEEK).unwrap();
    let (mut rest, mut whole) = (&bytes[..count], 0);
    while let Some((prefix, behind)) = rest.split_first_chunk::<4>()
        && let Some(behind) = behind.get(u32::from_be_bytes(*prefix) as usize..)
    {
        (rest, whole) = (behind, whole + 1);
    }
    (whole, !rest.is_empty())
}

/// Sends frames to port 1, whose peer does not read, until many were dropped and one was sent in part. Where the kernel cuts depends on the
/// lengths of all frames before.
fn fill() -> (Lan, [Peer; 2], Vec<Vec<u8>>) {
    // The kernel takes 16 pages of a pipe at once.
    for len in 65_533..65_560 {
        let (mut lan, [mut left, right]) = Lan::pair();
        let mut sent = Vec::new();
        while lan.dropped(1, DropReason::ReceiverFull) < 50 {
            for _ in 0..3 {
                let next = frame(1, 0, len + sent.len() % 30, sent.len() as u32);
                left.send(&next);
                sent.push(next);
            }
            lan.pass_all(0);
        }
        let counted = lan.counters(1).out_frames + lan.dropped(1, DropReason::ReceiverFull);
        assert_eq!(counted + 1, sent.len() as u64, "each frame is delivered, dropped, or waits for room");
        if unread(&right).1 {
            return (lan, [left, right], sent);
        }
    }
    panic!("the kernel takes no frame in part, whatever its length");
}

#[test]
fn a_peer_that_does_not_read_loses_frames_whole_and_gets_the_rest_of_a_cut_one_by_itself() {
    let (mut lan, [mut left, mut right], sent) = fill();
    let delivered = lan.counters(1).out_frames as usize;
    // No further frame is sent. The port's thread sends the rest of the partly sent frame, which then counts as delivered.
    let mut came = Vec::new();
    until("all delivered frames have come", || {
        came.extend(right.receive(1000));
        came.len() == delivered + 1
    });
    until("the last frame is counted", || {
        lan.pass(1);
        lan.counters(1).out_frames as usize == delivered + 1
    });
    assert_eq!(lan.counters(1).out_bytes, came.iter().map(|frame| frame.len() as u64).sum::<u64>());
    let mut rest = sent.iter();
    assert!(came.iter().all(|frame| rest.any(|sent| sent == frame)), "the frames are whole and in order");
    // The port delivers frames as before.
    left.send(&frame(1, 0, 60, 9));
    assert_eq!(lan.pass_all(0), 1);
    assert!(right.receive(usize::MAX) == [frame(1, 0, 60, 9)]);
}

#[test]
fn a_connection_has_room_for_a_window_of_tcp() {
    let (mut lan, [mut left, _right]) = Lan::pair();
    let most: usize = std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap().trim().parse().unwrap();
    for number in 0.. {
        left.send(&frame(1, 0, 1514, number));
        lan.pass_all(0);
        if lan.dropped(1, DropReason::ReceiverFull) > 0 {
            break;
        }
    }
    // The kernel counts its own structures, too.
    let bytes = lan.counters(1).out_bytes as usize;
    assert!(bytes > most.min(2 << 20) * 2 / 3, "{bytes} of {most}");
}

#[test]
fn a_frame_that_was_sent_in_part_is_lost_if_the_peer_goes() {
    let (mut lan, [mut left, right], sent) = fill();
    let (whole, _) = unread(&right);
    drop(right);
    until("the port has counted the lost frame", || {
        lan.pass(1);
        lan.dropped(1, DropReason::ReceiverDown) == 1
    });
    lan.expect(1, &Event::Connected(false));
    assert_eq!(lan.counters(1).out_frames, whole);
    assert_eq!(whole + lan.dropped(1, DropReason::ReceiverFull) + 1, sent.len() as u64);
    // The next peer is served from the beginning of a frame.
    let mut right = lan.connect(1);
    left.send(&frame(1, 0, 60, 9));
    assert_eq!(lan.pass_all(0), 1);
    assert!(right.receive(usize::MAX) == [frame(1, 0, 60, 9)]);
}

/// A peer that leaves in the middle of a frame, at whatever moment, is noticed by a poller that sleeps between events.
#[test]
fn three_bytes_and_a_close_keep_no_other_peer_out() {
    let mut lan = Lan::new(&[Role::Server]);
    for bytes in [&[][..], &[0; 3], &framed(&[0; 60])[..10], &[framed(&frame(0, 0, 60, 1)), vec![0; 3]].concat()] {
        let mut peer = lan.connect(0);
        peer.write(bytes);
        drop(peer);
        // Visits without frames, until the poller could sleep.
        loop {
            lan.pass_all(0);
            if lan.ends[0].input.arm(WakeOn::Frames) != Armed::Pending {
                break;
            }
            lan.ends[0].input.disarm();
        }
        lan.expect(0, &Event::Connected(false));
    }
}

#[test]
fn frames_that_cannot_be_are_counted_and_the_stream_goes_on() {
    let (mut lan, [mut left, mut right]) = Lan::pair();
    for len in [0, 1, 13] {
        left.send(&vec![7; len]);
    }
    for len in [65_590, 69_632] {
        left.send(&frame(1, 0, len, 0));
    }
    left.send(&frame(1, 0, 60, 1));
    lan.pass_all(0);
    assert_eq!((lan.dropped(0, DropReason::Runt), lan.dropped(0, DropReason::Oversize)), (3, 2));
    assert!(right.receive(usize::MAX) == [frame(1, 0, 60, 1)]);
}

#[test]
fn what_cannot_be_a_length_costs_the_connection_and_the_next_peer_is_served() {
    let (mut lan, [mut left, mut right]) = Lan::pair();
    for length in [69_633, 0x0100_0000, u32::MAX] {
        let bytes = [framed(&frame(1, 0, 60, 1)), length.to_be_bytes().to_vec(), vec![1; 1000]].concat();
        left.write(&bytes);
        assert_eq!(lan.pass_all(0), 1, "the frame before the fault is delivered");
        assert!(right.receive(usize::MAX) == [frame(1, 0, 60, 1)]);
        let Event::Fault(reason, detail) = lan.next_said(0) else { panic!("a fault") };
        assert_eq!(reason, "bad_length");
        assert!(detail.contains(&format!("a frame of {length} bytes")), "{detail}");
        until("the connection is closed", || left.is_closed());
        lan.expect(0, &Event::Connected(false));
        left = lan.connect(0);
    }
    left.send(&frame(1, 0, 60, 2));
    until("the next peer's frame comes", || lan.pass(0).frames == 1);
    assert!(right.receive(usize::MAX) == [frame(1, 0, 60, 2)]);
}

#[test]
fn a_flood_of_nothing_keeps_to_a_batch() {
    let (mut lan, [mut left, _right]) = Lan::pair();
    left.write(&[0; 4 * 10_000]);
    let mut passes = 0;
    while lan.dropped(0, DropReason::Runt) < 10_000 {
        assert!(lan.pass(0).frames <= 256, "a batch");
        passes += 1;
        assert!(passes < 100);
    }
}

#[test]
fn half_a_frame_is_waited_for_without_harm_and_goes_with_its_peer() {
    let (mut lan, [mut left, mut right]) = Lan::pair();
    left.write(&[&framed(&frame(1, 0, 60, 1))[..], &4000u32.to_be_bytes(), &[1; 1000]].concat());
    assert_eq!(lan.pass_all(0), 1);
    right.send(&frame(0, 1, 60, 5));
    assert_eq!(lan.pass_all(1), 1, "the other ports still exchange frames");
    assert!(left.receive(usize::MAX) == [frame(0, 1, 60, 5)]);
    drop(left);
    lan.pass_all(0);
    lan.expect(0, &Event::Connected(false));
    left = lan.connect(0);
    left.send(&frame(1, 0, 60, 2));
    until("the next peer's frame comes", || lan.pass(0).frames == 1);
    assert!(right.receive(usize::MAX) == [frame(1, 0, 60, 1), frame(1, 0, 60, 2)]);
}

#[test]
fn a_peer_that_goes_in_the_middle_of_a_frame_leaves_nothing_for_the_next() {
    let (mut lan, [mut left, right]) = Lan::pair();
    let mut number = 0;
    while lan.dropped(1, DropReason::ReceiverFull) == 0 {
        left.send(&frame(1, 0, 3000, number));
        lan.pass_all(0);
        number += 1;
    }
    drop(right);
    lan.pass_all(1);
    lan.expect(1, &Event::Connected(false));
    left.send(&frame(1, 0, 60, 8));
    lan.pass_all(0);
    assert_eq!(lan.dropped(1, DropReason::ReceiverDown), 1, "the receiver has no peer");
    let mut right = lan.connect(1);
    left.send(&frame(1, 0, 60, 9));
    lan.pass_all(0);
    assert!(right.receive(usize::MAX) == [frame(1, 0, 60, 9)]);
}

#[test]
fn frames_of_a_peer_that_went_are_not_those_of_the_next() {
    let (mut lan, [mut left, mut right]) = Lan::pair();
    // More than a batch, so that some stay in the port's memory, as those that wait for a limit do.
    left.write(&(0..1000).flat_map(|number| framed(&frame(1, 0, 60, number))).collect::<Vec<_>>());
    assert_eq!(lan.pass(0).frames, 256, "a batch");
    assert_eq!(right.receive(usize::MAX).len(), 256);
    // The output notices the end, as nothing reads the connection to its end meanwhile.
    drop(left);
    until("the end is noticed", || {
        right.send(&frame(0, 1, 60, 0));
        lan.pass_all(1);
        lan.ends[0].said.try_recv() == Ok(Event::Connected(false))
    });
    let mut left = lan.connect(0);
    left.send(&frame(1, 0, 60, 9));
    lan.pass_all(0);
    assert!(right.receive(usize::MAX) == [frame(1, 0, 60, 9)]);
}

#[test]
fn a_second_peer_is_turned_away_while_the_first_is_there() {
    let (mut lan, [mut left, mut right]) = Lan::pair();
    let mut other = Peer::new(std::os::unix::net::UnixStream::connect(lan.path(0)).unwrap());
    until("the second peer is refused", || other.is_closed());
    left.send(&frame(1, 0, 60, 1));
    lan.pass_all(0);
    assert!(right.receive(usize::MAX) == [frame(1, 0, 60, 1)]);
    assert_eq!(lan.ends[0].stream.as_ref().unwrap().state(), State::Up);
}

#[test]
fn a_client_connects_when_somebody_listens_and_again_when_he_went() {
    let mut lan = Lan::new(&[Role::Client, Role::Server]);
    let mut right = lan.connect(1);
    for round in 0..3 {
        let listener = UnixListener::bind(lan.path(0)).unwrap();
        let mut left = Peer::new(listener.accept().unwrap().0);
        lan.expect(0, &Event::Connected(true));
        left.send(&frame(1, 0, 100, round));
        until("the peer's frame comes", || lan.pass(0).frames == 1);
        assert!(right.receive(usize::MAX) == [frame(1, 0, 100, round)]);
        drop((left, listener));
        std::fs::remove_file(lan.path(0)).unwrap();
        until("the port sees the end of the connection", || {
            lan.pass(0);
            lan.ends[0].stream.as_ref().unwrap().state() == State::Waiting
        });
        lan.expect(0, &Event::Connected(false));
    }
}

#[test]
fn a_port_that_goes_closes_its_connection_and_removes_its_socket() {
    let (mut lan, [mut left, _right]) = Lan::pair();
    lan.ends[0].stream = None;
    until("the connection is closed", || left.is_closed());
    until("the socket is removed", || !lan.path(0).exists());
    left.socket.write_all(&[0]).unwrap_err();
    assert_eq!(lan.pass(0).frames, 0);
}

/// A source whose memory is truncated while the switch uses it.
struct Takeable {
    memory: Mapping,
    file: OwnedFd,
    frames: usize,
}

const STRIDE: usize = 8192;

impl Takeable {
    fn new(frames: usize) -> Takeable {
        let file = rustix::fs::memfd_create("frames", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, (frames * STRIDE) as u64).unwrap();
        let memory = Mapping::shared(file.as_fd(), frames * STRIDE).unwrap();
        for number in 0..frames {
            assert!(memory.view(number * STRIDE, 6000).unwrap().write(&frame(0, 1, 6000, number as u32)));
        }
        Takeable { memory, file, frames }
    }
}

impl Input for Takeable {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        for number in 0..std::mem::take(&mut self.frames) {
            batch.push(self.memory.view(number * STRIDE, 6000).unwrap(), 6000);
        }
        // Truncates the memory to the first frame, after the heads were copied and before the rest is sent.
        rustix::fs::ftruncate(&self.file, STRIDE as u64).unwrap();
        Ok(())
    }
    fn release(&mut self) {}
    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }
    fn pending(&mut self) -> bool {
        self.frames > 0
    }
    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::Kick
    }
    fn disarm(&mut self) {}
}

#[test]
fn a_sender_that_takes_its_memory_away_leaves_the_stream_whole() {
    let mut lan = Lan::with(&[Role::Server], Some(Box::new(Takeable::new(4))));
    let mut peer = lan.connect(0);
    assert_eq!(lan.pass(1).frames, 4);
    let mut came = Vec::new();
    until("all four frames have come", || {
        came.extend(peer.receive(usize::MAX));
        came.len() == 4
    });
    assert!(came[0] == frame(0, 1, 6000, 0));
    for (number, frame) in came.iter().enumerate().skip(1) {
        let head = lan::frame(0, 1, 6000, number as u32);
        assert!(frame.len() == 6000 && frame[..128] == head[..128], "frame {number} has its length and its head");
        assert!(frame[4096..].iter().all(|&byte| byte == 0), "frame {number}: lost bytes are zeroes");
    }
}
