//! The tests of all other events of a NIC. They take minutes.

use std::time::Instant;

use ringway_guests::{Nic, bulk};
use ringway_scenes::{frame, until};

use super::short::{link, self_test};
use super::*;

/// Number of copies of the data that are sent during the disturbance.
const TIMES: u32 = 10;

#[test]
#[ignore = "takes minutes: make guests"]
fn every_offload_and_tag_with_each_nic() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = scene();
    let offloads = ["tso off", "gso off gro off", "tx off", "sg off", "rx off", "rxvlan off txvlan off"];
    for setting in offloads.into_iter().chain(["rx on", "tx on sg on", "tso on gso on gro on rxvlan on txvlan on"]) {
        with_each(setting, |nic| {
            tell(&guests[0], &format!("ethtool -K eth{nic} {setting}"))?;
            talk(&guests, nic)?;
            vlan(&guests, nic)
        });
    }
    no_faults(&daemon);
}

#[test]
#[ignore = "takes minutes: make guests"]
fn long_frames_groups_and_frames_for_others_with_each_nic() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = scene();
    with_each("groups and promiscuous mode", |nic| groups(&daemon, &guests[0], nic));
    with_each("jumbo frames", |nic| jumbo(&guests, nic));
    no_faults(&daemon);
}

/// A VLAN between both guests. The NIC or the driver adds and removes the tags.
pub fn vlan(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    for (number, guest) in guests.iter().enumerate() {
        tell(guest, "[ -d /proc/net/vlan ] || for m in llc stp garp mrp 8021q; do insmod /modules/$m.ko; done")?;
        tell(guest, &format!("ip link add link eth{nic} name v5 type vlan id 5; ip link set v5 up"))?;
        tell(guest, &format!("ip addr add 10.99.0.{}/24 dev v5", number + 1))?;
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let address = format!("10.99.0.{}", to + 1);
        pings(&guests[from], &address, &[18, 1472, 10_000])?;
        transfer(&guests[from], &guests[to], &address)?;
    }
    guests.iter().try_for_each(|guest| tell(guest, "ip link del v5").map(drop))
}

fn jumbo(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    // MTUs for all sizes of receive buffers, up to the largest MTU of each driver.
    let most = if nic == 0 { 16_110 } else { 9212 };
    with_mtus(guests, nic, &[2030, 4078, 8174, most])?;
    talk(guests, nic)
}

/// Sends frames up to each MTU in both directions.
pub fn with_mtus(guests: &[Guest; 2], nic: usize, mtus: &[u32]) -> Result<(), String> {
    let set = |mtu: u32| {
        guests.iter().try_for_each(|guest| {
            tell(guest, &format!("ip link set eth{nic} mtu {mtu}"))?;
            linked(guest, nic)
        })
    };
    for &mtu in mtus {
        set(mtu)?;
        for (from, to) in [(0, 1), (1, 0)] {
            pings(&guests[from], &address(to, nic), &[64, mtu - 28, 20_000])?;
            transfer(&guests[from], &guests[to], &address(to, nic))?;
        }
    }
    set(1500)
}

/// More frames than the guest's own traffic has.
const MANY: u64 = 200;

/// A NIC receives frames to other addresses and to groups only if its driver has set the filters for that.
fn groups(daemon: &Daemon, guest: &Guest, nic: usize) -> Result<(), String> {
    let mut probe = daemon.attach(&format!("lan{nic}:probe")).map_err(|error| error.to_string())?;
    let count = || -> Result<u64, String> {
        let said = tell(guest, &format!("cat /sys/class/net/eth{nic}/statistics/rx_packets"))?;
        said.trim().parse().map_err(|_| said.clone())
    };
    let mut taken = |to: [u8; 6]| -> Result<u64, String> {
        let seen = || {
            let port = daemon.port(&port(0, nic));
            [&port["out"]["frames"], &port["drops"]["receiver_filtered"]]
                .map(|n| n.as_u64().unwrap_or(0))
                .iter()
                .sum::<u64>()
        };
        let (before, seen_before) = (count()?, seen());
        for number in 0..MANY {
            let sent = frame(to, [2, 0, 0, 0, 0, 9], number as u8);
            until("there is room", || probe.tx().push(&sent));
            probe.flush();
        }
        until("the port has handled the frames", || seen() >= seen_before + MANY);
        // When the pings are answered, the guest has counted all earlier frames.
        pings(guest, &address(1, nic), &[64])?;
        Ok(count()? - before)
    };
    // What the driver has written to a register takes effect when Ringway's thread for the port has read it.
    let mut expect = |what: &str, all: bool, to: [u8; 6]| -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match (taken(to)?, all) {
                (MANY.., true) => return Ok(()),
                (came, false) if came < MANY / 4 => return Ok(()),
                (came, _) if Instant::now() > deadline => return Err(format!("{what}: {came} of {MANY} came")),
                _ => {}
            }
        }
    };
    let (other, group) = ([2, 0, 0, 0, 0, 0x77], [1, 0, 0x5e, 1, 2, 3]);
    expect("another address", false, other)?;
    expect("a group", false, group)?;
    expect("broadcast", true, [0xff; 6])?;
    tell(guest, &format!("ifconfig eth{nic} allmulti"))?;
    expect("a group, in all-multicast mode", true, group)?;
    expect("another address, in all-multicast mode", false, other)?;
    tell(guest, &format!("ifconfig eth{nic} -allmulti promisc"))?;
    expect("another address, in promiscuous mode", true, other)?;
    expect("a group, in promiscuous mode", true, group)?;
    tell(guest, &format!("ifconfig eth{nic} -promisc"))?;
    expect("another address, after promiscuous mode", false, other)
}

