//! Ports whose buffers lie in memory that the program has brought.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::time::Duration;

use ringway_abi::attach::{REQUEST_BYTES, Reply};
use ringway_client::{AttachError, ExternalMemory, Port, Shape};
use ringway_scenes::{Daemon, PATIENCE, receive, send};
use ringway_testing::file::directory;
use ringway_testing::until;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, recv, socket,
};
use rustix::process::Signal;

/// Bytes of a buffer.
const SIZE: u32 = 2048;
const SHAPE: Shape =
    Shape { tx_rings: 1, rx_rings: 1, tx_slots: 64, rx_slots: 64, buffer_size: SIZE, extra_buffers: 0, offload: false };

fn attach(daemon: &Daemon, name: &str, memory: &mut ExternalMemory) -> Port {
    Port::attach_with_memory(daemon.socket("attach.sock"), name, SHAPE, memory).unwrap().0
}

/// Returns a memfd that can be sealed.
fn memfd(bytes: u64) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    file
}

/// Writes a broadcast whose bytes after the header depend on `seed` and their place.
fn write(frame: &mut [u8], seed: u8) {
    frame.iter_mut().zip(0..).for_each(|(byte, at): (_, usize)| *byte = seed.wrapping_add((at * 7) as u8));
    frame[..12].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, seed]);
}

fn await_sent(port: &mut Port) {
    assert!(port.wait_sent(PATIENCE).unwrap());
    assert_eq!(port.tx().room(), port.tx().slots() - 1);
}

#[test]
fn frames_are_sent_from_where_the_program_has_them_at_any_offset_and_length() {
    let daemon = Daemon::start("");
    let mut peer = daemon.attach("lan0:peer").unwrap();
    for unit in [1, 4, 64] {
        let mut memory = ExternalMemory::new(4 << 20, unit).unwrap();
        let mut port = attach(&daemon, &format!("lan0:own{unit}"), &mut memory);
        let mut area = memory.take(1 << 20).unwrap();
        for (round, len) in [14, 60, 64, 65, 127, 128, 129, 1514, 2048, 2049, 9000, 60_000].into_iter().enumerate() {
            // From another multiple of the unit each time.
            let start = (round * 977).next_multiple_of(unit as usize);
            write(&mut area[start..start + len], round as u8);
            assert!(port.tx().push_from(&area, start..start + len));
            port.flush();
            let received = receive(&mut peer, PATIENCE).expect("the frame");
            assert!(received == area[start..start + len], "{len} bytes at {start}, unit {unit}");
        }
        await_sent(&mut port);
    }
}

#[test]
fn a_frame_that_is_copied_after_one_that_was_not_leaves_the_programs_memory_alone() {
    let daemon = Daemon::start("");
    let mut peer = daemon.attach("lan0:peer").unwrap();
    let mut memory = ExternalMemory::new(1 << 20, 1).unwrap();
    let mut port = attach(&daemon, "lan0:own", &mut memory);
    let mut area = memory.take(4096).unwrap();
    write(&mut area[5..1005], 1);
    let before = area.to_vec();
    let mut copied = [0; 1000];
    write(&mut copied, 2);
    // Each slot names the area first, and is then used by each way of copying.
    for round in 0..4 {
        for _ in 0..port.tx().slots() {
            assert!(port.tx().push_from(&area, 5..1005));
            port.flush();
            assert_eq!(receive(&mut peer, PATIENCE).expect("a frame"), before[5..1005]);
        }
        for _ in 0..port.tx().slots() {
            await_sent(&mut port);
            match round {
                0 => assert!(port.tx().push(&copied)),
                1 => assert!(port.tx().push_with(1000, |frame| frame.copy_from_slice(&copied))),
                2 => {
                    port.tx().reserve(1).for_each(|buffer| buffer[..1000].copy_from_slice(&copied));
                    assert!(port.tx().commit([ringway_client::Piece::whole(1000)]));
                }
                _ => assert_eq!(port.tx().push_again(1000, 1), 1, "the buffer has an earlier lap's frame"),
            }
            port.flush();
            assert_eq!(receive(&mut peer, PATIENCE).expect("a frame"), copied);
        }
    }
    assert!(*area == before);
}

