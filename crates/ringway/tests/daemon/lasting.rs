//! The switch dies under its programs: a successor serves them, and they notice a pause.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ringway_client::{Port, Shape};
use ringway_scenes::{Daemon, PATIENCE, until, whole};
use rustix::process::Signal;

/// Number of kills, in short and as a whole.
const KILLS: [usize; 2] = [8, 100];
/// Frames that have to arrive between two of them.
const BETWEEN: u64 = 2_000;
const FRAME: usize = 200;
/// The place of the number in a frame.
const NUMBER: std::ops::Range<usize> = 14..22;

/// Clients have their answer a moment before the keeper has their ports. Who attaches next gets his answer after that.
#[must_use]
fn all_are_kept(daemon: &Daemon) -> Port {
    daemon.attach("lan9:last").expect("a port")
}

fn frame(number: u64) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..6].fill(0xff);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame[NUMBER].copy_from_slice(&number.to_ne_bytes());
    frame
}

/// A program that sends numbered frames, waits for room as programs do, and ends when it is told to.
fn send(mut port: Port, last: &AtomicU64, ends: &AtomicBool) -> Port {
    let mut next = 1;
    while !ends.load(Ordering::Relaxed) {
        while port.tx().push(&frame(next)) {
            next += 1;
        }
        port.tx().flush();
        last.store(next - 1, Ordering::Relaxed);
        port.wait_tx(Duration::from_millis(100)).expect("the port lives");
    }
    port
}

/// A program that receives them until the last one has come, and checks them.
fn receive(mut port: Port, came: &AtomicU64, last: &AtomicU64) -> Port {
    let (mut newest, mut count) = (0, 0);
    while newest < last.load(Ordering::Relaxed) {
        for ring in port.rx_rings() {
            // One flow: all of it comes by one ring.
            ring.drain(256, |frame| {
                let number = u64::from_ne_bytes(frame[NUMBER].try_into().expect("a number"));
                assert!(number > newest, "{number} after {newest}: twice, or out of order");
                newest = number;
                count += 1;
            });
        }
        came.store(count, Ordering::Relaxed);
        port.wait_rx(Duration::from_millis(100)).expect("the port lives");
    }
    port
}

