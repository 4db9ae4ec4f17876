//! A switch with e1000 ports in this process, an engine that polls them, and their drivers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ringway_engine::{Attached, Engine, EngineSettings, Idle, Place, Source, Topology};
use ringway_port_e1000::vfio_user::Observer;
use ringway_port_e1000::{self as e1000, Accesses, E1000, Model, Settings};
use ringway_switch::{CountersReading, FloodPolicy, Learning, MacTable, Member, Owner, Port, Switch};
use ringway_traffic::{Checker, E1000Endpoint, E1000Mode, E1000Options, Endpoint, FrameSpec, Frames, Level, Origin};

pub use ringway_testing::PATIENCE;

/// Records the port's events.
#[derive(Default)]
pub struct Notes(Mutex<Vec<String>>);

impl Observer for Notes {
    fn connected(&self, on: bool) {
        self.0.lock().push(format!("connected {on}"));
    }

    fn fault(&self, reason: &'static str, words: String) {
        self.0.lock().push(format!("fault {reason}: {words}"));
    }

    fn refused(&self, reason: &'static str, words: String) {
        self.0.lock().push(format!("refused {reason}: {words}"));
    }
}

/// A mode and the model of the NIC that it is tested with.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    pub model: Model,
    pub mode: E1000Mode,
}

impl Way {
    /// Returns each mode with each model that supports it.
    pub fn all() -> Vec<Way> {
        let both = [E1000Mode::Base, E1000Mode::Each, E1000Mode::Moderated, E1000Mode::Combining];
        let of = |model, mode| Way { model, mode };
        let mut ways: Vec<Way> =
            both.iter().flat_map(|&mode| [of(Model::E1000, mode), of(Model::E1000e, mode)]).collect();
        ways.extend([of(Model::E1000, E1000Mode::Csb), of(Model::E1000e, E1000Mode::Mapped)]);
        ways
    }
}

/// Two ports on a learning switch. They end before their engine does.
pub struct Lan {
    ports: Vec<E1000>,
    notes: Vec<Arc<Notes>>,
    members: Vec<Member>,
    folder: tempfile::TempDir,
    _engine: Engine,
}

