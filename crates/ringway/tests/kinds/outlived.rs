//! The switch dies under connections of hypervisors: its keeper starts another one, which goes on with them. No front end here connects twice.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ringway_client::Port;
use ringway_scenes::testpmd::Testpmd;
use ringway_scenes::{Daemon, PATIENCE, receive, ringway, send, until, whole};
use ringway_testing::child::{Ended, children, is_child, is_running};
use ringway_traffic::{Endpoint, Packed, Ring, SocketRole, Split, VirtioEndpoint, VirtioOptions};
use rustix::process::{Pid, Signal, kill_process};

/// Number of receivers of every frame. When some have received a batch, others still wait for it.
const RECEIVERS: usize = 2;
/// Number of times that the switch is killed, in short and as a whole.
const ROUNDS: [usize; 2] = [6, 30];
/// A frame that was dropped is sent again: so often is looked.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Frames that must arrive between two kills.
const BETWEEN: usize = 10_000;
const FRAME: usize = 1514;
/// The place of the number in a frame.
const NUMBER: std::ops::Range<usize> = 14..22;

/// A driver that receives frames, and the numbers of these frames.
struct Receiver<R> {
    driver: VirtioEndpoint<R>,
    came: Vec<u64>,
}

impl<R> Receiver<R>
where
    VirtioEndpoint<R>: Endpoint,
{
    fn take(&mut self) -> usize {
        let came = &mut self.came;
        self.driver.rx_batch(256, |frame| {
            assert_eq!(frame.len(), FRAME);
            came.push(u64::from_ne_bytes(frame[NUMBER].try_into().unwrap()));
        })
    }
}

/// Broadcasts a frame with this number. Returns false if there is no room.
fn push(sender: &mut impl Endpoint, number: u64) -> bool {
    sender.tx_push(FRAME, |frame| {
        frame[..6].fill(0xff);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[NUMBER].copy_from_slice(&number.to_ne_bytes());
    })
}

#[test]
fn split_rings_go_on_and_no_frame_comes_twice_when_the_switch_is_killed() {
    kill_under_traffic::<Split>(&VirtioOptions::default());
}

#[test]
fn packed_rings_go_on_and_no_frame_comes_twice_when_the_switch_is_killed() {
    kill_under_traffic::<Packed>(&VirtioOptions::default());
}

#[test]
fn hypervisors_that_keep_what_is_in_flight_go_on_when_the_switch_is_killed() {
    kill_under_traffic::<Packed>(&VirtioOptions { inflight: true, ..VirtioOptions::default() });
    kill_under_traffic::<Split>(&VirtioOptions { inflight: true, ..VirtioOptions::default() });
}

#[test]
fn hypervisors_that_listen_go_on_when_the_switch_is_killed() {
    kill_under_traffic::<Split>(&VirtioOptions { socket_role: SocketRole::Listen, ..VirtioOptions::default() });
}

