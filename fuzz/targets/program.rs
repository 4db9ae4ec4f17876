//! A hostile forwarding program: a module that calls any host function from any export with any arguments, whole or with some of its bytes
//! changed. Loading and calling it never panics, ends soon, and changes nothing outside: frames go to ports that are there and may get them,
//! addresses are learned at the port that sent.
#![no_main]

mod module;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use module::{Bytes, module};
use ringway_memory::Mapping;
use ringway_forwarding::{Compiler, Load, Program, Runtime};
use ringway_switch::policy::{Bound, Domain, Rules};
use ringway_switch::{
    BatchStorage, Bell, CallReason, CallResult, Counters, Destination, FloodPolicy, Frames, MacTable, Member, OnFault,
    Output, Owner, Port, PortFault, Programmed, Switch, View, ViewPort,
};

/// Ports of the switch. The frames are from the first; the last is a mirror.
const PORTS: u16 = 4;
/// Bytes of memory for a frame.
const ROOM: usize = 256;

static RUNTIME: LazyLock<Arc<Runtime>> = LazyLock::new(|| Runtime::with(Compiler::Here).expect("a runtime"));

struct Nobody;

impl Output for Nobody {
    fn deliver(&mut self, _: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        Ok(())
    }
}

impl Bell for Nobody {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

fn members() -> Vec<Member> {
    let port = |index| Arc::new(Port::new(format!("p{index}"), Box::new(Nobody), Box::new(Nobody)));
    (0..PORTS).map(|index| Member::new(Owner::new(index, 0), port(index))).collect()
}

fn view(members: &[Member], table: &Arc<MacTable>) -> Arc<View> {
    let port = |member: &Member| ViewPort {
        owner: member.owner,
        name: format!("p{}", member.owner.index()),
        port: Arc::downgrade(&member.port),
        is_mirror: member.owner.index() == PORTS - 1,
    };
    let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
    Arc::new(View::new(members.iter().map(port), PORTS + 1, Arc::clone(table), domain))
}

/// Sends frames through a switch with this program, and checks where they go.
fn forward(program: &Arc<Program>, frames: &[Vec<u8>], table: &Arc<MacTable>, on_fault: OnFault) {
    let members = members();
    let view = view(&members, table);
    let judge = Arc::clone(program) as Arc<dyn ringway_switch::Program>;
    let forward = Box::new(Programmed::new(judge, view, on_fault));
    let switch = Switch::new("lan0", members, Arc::clone(table), forward, FloodPolicy::default());
    let memory = Mapping::private(ROOM * frames.len()).expect("memory");
    let mut batch = BatchStorage::new(256).into_batch();
    for (place, frame) in frames.iter().enumerate() {
        let room = memory.view(place * ROOM, frame.len()).expect("room");
        assert!(room.write(frame));
        batch.push(room, frame.len());
    }
    let begun = Instant::now();
    switch.forward().forward(&mut batch, switch.member(0).expect("a port"), &switch, 1);
    assert!(begun.elapsed() < Duration::from_secs(2), "a batch ends");
    assert_eq!(batch.len(), frames.len());
    for (index, frame) in frames.iter().enumerate() {
        match batch.destination(index) {
            Destination::Port(port) => assert!((1..PORTS - 1).contains(&port), "to port {port}"),
            Destination::Flood | Destination::Drop(_) => {}
        }
        assert_eq!(batch.head(index)[..frame.len().min(128)], frame[..frame.len().min(128)], "a byte has changed");
    }
    for entry in table.entries() {
        assert_eq!(entry.owner, Owner::new(0, 0), "an address at a port that did not send");
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[how, count], rest)) = data.split_first_chunk::<2>() else { return };
    let mut bytes = Bytes(rest);
    let first = module(&mut bytes);
    let mut second = module(&mut bytes);
    if how & 1 > 0 {
        while let Some((&[low, high, flip], rest)) = bytes.0.split_first_chunk::<3>() {
            let place = usize::from(u16::from_le_bytes([low, high])) % second.len();
            (second[place], bytes.0) = (second[place] ^ flip, rest);
        }
    }
    let frames: Vec<Vec<u8>> = (0..1 + count % 8)
        .map(|number| {
            let to = if number & 1 > 0 { [0xff; 6] } else { [2, 0, 0, 0, 0, number] };
            let frame: Vec<u8> = to.into_iter().chain([2, 0, 0, 0, 1, count]).chain([8, 0]).collect();
            [&frame[..], &vec![number; usize::from(number) * 30]].concat()
        })
        .collect();
    let on_fault = if how & 2 > 0 { OnFault::Drop } else { OnFault::Learning };
    let table = Arc::new(MacTable::new(64, 16, [1, 2]));
    let mut before: Option<Arc<Program>> = None;
    for module in [&first, &second] {
        let view = view(&members(), &table);
        let pollers = usize::from(1 + how / 4 % 2);
        let (before, stop) = (before.as_deref(), &AtomicBool::new(false));
        let load = Load { module, switch: "lan0", config: "text", pollers, view: &view, before, stop };
        let Ok(program) = Program::load(&RUNTIME, load) else { continue };
        for _ in 0..2 {
            forward(&program, &frames, &table, on_fault);
            let _ = program.tell("message");
        }
        let reading = program.read();
        assert!(reading.entries <= 1 << 16);
        assert!(reading.counters.len() <= 64 && reading.gauges.len() <= 64 && reading.drops.len() <= 32);
        before = Some(program);
    }
});