#[test]
fn programs_notice_no_more_than_a_pause_when_the_switch_is_killed_again_and_again() {
    let mut daemon = Daemon::start("");
    let shape = Shape { tx_rings: 2, rx_rings: 2, tx_slots: 64, ..Shape::default() };
    let [sender, one, two] = ["lan0:a", "lan0:b", "lan0:c"].map(|name| daemon.attach_as(name, shape).expect("a port"));
    let mut idle = daemon.attach("lan0:d").expect("a port");
    let _last = all_are_kept(&daemon);
    let (sent, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let (last, came) = (AtomicU64::new(u64::MAX), [AtomicU64::new(0), AtomicU64::new(0)]);
    let came_all = |number: u64| came.iter().all(|came| came.load(Ordering::Relaxed) >= number);
    let mut sender = std::thread::scope(|scope| {
        let sending = scope.spawn(|| send(sender, &sent, &ends));
        let receiving =
            [(one, &came[0]), (two, &came[1])].map(|(port, came)| scope.spawn(|| receive(port, came, &last)));
        let signals = [Signal::KILL, Signal::ABORT, Signal::TRAP];
        for kill in 0..whole(KILLS[0], KILLS[1]) {
            let before = came.each_ref().map(|came| came.load(Ordering::Relaxed));
            until("frames come", || came.iter().zip(before).all(|(now, before)| now.load(Ordering::Relaxed) > before));
            daemon.end_switch(signals[kill % signals.len()]);
            let [one, two] = came.each_ref().map(|came| came.load(Ordering::Relaxed));
            until("frames come again", || came_all(one.max(two) + BETWEEN));
        }
        ends.store(true, Ordering::Relaxed);
        let mut sender = sending.join().expect("no panic");
        // Frames that no receiver has room for are dropped: others follow until one has come.
        let mut next = sent.load(Ordering::Relaxed) + 1;
        last.store(next, Ordering::Relaxed);
        until("the last frame comes", || {
            next += u64::from(sender.tx().push(&frame(next)));
            sender.tx().flush();
            receiving.iter().all(|thread| thread.is_finished())
        });
        sent.store(next, Ordering::Relaxed);
        receiving.into_iter().for_each(|thread| drop(thread.join().expect("no panic")));
        sender
    });
    assert_eq!(sender.ended(), None);
    // Who neither sent nor waited for anything has its port, too.
    until("it has taken all", || idle.rx().drain(256, |_| ()) == 0);
    let number = sent.load(Ordering::Relaxed) + 2;
    assert!(sender.tx().push(&frame(number)));
    sender.flush();
    let mut newest = 0;
    until("a frame comes", || {
        idle.rx().drain(256, |frame| newest = u64::from_ne_bytes(frame[NUMBER].try_into().expect("a number")));
        newest == number
    });
    assert!(daemon.stop().success());
    assert!(idle.wait_rx(PATIENCE).is_err(), "a switch that ends tells its clients");
}

#[test]
fn what_a_client_wrote_over_its_indices_costs_that_client_alone() {
    let daemon = Daemon::start("");
    let [mut good, bad] = ["lan0:good", "lan0:bad"].map(|name| daemon.attach(name).expect("a port"));
    let mut other = daemon.attach("lan0:other").expect("a port");
    let _last = all_are_kept(&daemon);
    let doorbell = bad.layout().doorbell(0) + 4 * ringway_abi::doorbell::RX_SWITCH;
    let word = bad.memory().mapping().view(doorbell, 4).expect("inside");
    assert!(word.write(&u32::MAX.to_le_bytes()));
    daemon.kill_switch();
    until("the client is told", || bad.ended().is_some());
    let reason = bad.ended().expect("a reason");
    assert!(reason.contains("an index beyond its ring"), "{reason}");
    assert!(good.tx().push(&frame(7)));
    good.flush();
    until("others go on", || other.rx().drain(1, |_| ()) == 1);
}

#[test]
fn a_successor_has_the_configuration_that_was_in_force_whatever_the_file_has_become() {
    let config = |rate: &str| format!("[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\n{rate}");
    let daemon = Daemon::start(&config(""));
    let _client = daemon.attach("lan0:a").expect("a port");
    let _last = all_are_kept(&daemon);
    daemon.ok(&["port", "set", "lan0:a", "weight=3"]);
    let was = daemon.ok(&["config", "--changes"]);
    daemon.write("[switch.lan0]\nnonsense = 1\n");
    daemon.kill_switch();
    assert_eq!(daemon.port("a")["state"], "up");
    assert_eq!(daemon.ok(&["config", "--changes"]), was);
    let said = daemon.ringway(&["reload"]);
    assert!(said.code == Some(2) && said.err.contains("nonsense"), "{said:?}");
    // What a reload brought is in force then.
    daemon.write(&config("weight = 5\n"));
    daemon.ok(&["reload"]);
    let was = daemon.ok(&["config"]);
    std::fs::remove_file(daemon.runtime_dir().join("../ringway.toml")).expect("the file");
    daemon.kill_switch();
    assert_eq!(daemon.port("a")["state"], "up");
    assert_eq!(daemon.ok(&["config"]), was);
}

/// Most frames that are on their way: the receiver has room for them.
const ON_THEIR_WAY: u64 = 256;

#[test]
fn upgrades_of_switch_and_keeper_lose_no_frame_and_a_version_that_cannot_go_on_changes_nothing() {
    let daemon = Daemon::start("");
    let [mut sender, mut receiver] = ["lan0:a", "lan0:b"].map(|name| daemon.attach(name).expect("a port"));
    let _last = all_are_kept(&daemon);
    // A poller without a processor takes the receiver's port over later.
    until("a frame comes", || {
        sender.tx().push(&frame(0));
        sender.flush();
        receiver.rx().drain(256, |_| ()) > 0
    });
    until("all have come", || sender.tx().is_sent());
    receiver.rx().drain(usize::MAX, |_| ());
    let (came, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut sent = 0;
            while !ends.load(Ordering::Relaxed) {
                while sent < came.load(Ordering::Relaxed) + ON_THEIR_WAY && sender.tx().push(&frame(sent + 1)) {
                    sent += 1;
                }
                sender.flush();
                std::thread::yield_now();
            }
            sent
        });
        let receiving = scope.spawn(|| {
            // Until the last one has come.
            while !ends.load(Ordering::Relaxed) {
                receiver.rx().drain(256, |frame| {
                    let number = u64::from_ne_bytes(frame[NUMBER].try_into().expect("a number"));
                    assert_eq!(number, came.fetch_add(1, Ordering::Relaxed) + 1, "lost, twice, or out of order");
                });
                receiver.wait_rx(Duration::from_millis(10)).expect("the port lives");
            }
        });
        let goes_on = || {
            let before = came.load(Ordering::Relaxed);
            until("frames come", || receiving.is_finished() || came.load(Ordering::Relaxed) > before + BETWEEN);
        };
        let mut switch = daemon.pid();
        for _ in 0..whole(4, 30) {
            goes_on();
            let said = daemon.ok(&["upgrade"]);
            assert!(said.starts_with("upgraded: the new switch serves after "), "{said}");
            assert_ne!(std::mem::replace(&mut switch, daemon.pid()), daemon.pid());
            goes_on();
            let said = daemon.ok(&["upgrade", "--keeper"]);
            assert!(said.starts_with("the keeper is replaced"), "{said}");
            assert_eq!(daemon.pid(), switch, "the switch goes on");
        }
        goes_on();
        for (program, why) in
            [("/bin/true", "it is no ringway"), ("/bin/false", "status 1"), ("/dev/null", "it cannot be executed")]
        {
            let said = daemon.ringway(&["upgrade", program]);
            assert!(said.code == Some(1) && said.err.contains(why), "{program}: {said:?}");
            let keeper = daemon.ringway(&["upgrade", "--keeper", program]);
            assert!(keeper.code == Some(1) && keeper.err.contains("not upgraded: "), "{program}: {keeper:?}");
            assert_eq!(daemon.pid(), switch, "the old one goes on");
            goes_on();
        }
        ends.store(true, Ordering::Relaxed);
        receiving.join().expect("no panic");
        sending.join().expect("no panic")
    });
    assert!(sent >= came.load(Ordering::Relaxed));
    let none = daemon.ringway(&["upgrade", "/nowhere/ringway"]);
    assert!(none.code == Some(1) && none.err.contains("cannot open /nowhere/ringway"), "{none:?}");
}