impl Lan {
    pub fn of(model: Model) -> Lan {
        let folder = tempfile::tempdir().unwrap();
        let settings = EngineSettings { idle: Idle::Adaptive(Duration::from_micros(50)), ..EngineSettings::default() };
        let engine = Engine::start(&settings).unwrap();
        let (mut ports, mut members, mut sources, mut notes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in 0..2u8 {
            let label = format!("lan0:vm{number}");
            let settings = Settings {
                label: label.clone(),
                socket: folder.path().join(format!("vm{number}.sock")),
                access: ringway_port::SocketAccess::default(),
                model,
                mac: mac(number).0,
                link: true,
                mapped: model == Model::E1000e,
                csb: model == Model::E1000,
                completion_delay: Duration::ZERO,
                receive_buffer: e1000::RECEIVE_BUFFER,
                memory: ringway_memory::Limits::PORT,
            };
            let noted = Arc::new(Notes::default());
            let (sides, port) = e1000::open(&settings, Arc::clone(&noted) as Arc<dyn Observer>).unwrap();
            members
                .push(Member::new(Owner::new(number.into(), 0), Arc::new(Port::new(label, sides.output, sides.bell))));
            sources.push(Arc::new(Source::new(sides.input, sides.signal)));
            ports.push(port);
            notes.push(noted);
        }
        let table = Arc::new(MacTable::new(64, 64, [1, 2]));
        let switch = Arc::new(Switch::new("lan0", members.clone(), table, Box::new(Learning), FloodPolicy::default()));
        let attached = sources.into_iter().enumerate().map(|(index, source)| Attached {
            place: Place::Port(Arc::clone(&switch), index as u16),
            source,
            poller: 0,
            weight: 1,
        });
        engine.publish(Topology { ports: attached.collect() });
        Lan { ports, notes, members, folder, _engine: engine }
    }

    /// Attaches a driver to port `number`.
    pub fn driver(&self, number: u8, options: &E1000Options) -> E1000Endpoint {
        let socket = self.folder.path().join(format!("vm{number}.sock"));
        let options = E1000Options { within: PATIENCE, ..options.clone() };
        E1000Endpoint::attach(&socket, &options).unwrap_or_else(|error| panic!("{error}; {:?}", self.said(number)))
    }

    /// Returns the events that port `number` reported.
    pub fn said(&self, number: u8) -> Vec<String> {
        self.notes[usize::from(number)].0.lock().clone()
    }

    /// Returns the driver's accesses as port `number` counts them.
    pub fn accesses(&self, number: u8) -> Accesses {
        self.ports[usize::from(number)].status().accesses
    }

    pub fn counters(&self, number: u8) -> CountersReading {
        self.members[usize::from(number)].port.counters().read()
    }
}

/// Returns the MAC address of port `number`.
pub fn mac(number: u8) -> ringway_traffic::Mac {
    ringway_traffic::Mac([0x52, 0x54, 0, 0, 0x77, number])
}

/// One driver and its progress.
pub struct Lane {
    pub endpoint: E1000Endpoint,
    pub frames: Frames,
    pub checker: Checker,
    pub sent: u64,
    pub received: u64,
}

impl Lane {
    pub fn new(lan: &Lan, number: u8, size: usize, options: &E1000Options) -> Lane {
        let spec = FrameSpec { size, source: mac(number), destinations: vec![mac(1 - number)], ..FrameSpec::default() };
        let (frames, checker) = (Frames::new(&spec).unwrap(), Checker::new(Level::Full, Origin::Zero));
        Lane { endpoint: lan.driver(number, options), frames, checker, sent: 0, received: 0 }
    }

    /// Queues up to `most` of the frames that were not sent yet.
    fn send(&mut self, count: u64, most: u64) {
        let size = self.frames.size();
        for _ in 0..most.min(count - self.sent) {
            if !self.endpoint.tx_push(size, |frame| self.frames.write(frame)) {
                break;
            }
            self.sent += 1;
        }
        self.endpoint.tx_flush();
    }

    fn receive(&mut self) {
        self.received += self.endpoint.rx_batch(usize::MAX, |frame| self.checker.see(frame)) as u64;
    }
}

/// Sends `count` frames each way, and checks each received frame. A sender stays within a quarter of a ring ahead of
/// its receiver, so that no frame is lost.
pub fn exchange(lanes: &mut [Lane; 2], count: u64) {
    let goal = lanes.each_ref().map(|lane| lane.sent + count);
    let from = lanes.each_ref().map(|lane| lane.received);
    let done = |lanes: &[Lane; 2]| (0..2).all(|way| lanes[1 - way].received - from[1 - way] >= count);
    let (mut last, mut moved) = (Instant::now(), 0);
    while !done(lanes) {
        let received = lanes.iter().map(|lane| lane.received).sum();
        if moved < received {
            (last, moved) = (Instant::now(), received);
        }
        for way in 0..2 {
            let under_way = (lanes[way].sent + count - goal[way]) - (lanes[1 - way].received - from[1 - way]);
            lanes[way].send(goal[way], 64 - under_way.min(64));
            lanes[1 - way].receive();
        }
        for lane in lanes.iter_mut() {
            lane.endpoint.wait(true, Duration::ZERO).unwrap();
        }
        let came =
            || lanes.each_ref().map(|lane| (lane.received, lane.checker.report().lost, lane.endpoint.counters()));
        assert!(last.elapsed() < PATIENCE, "of {count} frames: {:?}", came());
    }
    for lane in lanes.iter() {
        let report = lane.checker.report();
        assert!(report.is_clean(), "{report}");
    }
}
