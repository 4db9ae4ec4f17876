//! A link at a process port.

use ringway_link::{Link, ProcessLink, ProcessOptions};
use ringway_scenes::{Daemon, PATIENCE, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

/// Returns true if the link's descriptor is readable.
fn is_woken(link: &ProcessLink) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(link.descriptor(), PollFlags::IN)], Some(&now)).expect("poll") == 1
}

#[test]
fn a_link_wakes_its_program_for_frames_and_for_its_end() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let attach = |name, mac| {
        let options = ProcessOptions { mac: Some(mac), ..ProcessOptions::default() };
        ProcessLink::attach(daemon.socket("attach.sock"), name, &options).expect("attached")
    };
    let (mut a, mut b) = (attach("lan0:a", [2, 0, 0, 0, 0, 1]), attach("lan0:b", [2, 0, 0, 0, 0, 2]));
    assert!(!b.want(false) && !is_woken(&b));
    let mut buffers = a.take_buffers();
    let mut frame = [0x55; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&a.interface().mac);
    buffers[0][..60].copy_from_slice(&frame);
    assert!(a.send(&mut buffers[0], 60, None));
    a.flush();
    until("the frame wakes the program", || is_woken(&b));
    b.awake();
    assert_eq!(b.peek().expect("the frame").bytes, frame);
    b.release();
    assert!(!is_woken(&b) && !b.want(false));
    daemon.ok(&["port", "del", "b"]);
    until("the end wakes the program", || is_woken(&b));
    assert!(b.check().is_err());
}

#[test]
fn a_link_that_is_full_sleeps_until_there_is_room() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let options = ProcessOptions { slots: 4, mac: Some([2, 0, 0, 0, 0, 1]), ..ProcessOptions::default() };
    let mut link = ProcessLink::attach(daemon.socket("attach.sock"), "lan0:a", &options).expect("attached");
    let mut buffers = link.take_buffers();
    daemon.pause();
    while link.send(&mut buffers[0], 60, None) {}
    link.flush();
    assert!(link.room() == 0 && !link.want(true));
    link.awake();
    let switch = Pid::from_raw(daemon.pid() as i32).expect("a process");
    let (asleep, began) = (std::sync::Barrier::new(2), std::time::Instant::now());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            asleep.wait();
            kill_process(switch, Signal::CONT).expect("it is there");
        });
        asleep.wait();
        while link.room() == 0 && began.elapsed() < PATIENCE {
            link.wait(true, PATIENCE).expect("the port is there");
        }
    });
    assert!(link.room() > 0 && began.elapsed() < PATIENCE, "nothing woke the program");
}

#[test]
fn frames_that_a_link_says_it_holds_are_not_lost_however_few_places_it_has() {
    let daemon = Daemon::start("[switch.lan0]\n");
    for slots in [4, 8, 16, 64, 1024] {
        let attach = |name: String, mac| {
            let options = ProcessOptions { slots, buffers: 1, mac: Some(mac), ..ProcessOptions::default() };
            ProcessLink::attach(daemon.socket("attach.sock"), &format!("lan0:{name}"), &options).expect("attached")
        };
        let (mut a, mut b) = (attach(format!("a{slots}"), [2, 0, 0, 0, 0, 1]), attach(format!("b{slots}"), [2; 6]));
        let mut buffer = a.take_buffers().pop().expect("a buffer");
        buffer[..6].fill(0xff);
        buffer[6..12].copy_from_slice(&a.interface().mac);
        let holds = b.interface().holds as u64;
        let (mut sent, mut received) = (0, 0);
        for round in 0..100 {
            while sent - received < holds {
                assert!(a.send(&mut buffer, 60, None), "no room with {slots} slots");
                sent += 1;
            }
            a.flush();
            until("the switch has read the frames", || a.sent() == sent);
            // One frame more than before is looked at, up to as many as there are.
            for _ in 0..1 + round % holds {
                assert!(b.peek().is_some(), "lost after {received} of {sent} frames, with {slots} slots");
                b.release();
                received += 1;
            }
        }
    }
}
