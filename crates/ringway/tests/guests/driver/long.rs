//! What happens to a driver in its life. These tests take minutes.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::e1000::long::{answered, load, under_load, vlan};
use crate::e1000::short::kill_between_messages;
use crate::e1000::{talk, turn};
use crate::scene::{address, wait_for};

/// Time limit for many cycles.
const LONG: Duration = Duration::from_secs(3600);

/// Returns a number from the environment.
fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

/// Cycles in which the driver or its interface comes and goes.
fn cycles() -> u64 {
    number("RINGWAY_DRIVER_CYCLES", 1000)
}

/// Runs a shell loop in the background of a guest, which must succeed.
fn repeat(guest: &Guest, times: u64, body: &str) -> Result<(), String> {
    let command = format!("set -e; for i in $(seq {times}); do {body}; done");
    let job = guest.start(&command).map_err(|error| error.to_string())?;
    let said = guest.wait(&job, LONG).map_err(|error| error.to_string())?;
    if said.status == 0 { Ok(()) } else { Err(format!("{body}: {said:?}")) }
}

/// Memory of a guest's kernel: what is in use in KiB, and socket buffers.
fn memory(guest: &Guest) -> (i64, i64) {
    tell(guest, "echo 3 >/proc/sys/vm/drop_caches").unwrap();
    let said = tell(guest, "cat /proc/meminfo; grep ^skbuff_head_cache /proc/slabinfo").unwrap();
    let number = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {said}"));
        line.split_whitespace().next().unwrap().parse::<i64>().unwrap()
    };
    let free: i64 = ["MemFree:", "Buffers:", "Cached:", "SReclaimable:"].map(number).iter().sum();
    (number("MemTotal:") - free, number("skbuff_head_cache"))
}

/// Runs cycles whose memory must be given back. The first ones fill the kernel's caches, which may grow later once more: a leak grows
/// each time.
fn without_leak(guest: &Guest, mut cycles: impl FnMut(u64) -> Result<(), String>) -> Result<(), String> {
    let times = self::cycles();
    cycles(times.min(50))?;
    let mut before = memory(guest);
    for _ in 0..3 {
        cycles(times)?;
        let after = memory(guest);
        println!("{times} cycles: from {before:?} to {after:?} (KiB, skbs)");
        let (kib, skbs) = (after.0 - before.0, after.1 - before.1);
        // Less than a page and a socket buffer in two cycles.
        if kib < 512 + 2 * times as i64 && skbs < 128 + times as i64 / 2 {
            return Ok(());
        }
        before = after;
    }
    Err(format!("{times} cycles keep memory, each time"))
}

#[test]
#[ignore = "takes minutes: make guests"]
fn interfaces_and_drivers_come_and_go_a_thousand_times_under_load() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = scene();
    let settled = |number: usize| {
        (0..NICS.len()).for_each(|nic| there(&guests[number], nic).unwrap());
        addresses(&guests[number], number);
    };
    for (number, guest) in guests.iter().enumerate() {
        let other = &guests[1 - number];
        (0..NICS.len()).for_each(|nic| load(other, &address(number, nic)).unwrap());
        with_each("interface down and up", |nic| {
            let send = format!("ping -q -c 1 -W 1 {} >/dev/null || :", address(1 - number, nic));
            without_leak(guest, |times| {
                repeat(
                    guest,
                    times,
                    &format!("ip link set eth{nic} down; ip link set eth{nic} up; [ $((i % 50)) != 0 ] || {send}"),
                )
            })
        });
        with_each("rings exchanged", |nic| {
            without_leak(guest, |times| {
                repeat(
                    guest,
                    times.div_ceil(2),
                    &format!("ethtool -G eth{nic} rx 512 tx 128; ethtool -G eth{nic} rx 256 tx 256"),
                )
            })
        });
        let parameters = PARAMETERS[number];
        without_leak(guest, |times| {
            let again = format!(
                "rmmod ringway_e1000; insmod /modules/ringway_e1000.ko {parameters}; ip link set eth0 up; ip link set eth1 up"
            );
            repeat(guest, times, &again)
        })
        .unwrap();
        settled(number);
        other.ok("killall ping").unwrap();
        with_each("talk", |nic| answered(other, &address(number, nic)).and_then(|()| talk(&guests, nic)));
    }
    with_each("interface down and up during a transfer", |nic| {
        under_load(&guests, nic, || {
            guests.iter().try_for_each(|guest| {
                repeat(guest, 5, &format!("ip link set eth{nic} down; ip link set eth{nic} up; sleep 1"))
            })
        })
    });
    with_each("offloads set during a transfer", |nic| {
        under_load(&guests, nic, || {
            guests.iter().try_for_each(|guest| {
                let settings = short::OFFLOADS.map(|setting| format!("ethtool -K eth{nic} {setting}"));
                repeat(guest, 5, &settings.join("; "))
            })
        })
    });
    all_is_well(&daemon, &guests);
}