fn kill_under_traffic<R: Ring>(options: &VirtioOptions)
where
    VirtioEndpoint<R>: Endpoint,
{
    let [short, long] = ROUNDS;
    let rounds = whole(short, long);
    let role = if options.socket_role == SocketRole::Listen { "client" } else { "server" };
    let ports =
        (0..=RECEIVERS).map(|n| format!("[port.vm{n}]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nrole = \"{role}\"\n"));
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", ports.collect::<String>()));
    let drive = |number: usize| {
        let socket = daemon.runtime_dir().join(format!("vm{number}.sock"));
        VirtioEndpoint::<R>::attach(&socket, options).unwrap()
    };
    // A successor opens the ports in their order: the receivers are there when it looks at the sender's ring.
    let mut receivers: Vec<Receiver<R>> =
        (0..RECEIVERS).map(|number| Receiver { driver: drive(number), came: Vec::new() }).collect();
    let mut sender = drive(RECEIVERS);

    let mut next = 0;
    for round in 0..rounds {
        let mut pump = || {
            while push(&mut sender, next) {
                next += 1;
            }
            sender.tx_flush();
            receivers.iter_mut().for_each(|receiver| {
                receiver.take();
            });
            receivers.iter().map(|receiver| receiver.came.len()).collect::<Vec<_>>()
        };
        let before = pump();
        let deadline = Instant::now() + PATIENCE;
        while pump().iter().zip(&before).any(|(now, before)| now - before < BETWEEN) {
            assert!(Instant::now() < deadline, "round {round}: frames do not flow again: {}", daemon.ok(&["status"]));
        }
        // At any moment while frames flow.
        let switch = Pid::from_raw(daemon.pid().cast_signed()).expect("a process");
        std::thread::scope(|scope| {
            let killed = scope.spawn(move || kill_process(switch, Signal::KILL).expect("it lives"));
            while !killed.is_finished() {
                pump();
            }
        });
        until("another switch is started", || daemon.pid().cast_signed() != switch.as_raw_pid());
    }
    // Drivers that sleep are woken, also by the first frame after a death, and a switch that sleeps is, too.
    for round in 0..3 {
        let mut last = None;
        until("no frame is under way", || {
            let came = receivers.iter_mut().map(Receiver::take).sum::<usize>();
            let is_last = |receiver: &Receiver<R>| last.is_some() && receiver.came.last().copied() == last;
            let is_quiet = receivers.iter().all(is_last);
            // One that comes when a receiver has no room is lost.
            if !is_quiet && came == 0 && push(&mut sender, next) {
                sender.tx_flush();
                (last, next) = (Some(next), next + 1);
            }
            is_quiet
        });
        daemon.kill_switch();
        (0..=RECEIVERS).for_each(|number| daemon.until_state(&format!("vm{number}"), "up"));
        let came: Vec<_> = receivers.iter().map(|receiver| receiver.came.len()).collect();
        let drops = || (0..=RECEIVERS).map(|number| daemon.port(&format!("vm{number}"))["drops"].clone());
        let deadline = Instant::now() + PATIENCE;
        'sent: loop {
            let dropped: Vec<_> = drops().collect();
            until("there is room", || push(&mut sender, next));
            next += 1;
            sender.tx_flush();
            for receiver in &mut receivers {
                while receiver.came.last() != Some(&(next - 1)) {
                    assert!(Instant::now() < deadline, "a driver that sleeps is woken: {}", daemon.ok(&["status"]));
                    receiver.driver.wait(true, LOOK_AGAIN).unwrap();
                    receiver.take();
                    // A receiver without a processor may have been set aside meanwhile.
                    if receiver.came.last() != Some(&(next - 1)) && !drops().eq(dropped.iter().cloned()) {
                        continue 'sent;
                    }
                }
            }
            break;
        }
        assert!(receivers.iter().zip(came).all(|(receiver, came)| receiver.came.len() > came), "round {round}");
    }
    for (number, receiver) in receivers.iter().enumerate() {
        let wrong: Vec<&[u64]> = receiver.came.windows(2).filter(|pair| pair[0] >= pair[1]).collect();
        assert!(wrong.is_empty(), "receiver {number} got frames twice or late: {wrong:?}");
    }
    let status = daemon.status();
    assert!(status["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
}

/// A switch that dies while it takes over what another one left takes nothing with it.
#[test]
fn connections_go_on_when_successors_die_while_they_take_them_over() {
    const PORTS: usize = 24;
    let ports = (0..PORTS).map(|n| format!("[port.vm{n}]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n"));
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", ports.collect::<String>()));
    let drive = |number: usize| {
        let socket = daemon.runtime_dir().join(format!("vm{number}.sock"));
        VirtioEndpoint::<Split>::attach(&socket, &VirtioOptions::default()).unwrap()
    };
    let mut drivers: Vec<_> = (0..PORTS).map(drive).collect();
    daemon.kill_switch();
    for round in 0..whole(8, 100) {
        let switch = daemon.pid();
        // From its first copies of connections on: the closer of a successor has them.
        until("its closer is there", || {
            !is_child(switch, daemon.keeper(), "ringway-switch") || !children(switch, "ringway-closer").is_empty()
        });
        (0..round % 10).for_each(|_| _ = children(switch, "ringway-closer"));
        let _ = kill_process(Pid::from_raw(switch.cast_signed()).expect("a process"), Signal::KILL);
        until("it is dead", || !is_running(switch));
    }
    for (number, driver) in drivers.iter_mut().enumerate() {
        daemon.until_state(&format!("vm{number}"), "up");
        driver.wait(true, Duration::ZERO).expect("the connection goes on");
    }
}

#[test]
fn a_front_end_whose_port_was_moved_and_renamed_goes_on_when_the_switch_is_killed() {
    let config = |name: &str, switch: &str| {
        format!(
            "[switch.lan0]\n[switch.lan1]\n[port.{name}]\nswitch = \"{switch}\"\nkind = \"vhost-user\"\nsocket = \"vm.sock\"\n"
        )
    };
    let daemon = Daemon::start(&config("vm", "lan0"));
    let options = VirtioOptions::default();
    let mut driver = VirtioEndpoint::<Split>::attach(&daemon.runtime_dir().join("vm.sock"), &options).unwrap();
    for (name, switch) in [("vm", "lan1"), ("guest", "lan1"), ("guest", "lan0")] {
        daemon.reload(&config(name, switch));
        until("the port has moved", || daemon.port(name)["switch"] == switch);
        daemon.until_state(name, "up");
        let about = std::fs::metadata(daemon.socket("vm.sock")).unwrap().ino();
        daemon.kill_switch();
        daemon.until_state(name, "up");
        driver.wait(true, Duration::ZERO).expect("the connection goes on");
        assert_eq!(std::fs::metadata(daemon.socket("vm.sock")).unwrap().ino(), about);
    }
}

#[test]
fn an_upgrade_loses_no_frame_for_hypervisors() {
    const PORTS: usize = 100;
    let ports = (0..PORTS).map(|n| format!("[port.vm{n}]\nswitch = \"lan0\"\nkind = \"vhost-user\"\n"));
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", ports.collect::<String>()));
    let drive = |number: usize| {
        let socket = daemon.runtime_dir().join(format!("vm{number}.sock"));
        let driver = VirtioEndpoint::<Split>::attach(&socket, &VirtioOptions::default()).unwrap();
        Receiver { driver, came: Vec::new() }
    };
    let mut receivers: Vec<_> = (0..PORTS).map(drive).collect();
    let mut sender = daemon.attach("lan0:sender").expect("a port");
    // The keeper has the one before.
    let _last = daemon.attach("lan0:last").expect("a port");
    let mut frame = [0; FRAME];
    frame[..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    for _ in 0..whole(5, 50) {
        // Fewer than a receiver has room for are on their way while nobody serves.
        let mut command = ringway();
        command.arg("--runtime-dir").arg(daemon.runtime_dir()).arg("upgrade").stdout(Stdio::null());
        let (mut upgrade, mut sent) = (Ended(command.spawn().unwrap()), 0);
        let mut status = None;
        while status.is_none() || sent < 10 {
            let heard = receivers.iter().map(|receiver| receiver.came.len()).min().unwrap();
            if sent < heard + 200 && sender.tx().push(&frame) {
                sent += 1;
                sender.flush();
            }
            receivers.iter_mut().for_each(|receiver| _ = receiver.take());
            status = upgrade.try_wait().unwrap();
        }
        assert!(status.unwrap().success());
        until("all frames are taken", || {
            receivers.iter_mut().for_each(|receiver| _ = receiver.take());
            sender.tx().is_sent()
        });
        for number in 0..PORTS {
            assert_eq!(daemon.port(&format!("vm{number}"))["drops"], serde_json::json!({}), "vm{number}");
        }
        until("all have come", || {
            receivers.iter_mut().for_each(|receiver| _ = receiver.take());
            receivers.iter().all(|receiver| receiver.came.len() == sent)
        });
        receivers.iter_mut().for_each(|receiver| receiver.came.clear());
    }
}

const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 0x01];

/// Sends frames. The guest sends each one back. Returns how many came back.
fn echoes(client: &mut Port, frames: u8) -> usize {
    for number in 0..frames {
        send(client, &ringway_scenes::frame(GUEST, CLIENT, number));
    }
    let mut heard = 0;
    while heard < usize::from(frames) {
        let Some(frame) = receive(client, PATIENCE) else { break };
        heard += usize::from(frame[..6] == CLIENT && frame[6..12] == GUEST);
    }
    heard
}

/// As a front end that connects, virtio-user never connects again.
#[test]
fn virtio_user_goes_on_when_the_switch_is_killed_under_it() {
    for (packed, role) in [(0, "server"), (1, "server"), (1, "client")] {
        let daemon = Daemon::start(&format!(
            "[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nrole = \"{role}\"\n"
        ));
        let device = format!(
            "net_virtio_user0,mac=02:00:00:00:00:0a,path={},queue_size=256,server={},packed_vq={packed}",
            daemon.socket("vm.sock").display(),
            u8::from(role == "client"),
        );
        let mut testpmd = Testpmd::start(&[device], &["--forward-mode=macswap", "--total-num-mbufs=8192"]);
        testpmd.says("Press enter to exit");
        daemon.until_state("vm", "up");
        for times in 0..4 {
            let mut client = daemon.attach("lan0:c").unwrap();
            until("the guest answers", || echoes(&mut client, 1) == 1);
            // More than the rings have, so that positions are not those of a new ring.
            (0..8 + times).for_each(|_| assert_eq!(echoes(&mut client, 100), 100, "packed {packed}, death {times}"));
            (0..200).for_each(|number| send(&mut client, &ringway_scenes::frame(GUEST, CLIENT, number)));
            daemon.kill_switch();
            daemon.until_state("vm", "up");
            // What is still under way goes with it.
            drop(client);
            until("its port has gone", || daemon.port("c").is_null());
        }
    }
}

#[test]
fn sockets_of_ports_stay_at_their_paths_and_who_connects_between_two_switches_waits() {
    let port = |name: &str, kind: &str| {
        format!(
            "[port.{name}]\nswitch = \"lan0\"\nkind = \"{kind}\"\nsocket = \"{name}.sock\"\naccess = {{ mode = \"0660\" }}\n"
        )
    };
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}{}", port("vm", "vhost-user"), port("pc", "stream")));
    let about = |name: &str| {
        let about = std::fs::metadata(daemon.socket(&format!("{name}.sock"))).unwrap();
        (about.ino(), about.mode())
    };
    let before = ["vm", "pc"].map(about);
    for _ in 0..3 {
        let switch = Pid::from_raw(daemon.pid().cast_signed()).expect("a process");
        kill_process(switch, Signal::KILL).unwrap();
        // Never refused.
        let [mut vm, pc] =
            ["vm.sock", "pc.sock"].map(|name| UnixStream::connect(daemon.socket(name)).expect("somebody listens"));
        let mut answer = [0; 20];
        vm.set_read_timeout(Some(PATIENCE)).unwrap();
        // GET_FEATURES.
        let asked = vm.write_all(&[1u32, 1, 0].map(u32::to_ne_bytes).concat());
        if asked.and_then(|()| vm.read_exact(&mut answer)).is_err() {
            // The dying switch had accepted it.
            vm = UnixStream::connect(daemon.socket("vm.sock")).expect("somebody listens");
            vm.set_read_timeout(Some(PATIENCE)).unwrap();
            vm.write_all(&[1u32, 1, 0].map(u32::to_ne_bytes).concat()).unwrap();
            vm.read_exact(&mut answer).expect("an answer");
        }
        assert_eq!(answer[..12], [1u32, 5, 8].map(u32::to_ne_bytes).concat());
        daemon.until_state("vm", "connected");
        assert_eq!(["vm", "pc"].map(about), before);
        drop((vm, pc));
        ["vm", "pc"].iter().for_each(|port| daemon.until_state(port, "waiting"));
    }
    // The last switch takes them away.
    let run = daemon.runtime_dir();
    let mut daemon = daemon;
    assert!(daemon.stop().success());
    assert!(!run.join("vm.sock").exists() && !run.join("pc.sock").exists());
}
