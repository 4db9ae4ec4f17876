//! Each optional feature of virtio-net is turned off once, with two guests that have a NIC for each case.

use std::time::Instant;

use ringway_guests::{Guest, Nic, bulk};
use ringway_scenes::{Daemon, PATIENCE, until};
use ringway_testing::snmp;

use crate::pair::{self, PAIR, Pair};
use crate::scene::{address, address6, is_whole};

/// Numbers of features (virtio 1.3, 5.1.3 and 6).
mod bit {
    pub const CSUM: usize = 0;
    pub const GUEST_CSUM: usize = 1;
    pub const MTU: usize = 3;
    pub const GUEST_TSO4: usize = 7;
    pub const HOST_TSO4: usize = 11;
    pub const MRG_RXBUF: usize = 15;
    pub const MQ: usize = 22;
    pub const INDIRECT: usize = 28;
    pub const EVENT_IDX: usize = 29;
    pub const VERSION_1: usize = 32;
    pub const PACKED: usize = 34;
}

/// One pair of NICs.
pub struct Case {
    name: &'static str,
    /// QEMU's options for the device of the first guest, and of the second.
    options: [&'static str; 2],
    /// Features that the first guest must have negotiated, and features that it must not have.
    on: &'static [usize],
    off: &'static [usize],
    /// True if both guests can receive frames of 9,000 bytes.
    jumbo: bool,
}

const PLAIN: &str = "";
const NO_OFFLOAD: &str = "csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,host_tso4=off,\
                          host_tso6=off,host_ecn=off,host_ufo=off,gso=off";

pub const CASES: [Case; 10] = [
    Case {
        name: "as QEMU does it",
        options: [PLAIN, PLAIN],
        on: &[
            bit::CSUM,
            bit::GUEST_CSUM,
            bit::GUEST_TSO4,
            bit::HOST_TSO4,
            bit::MRG_RXBUF,
            bit::INDIRECT,
            bit::EVENT_IDX,
            bit::VERSION_1,
        ],
        off: &[bit::PACKED],
        jumbo: true,
    },
    Case {
        name: "no mergeable buffers",
        options: ["mrg_rxbuf=off", "mrg_rxbuf=off"],
        on: &[bit::GUEST_TSO4],
        off: &[bit::MRG_RXBUF],
        jumbo: true,
    },
    Case {
        name: "packed rings to split ones",
        options: ["packed=on", PLAIN],
        on: &[bit::PACKED, bit::MRG_RXBUF],
        off: &[],
        jumbo: true,
    },
    Case {
        name: "packed rings, nothing else",
        options: ["packed=on,event_idx=off,indirect_desc=off,mrg_rxbuf=off", "packed=on,event_idx=off"],
        on: &[bit::PACKED],
        off: &[bit::EVENT_IDX, bit::INDIRECT, bit::MRG_RXBUF],
        jumbo: true,
    },
    Case {
        name: "no event index",
        options: ["event_idx=off", PLAIN],
        on: &[bit::INDIRECT],
        off: &[bit::EVENT_IDX],
        jumbo: true,
    },
    Case {
        name: "no indirect descriptors",
        options: ["indirect_desc=off", "indirect_desc=off,mrg_rxbuf=off"],
        on: &[bit::EVENT_IDX],
        off: &[bit::INDIRECT],
        jumbo: true,
    },
    Case {
        name: "no offloads to all",
        options: [NO_OFFLOAD, PLAIN],
        on: &[bit::MRG_RXBUF],
        off: &[bit::CSUM, bit::GUEST_CSUM, bit::GUEST_TSO4, bit::HOST_TSO4],
        jumbo: true,
    },
    Case {
        name: "all to neither offloads nor mergeable buffers",
        options: [
            PLAIN,
            "mrg_rxbuf=off,csum=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off,gso=off",
        ],
        on: &[bit::HOST_TSO4],
        off: &[],
        jumbo: false,
    },
    Case {
        name: "legacy device",
        options: ["disable-modern=on,disable-legacy=off", "disable-modern=on,disable-legacy=off,mrg_rxbuf=off"],
        on: &[bit::MRG_RXBUF, bit::HOST_TSO4],
        off: &[bit::VERSION_1],
        jumbo: true,
    },
    Case {
        name: "four queue pairs, MTU of the host",
        options: ["host_mtu=9000", "host_mtu=9000"],
        on: &[bit::MQ, bit::MTU],
        off: &[],
        jumbo: true,
    },
];

/// The case with several queue pairs.
const MANY: usize = CASES.len() - 1;
const PAIRS: u16 = 4;

/// Gives the NIC of a guest the options of its case.
pub fn card(nic: Nic, guest: usize, case: usize) -> Nic {
    let nic = if case == MANY { nic.queues(PAIRS) } else { nic };
    let options = CASES[case].options[guest];
    if options.is_empty() { nic } else { nic.option(options) }
}

/// Returns the features that a guest's driver has negotiated, as a text of 0 and 1, from bit 0.
fn agreed(guest: &Guest, nic: usize) -> String {
    guest.ok(&format!("cat /sys/class/net/eth{nic}/device/features")).unwrap()
}

/// Sends pings of all sizes, from no data to several fragments. Returns an error if answers are lost. The guest's kernel counts the answers,
/// because busybox waits only a second for the last one.
pub fn pings(from: &Guest, to: &str, sizes: &[u32]) -> Result<(), String> {
    pings_or(from, to, sizes, || 0)
}

/// Does so again as long as answers are missing and `lost`, the number of frames that the switch has dropped, grows. (A ring without
/// mergeable buffers and indirect descriptors has room for 13 frames: less than the fragments of two long pings, of which a guest without a
/// processor takes none.)
pub fn pings_or(from: &Guest, to: &str, sizes: &[u32], lost: impl Fn() -> u64) -> Result<(), String> {
    let counters = if to.contains(':') { "cat /proc/net/snmp6" } else { "cat /proc/net/snmp" };
    let answers = |text: &str| match to.contains(':') {
        false => snmp::counter(text, "Icmp", "InEchoReps").expect("a counter"),
        true => snmp::counter6(text, "Icmp6InEchoReplies").expect("a counter"),
    };
    let count = sizes.len() as u64;
    let sizes = sizes.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    let pings = format!("for s in {sizes}; do ping -c 1 -W 1 -s $s {to} || :; done");
    let (mut known, deadline) = (0, Instant::now() + PATIENCE);
    loop {
        let wanted = answers(&from.ok(counters).unwrap()) + count;
        let said = from.ok(&format!("{pings}; {counters}")).unwrap();
        let mut came = answers(&said);
        // Answers to pings of before may have come late.
        if said.contains("DUP") {
            return Err(format!("pings to {to} were doubled:\n{said}"));
        }
        loop {
            if came >= wanted {
                return Ok(());
            }
            let now = lost();
            if now > known {
                known = now;
                break;
            }
            if Instant::now() > deadline {
                return Err(format!("pings to {to} were lost:\n{said}"));
            }
            came = answers(&from.ok(counters).unwrap());
        }
        if Instant::now() > deadline {
            return Err(format!("pings to {to} are lost again and again:\n{said}"));
        }
    }
}

/// MiB of a transfer: several laps of each ring.
pub const MIB: u32 = 1;

/// Sends data. Returns an error if it arrives changed.
pub fn transfer(from: &Guest, to: &Guest, address: &str) -> Result<(), String> {
    bulk::transfer(from, to, address, MIB).map_err(|error| error.to_string())
}

/// Frames that the switch had no room for in the guests' rings.
fn lost(daemon: &Daemon, nic: usize) -> u64 {
    // To ask costs more than pings do, and in other rings there is room.
    if !CASES[nic].options.concat().contains("mrg_rxbuf=off") {
        return 0;
    }
    let full = |guest: usize| daemon.port(&pair::name(guest, nic))["drops"]["receiver_full"].as_u64().unwrap_or(0);
    full(0) + full(1)
}

/// Returns true if what goes one way for every change goes from this guest: by turns, or both ways in `make guests`.
fn is_its_way(from: usize, nic: usize) -> bool {
    from == nic % 2 || is_whole()
}

/// Sends pings and data both ways, over IPv4 and IPv6.
fn talk(pair: &Pair, nic: usize) -> Result<(), String> {
    let guests = &pair.guests;
    for (from, to) in [(0, 1), (1, 0)] {
        let sizes = [0, 1, 18, 64, 1000, 1472, 1473, 10_000];
        pings_or(&guests[from], &address(to, nic), &sizes, || lost(&pair.daemon, nic))?;
        transfer(&guests[from], &guests[to], &address(to, nic))?;
        if is_its_way(from, nic) {
            transfer(&guests[from], &guests[to], &address6(to, nic))?;
        }
    }
    Ok(())
}

fn jumbo(pair: &Pair, nic: usize) -> Result<(), String> {
    let guests = &pair.guests;
    let mtu =
        |mtu: u32| guests.iter().try_for_each(|guest| guest.ok(&format!("ip link set eth{nic} mtu {mtu}")).map(drop));
    mtu(9000).map_err(|error| error.to_string())?;
    for (from, to) in [(0, 1), (1, 0)] {
        pings_or(&guests[from], &address(to, nic), &[1, 8972, 20_000], || lost(&pair.daemon, nic))?;
        if is_its_way(from, nic) {
            transfer(&guests[from], &guests[to], &address(to, nic))?;
        }
    }
    mtu(1500).map_err(|error| error.to_string())
}

fn check(case: &Case, pair: &Pair, nic: usize) -> Result<(), String> {
    let agreed = agreed(&pair.guests[0], nic);
    let has = |bit: &usize| agreed.as_bytes()[*bit] == b'1';
    if let Some(bit) = case.on.iter().find(|bit| !has(bit)) {
        return Err(format!("feature {bit} should be on: {agreed}"));
    }
    if let Some(bit) = case.off.iter().find(|bit| has(bit)) {
        return Err(format!("feature {bit} should be off: {agreed}"));
    }
    talk(pair, nic)?;
    if case.jumbo {
        jumbo(pair, nic)?;
    }
    if nic == MANY {
        queues(pair)?;
    }
    comes_round(pair, nic)
}

/// Sends data until all rings have come round.
fn comes_round(pair: &Pair, nic: usize) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    let has_come_round = |guest: usize| {
        let port = pair.daemon.port(&pair::name(guest, nic));
        let [sent, received] = ["in", "out"].map(|way| port[way]["frames"].as_u64());
        sent.min(received) >= port["vhost_user"]["ring_size"].as_u64()
    };
    while !(has_come_round(0) && has_come_round(1)) {
        if Instant::now() > deadline {
            return Err(format!("a ring does not come round: {}", pair.daemon.ok(&["status"])));
        }
        for (from, to) in [(0, 1), (1, 0)] {
            transfer(&pair.guests[from], &pair.guests[to], &address(to, nic))?;
        }
    }
    Ok(())
}