#[test]
#[ignore = "takes minutes: make guests"]
fn every_offload_and_tag_in_both_modes() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = scene();
    for setting in short::OFFLOADS {
        with_each(setting, |nic| {
            guests.iter().try_for_each(|guest| tell(guest, &format!("ethtool -K eth{nic} {setting}")).map(drop))?;
            talk(&guests, nic)?;
            vlan(&guests, nic)
        });
    }
    all_is_well(&daemon, &guests);
}

/// Makes an initramfs of the guest's own files.
const PACK: &str = "cd /; { for d in dev proc sys tmp; do echo $d; done; find bin init lib* modules usr ! -name vmlinux; } \
                    | cpio -o -H newc >/tmp/initrd 2>/dev/null";

#[test]
#[ignore = "takes minutes: make guests"]
fn guests_reboot_are_reset_and_start_another_kernel_under_load() {
    let Some(_turn) = turn() else { return };
    let daemon = Daemon::start(&ports());
    let with_kernel = |guest: usize| {
        let kernel = ringway_guests::Kernel::get(KERNELS[guest]).unwrap();
        builder(&daemon, guest).memory_mib(1024).program(kernel.image())
    };
    let guests = boot([with_kernel(0), with_kernel(1)]);
    for (number, guest) in guests.iter().enumerate() {
        settle(guest, number);
    }
    for (number, how) in [(0, "kexec"), (1, "kexec"), (0, "reboot"), (1, "reset"), (1, "reboot"), (0, "reset")] {
        let (guest, other) = (&guests[number], &guests[1 - number]);
        (0..NICS.len()).for_each(|nic| load(other, &address(number, nic)).unwrap());
        (0..NICS.len()).for_each(|nic| load(guest, &address(1 - number, nic)).unwrap());
        match how {
            "kexec" => {
                guest.ok_within(PACK, LONG).unwrap();
                let load = "inside load /usr/bin/vmlinux /tmp/initrd \"$(cat /proc/cmdline) again\"";
                guest.ok_within(load, LONG).unwrap();
                guest.reboot_by("inside kexec").unwrap();
                assert!(guest.ok("cat /proc/cmdline").unwrap().contains("again"));
            }
            "reboot" => guest.reboot().unwrap(),
            _ => guest.reset().unwrap(),
        }
        settle(guest, number);
        other.ok("killall ping").unwrap();
        with_each(how, |nic| {
            answered(other, &address(number, nic))?;
            talk(&guests, nic)
        });
    }
    all_is_well(&daemon, &guests);
}

#[test]
#[ignore = "takes minutes: make guests"]
fn guests_sleep_and_wake_under_load() {
    let Some(_turn) = turn() else { return };
    let daemon = Daemon::start(&ports());
    // Linux 7.3 wakes, but its virtio console, which takes the commands, does not answer any more.
    let guests = boot([builder(&daemon, 0), builder(&daemon, 1).kernel(Release::Bookworm)]);
    for (number, guest) in guests.iter().enumerate() {
        settle(guest, number);
    }
    for (number, guest) in guests.iter().enumerate() {
        let other = &guests[1 - number];
        tell(guest, "echo 0 >/sys/module/suspend/parameters/pm_test_delay").unwrap();
        // If a guest does not wake, the error says how far it came.
        tell(guest, "echo N >/sys/module/printk/parameters/console_suspend; echo 8 >/proc/sys/kernel/printk").unwrap();
        // Each goes a step further than the one before. Neither a clock nor QEMU wakes these guests from a whole sleep.
        for how in ["devices", "platform", "processors", "core"] {
            (0..NICS.len()).for_each(|nic| load(other, &address(number, nic)).unwrap());
            println!("guest {number}: sleeps by {how}");
            tell(guest, &format!("echo {how} >/sys/power/pm_test")).unwrap();
            let sleep = guest.start("echo mem >/sys/power/state").unwrap();
            assert_eq!(guest.wait(&sleep, LONG).unwrap().status, 0);
            (0..NICS.len()).for_each(|nic| linked(guest, nic).unwrap());
            other.ok("killall ping").unwrap();
            with_each(how, |nic| answered(other, &address(number, nic)).and_then(|()| talk(&guests, nic)));
        }
    }
    all_is_well(&daemon, &guests);
}

