//! Without frames, the daemon uses no processor time, and no sleeping client misses a frame.

use std::time::Duration;

use ringway_abi::Slot;
use ringway_abi::slot::NS_MOREFRAG;
use ringway_client::{Port, Shape};
use ringway_scenes::{Daemon, PATIENCE, frame, send, until};

use crate::attacker::{Attacker, EVIL, PEER, Side};
use crate::scene::turn;
use crate::vitals::ticks;

/// The time for which a daemon is measured.
const WATCHED: Duration = Duration::from_secs(3);
/// Clock ticks of 10 ms that are 1 % of this time.
const ONE_PERCENT: u64 = 3;

#[test]
fn an_idle_daemon_with_a_hundred_ports_costs_less_than_one_percent() {
    let _turn = turn();
    for idle in ["adaptive", "sleep"] {
        let daemon = Daemon::start(&format!("[engine]\nidle = \"{idle}\"\n"));
        let _ports: Vec<Port> = (0..99).map(|n| daemon.attach(&format!("lan0:p{n}")).expect("a port")).collect();
        // An unfinished frame must not keep the switch awake.
        let unfinished = Attacker::attach(&daemon, "unfinished", Shape::default());
        let buffer = unfinished.port.layout().first_tx_buffer(0, 0);
        unfinished.set_slot(Side::Tx, 0, Slot { buffer, len: 60, flags: NS_MOREFRAG });
        unfinished.publish(1);
        let stat = format!("/proc/{}/stat", daemon.pid());
        // One window of several must pass: the first may include the attaching, and others may include other work of
        // the machine.
        until(&format!("idle = {idle}: the daemon uses less than 1 % of a processor"), || {
            let before = ticks(&stat);
            std::thread::sleep(WATCHED);
            let spent = ticks(&stat) - before;
            println!("idle = {idle}: {spent} ticks of 10 ms in {WATCHED:?}");
            spent < ONE_PERCENT
        });
    }
}

/// Two clients sleep after every frame. A lost wake-up shows as a wait that ends without a frame.
fn ping_pong(config: &str, round_trips: u32) {
    let daemon = Daemon::start(config);
    let (mut a, mut b) = (daemon.attach("lan0:a").expect("a port"), daemon.attach("lan0:b").expect("a port"));
    send(&mut b, &frame([0xff; 6], PEER, 0));
    wait(&mut a, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..=round_trips {
                wait(&mut b, number);
                send(&mut b, &frame(EVIL, PEER, number as u8));
            }
        });
        for number in 1..=round_trips {
            send(&mut a, &frame(PEER, EVIL, number as u8));
            wait(&mut a, number);
        }
    });
    until("every frame is counted", || daemon.port("a")["out"]["frames"] == round_trips + 1);
    assert_eq!(daemon.port("b")["out"]["frames"], round_trips);
}

/// Sleeps until the frame with this number comes.
fn wait(port: &mut Port, number: u32) {
    assert!(port.wait_rx(PATIENCE).expect("the port stays"), "frame {number} did not wake its receiver");
    let mut seen = None;
    assert_eq!(port.rx().drain(2, |frame| seen = frame.last().copied()), 1);
    assert_eq!(seen, Some(number as u8));
}

#[test]
fn no_wake_up_is_lost_in_a_hundred_thousand_round_trips() {
    let _turn = turn();
    ping_pong("[engine]\nidle = \"sleep\"\n", 60_000);
    ping_pong("[engine]\nidle = \"adaptive\"\nspin = \"10us\"\n", 40_000);
}