/// Changes the number of queue pairs in the guests.
fn queues(pair: &Pair) -> Result<(), String> {
    let guests = &pair.guests;
    for pairs in [[2, 4], [4, 1], [1, PAIRS]] {
        for (guest, pairs) in guests.iter().zip(pairs) {
            guest.ok(&format!("ethtool -L eth{MANY} combined {pairs}")).map_err(|error| error.to_string())?;
        }
        for (from, to) in [(0, 1), (1, 0)] {
            pings_or(&guests[from], &address(to, MANY), &[64, 10_000], || lost(&pair.daemon, MANY))?;
            transfer(&guests[from], &guests[to], &address(to, MANY))?;
        }
    }
    Ok(())
}

#[test]
fn guests_talk_whatever_features_they_refuse() {
    let Some(pair) = PAIR.turn() else { return };
    let mut wrong = Vec::new();
    for (nic, case) in CASES.iter().enumerate() {
        let start = Instant::now();
        if let Err(why) = check(case, &pair, nic) {
            wrong.push(format!("{}: {why}", case.name));
        }
        println!("{}: {:?}", case.name, start.elapsed());
    }
    assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), pair.daemon.ok(&["status"]));
}

/// The NIC of [`CASES`] with the smallest rings: packed, without mergeable buffers and indirect descriptors.
const SMALLEST: usize = 3;

/// The switch names the frames that have no room while the guest stands still. Afterwards nothing waits for a wake-up.
#[test]
fn frames_without_room_in_the_smallest_ring_are_named_and_others_pass_again() {
    let Some(pair) = PAIR.turn() else { return };
    let [guest, other] = &pair.guests;
    let to = address(0, SMALLEST);
    pings_or(other, &to, &[64], || lost(&pair.daemon, SMALLEST)).unwrap();
    let before = lost(&pair.daemon, SMALLEST);
    guest.freeze();
    let job = other.start(&format!("ping -c 3 -i 0.02 -W 1 -s 10000 {to} || :")).unwrap();
    until("the frames without room are counted", || lost(&pair.daemon, SMALLEST) > before);
    guest.thaw();
    other.wait(&job, PATIENCE).unwrap();
    for size in [64, 10_000] {
        pings_or(other, &to, &[size], || lost(&pair.daemon, SMALLEST)).unwrap();
    }
}