#[test]
#[ignore = "takes minutes: make guests"]
fn guests_and_processors_stop_and_go_on_under_load() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = scene();
    with_each("QEMU stopped", |nic| {
        under_load(&guests, nic, || {
            for guest in guests.iter().cycle().take(10) {
                guest.freeze();
                moved_on();
                guest.thaw();
            }
            Ok(())
        })
    });
    with_each("guests paused", |nic| {
        under_load(&guests, nic, || {
            for guest in guests.iter().cycle().take(10) {
                guest.qmp("stop", json!({})).map_err(|error| error.to_string())?;
                moved_on();
                guest.qmp("cont", json!({})).map_err(|error| error.to_string())?;
            }
            Ok(())
        })
    });
    with_each("a processor goes and comes", |nic| {
        under_load(&guests, nic, || {
            let online = "/sys/devices/system/cpu/cpu1/online";
            let interrupt = format!("/proc/irq/$(cat /sys/class/net/eth{nic}/device/irq)/smp_affinity");
            let moves = format!(
                "echo 2 >{interrupt}; echo 0 >{online}; echo 1 >{online}; echo 1 >{interrupt}; echo 3 >{interrupt}"
            );
            repeat(&guests[1], 20, &moves)
        })
    });
    all_is_well(&daemon, &guests);

    // A transmitter that is stuck for longer than the kernel's watchdog waits.
    for guest in &guests {
        tell(guest, "echo 7 >/proc/sys/kernel/printk; insmod /modules/pktgen.ko").unwrap();
        // The kernel's driver reads registers every other second, and would wait for Ringway.
        tell(guest, &format!("ip link set eth{OTHER} down")).unwrap();
    }
    with_each("a stuck transmitter", |nic| {
        let resets = count(&guests[0], nic, "resets")?;
        pktgen(&guests, 0, nic, 0, 1)?;
        let load = guests[0].start(START).map_err(|error| error.to_string())?;
        reaches(sent(&daemon, 0, nic)? + 1000, || sent(&daemon, 0, nic))?;
        let fired = guests[0].said().matches("timed out").count();
        daemon.pause();
        let has_fired = || guests[0].said().matches("timed out").count() > fired;
        let deadline = Instant::now() + PATIENCE;
        while !has_fired() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(100));
        }
        daemon.signal(rustix::process::Signal::CONT);
        until("the driver resets the device", || count(&guests[0], nic, "resets").unwrap() > resets);
        linked(&guests[0], nic)?;
        // It has also ended when it found no carrier.
        tell(&guests[0], "echo stop >/proc/net/pktgen/pgctrl")?;
        ended(&guests[0], &load)?;
        let block = count(&guests[0], nic, "status_block")?;
        if block != [1, 0][nic] {
            return Err(format!("{block}: another mode after a reset"));
        }
        talk(&guests, nic)
    });
}

/// Gives the others on this machine a while in which frames come for a guest that has stopped.
fn moved_on() {
    std::thread::sleep(Duration::from_millis(300));
}

/// Unplugs a NIC and plugs it in again, with the driver that it had.
fn put_in_again(daemon: &Daemon, guest: &Guest, number: usize, nic: usize) -> Result<(), String> {
    guest.unplug(nic).map_err(|error| error.to_string())?;
    wait_for(daemon, &port(number, nic), "waiting");
    put_in(daemon, guest, number, nic)?;
    addresses(guest, number);
    Ok(())
}

fn put_in(daemon: &Daemon, guest: &Guest, number: usize, nic: usize) -> Result<(), String> {
    guest.plug(nic, &card(daemon, number, nic)).map_err(|error| error.to_string())?;
    there(guest, nic)?;
    if nic != OTHER && !is_own(guest, nic) {
        take(guest, nic)?;
    }
    Ok(())
}

#[test]
#[ignore = "takes minutes: make guests"]
fn nics_are_unplugged_and_ringway_and_its_ports_come_and_go() {
    let Some(_turn) = turn() else { return };
    let (mut daemon, guests) = scene();
    for (number, guest) in guests.iter().enumerate() {
        let other = &guests[1 - number];
        with_each("unplugged and plugged under load", |nic| {
            for _ in 0..3 {
                load(other, &address(number, nic))?;
                load(guest, &address(1 - number, nic))?;
                put_in_again(&daemon, guest, number, nic)?;
                other.ok("killall ping").map_err(|error| error.to_string())?;
                guest.run("killall ping").map_err(|error| error.to_string())?;
                answered(other, &address(number, nic))?;
            }
            talk(&guests, nic)
        });
    }
    // The same NIC without what it offered.
    let guest = &guests[0];
    let add = |keys: &str| {
        let mac = format!("mac={}", mac(0, 0));
        let mut words = vec!["port", "add", "a0", "switch=lan0", "kind=e1000", "guard=off", &mac];
        words.extend(keys.split_whitespace());
        daemon.ok(&words);
    };
    for (keys, block) in [("", 0), ("csb=true", 1), ("", 0), ("csb=true", 1)] {
        load(guest, &address(1, 0)).unwrap();
        daemon.ok(&["port", "del", "a0"]);
        guest.run("killall ping").unwrap();
        guest.unplug(0).unwrap();
        add(keys);
        put_in(&daemon, guest, 0, 0).unwrap();
        addresses(guest, 0);
        assert_eq!(count(guest, 0, "status_block").unwrap(), block);
        talk(&guests, 0).unwrap();
    }
    for _ in 0..2 {
        kill_between_messages(&mut daemon, &guests, NICS.len() + 1);
        for (number, guest) in guests.iter().enumerate() {
            (0..=OTHER).for_each(|nic| guest.unplug(nic).unwrap());
            (0..=OTHER).for_each(|nic| put_in(&daemon, guest, number, nic).unwrap());
            addresses(guest, number);
        }
        with_each("Ringway started again", |nic| talk(&guests, nic));
    }
    all_is_well(&daemon, &guests);
}

