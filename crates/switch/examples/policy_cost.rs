//! The cost of policy for each frame, on a switch with in-memory ports.
//!
//! `policy_cost CASE BATCHES` passes that many batches of 256 frames from one port to another; under `valgrind
//! --tool=callgrind` with two numbers of batches the difference of the totals, divided by the difference of frames, is
//! instructions per frame. Without arguments it lists the cases.

use std::net::IpAddr;
use std::sync::Arc;

use ringway_switch::policy::{Bound, Checks, Domain, Guard, Membership, Policy, Prefix, Rules};
use ringway_switch::{
    Counters, FloodPolicy, Frames, Learning, Mac, MacTable, Member, Output, Owner, Port, PortFault, Switch, Time,
    Workspace, pass,
};

mod memory_ports;

use memory_ports::{FRAMES, Offer, Silent};

const STRIDE: usize = 192;

/// An output that counts frames.
struct Sink;

impl Output for Sink {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        counters.add_out(frames.count() as u64, 0);
        Ok(())
    }
}

fn mac(n: u8) -> Mac {
    Mac::new([2, 0, 0, 0, 0, n])
}

/// UDP over IPv4, or IPv6, or ARP; with tags.
fn frame(kind: &str, tags: &[u16]) -> Vec<u8> {
    let mut frame = [mac(1).octets(), mac(0).octets()].concat();
    for tag in tags {
        frame.extend([0x81, 0]);
        frame.extend(tag.to_be_bytes());
    }
    match kind {
        "arp" => frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 0, 10, 0, 0, 1]),
        "v6" => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, 64, 0xfd]);
            frame.extend([[0; 14].as_slice(), &[1], &[9; 16], &[0, 9, 0, 9, 0, 8, 0, 0]].concat());
        }
        _ => frame.extend([
            8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 9, 0, 26, 0, 0,
        ]),
    }
    frame.resize(frame.len().max(60), 7);
    frame
}

const CASES: [&str; 11] = [
    "off",
    "guard-v4",
    "guard-v6",
    "guard-arp",
    "guard-tagged",
    "guard-many",
    "bound",
    "vlan-access",
    "vlan-tag",
    "vlan-untag",
    "all",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, batches] = arguments.as_slice() else {
        println!("{}", CASES.join("\n"));
        return;
    };
    let bytes = match case.as_str() {
        "guard-v6" => frame("v6", &[]),
        "guard-arp" => frame("arp", &[]),
        "guard-tagged" | "vlan-untag" => frame("v4", &[2]),
        _ => frame("v4", &[]),
    };
    let mut input = Offer::new(STRIDE, |_| bytes.clone());

    let prefixes = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])]
        .map(|address| Prefix { address, length: if address.is_ipv4() { 32 } else { 128 } });
    let macs: Vec<Mac> = (0..if case == "guard-many" { 200 } else { 1 }).map(mac).collect();
    let checks = Checks { mac: true, ip: true, dhcp: true, ra: true };
    let guarded = case.starts_with("guard") || case == "all" || case == "bound";
    let policy = || Policy { guard: Some(Arc::new(Guard::new(checks, &macs, &prefixes))), ..Policy::default() };
    let trunk = || Membership::trunk([2], None);
    let (vlans, first, second) = match case.as_str() {
        "vlan-access" | "all" => (true, Membership::access(2), Membership::access(2)),
        "vlan-tag" => (true, Membership::access(2), trunk()),
        "vlan-untag" => (true, trunk(), Membership::access(2)),
        _ => (false, Membership::default(), Membership::default()),
    };
    let member = |index: u16, vlans| {
        let port = Port::new(format!("p{index}"), Box::new(Sink), Box::new(Silent));
        Member { vlans, ..Member::new(Owner::new(index, 0), Arc::new(port)) }
    };
    let from = Member { policy: guarded.then(policy), macs: macs.clone(), ..member(0, first) };
    let members = [from, member(1, second)];
    let bound = if case == "bound" || case == "all" { Bound::new(&members) } else { Bound::default() };
    let table = Arc::new(MacTable::new(1024, 1024, [3, 4]));
    table.learn_in(if vlans { 2 } else { 0 }, mac(1), Owner::new(1, 0), 1, |_| true);
    let switch = Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default());
    let switch = switch.within(Domain { bound, rules: Rules::ALLOW, vlans });

    let mut work = Workspace::new(FRAMES);
    let batches: usize = batches.parse().expect("a number of batches");
    let from = switch.member(0).expect("a port");
    for _ in 0..batches {
        pass(&switch, from, &mut input, &mut work, &Time::at_second(1));
    }
    let out = switch.member(1).expect("a port").port.counters().read().out_frames;
    assert_eq!(out, (batches * FRAMES) as u64, "all arrived: {:?}", from.port.counters().read());
    println!("{out} frames");
}
