//! VALE, table 1: a traffic source or sink in a guest that drives the guest's NIC itself, as netmap's pkt-gen does, by the model of the NIC,
//! on TAP devices and a Linux bridge and on Ringway.
//!
//! Nothing but the generator of the rows without a guest is pinned. Guest and switch are stopped while others are measured.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_guests::Nic;
use ringway_traffic::{Endpoint, FrameSpec, Frames, Mac, ProcessEndpoint, Source as _, Tap};

use crate::daemon::{Daemon, LONG, Settings};
use crate::network::{Forwarding, Network};
use crate::owned_nics::{Machine, number, parse};
use crate::patience::PATIENCE;
use crate::peers::linux_bridge::{LinuxBridge, Steering};
use crate::peers::vhost::VhostSwitch as _;
use crate::peers::vm_bridge::VmBridge;
use crate::placement::unpin;
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::{Session, one_to_one};
use crate::trial::Contestant;
use crate::vhost::with_any;
use crate::vm_switch::VmSwitch as _;

/// Factor by which windows are longer than those of other experiments.
const STRETCH: u32 = 25;
/// Bytes of a frame.
const SIZES: [usize; 2] = [60, 1514];
/// Address of the source or sink outside of the guest.
const OUTSIDE: u32 = 7;
/// Interval at which the sink outside takes frames, and most frames that the source outside sends at once.
const TAKE_EVERY: Duration = Duration::from_micros(500);
const BATCH: usize = 32;
const SOURCE: &str = "VALE, table 1";

/// Addresses of the guest's NICs, but that of Ringway's e1000, which has one of its own.
const MACS: [Option<&str>; 4] = [Some("52:54:00:79:00:01"), Some("52:54:00:79:00:02"), Some("52:54:00:79:00:03"), None];
/// Curves of the guest's NICs, in the order of the NICs.
const CURVES: [&str; 4] = [RINGWAY, "qemu virtio-net, linux bridge", "qemu e1000, linux bridge", "ringway e1000"];
/// Curves of the switches alone.
const ALONE: [&str; 2] = ["ringway, no guest", "linux bridge, no guest"];
/// Rows of the table that are not measured.
const ABSENT: [(&str, &str); 4] = [
    (
        "netperf",
        "a guest's own stack is measured by e1000-transmit, e1000-receive, e1000-tcp and vm-tcp, without netperf, which is not free",
    ),
    ("kvm", "the guests of this experiment are emulated (accel=tcg)"),
    ("tap, vhost-net", "vhost-net needs KVM and a module of the host's kernel"),
    ("vmware", "the table has the vendor's own figures: 0.8 Mframe/s"),
];

/// Measures both columns of the table.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let scene = Scene::start(session);
    let x = Axis { label: "frame size", unit: "bytes", logarithmic: false };
    let mut done = Vec::new();
    for (name, title, sends) in [
        ("vale-table-1-tx", "Frames from a program that drives its guest's NIC, as they arrive outside", true),
        ("vale-table-1-rx", "Frames that a program that drives its guest's NIC receives of a flood", false),
    ] {
        let mut lineup = session.lineup();
        let (cores, settings) = (session.cores, session.settings());
        for size in session.places(&SIZES) {
            lineup.anchor(size, size);
            let load = one_to_one(size);
            lineup.ringway(ALONE[0], size, &settings, &load);
            let bridge = LinuxBridge::start(cores, 2, Steering::SwitchCore);
            lineup.add(ALONE[1], size, bridge.and_then(|bridge| Forwarding::new(bridge, cores, load)));
            for (card, series) in CURVES.into_iter().enumerate() {
                lineup.add(series, size, with_any(&scene, |scene| Run { scene, card, size, sends }));
            }
        }
        for (series, why) in ABSENT {
            lineup.add_at::<Run>(series, 0.0, Err(io::Error::other(why)));
        }
        let heading = Heading { name: name.into(), title: title.into(), source: SOURCE, x, y: RATE };
        done.push(session.measure("vale-table-1", heading, lineup)?);
    }
    Ok(done)
}

/// A guest with a NIC for each curve, and the other ports of the NICs' switches.
struct Scene {
    // The guest is dropped before its switch.
    machine: Machine,
    port: ProcessEndpoint,
    /// Beside QEMU's virtio-net, and beside its e1000.
    taps: [Tap; 2],
    daemon: Daemon,
}

type Shared = Rc<RefCell<Scene>>;

impl Scene {
    /// Boots the guest. It is stopped when this returns.
    fn start(session: &Session) -> io::Result<Shared> {
        let cores = session.cores;
        unpin(cores)?;
        let settings = Settings {
            core: None,
            idle: "adaptive",
            vhost_user: 1,
            e1000: Some("csb = true"),
            shape: LONG,
            ..session.settings()
        };
        let mut daemon = Daemon::start(cores, &settings)?;
        let (bridges, taps): (Vec<_>, Vec<_>) = [VmBridge::with_end()?, VmBridge::with_end()?].into_iter().unzip();
        let [virtio, e1000] = <[VmBridge; 2]>::try_from(bridges).map_err(|_| io::Error::other("no bridge"))?;
        let taps = <[Tap; 2]>::try_from(taps).map_err(|_| io::Error::other("no TAP device"))?;
        let e1000 = e1000.model("e1000");
        let mac = |nic: usize| MACS[nic].unwrap_or_default();
        let nics = [
            Nic::vhost_user(&daemon.sockets()[0]).mac(mac(0)),
            virtio.nic(0, mac(1))?,
            e1000.nic(0, mac(2))?,
            Nic::vfio_user(&daemon.nics()[0]),
        ];
        let machine = Machine::boot("vm", nics.into_iter().zip(MACS).collect(), &[&session.options.program])?;
        // QEMU has inherited the devices of both bridges.
        drop((virtio, e1000));
        machine.share_out(None).map_err(io::Error::other)?;
        let port = daemon.attach(1)?.pop().ok_or_else(|| io::Error::other("no port"))?;
        machine.hold()?;
        Network::hold(&mut daemon)?;
        Ok(Rc::new(RefCell::new(Scene { machine, port, taps, daemon })))
    }
}

