//! An oracle for policies: ports of all kinds have random settings, and their clients send hostile frames. The oracle
//! checks each received frame again, by the documentation and with another project's parser.
//!
//! A failure prints its seed: `RINGWAY_ORACLE_SEED=SEED` repeats it. `RINGWAY_ORACLE_SECONDS=3600` tests further seeds
//! for 3,600 seconds.

mod e1000;
mod frames;
mod judge;
mod stations;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use frames::Dice;
use judge::Settings;
use ringway_abi::offload::{Gso, Offload};
use ringway_memory::Mapping;
use ringway_switch::policy::{Bound, Checks, Domain, Guard, Membership, Policy, Prefix, Reach, Rules};
use ringway_switch::{
    DetourRoom, Examined, FloodPolicy, Forward, Input, Learning, Mac, MacMap, MacTable, Member, Moment, Owner, Passed,
    Switch, Time, Workspace, empty, pass, prepare_detours,
};
use stations::{CSUM, GUEST_CSUM, Kind, SENDS, Station, TAKES};

/// Seeds that every run tests.
const SEEDS: u64 = 2000;
/// Turns of one switch, and the largest number of frames in a turn.
const TURNS: usize = 30;
const FRAMES: usize = 8;

#[test]
fn whatever_reaches_a_receiver_its_sender_was_allowed_to_send() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("RINGWAY_ORACLE_SEED") {
        println!("{:?}", try_seed(seed));
        return;
    }
    let end = number("RINGWAY_ORACLE_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let (mut seed, mut sum) = (0, Came::default());
    while seed < SEEDS || end.is_some_and(|end| Instant::now() < end) {
        let came = try_seed(seed);
        (sum.sent, sum.received, sum.unfinished) =
            (sum.sent + came.sent, sum.received + came.received, sum.unfinished + came.unfinished);
        seed += 1;
    }
    println!("{seed} switches: {sum:?}");
    assert!(sum.received > sum.sent / 10 && sum.unfinished > sum.received / 100, "too few frames were judged: {sum:?}");
}

/// Counts of forwarded frames.
#[derive(Debug, Default)]
struct Came {
    sent: u64,
    received: u64,
    /// Frames among them with offload work left undone.
    unfinished: u64,
}

/// Returns random settings of the ports, and whether there are VLANs.
fn settings(dice: &mut Dice) -> (Vec<Settings>, bool) {
    let vlans = dice.one_in(2);
    let count = 2 + dice.below(3) as u16;
    let all = (0..count).map(|index| {
        let checks = match dice.below(4) {
            0 => [0; 4].map(|_| dice.one_in(2)),
            _ => [true; 4],
        };
        let (mut untagged, mut tagged) = (Some(dice.of(&[1, 1, 2, 3])), vec![]);
        if dice.one_in(2) {
            tagged = [1, 2, 3, 10].into_iter().filter(|_| dice.one_in(2)).collect();
            untagged = untagged.filter(|_| dice.one_in(2));
        }
        let allow = dice.one_in(6).then(|| (0..count).filter(|_| dice.one_in(2)).collect());
        Settings {
            index,
            mac: [2, 0, 0, 0, 0, index as u8],
            v4: 0x0a00_0001 + u32::from(index),
            v6: 0xfd00 << 112 | (u128::from(index) + 1),
            checks,
            untagged,
            tagged,
            isolated: dice.one_in(6),
            allow,
        }
    });
    (all.collect(), vlans)
}

/// Returns the switch's configuration of a port.
fn member(settings: &Settings, port: ringway_switch::Port) -> Member {
    let [mac, ip, dhcp, ra] = settings.checks;
    let macs = vec![Mac::new(settings.mac)];
    let prefixes = [
        Prefix { address: IpAddr::V4(Ipv4Addr::from(settings.v4)), length: 32 },
        Prefix { address: IpAddr::V6(Ipv6Addr::from(settings.v6)), length: 128 },
    ];
    let guard = Guard::new(Checks { mac, ip, dhcp, ra }, &macs, &prefixes);
    let vlans = match (settings.untagged, &*settings.tagged) {
        (Some(vlan), []) => Membership::access(vlan),
        (native, tagged) => Membership::trunk(tagged.iter().copied(), native),
    };
    Member {
        isolated: settings.isolated,
        macs,
        policy: Policy { guard: (!guard.is_idle()).then(|| Arc::new(guard)), ..Policy::default() }.in_use(),
        reach: Reach { allow: settings.allow.clone().map(Vec::into_boxed_slice), ..Reach::default() },
        vlans,
        ..Member::new(Owner::new(settings.index, 0), Arc::new(port))
    }
}

