//! What ethtool and the module's parameters show and set.

use super::*;
use crate::e1000::talk;
use crate::features::pings;
use crate::scene::{address, address6};

/// Runs a command that must fail. Returns its output.
pub fn fails(guest: &Guest, command: &str) -> Result<String, String> {
    let said = guest.run(command).map_err(|error| error.to_string())?;
    if said.status != 0 { Ok(said.text) } else { Err(format!("{command} succeeds: {}", said.text)) }
}

fn has(guest: &Guest, command: &str, wanted: &[&str]) -> Result<(), String> {
    let said = tell(guest, command)?;
    let plain = said.split_whitespace().collect::<Vec<_>>().join(" ");
    match wanted.iter().find(|wanted| !plain.contains(**wanted)) {
        None => Ok(()),
        Some(wanted) => Err(format!("{command}: no {wanted:?} in {said}")),
    }
}

/// Commands that must fail and change nothing of what `shows` shows.
fn refused(guest: &Guest, shows: &str, commands: &[String]) -> Result<(), String> {
    for command in commands {
        let before = tell(guest, shows)?;
        fails(guest, command)?;
        let after = tell(guest, shows)?;
        if after != before {
            return Err(format!("{command} is refused and changes something: {before} {after}"));
        }
    }
    Ok(())
}

/// What can be read, and that the driver knows its mode.
pub fn shown(guest: &Guest, nic: usize) -> Result<(), String> {
    let mode = ["status_block: 1", "status_block: 0"][nic];
    has(guest, &format!("ethtool eth{nic}"), &["Speed: 1000Mb/s", "Duplex: Full", "Link detected: yes"])?;
    has(guest, &format!("ethtool -i eth{nic}"), &["driver: ringway_e1000", "bus-info: 0000:"])?;
    has(guest, &format!("ethtool -d eth{nic}"), &["0x0000:", "0x0050:"])?;
    has(
        guest,
        &format!("ethtool -S eth{nic}"),
        &[mode, "tx_tail_writes:", "rx_tail_writes:", "interrupts:", "device_missed:"],
    )
}

/// Numbers of descriptors, between frames of a stream of pings.
pub fn rings(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    let guest = &guests[0];
    let shows = format!("ethtool -g eth{nic}");
    has(guest, &shows, &["RX: 4096", "TX: 4096", "RX: 256", "TX: 256"])?;
    let settings =
        ["rx 100", "rx 8192", "tx 64", "tx 8192", "rx 300", "tx 1000", "rx 512 tx 100", "tx 512 rx 100", "rx-mini 8"];
    refused(guest, &shows, &settings.map(|setting| format!("ethtool -G eth{nic} {setting}")))?;
    let load =
        guest.start(&format!("ping -q -i 0.002 -s 1000 {}", address(1, nic))).map_err(|error| error.to_string())?;
    for setting in ["rx 128 tx 128", "rx 4096 tx 4096", "rx 512 tx 1024"] {
        tell(guest, &format!("ethtool -G eth{nic} {setting}"))?;
        linked(guest, nic)?;
    }
    tell(guest, "killall ping")?;
    ended(guest, &load)?;
    has(guest, &shows, &["RX: 512", "TX: 1024"])?;
    tell(guest, &format!("ethtool -G eth{nic} rx 128 tx 128"))?;
    linked(guest, nic)?;
    talk(guests, nic)?;
    tell(guest, &format!("ethtool -G eth{nic} rx 256 tx 256"))?;
    linked(guest, nic)?;
    pings(guest, &address(1, nic), &[64, 10_000])
}

/// The least time between interrupts.
pub fn moderation(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    let (guest, shows) = (&guests[0], format!("ethtool -c eth{nic}"));
    has(guest, &shows, &["Adaptive RX: on", "rx-usecs: 125"])?;
    let settings = ["rx-usecs 20000", "tx-usecs 5", "rx-frames 3", "rx-usecs 20000 adaptive-rx off", "adaptive-tx on"];
    refused(guest, &shows, &settings.map(|setting| format!("ethtool -C eth{nic} {setting}")))?;
    for (setting, shown) in [
        ("rx-usecs 50 adaptive-rx off", "rx-usecs: 50"),
        ("rx-usecs 0", "rx-usecs: 0"),
        ("rx-usecs 16776", "rx-usecs: 16776"),
    ] {
        tell(guest, &format!("ethtool -C eth{nic} {setting}"))?;
        has(guest, &shows, &["Adaptive RX: off", shown])?;
        pings(guest, &address(1, nic), &[64, 1472])?;
    }
    tell(guest, &format!("ethtool -C eth{nic} rx-usecs 125 adaptive-rx on"))?;
    pings(guest, &address(1, nic), &[64])
}

/// Negotiates the link again.
pub fn negotiation(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    tell(&guests[0], &format!("ethtool -r eth{nic}"))?;
    linked(&guests[0], nic)?;
    pings(&guests[0], &address(1, nic), &[64])
}