#[test]
fn received_frames_are_in_the_programs_memory() {
    let daemon = Daemon::start("");
    let file = memfd(4 << 20);
    let mut memory = ExternalMemory::from_file(file.try_clone().unwrap(), 64).unwrap();
    let shape = Shape { extra_buffers: 2, ..SHAPE };
    let (mut port, mut extra) =
        Port::attach_with_memory(daemon.socket("attach.sock"), "lan0:own", shape, &mut memory).unwrap();
    let mut peer = daemon.attach("lan0:peer").unwrap();
    for round in 0..200u8 {
        let mut sent = vec![0; 60 + 9 * usize::from(round)];
        write(&mut sent, round);
        send(&mut peer, &sent);
        while port.rx().available() == 0 {
            assert!(port.wait_rx(PATIENCE).unwrap());
        }
        let spare = &mut extra[usize::from(round) % 2];
        let len = port.rx().exchange(spare).expect("a frame");
        assert!(spare[..len] == sent);
        // The bytes are in the file, once for each buffer that has them.
        let mut whole = vec![0; 4 << 20];
        assert_eq!(rustix::io::pread(&file, &mut whole, 0), Ok(4 << 20));
        assert!(whole.chunks_exact(64).any(|line| line[..12] == sent[..12]), "round {round}");
    }
}

#[test]
fn ports_of_one_process_share_a_memory_and_it_is_unmapped_after_the_last() {
    let daemon = Daemon::start("");
    let mappings = || {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).unwrap();
        maps.lines().filter(|line| line.contains("memfd:ringway-external")).count()
    };
    let mut memory = ExternalMemory::new(1 << 20, 64).unwrap();
    let mut area = memory.take(2000).unwrap();
    let mut ports = ["lan0:a", "lan0:b"].map(|name| attach(&daemon, name, &mut memory));
    assert_eq!(mappings(), 1);
    for round in 0..100 {
        write(&mut area, round);
        assert!(ports[0].tx().push_from(&area, 0..2000));
        ports[0].flush();
        assert!(receive(&mut ports[1], PATIENCE).expect("a frame") == *area);
    }
    let [first, second] = ports;
    drop(first);
    until("the port is gone", || daemon.port("a").is_null());
    assert_eq!(mappings(), 1);
    drop(second);
    until("the memory is unmapped", || mappings() == 0);
    // It can be brought again.
    drop(attach(&daemon, "lan0:again", &mut memory));
}

#[test]
fn a_memory_that_a_port_of_another_process_has_is_refused() {
    const CHILD: &str = "RINGWAY_TEST_CHILD";
    if let Ok(socket) = std::env::var(CHILD) {
        // SAFETY: the parent leaves this descriptor open for this process, where nothing else owns it.
        let file = unsafe { OwnedFd::from_raw_fd(3) };
        let mut memory = ExternalMemory::from_file(file, 64).unwrap();
        // The parent has the memory's first part.
        memory.take(512 << 10).unwrap();
        match Port::attach_with_memory(socket, "lan0:other", SHAPE, &mut memory) {
            Err(AttachError::Refused(reason)) => print!("refused: {reason}"),
            other => print!("{other:?}"),
        }
        return;
    }
    let daemon = Daemon::start("");
    let file = memfd(1 << 20);
    let mut memory = ExternalMemory::from_file(file.try_clone().unwrap(), 64).unwrap();
    let port = attach(&daemon, "lan0:own", &mut memory);
    let attach_in_child = || {
        let mut child = Command::new("sh");
        let name = "a_memory_that_a_port_of_another_process_has_is_refused";
        // The shell makes the descriptor number 3.
        child.args(["-c", "exec 3<>\"$1\"; shift; exec \"$@\"", "sh"]);
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        child.arg(path).arg(std::env::current_exe().unwrap()).args([name, "--exact", "--nocapture"]);
        child.env(CHILD, daemon.socket("attach.sock"));
        String::from_utf8(child.output().unwrap().stdout).unwrap()
    };
    let said = attach_in_child();
    assert!(said.contains("refused: a port of another client uses this memory"), "{said}");
    drop(port);
    until("the port is gone", || daemon.port("own").is_null());
    // The port is gone a moment before its memory is.
    until("the memory can be brought by another", || attach_in_child().contains("Ok("));
}

