//! The wake-up descriptors that a client shares with the switch.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use libc::{SYS_io_destroy, SYS_io_getevents, SYS_io_setup, SYS_io_submit, c_long, c_ulong};
use ringway_abi::attach::Request;
use ringway_abi::doorbell::{RX_CLIENT, WISH};
use ringway_client::Shape;
use ringway_scenes::{PATIENCE, frame, send, until};
use ringway_traffic::e1000::register as r;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::attacker::{EVIL, PEER};
use crate::e1000::{self, Nic};
use crate::raw::{Raw, Said};
use crate::scene::{Scene, StopOnDrop};
use crate::vhost;

const STORM: Duration = Duration::from_secs(2);

/// Fills an eventfd and makes it blocking: the next write blocks until another thread reads the eventfd.
pub fn make_full(eventfd: &impl AsFd) {
    // Clears the counter first, so that the whole value fits.
    let _ = rustix::io::read(eventfd, &mut [0; 8]);
    rustix::io::write(eventfd, &(u64::MAX - 1).to_ne_bytes()).expect("the value fits into the counter");
    fcntl_setfl(eventfd, fcntl_getfl(eventfd).expect("flags") - OFlags::NONBLOCK).expect("the flags are shared");
}

#[test]
fn a_blocking_full_call_descriptor_holds_up_nobody() {
    let scene = Scene::start();
    let mut peer = scene.attach("peer");
    let evil = scene.attach("evil");
    make_full(&evil.port.call_fd());
    let calls = || scene.daemon.port("evil")["calls"].as_u64().expect("a number");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        scope.spawn(|| {
            let mut wish = 0u32;
            while !stop.load(Ordering::Relaxed) {
                // The client asks for further calls all the time.
                wish = wish.wrapping_add(1).max(1);
                evil.doorbell(RX_CLIENT + WISH).store(wish, Ordering::SeqCst);
            }
        });
        until("the client is called many times", || {
            send(&mut peer.port, &frame([0xff; 6], PEER, 0));
            calls() >= 20
        });
        // The other ports do not wait meanwhile, and the attacker's port stays: it breaks no rule.
        scene.bystanders.go_on(5000);
    });
    assert_eq!(evil.port.ended(), None);
    assert_eq!(scene.faults("evil", "call_blocked"), 0);
    drop((evil, peer));
    scene.end();
}

/// Polls of an eventfd by AIO, which the kernel removes one by one as it wakes them.
struct Polls {
    context: c_ulong,
    requests: Vec<libc::iocb>,
}

impl Polls {
    /// IOCB_CMD_POLL (linux/aio_abi.h).
    const POLL: u16 = 5;
    /// `struct io_event`: four words of 64 bits.
    const EVENT: usize = 4;

