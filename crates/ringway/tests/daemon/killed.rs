//! A daemon is killed in the middle of its work, and a new one replaces it.

use std::time::Instant;

use ringway_scenes::{Daemon, PATIENCE, until, whole};
use ringway_testing::child::{is_running, signal};
use ringway_traffic::{Endpoint, SocketRole, Split, VirtioEndpoint, VirtioOptions};
use rustix::process::Signal;

/// Number of receivers of every frame. When some have received a batch, others still wait for it.
const RECEIVERS: usize = 3;
/// Number of times that the daemon is killed, in short and as a whole.
const ROUNDS: [usize; 2] = [8, 30];
/// The same where hypervisors listen. The daemon tries to connect ten times a second.
const CLIENT_ROUNDS: [usize; 2] = [3, 6];
/// Frames that must arrive between two kills.
const BETWEEN: usize = 20_000;
const FRAME: usize = 1514;
/// The place of the number in a frame.
const NUMBER: std::ops::Range<usize> = 14..22;

/// A driver that receives frames, and the numbers of these frames.
struct Receiver {
    driver: VirtioEndpoint<Split>,
    came: Vec<u64>,
}

impl Receiver {
    fn take(&mut self) -> usize {
        let came = &mut self.came;
        self.driver.rx_batch(256, |frame| {
            assert_eq!(frame.len(), FRAME);
            came.push(u64::from_ne_bytes(frame[NUMBER].try_into().unwrap()));
        })
    }
}

/// Broadcasts frames with numbers from this one on while there is room.
fn send(sender: &mut VirtioEndpoint<Split>, next: &mut u64) {
    while sender.tx_push(FRAME, |frame| {
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[NUMBER].copy_from_slice(&next.to_ne_bytes());
    }) {
        *next += 1;
    }
    sender.tx_flush();
}

#[test]
fn no_frame_is_delivered_twice_when_the_switch_is_killed_and_started_again() {
    kill_and_start_again(VirtioOptions::default(), ROUNDS);
}

#[test]
fn no_frame_is_delivered_twice_when_hypervisors_keep_what_was_in_flight() {
    kill_and_start_again(VirtioOptions { inflight: true, ..VirtioOptions::default() }, ROUNDS);
}

#[test]
fn no_frame_is_delivered_twice_when_the_switch_is_killed_and_connects_again_to_hypervisors_that_listen() {
    let listening = VirtioOptions { socket_role: SocketRole::Listen, ..VirtioOptions::default() };
    kill_and_start_again(VirtioOptions { inflight: true, ..listening.clone() }, CLIENT_ROUNDS);
    kill_and_start_again(listening, CLIENT_ROUNDS);
}

fn kill_and_start_again(options: VirtioOptions, [short, long]: [usize; 2]) {
    let rounds = whole(short, long);
    let role = if options.socket_role == SocketRole::Listen { "client" } else { "server" };
    let ports =
        (0..=RECEIVERS).map(|n| format!("[port.vm{n}]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nrole = \"{role}\"\n"));
    let mut daemon = Daemon::start(&format!("[switch.lan0]\n{}", ports.collect::<String>()));
    let drive = |number: usize| {
        let socket = daemon.runtime_dir().join(format!("vm{number}.sock"));
        VirtioEndpoint::<Split>::attach(&socket, &options).unwrap()
    };
    let mut sender = drive(0);
    let mut receivers: Vec<Receiver> =
        (1..=RECEIVERS).map(|number| Receiver { driver: drive(number), came: Vec::new() }).collect();

    let mut next = 0;
    for round in 0..rounds {
        let mut pump = || {
            send(&mut sender, &mut next);
            receivers.iter_mut().for_each(|receiver| {
                receiver.take();
            });
            receivers.iter().map(|receiver| receiver.came.len()).min().unwrap()
        };
        let (wanted, deadline) = ((round + 1) * BETWEEN, Instant::now() + PATIENCE);
        while pump() < wanted {
            assert!(Instant::now() < deadline, "round {round}: frames do not flow again");
        }
        // Kills the daemon at any moment while frames flow: keeper and switch.
        let (keeper, switch) = (daemon.keeper(), daemon.pid());
        let kill = move || {
            signal(keeper, Signal::KILL);
            until("the switch is dead", || !is_running(switch));
        };
        std::thread::scope(|scope| {
            let killed = scope.spawn(kill);
            while !killed.is_finished() {
                pump();
            }
        });
        daemon.replace();
        for receiver in &mut receivers {
            while receiver.take() > 0 {}
        }
        for receiver in &mut receivers {
            receiver.driver.attach_again().unwrap();
        }
        // The receivers are ready before any frame is sent again.
        until("the receivers' ports are up", || {
            (1..=RECEIVERS).all(|n| daemon.port(&format!("vm{n}"))["state"] == "up")
        });
        sender.attach_again().unwrap();
    }
    for (number, receiver) in receivers.iter().enumerate() {
        let wrong: Vec<&[u64]> = receiver.came.windows(2).filter(|pair| pair[0] >= pair[1]).collect();
        assert!(wrong.is_empty(), "receiver {number} got frames twice or late: {wrong:?}");
    }
}