/// Keeps a NIC busy until `killall ping`.
pub fn load(from: &Guest, address: &str) -> Result<(), String> {
    let ping = from.start(&format!("ping -i 0.001 -s 1400 {address}"));
    ping.map(drop).map_err(|error| error.to_string())
}

/// Waits until a ping is answered. If the first ARP request was lost because the link was down, the guest asks again
/// after a second, and until then it keeps only a few of the packets to send.
pub fn answered(from: &Guest, to: &str) -> Result<(), String> {
    from.until(&format!("ping -q -c 1 -W 1 {to}"), PATIENCE).map_err(|error| error.to_string())
}

/// Runs `disturb` while data is sent from one guest to the other. The data must arrive unchanged.
pub fn under_load(guests: &[Guest; 2], nic: usize, disturb: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let error = |error: ringway_guests::Error| error.to_string();
    bulk::make(&guests[0], 4).map_err(error)?;
    let sum = bulk::sum_of(&guests[0], TIMES).map_err(error)?;
    let receiver = bulk::receive(&guests[1], 7001).map_err(error)?;
    let sender = guests[0].start(&bulk::send(&address(1, nic), 7001, TIMES)).map_err(error)?;
    disturb()?;
    let sent = guests[0].wait(&sender, PATIENCE).map_err(error)?;
    let came = bulk::received(&guests[1], &receiver).map_err(error)?;
    if sent.status == 0 && sum == came { Ok(()) } else { Err(format!("altered: {sent:?}, {came}, {sum}")) }
}

#[test]
#[ignore = "takes minutes: make guests"]
fn drivers_come_and_go_under_load_with_each_nic() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = scene();
    with_each("interface down and up under load", |nic| {
        under_load(&guests, nic, || {
            for guest in &guests {
                tell(guest, &format!("ip link set eth{nic} down; ip link set eth{nic} up"))?;
            }
            Ok(())
        })
    });
    with_each("link down and up under load", |nic| {
        under_load(&guests, nic, || link(&daemon, &guests[0], nic))?;
        talk(&guests, nic)
    });
    with_each("driver removed and loaded under load", |nic| {
        let driver = if nic == 0 { "e1000" } else { "e1000e" };
        load(&guests[0], &address(1, nic))?;
        for _ in 0..3 {
            tell(&guests[1], &format!("rmmod {driver} && insmod /modules/{driver}.ko"))?;
            there(&guests[1], nic)?;
            addresses(&guests[1], 1);
        }
        tell(&guests[0], "killall ping")?;
        answered(&guests[0], &address(1, nic))?;
        talk(&guests, nic)
    });
    println!("unplugged and plugged under load");
    load(&guests[1], &address(0, REMOVABLE)).unwrap();
    put_in_again(&daemon, &guests[0], 0, REMOVABLE).unwrap();
    addresses(&guests[0], 0);
    guests[1].ok("killall ping").unwrap();
    answered(&guests[1], &address(0, REMOVABLE)).unwrap();
    talk(&guests, REMOVABLE).unwrap();
    with_each("the drivers' self-test", |nic| self_test(&guests[0], nic));
    no_faults(&daemon);
}

#[test]
#[ignore = "takes minutes: make guests"]
fn guests_reboot_are_reset_and_killed_under_load() {
    let Some(_turn) = turn() else { return };
    let (daemon, mut guests) = scene();
    for (number, how) in [(0, "reboot"), (1, "reset"), (1, "reboot"), (0, "reset")] {
        let other = &guests[1 - number];
        (0..NICS.len()).for_each(|nic| load(other, &address(number, nic)).unwrap());
        match how {
            "reboot" => guests[number].reboot().unwrap(),
            _ => guests[number].reset().unwrap(),
        }
        addresses(&guests[number], number);
        other.ok("killall ping").unwrap();
        with_each(how, |nic| {
            answered(other, &address(number, nic))?;
            talk(&guests, nic)
        });
    }

    for nic in 0..NICS.len() {
        for (from, to) in [(0, 1), (1, 0)] {
            load(&guests[from], &address(to, nic)).unwrap();
        }
    }
    let [first, second] = guests;
    second.kill();
    for nic in 0..NICS.len() {
        wait_for(&daemon, &port(1, nic), "waiting");
    }
    first.ok("killall ping").unwrap();
    let again = builder(&daemon, 1).start().unwrap();
    addresses(&again, 1);
    guests = [first, again];
    with_each("after a killed QEMU was started again", |nic| {
        answered(&guests[0], &address(1, nic))?;
        talk(&guests, nic)
    });
    no_faults(&daemon);
}

/// The driver's self-test fails with QEMU's own e1000, so the test can fail at all.
#[test]
#[ignore = "a control: make guests"]
fn the_self_test_finds_fault_with_qemus_own_e1000() {
    let Some(_turn) = turn() else { return };
    let dir = tempfile::tempdir().unwrap();
    let nic = Nic::stream(dir.path().join("nobody")).listen().model("e1000");
    let guest = Guest::builder("control").nic(nic).start().unwrap();
    guest.ok("ip link set eth0 up").unwrap();
    let why = self_test(&guest, 0).unwrap_err();
    assert!(why.contains("The test result is FAIL"), "{why}");
}