    fn of(eventfd: BorrowedFd<'_>, count: usize) -> Self {
        let mut context: c_ulong = 0;
        // SAFETY: io_setup writes the context's number to the variable, which outlives the call.
        let made = unsafe { libc::syscall(SYS_io_setup, count as c_long, &raw mut context) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: all zeroes is a valid iocb, which has numbers only.
        let mut request: libc::iocb = unsafe { std::mem::zeroed() };
        (request.aio_lio_opcode, request.aio_fildes) = (Self::POLL, eventfd.as_raw_fd() as u32);
        request.aio_buf = libc::POLLIN as u64;
        Self { context, requests: vec![request; count] }
    }

    /// Has all of them wait.
    fn arm(&mut self) {
        let requests: Vec<_> = self.requests.iter_mut().map(|request| &raw mut *request).collect();
        let mut armed = 0;
        while let Some(rest) = requests.get(armed..).filter(|rest| !rest.is_empty()) {
            // SAFETY: the list and its requests outlive the call, and the kernel writes to each request's `aio_key` only.
            let now = unsafe { libc::syscall(SYS_io_submit, self.context, rest.len() as c_long, rest.as_ptr()) };
            assert!(now > 0, "{}", std::io::Error::last_os_error());
            armed += now as usize;
        }
    }

    /// Waits until all have been woken, or `stop`.
    fn wait(&self, stop: &AtomicBool) {
        let mut left = self.requests.len();
        let mut events = vec![0u64; left * Self::EVENT];
        while left > 0 && !stop.load(Ordering::Relaxed) {
            let mut patience = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let (least, most, events) = (1 as c_long, left as c_long, events.as_mut_ptr());
            // SAFETY: the kernel writes at most `most` events, for which there is room.
            let woken =
                unsafe { libc::syscall(SYS_io_getevents, self.context, least, most, events, &raw mut patience) };
            left -= usize::try_from(woken).unwrap_or(0);
        }
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        // SAFETY: the context exists until here, and no thread uses it.
        unsafe { libc::syscall(SYS_io_destroy, self.context) };
    }
}

/// Has the switch call a client on whose eventfd so many polls wait at each call, until `work` ends.
fn call_with_polls(scene: &Scene, polls: usize, work: impl FnOnce()) {
    let (mut peer, mut evil) = (scene.attach("peer"), scene.attach("evil"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (ask, asked) = mpsc::channel();
        let (evil, stop) = (&mut evil, &stop);
        scope.spawn(move || {
            let (mut polls, mut wish) = (Polls::of(evil.port.call_fd(), polls), 0u32);
            while !stop.load(Ordering::Relaxed) {
                let _ = rustix::io::read(evil.port.call_fd(), &mut [0; 8]);
                polls.arm();
                evil.port.rx().drain(usize::MAX, |_| {});
                wish = wish.wrapping_add(1).max(1);
                evil.doorbell(RX_CLIENT + WISH).store(wish, Ordering::SeqCst);
                let _ = ask.send(());
                polls.wait(stop);
            }
        });
        scope.spawn(move || {
            while asked.recv().is_ok() {
                send(&mut peer.port, &frame([0xff; 6], PEER, 0));
            }
        });
        let _stop = StopOnDrop(stop);
        work();
    });
    drop(evil);
}

const CALLED_AT_ONCE: &str =
    "[switch.lan0]\n[port.evil]\nswitch = \"lan0\"\nkind = \"process\"\ncall_interval = \"0s\"\n";

#[test]
fn a_client_whose_calls_remove_thousands_of_polls_is_called_less_often_or_ended() {
    let scene = Scene::start_with(CALLED_AT_ONCE);
    let interval = || scene.daemon.port("evil")["call_intervals"]["receive"].clone();
    call_with_polls(&scene, 4000, || {
        // Some polls may be there again when a call is repeated: then the port ends.
        let has_ended = || scene.faults("evil", "call_blocked") > 0;
        until("its calls are held", || has_ended() || !interval().is_null() && interval() != "0s");
        scene.bystanders.go_on(5000);
    });
    // Not `end`: the daemon keeps memory to examine visits.
    scene.bystanders.finish(&scene.daemon);
}

/// Prints what such a client takes from its neighbours.
#[test]
#[ignore = "a measurement, of a minute"]
fn what_polls_take_from_neighbours() {
    for polls in [1, 4000, 15_000] {
        let scene = Scene::start_with(CALLED_AT_ONCE);
        call_with_polls(&scene, polls, || {
            let calls = || scene.daemon.port("evil")["calls"].as_u64().unwrap_or(0);
            until("it is called", || calls() > 0 || scene.faults("evil", "call_blocked") > 0);
            let (moved, called, start) = (scene.bystanders.moved(), calls(), Instant::now());
            std::thread::sleep(Duration::from_secs(15));
            let [moved, called] = [scene.bystanders.moved() - moved, calls().saturating_sub(called)];
            let ended = scene.faults("evil", "call_blocked");
            println!("{polls} polls: {called} calls, ended {ended}, neighbours {moved} frames, {:?}", start.elapsed());
        });
        // Not `end`: the daemon keeps memory to examine visits.
        scene.bystanders.finish(&scene.daemon);
    }
}

#[test]
fn a_blocking_full_interrupt_holds_up_neither_the_control_plane_nor_neighbours() {
    let scene = Scene::start_with(&e1000::config(2));
    for port in ["evil0", "evil1"] {
        let call = vhost::new_eventfd();
        let mut nic = Nic::attach(&scene, port);
        nic.client.trigger(0, 0, &[call.as_fd()]).expect("an interrupt");
        nic.get(r::ICR);
        nic.set(r::IMS, r::LSC);
        make_full(&call);
        let fill = || rustix::io::write(&call, &(u64::MAX - 1).to_ne_bytes()).expect("the value fits into the counter");
        for link in ["down", "up", "down", "up"] {
            scene.daemon.ok(&["port", "set", port, &format!("link={link}")]);
            // The signal may come after the command: what was in the counter before, and the signal.
            let mut sum = 0;
            until(&format!("{port}: the eventfd is signalled"), || {
                if poll(&mut [PollFd::new(&call, PollFlags::IN)], Some(&Timespec::default())) == Ok(1) {
                    let mut count = [0; 8];
                    rustix::io::read(&call, &mut count).expect("a counter");
                    sum += u128::from(u64::from_ne_bytes(count));
                }
                sum >= u128::from(u64::MAX)
            });
            assert_eq!(sum, u128::from(u64::MAX), "{port}: the eventfd was signalled again");
            fill();
            assert_ne!(nic.get(r::ICR) & r::LSC, 0, "{port}: the link went {link}");
            // A cause that the guest has cleared takes its signal back, and what else the counter holds.
            let mut polled = [PollFd::new(&call, PollFlags::IN)];
            assert_eq!(poll(&mut polled, Some(&Timespec::default())), Ok(0), "{port}: nothing is signalled");
            fill();
            nic.client.unmask().expect("the pin");
        }
        assert_eq!(scene.faults(port, "call_blocked"), 0);
        drop(nic);
        scene.daemon.until_state(port, "waiting");
    }
    scene.end();
}

#[test]
fn a_full_kick_descriptor_keeps_only_its_owner_from_waking_the_switch() {
    let scene = Scene::start();
    let mut evil = scene.attach("evil");
    rustix::io::write(evil.port.kick_fd(), &(u64::MAX - 1).to_ne_bytes()).expect("the value fits into the counter");
    evil.introduce(EVIL);
    scene.bystanders.go_on(2000);
    assert_eq!(scene.daemon.port("evil")["state"], "up");
    drop(evil);
    scene.end();
}

#[test]
fn a_storm_of_kicks_takes_no_frames_from_others() {
    let scene = Scene::start();
    let evil = scene.attach("evil");
    let (before, start) = (scene.bystanders.moved(), Instant::now());
    scene.bystanders.go_on(10_000);
    println!("{} frames in {:?} of quiet", scene.bystanders.moved() - before, start.elapsed());
    let (before, start) = (scene.bystanders.moved(), Instant::now());
    while start.elapsed() < STORM || scene.bystanders.moved() == before {
        assert!(start.elapsed() < STORM + PATIENCE, "the bystanders are stuck");
        evil.kick();
    }
    let during = scene.bystanders.moved() - before;
    scene.bystanders.go_on(1000);
    let kicks = scene.daemon.port("evil")["kicks"].as_u64().expect("a number");
    println!("{during} frames and {kicks} kicks heard in {:?}", start.elapsed());
    drop(evil);
    scene.end();
}

#[test]
fn a_client_that_closes_its_descriptors_stays_attached_until_its_connection_ends() {
    let scene = Scene::start();
    let mut peer = scene.attach("peer");
    let raw = Raw::connect(&scene.daemon);
    let request = Request { switch: "lan0".into(), port: "evil".into(), shape: Shape::default(), external: None };
    assert!(raw.say(&request.encode()));
    match raw.next_answer() {
        Said::Granted { descriptors } => drop(descriptors),
        other => panic!("the attach was not granted: {other:?}"),
    }
    // Only the switch has this memory mapped and these descriptors open.
    (0..511).for_each(|_| send(&mut peer.port, &frame([0xff; 6], PEER, 0)));
    until("the ring is full", || {
        send(&mut peer.port, &frame([0xff; 6], PEER, 0));
        scene.drops("evil", "receiver_full") > 0
    });
    assert_eq!(scene.daemon.port("evil")["out"]["frames"], 511);
    assert_eq!(scene.daemon.port("evil")["state"], "up");
    drop(raw);
    until("the port is removed with its connection", || scene.daemon.port("evil").is_null());
    drop(peer);
    scene.end();
}