/// A curve at one place, in million frames per second.
struct Run {
    scene: Shared,
    card: usize,
    size: usize,
    /// The guest sends; otherwise it receives.
    sends: bool,
}

impl Contestant for Run {
    fn resume(&mut self) -> io::Result<()> {
        let mut scene = self.scene.borrow_mut();
        Network::resume(&mut scene.daemon)?;
        scene.machine.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        let mut scene = self.scene.borrow_mut();
        scene.machine.hold()?;
        Network::hold(&mut scene.daemon)
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        let span = span * STRETCH;
        let Scene { machine, port, taps, .. } = &mut *self.scene.borrow_mut();
        let rate = match (self.card, self.sends) {
            (1 | 2, true) => sent(machine, &mut taps[self.card - 1], self, span)?,
            (1 | 2, false) => received(machine, &mut taps[self.card - 1], self, span)?,
            (_, true) => sent(machine, port, self, span)?,
            (_, false) => received(machine, port, self, span)?,
        };
        Ok(rate / 1e6)
    }
}

/// Returns the frames per second that arrive outside.
fn sent<E: Endpoint + Send>(machine: &Machine, outside: &mut E, run: &Run, span: Duration) -> io::Result<f64> {
    let (over, size) = (AtomicBool::new(false), run.size);
    // The switch learns where the address is.
    let spec = FrameSpec { source: Mac::local(OUTSIDE), destinations: vec![Mac::BROADCAST], ..FrameSpec::default() };
    let mut frames = Frames::new(&spec).map_err(io::Error::other)?;
    outside.rx_batch(usize::MAX, |_| ());
    outside.tx_push(spec.size, |frame| frames.fill(frame));
    outside.tx_flush();
    let command = format!(
        "ringway gen tx --pci {} --dst {} --size {} --duration {}ms --spin --json",
        machine.cards[run.card].pci,
        Mac::local(OUTSIDE),
        size,
        span.as_millis()
    );
    let (said, rate) = thread::scope(|scope| {
        let sink = scope.spawn(|| {
            let (mut first, mut last, mut count) = (None, Instant::now(), 0);
            while !over.load(Ordering::Relaxed) {
                thread::sleep(TAKE_EVERY);
                let mut taken = 0;
                outside.rx_batch(usize::MAX, |frame| taken += usize::from(frame.len() == size));
                match first {
                    // Frames of the first batch have arrived at an unknown time.
                    None if taken > 0 => first = Some(Instant::now()),
                    Some(_) if taken > 0 => {
                        (count, last) = (count + taken, Instant::now());
                    }
                    _ => {}
                }
            }
            first.map_or(0.0, |first| count as f64 / (last - first).as_secs_f64().max(1e-3))
        });
        let said = machine.json(&command);
        over.store(true, Ordering::Relaxed);
        (said, sink.join())
    });
    number(&said?, "/sent/frames")?;
    match rate.map_err(|_| io::Error::other("the receiving thread panicked"))? {
        0.0 => Err(io::Error::other("no frame got through")),
        rate => Ok(rate),
    }
}

/// Returns the frames per second that the guest receives.
fn received<E: Endpoint>(machine: &Machine, outside: &mut E, run: &Run, span: Duration) -> io::Result<f64> {
    let card = &machine.cards[run.card];
    let mac: Mac = card.mac.parse().map_err(|_| io::Error::other(format!("{} is no address", card.mac)))?;
    outside.rx_batch(usize::MAX, |_| ());
    let command = "--announce --check count --idle 300ms --spin --json";
    let job = machine.start(&format!("ringway gen rx --pci {} {command}", card.pci))?;
    let (began, mut is_there) = (Instant::now(), false);
    while !is_there {
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("the guest does not announce itself"));
        }
        outside.wait(true, TAKE_EVERY)?;
        outside.rx_batch(usize::MAX, |frame| is_there |= frame.get(6..12) == Some(&mac.0[..]));
    }
    let spec =
        FrameSpec { size: run.size, source: Mac::local(OUTSIDE), destinations: vec![mac], ..FrameSpec::default() };
    let mut frames = Frames::new(&spec).map_err(io::Error::other)?;
    let began = Instant::now();
    while began.elapsed() < span {
        let pushed = (0..BATCH).take_while(|_| outside.tx_push(run.size, |frame| frames.fill(frame))).count();
        if pushed > 0 {
            outside.tx_flush();
        } else {
            outside.wait(false, TAKE_EVERY)?;
        }
    }
    let report = parse(&machine.guest.wait(&job, PATIENCE).map_err(io::Error::other)?.text)?;
    number(&report, "/received/frames_per_second")
}
