//! A switch without pollers, and programs written as WebAssembly text.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock, Weak};

use ringway_forwarding::{Compiler, Load, Program, Runtime, Unacceptable};
use ringway_memory::Mapping;
use ringway_switch::policy::{Bound, Domain, Rules};
use ringway_switch::{
    BatchStorage, Bell, CallReason, CallResult, Counters, Destination, DropReason, FloodPolicy, Frames, Mac, MacTable,
    Member, OnFault, Output, OutputCapabilities, Owner, Port, PortFault, Programmed, Switch, View, ViewPort,
};

/// The runtime of all tests of a file.
pub fn runtime() -> &'static Arc<Runtime> {
    static RUNTIME: LazyLock<Arc<Runtime>> = LazyLock::new(|| Runtime::with(Compiler::Here).expect("a runtime"));
    &RUNTIME
}

/// What every module here begins with: 2 pages of memory; verdicts at 4096, descriptors at 8192, heads at 16384.
pub const PRELUDE: &str = r#"
    (import "ringway" "frames_at" (func $frames_at (param i32 i32 i32 i32 i32)))
    (import "ringway" "drop_reason" (func $drop_reason (param i32 i32) (result i32)))
    (import "ringway" "counter" (func $counter (param i32 i32) (result i32)))
    (import "ringway" "counter_add" (func $counter_add (param i32 i64)))
    (import "ringway" "gauge" (func $gauge (param i32 i32) (result i32)))
    (import "ringway" "gauge_set" (func $gauge_set (param i32 i64)))
    (import "ringway" "log" (func $log (param i32 i32)))
    (import "ringway" "config" (func $config (param i32 i32) (result i32)))
    (import "ringway" "message" (func $message (param i32 i32) (result i32)))
    (import "ringway" "save" (func $save (param i32 i32)))
    (import "ringway" "restore" (func $restore (param i32 i32 i32) (result i32)))
    (import "ringway" "port_by_name" (func $port_by_name (param i32 i32) (result i32)))
    (import "ringway" "port_name" (func $port_name (param i32 i32 i32) (result i32)))
    (import "ringway" "ports" (func $ports (param i32 i32) (result i32)))
    (import "ringway" "port_set" (func $port_set (param i32 i32 i32)))
    (import "ringway" "mac_learn" (func $mac_learn (param i32 i32) (result i32)))
    (import "ringway" "mac_lookup" (func $mac_lookup (param i32 i32) (result i32)))
    (import "ringway" "map_get" (func $map_get (param i32 i32 i32 i32) (result i32)))
    (import "ringway" "map_set" (func $map_set (param i32 i32 i32 i32) (result i32)))
    (import "ringway" "map_remove" (func $map_remove (param i32 i32) (result i32)))
    (import "ringway" "now_ns" (func $now_ns (result i64)))
    (import "ringway" "random" (func $random (result i64)))
    (import "ringway" "timer_set" (func $timer_set (param i64)))
    (memory (export "memory") 2)
    (func (export "ringway_interface") (result i32) i32.const 1)
    (func $verdicts (param $count i32) (param $word i32)
      (local $i i32)
      loop $next
        (i32.store (i32.add (i32.const 4096) (i32.mul (local.get $i) (i32.const 4))) (local.get $word))
        (br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (local.get $count)))
      end)
"#;

/// The usual `ringway_start`: descriptors and heads of 64 bytes.
pub const START: &str = r#"
    (func (export "ringway_start") (result i32)
      (call $frames_at (i32.const 8192) (i32.const 16384) (i32.const 64) (i32.const 4096) (i32.const 256))
      i32.const 0)
"#;

/// Translates a module: the prelude, and this.
pub fn module(body: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {PRELUDE} {body})")).expect("a module")
}

/// A module with the usual start, whose `ringway_frames` is this.
pub fn frames(body: &str) -> Vec<u8> {
    module(&format!("{START} (func (export \"ringway_frames\") (param $count i32) (param $port i32) {body})"))
}

/// Loads a module for a switch, with one poller.
pub fn load(lan: &Lan, module: &[u8]) -> Result<Arc<Program>, Unacceptable> {
    load_with(lan, module, "", None)
}