fn try_seed(seed: u64) -> Came {
    let mut dice = Dice::new(seed);
    let (all, vlans) = settings(&mut dice);
    let folder = tempfile::tempdir().expect("a folder");
    let mut kinds = Vec::new();
    let (mut members, mut stations): (Vec<Member>, Vec<Box<dyn Station>>) = (Vec::new(), Vec::new());
    for one in &all {
        let kind = match dice.below(7) {
            0 => Kind::Stream,
            5 | 6 => Kind::E1000,
            1 | 2 => Kind::Process { offload: dice.one_in(2) },
            _ => {
                let sends = if dice.one_in(4) { CSUM } else { SENDS };
                let takes = if dice.one_in(3) { GUEST_CSUM | TAKES & dice.word() } else { 0 };
                // A port takes USO for both IP versions or for none, and ECN only with TCP.
                let takes = if takes & 3 << 54 != 3 << 54 { takes & !(3 << 54) } else { takes };
                Kind::VhostUser { features: sends | takes }
            }
        };
        let (port, station) = stations::open(kind, one.index, folder.path());
        members.push(member(one, port));
        stations.push(station);
        kinds.push(kind);
    }
    let forward: Box<dyn Forward> = if dice.one_in(2) { Box::new(MacMap::new(&members)) } else { Box::new(Learning) };
    let (bound, table) = (Bound::new(&members), Arc::new(MacTable::new(256, 64, [seed, 2])));
    let switch = Switch::new("lan0", members, table, forward, FloodPolicy::default());
    let switch = switch.within(Domain { bound, rules: Rules::ALLOW, vlans });
    let (mut work, mut came) = (Workspace::new(1 + dice.below(64)), Came::default());
    // The ways in which pollers serve normal ports, slow ports, and ports in quarantine.
    let mode = [PassMode::Plain, PassMode::Examined, PassMode::Plain, PassMode::Left][(seed % 4) as usize];
    if mode == PassMode::Left {
        for member in switch.members() {
            assert!(prepare_detours() && member.port.begin_detour(Waker::noop().clone(), DetourRoom::Spare, || ()));
        }
    }
    for turn in 0..TURNS {
        let from = dice.below(all.len());
        let sent: Vec<_> = (0..1 + dice.below(FRAMES)).map(|_| frames::frame(&mut dice, &all[from], &all)).collect();
        for (frame, offload) in &sent {
            stations[from].send(frame, offload.as_ref());
        }
        came.sent += sent.len() as u64;
        let member = switch.member(from as u16).expect("a port");
        let before = taken(member);
        let deadline = Instant::now() + ringway_testing::PATIENCE;
        while taken(member) - before < sent.len() as u64 {
            let passed = serve(mode, &switch, member, stations[from].input(), &mut work);
            assert_eq!(passed.fault, None, "seed {seed}, turn {turn}, {:?}", kinds[from]);
            assert!(Instant::now() < deadline, "seed {seed}, turn {turn}: {:?}", member.port.counters().read());
        }
        for (to, station) in all.iter().zip(&mut stations) {
            for (mut frame, left) in station.receive() {
                came.received += 1;
                came.unfinished += u64::from(left.is_some());
                let told = frame.clone();
                if let Some(left) = left {
                    complete(&mut frame, &left);
                }
                for frame in [&told, &frame] {
                    if let Some(wrong) = judge::wrong(frame, &all[from], to, vlans, &all) {
                        let offers = sent.iter().map(|(frame, offload)| format!("{frame:02x?} {offload:?}\n"));
                        let (from, kinds) = (&all[from], (kinds[from], kinds[usize::from(to.index)]));
                        panic!(
                            "seed {seed}, turn {turn}: {wrong}: {frame:02x?} {left:?}\nfrom {from:?}\nto {to:?}\n\
                             of kinds {kinds:?}; sent were\n{}",
                            offers.collect::<String>()
                        );
                    }
                }
            }
        }
    }
    came
}

/// The way in which a port is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassMode {
    Plain,
    /// Frames are copied when they are collected, and receivers are timed separately.
    Examined,
    /// Frames are copied when they are collected, and another thread delivers them.
    Left,
}

fn serve(mode: PassMode, switch: &Switch, member: &Member, input: &mut dyn Input, work: &mut Workspace) -> Passed {
    thread_local!(static AREA: Mapping = Mapping::private(Examined::AREA).expect("memory"));
    let now = Time::at_second(1);
    if mode == PassMode::Plain {
        return pass(switch, member, input, work, &now);
    }
    AREA.with(|area| {
        work.examine(Some(Moment::default));
        let passed = pass(switch, member, &mut Examined::new(input, area, Moment::default), work, &now);
        work.examine(None);
        for to in switch.members() {
            assert!(!empty(&to.port, work, &now).fault);
        }
        passed
    })
}

/// Frames that a port has taken from its client.
fn taken(member: &Member) -> u64 {
    member.port.counters().read().in_frames
}

/// Completes a checksum that was left to the receiver.
fn complete(frame: &mut [u8], left: &Offload) {
    let start = usize::from(left.csum_start);
    let field = start + usize::from(left.csum_offset);
    assert!(left.needs_csum && field + 2 <= frame.len(), "{left:?}");
    assert!(left.gso == Gso::None || left.gso_size > 0);
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let sum = frame[start..].chunks(2).map(word).fold(0, |sum, word| (sum + word) % 0xffff);
    frame[field..field + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}