#[test]
fn counters_never_fall_and_addresses_are_known_after_a_kill() {
    let daemon = Daemon::start("");
    let [mut a, mut b] = ["lan0:a", "lan0:b"].map(|name| daemon.attach(name).expect("a port"));
    let _last = all_are_kept(&daemon);
    let known = || daemon.ok(&["fdb", "lan0", "--json"]).contains("02:00:00:00:00:01");
    until("the address is known", || {
        a.tx().push(&frame(1));
        a.flush();
        b.rx().drain(256, |_| ());
        known()
    });
    let shown = || ["a", "b"].map(|port| daemon.port(port));
    let counts = |shown: &[serde_json::Value; 2]| {
        let [a, b] = shown;
        [&a["in"]["frames"], &a["in"]["bytes"], &b["out"]["frames"], &b["out"]["bytes"]]
            .map(|count| count.as_u64().expect("a count"))
    };
    for _ in 0..whole(3, 20) {
        let before = counts(&shown());
        assert!(before[0] > 0, "{before:?}");
        assert!(known());
        daemon.kill_switch();
        assert!(known(), "nobody has sent since");
        let after = counts(&shown());
        assert!(before.iter().zip(after).all(|(before, after)| *before <= after), "{before:?} {after:?}");
        a.tx().push(&frame(1));
        a.flush();
        until("it goes on", || {
            b.rx().drain(256, |_| ());
            counts(&shown())[0] > after[0]
        });
    }
}

#[test]
fn a_port_that_a_command_changed_for_its_client_does_not_come_back_without_the_change() {
    let daemon = Daemon::start("[switch.lan0]\n[port.fixed]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let [changed, other, fixed] =
        ["lan0:changed", "lan0:other", "lan0:fixed"].map(|name| daemon.attach(name).expect("a port"));
    let _last = all_are_kept(&daemon);
    daemon.ok(&["port", "set", "lan0:changed", "isolated=true"]);
    daemon.ok(&["port", "set", "lan0:fixed", "isolated=true"]);
    daemon.kill_switch();
    until("its client is told", || changed.ended().is_some());
    assert!(changed.ended().is_some_and(|why| why.contains("a command had changed lan0:changed")));
    assert_eq!((other.ended(), fixed.ended()), (None, None));
    // The configuration has this one, and what was changed of it.
    assert!(daemon.ok(&["config"]).contains("isolated = true"));
}