/// The longest time for which a guest that has frames to send may send none.
const STALL: Duration = Duration::from_secs(15);

/// Waits until a count is at `wanted`. Returns an error if it stands still.
fn reaches(wanted: u64, count: impl Fn() -> Result<u64, String>) -> Result<(), String> {
    let (mut last, mut since) = (count()?, Instant::now());
    while last < wanted {
        std::thread::sleep(Duration::from_millis(200));
        let now = count()?;
        if now > last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > STALL {
            return Err(format!("stands still at {last} of {wanted} frames"));
        }
    }
    Ok(())
}

/// Makes the kernel of a guest send frames to the other guest; for 0, until it is stopped.
fn pktgen(guests: &[Guest; 2], number: usize, nic: usize, frames: u64, burst: u32) -> Result<(), String> {
    let to = mac(1 - number, nic);
    let settings = format!("pkt_size 60,count {frames},dst_mac {to},dst 10.9.9.9,delay 0,burst {burst}");
    let add = format!("echo rem_device_all >kpktgend_0; echo add_device eth{nic} >kpktgend_0");
    let set: String = settings.split(',').map(|setting| format!("; echo {setting} >eth{nic}")).collect();
    tell(&guests[number], &format!("cd /proc/net/pktgen; {add}{set}")).map(drop)
}

const START: &str = "echo start >/proc/net/pktgen/pgctrl";

/// Frames that a port has taken from its guest.
fn sent(daemon: &Daemon, number: usize, nic: usize) -> Result<u64, String> {
    daemon.port(&port(number, nic))["in"]["frames"].as_u64().ok_or_else(|| "no count".to_owned())
}

#[test]
#[ignore = "takes minutes: make guests"]
fn millions_of_frames_lose_no_wake_up() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = scene();
    let frames = number("RINGWAY_DRIVER_FRAMES", 2_000_000);
    guests.iter().for_each(|guest| drop(tell(guest, "insmod /modules/pktgen.ko").unwrap()));
    // Between sizes of bursts the driver is told of a frame, of many, or of many at once.
    for burst in [1, 8] {
        with_each(&format!("frames from both guests, {burst} at once"), |nic| {
            (0..2).try_for_each(|number| pktgen(&guests, number, nic, frames, burst))?;
            let before = [sent(&daemon, 0, nic)?, sent(&daemon, 1, nic)?];
            let jobs = guests.each_ref().map(|guest| guest.start(START).unwrap());
            for (number, before) in before.iter().enumerate() {
                let reached = reaches(before + frames, || sent(&daemon, number, nic));
                reached.map_err(|why| format!("guest {number} {why}"))?;
            }
            for (guest, job) in guests.iter().zip(&jobs) {
                guest.wait(job, LONG).map_err(|error| error.to_string())?;
                let result = tell(guest, &format!("tail -n 2 /proc/net/pktgen/eth{nic}"))?;
                println!("{}", result.trim());
                if !result.contains("errors: 0") && !result.contains("OK:") {
                    return Err(result);
                }
            }
            talk(&guests, nic)
        });
    }
    with_each("questions, one at a time", |nic| {
        let questions = (frames / 40).max(1000);
        for (from, to) in [(0, 1), (1, 0)] {
            while_inside(&guests[to], "answer 7777", || {
                let ask = format!("inside ask {} 7777 {questions}", address(to, nic));
                guests[from].ok_within(&ask, LONG).map(drop).map_err(|error| error.to_string())
            })?;
        }
        Ok(())
    });
    with_each("data both ways for a while", |nic| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(number("RINGWAY_DRIVER_SECONDS", 60)) {
            under_load(&guests, nic, || under_load_back(&guests, nic))?;
        }
        Ok(())
    });
    all_is_well(&daemon, &guests);
}

/// Data from the second guest to the first.
fn under_load_back(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    crate::features::transfer(&guests[1], &guests[0], &address(0, nic))
}
