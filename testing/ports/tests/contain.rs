//! Ringway panics while it forwards a port's frames. The port's own thread still serves its front end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use parking_lot::Mutex;
use ringway_engine::{Attached, Engine, EngineSettings, Place, Source, Topology};
use ringway_port::PortIo;
use ringway_port_tests::vhost_user::{PATIENCE, Raw, Vm, Watcher, frame, settings};
use ringway_port_vhost_user::{Observer, Role as SocketRole, open};
use ringway_switch::{
    Batch, Defect, FloodPolicy, Forward, Learning, MacTable, Member, Owner, PanicLocation, Port, PortFault, Role,
    Switch,
};
use ringway_testing::until;
use ringway_traffic::{E1000Endpoint, E1000Options, Endpoint};
use vhost::VhostBackend;
use {ringway_port_e1000 as e1000, ringway_port_stream as stream};

/// Panics when it decides where the first frames go. The poller still holds these frames.
struct Panics(AtomicBool);

impl Forward for Panics {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        assert!(self.0.swap(true, Ordering::SeqCst), "injected");
        Learning.forward(batch, from, switch, now);
    }
}

/// A running engine with one port.
struct Scene {
    engine: Engine,
    port: Arc<Port>,
}

impl Scene {
    fn new(sides: PortIo) -> Scene {
        let engine = Engine::start(&EngineSettings::default()).expect("a poller");
        let port = Arc::new(Port::new("p0", sides.output, sides.bell));
        let source = Arc::new(Source::new(sides.input, sides.signal));
        let member = Member::new(Owner::new(0, 0), Arc::clone(&port));
        let table = Arc::new(MacTable::new(64, 64, [1, 2]));
        let forward = Box::new(Panics(AtomicBool::new(false)));
        let switch = Arc::new(Switch::new("lan0", [member], table, forward, FloodPolicy::default()));
        engine.publish(Topology {
            ports: vec![Attached { place: Place::Port(switch, 0), source, poller: 0, weight: 1 }],
        });
        Scene { engine, port }
    }

    /// Waits until the port is retired.
    fn wait_for_fault(&self) {
        until("the port has a fault", || self.port.fault().is_some());
        let fault = self.port.fault().expect("a fault");
        assert!(matches!(fault, PortFault::InternalError(defect) if defect.role == Role::Source), "{fault}");
        assert!(fault.to_string().contains("contain.rs:"), "{fault}");
    }
}

/// Runs `what` in a thread, and fails if it does not end in time.
fn within_patience<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(act()));
    told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("it hangs: {what}"))
}

#[test]
fn the_front_end_of_a_vhost_user_port_is_answered_and_let_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("0.sock");
    let (sides, link) = open(&settings(&socket, SocketRole::Server), Arc::new(Watcher::default())).expect("a port");
    let scene = Scene::new(sides);
    let mut vm = Vm::connect(&socket);
    vm.send(&frame(1, 0, 60, 1));
    vm.kick.write(1).expect("a kick");
    scene.wait_for_fault();
    let used = vm.get16(0x1_8002);
    let vm = within_patience("its requests", move || {
        // Stopping a queue takes back the frames that the poller held.
        let _ = vm.front.get_vring_base(1);
        vm.front.get_features().expect("an answer");
        vm
    });
    assert_eq!(vm.get16(0x1_8002), used, "no chain is marked used");
    within_patience("its end", move || drop(link));
    drop(scene.engine);
}

#[test]
fn the_driver_of_an_e1000_port_goes_and_another_comes() {
    for model in [e1000::Model::E1000, e1000::Model::E1000e] {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("0.sock");
        let settings = e1000::Settings {
            label: "lan0:vm".into(),
            socket: socket.clone(),
            access: ringway_port::SocketAccess::default(),
            model,
            mac: [2, 0, 0, 0, 0, 1],
            link: true,
            mapped: model == e1000::Model::E1000e,
            csb: false,
            completion_delay: Duration::ZERO,
            receive_buffer: e1000::RECEIVE_BUFFER,
            memory: ringway_memory::Limits::PORT,
        };
        let (sides, link) = e1000::open(&settings, Arc::new(Watcher::default())).expect("a port");
        let scene = Scene::new(sides);
        let attach =
            move || E1000Endpoint::attach(&socket, &E1000Options { within: PATIENCE, ..E1000Options::default() });
        let mut driver = attach().expect("a driver");
        assert!(driver.tx_push(60, |bytes| bytes.copy_from_slice(&frame(1, 0, 60, 1))));
        driver.tx_flush();
        scene.wait_for_fault();
        within_patience("the next driver", move || {
            drop(driver);
            drop(attach().expect("another driver"));
        });
        within_patience("its end", move || drop(link));
        drop(scene.engine);
    }
}

#[test]
fn a_stream_port_is_let_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("0.sock");
    let settings = stream::Settings {
        label: "lan0:s".into(),
        socket: socket.clone(),
        role: SocketRole::Server,
        access: ringway_port::SocketAccess::default(),
    };
    let (sides, link) = stream::open(&settings, Arc::new(Watcher::default())).expect("a port");
    let scene = Scene::new(sides);
    let mut peer = std::os::unix::net::UnixStream::connect(&socket).expect("connected");
    std::io::Write::write_all(&mut peer, &[&60u32.to_be_bytes()[..], &frame(1, 0, 60, 1)].concat()).expect("sent");
    scene.wait_for_fault();
    within_patience("its end", move || drop(link));
    drop(scene.engine);
}

/// Panics when a front end connects.
#[derive(Default)]
struct Trap(Mutex<Option<PanicLocation>>);

impl Observer for Trap {
    fn connected(&self, _: bool) {
        panic!("injected");
    }

    fn fault(&self, reason: &'static str, detail: String) {
        unreachable!("{reason}: {detail}");
    }

    fn failed(&self, defect: Defect) {
        assert_eq!(defect.role, Role::Thread);
        *self.0.lock() = Some(defect.place);
    }
}

#[test]
fn a_panic_of_a_ports_own_thread_is_told_and_ends_the_connection() {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("0.sock");
    let trap = Arc::new(Trap::default());
    let (_sides, link) = open(&settings(&socket, SocketRole::Server), Arc::clone(&trap) as _).expect("a port");
    let raw = Raw::connect(&socket);
    until("the observer is called", || trap.0.lock().is_some());
    let place = trap.0.lock().expect("told").to_string();
    assert!(place.contains("contain.rs:") || place == "an unknown place", "{place}");
    assert!(raw.ended(), "the front end sees the end of its connection");
    within_patience("its end", move || drop(link));
}