#[test]
fn a_thread_that_waits_for_its_frames_to_be_taken_is_woken() {
    let daemon = Daemon::start("");
    let mut memory = ExternalMemory::new(1 << 20, 64).unwrap();
    let mut port = attach(&daemon, "lan0:own", &mut memory);
    let mut area = memory.take(60).unwrap();
    write(&mut area, 1);
    daemon.pause();
    assert!(port.tx().push_from(&area, 0..60));
    port.flush();
    let (tell, told) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid()).unwrap();
        // No time ends this wait.
        port.wait_sent(Duration::MAX).unwrap()
    });
    let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap().as_raw_pid());
    until("the thread sleeps", || std::fs::read_to_string(&stat).unwrap().contains(") S "));
    assert!(!waiter.is_finished());
    daemon.signal(Signal::CONT);
    until("the thread is woken", || waiter.is_finished());
    assert!(waiter.join().unwrap());
}

#[test]
fn a_port_that_is_refused_when_the_switch_has_the_memory_keeps_its_part() {
    let dir = directory();
    let path = dir.path().join("attach.sock");
    let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 8).unwrap();
    // A switch that makes the port, and cannot send the descriptors of its memory.
    std::thread::spawn(move || {
        while let Ok(client) = accept(&listener) {
            for reply in [Reply::SendMemory, Reply::Refused("too many".to_owned())] {
                recv(&client, &mut [0; REQUEST_BYTES][..], RecvFlags::empty()).unwrap();
                rustix::net::send(&client, &reply.encode(), SendFlags::NOSIGNAL).unwrap();
            }
        }
    });
    // Room for one port.
    let mut memory = ExternalMemory::new(200 * SIZE as usize, 64).unwrap();
    let mut try_it = || Port::attach_with_memory(&path, "lan0:own", SHAPE, &mut memory).unwrap_err();
    assert!(matches!(try_it(), AttachError::Refused(reason) if reason == "too many"));
    assert!(matches!(try_it(), AttachError::Memory(_)), "the switch may have received frames into the part");
}

#[test]
fn a_refused_attach_leaves_the_memory_for_another_try() {
    let daemon = Daemon::start("");
    let peer = daemon.attach("lan0:taken").unwrap();
    // Room for one port: two would need 2 x 128 buffers.
    let mut memory = ExternalMemory::new(200 * SIZE as usize, 64).unwrap();
    let mut try_at = |socket, name| Port::attach_with_memory(daemon.socket(socket), name, SHAPE, &mut memory);
    for _ in 0..3 {
        assert!(matches!(try_at("attach.sock", "lan0:taken"), Err(AttachError::Refused(_))));
        assert!(matches!(try_at("no.sock", "lan0:own"), Err(AttachError::Unreachable { .. })));
        assert!(matches!(try_at("attach.sock", "lan0"), Err(AttachError::Name(_))));
    }
    let (mut port, _) = try_at("attach.sock", "lan0:own").expect("the memory is as before");
    assert!(matches!(try_at("attach.sock", "lan0:second"), Err(AttachError::Memory(_))), "one port uses it");
    drop(peer);
    let mut frame = [0; 60];
    write(&mut frame, 1);
    assert!(port.tx().push(&frame));
    port.flush();
    await_sent(&mut port);
}