pub fn load_with(
    lan: &Lan,
    module: &[u8],
    config: &str,
    before: Option<&Program>,
) -> Result<Arc<Program>, Unacceptable> {
    let view = Arc::new(lan.view());
    let stop = &AtomicBool::new(false);
    Program::load(runtime(), Load { module, switch: "lan0", config, pollers: 1, view: &view, before, stop })
}

/// An output and bell that do nothing.
struct Nothing;

impl Output for Nothing {
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities::default()
    }

    fn deliver(&mut self, _: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        Ok(())
    }
}

impl Bell for Nothing {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

/// Station `n`'s address.
pub fn mac(n: u8) -> Mac {
    Mac::new([2, 0, 0, 0, 0, n])
}

/// A frame of 64 bytes.
pub fn frame(to: Mac, from: Mac) -> Vec<u8> {
    let mut bytes: Vec<u8> = to.octets().into_iter().chain(from.octets()).chain([0x88, 0xb5]).collect();
    bytes.resize(64, 7);
    bytes
}

/// What a switch is made of.
pub struct Lan {
    pub ports: u16,
    /// The generation of each port.
    pub generation: u8,
    pub table: Arc<MacTable>,
    pub rules: Rules,
    pub mirror: Option<u16>,
    handles: Vec<Arc<Port>>,
    storage: Option<BatchStorage>,
}

impl Lan {
    pub fn new(ports: u16) -> Lan {
        let port = |index| Arc::new(Port::new(format!("lan0:p{index}"), Box::new(Nothing), Box::new(Nothing)));
        Lan {
            ports,
            generation: 0,
            table: Arc::new(MacTable::new(1024, 1024, [1, 2])),
            rules: Rules::ALLOW,
            mirror: None,
            handles: (0..ports).map(port).collect(),
            storage: Some(BatchStorage::new(256)),
        }
    }

    fn domain(&self) -> Domain {
        Domain { bound: Bound::new(&self.members()), rules: self.rules, vlans: false }
    }

    fn members(&self) -> Vec<Member> {
        let one =
            |index: u16| Member::new(Owner::new(index, self.generation), Arc::clone(&self.handles[usize::from(index)]));
        (0..self.ports).map(one).collect()
    }

    /// A port, to see whether it is still owned.
    pub fn port(&self, index: u16) -> Weak<Port> {
        Arc::downgrade(&self.handles[usize::from(index)])
    }

    pub fn view(&self) -> View {
        let port = |member: Member| ViewPort {
            owner: member.owner,
            name: format!("p{}", member.owner.index()),
            port: Arc::downgrade(&member.port),
            is_mirror: self.mirror == Some(member.owner.index()),
        };
        View::new(self.members().into_iter().map(port), 0, Arc::clone(&self.table), self.domain())
    }

    pub fn switch(&self, program: &Arc<Program>, on_fault: OnFault) -> Switch {
        let program = Arc::clone(program) as Arc<dyn ringway_switch::Program>;
        let forward = Box::new(Programmed::new(program, Arc::new(self.view()), on_fault));
        let table = Arc::clone(&self.table);
        Switch::new("lan0", self.members(), table, forward, FloodPolicy::default()).within(self.domain())
    }

    /// The destinations of frames from a port.
    pub fn forward(&mut self, switch: &Switch, from: u16, frames: &[Vec<u8>]) -> Vec<Destination> {
        let memory = Mapping::private(1 << 16).expect("memory");
        let mut batch = self.storage.take().unwrap_or_else(|| BatchStorage::new(256)).into_batch();
        for (place, frame) in frames.iter().enumerate() {
            let view = memory.view(place * 128, frame.len()).expect("room");
            assert!(view.write(frame), "room");
            batch.push(view, frame.len());
        }
        switch.forward().forward(&mut batch, switch.member(from).expect("a port"), switch, 1);
        let destinations = (0..batch.len()).map(|index| batch.destination(index)).collect();
        self.storage = Some(batch.into_storage());
        destinations
    }
}

/// The reason of a dropped frame.
pub fn dropped(destination: Destination) -> Option<DropReason> {
    match destination {
        Destination::Drop(reason) => Some(reason),
        _ => None,
    }
}