/// The guest counts the same frames and bytes as the port.
pub fn statistics(daemon: &Daemon, guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    let ours = |name: &str| statistic(&guests[0], nic, name);
    let ports = |way: &str, what: &str| daemon.port(&port(0, nic))[way][what].as_u64().unwrap_or(0);
    let counts = [
        ("tx_packets", "in", "frames"),
        ("tx_bytes", "in", "bytes"),
        ("rx_packets", "out", "frames"),
        ("rx_bytes", "out", "bytes"),
    ];
    let ahead = || -> Result<Vec<i64>, String> {
        counts.iter().map(|(name, way, what)| Ok(ours(name)? as i64 - ports(way, what) as i64)).collect()
    };
    // No frame is under way when two looks see the same.
    let settled = || -> Result<Vec<i64>, String> {
        let (mut before, deadline) = (ahead()?, std::time::Instant::now() + PATIENCE);
        loop {
            let now = ahead()?;
            if now == before || std::time::Instant::now() > deadline {
                return Ok(now);
            }
            before = now;
        }
    };
    // The port counts the bytes that it pads short frames with: no ARP.
    for (from, to) in [(0, 1), (1, 0)] {
        tell(&guests[from], &format!("arp -s {} {}", address(to, nic), mac(to, nic)))?;
    }
    let before = settled()?;
    let packets = ours("tx_packets")?;
    pings(&guests[0], &address(1, nic), &[18, 19, 300, 1472, 4000])?;
    pings(&guests[1], &address6(0, nic), &[64, 1400])?;
    let (after, packets) = (settled()?, ours("tx_packets")? - packets);
    let dropped = daemon.port(&port(0, nic))["drops"].clone();
    if packets < 9 {
        return Err(format!("{packets} packets were counted"));
    }
    if before == after { Ok(()) } else { Err(format!("{before:?} became {after:?}, {counts:?}, {dropped}")) }
}

const LOAD: &str = "insmod /modules/ringway_e1000.ko";

/// Parameters out of range leave no module. Others are taken.
pub fn parameters(guests: &[Guest; 2], number: usize) -> Result<(), String> {
    let guest = &guests[number];
    tell(guest, "rmmod ringway_e1000")?;
    for (wrong, names) in
        [("combine=often", "combine"), ("csb=on", "csb"), ("combine=", "combine"), ("combine=on csb=2", "csb")]
    {
        fails(guest, &format!("{LOAD} {wrong}"))?;
        has(guest, "dmesg | tail -n 3", &[&format!("invalid for parameter `{names}'")])?;
        fails(guest, "ls -d /sys/module/ringway_e1000")?;
    }
    for (parameters, shown, block) in [
        ("combine=off csb=off", "off off", "status_block: 0"),
        ("combine=auto csb=auto", "auto auto", "status_block: 1"),
    ] {
        tell(guest, &format!("{LOAD} {parameters}"))?;
        (0..NICS.len()).try_for_each(|nic| there(guest, nic))?;
        has(guest, "cd /sys/module/ringway_e1000/parameters; cat combine csb", &[shown])?;
        addresses(guest, number);
        has(guest, "ethtool -S eth0", &[block, "combining: 0"])?;
        // The mode differs in the first NIC.
        talk(guests, 0)?;
        pings(guest, &address(1 - number, 1), &[64])?;
        tell(guest, "rmmod ringway_e1000")?;
    }
    tell(guest, &format!("{LOAD} {}", PARAMETERS[number]))?;
    (0..NICS.len()).try_for_each(|nic| there(guest, nic))?;
    addresses(guest, number);
    Ok(())
}

/// Loads what netconsole needs, once. Some kernels have it built in.
const CONFIGFS: &str = "[ -e /sys/kernel/config ] || insmod /modules/configfs.ko";

/// More messages than a ring has descriptors.
const MESSAGES: u32 = 300;

/// Makes the first guest's kernel send its messages to the second guest, and say some, until `work` ends.
pub fn with_netconsole(
    guests: &[Guest; 2],
    nic: usize,
    work: impl FnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let (from, to) =
        (format!("6665@{}/eth{nic}", address(0, nic)), format!("6666@{}/{}", address(1, nic), mac(1, nic)));
    tell(&guests[0], &format!("{CONFIGFS}; insmod /modules/netconsole.ko netconsole={from},{to}"))?;
    let messages = format!("for i in $(seq {MESSAGES}); do echo \"<4>message $i of many\" >/dev/kmsg; done");
    let loud = "echo on >printk_devkmsg; echo 7 >printk";
    let job = guests[0].start(&format!("cd /proc/sys/kernel; {loud}; {messages}; echo 1 >printk"));
    let result = work();
    ended(&guests[0], &job.map_err(|error| error.to_string())?)?;
    tell(&guests[0], "rmmod netconsole")?;
    result
}

/// The kernel's messages go out through netpoll.
pub fn netconsole(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    let heard = while_inside(&guests[1], "hear 6666 /tmp/heard", || {
        with_netconsole(guests, nic, || {
            // The last one is said again until it is heard: nobody repeats a datagram.
            let last = format!("message {MESSAGES} of many");
            let heard = format!("grep -q '{last}' /tmp/heard");
            until("the last message is heard", || {
                guests[0].run(&format!("echo '<4>{last}' >/dev/kmsg")).unwrap();
                guests[1].run(&heard).unwrap().status == 0
            });
            Ok(())
        })
    });
    heard.map_err(|error| format!("{error}: {:?}", guests[0].run("dmesg | tail; ip -s link")))?;
    pings(&guests[0], &address(1, nic), &[64])
}
