//! The short tests of the driver, for every change.

use super::*;
use crate::e1000::short::link;
use crate::e1000::{talk, talk6, turn};
use crate::features::{pings, transfer};
use crate::scene::address;

/// Settings of offloads.
pub const OFFLOADS: [&str; 9] = [
    "tso off",
    "gso off gro off",
    "tx off",
    "sg off",
    "rx off",
    "rxvlan off txvlan off",
    "rx on",
    "tx on sg on",
    "tso on gso on gro on rxvlan on txvlan on",
];

#[test]
fn guests_with_ringways_driver_talk_in_both_modes_with_all_their_settings() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = scene();
    with_each("talk", |nic| talk(&guests, nic));
    by_turns(0, "IPv6", |nic| talk6(&guests, nic));
    talk(&guests, OTHER).unwrap();
    with_each("offloads", |nic| {
        // Each setting in one of the modes, by turns.
        OFFLOADS.iter().enumerate().try_for_each(|(number, setting)| {
            tell(&guests[0], &format!("ethtool -K eth{nic} {setting}"))?;
            if number % 2 != nic && !scene::is_whole() {
                return Ok(());
            }
            pings(&guests[0], &address(1, nic), &[64, 10_000])?;
            transfer(&guests[0], &guests[1], &address(1, nic)).map_err(|why| format!("{setting}: {why}"))
        })
    });
    with_each("what ethtool shows", |nic| guests.iter().try_for_each(|guest| settings::shown(guest, nic)));
    with_each("statistics", |nic| settings::statistics(&daemon, &guests, nic));
    by_turns(0, "rings", |nic| settings::rings(&guests, nic));
    by_turns(1, "moderation", |nic| settings::moderation(&guests, nic));
    by_turns(1, "negotiation", |nic| settings::negotiation(&guests, nic));
    by_turns(0, "filters of addresses", |nic| filters::addresses(&daemon, &guests[0], nic));
    by_turns(1, "filters of VLANs", |nic| filters::vlans(&daemon, &guests, nic));
    by_turns(0, "long frames", |nic| long_frames(&guests, nic));
    by_turns(0, "XDP programs", |nic| xdp::programs(&daemon, &guests, nic));
    by_turns(1, "netconsole", |nic| settings::netconsole(&guests, nic));
    by_turns(1, "netconsole beside XDP", |nic| xdp::with_netpoll(&daemon, &guests, nic));
    by_turns(1, "link down and up", |nic| link(&daemon, &guests[0], nic));
    with_each("no misuse seen", |nic| {
        guests.iter().try_for_each(|guest| match count(guest, nic, "misuses")? {
            0 => Ok(()),
            misuses => Err(format!("{misuses} misuses by an honest device: {}", tell(guest, "dmesg | tail -n 20")?)),
        })
    });
    settings::parameters(&guests, 1).unwrap();
    all_is_well(&daemon, &guests);
}

/// Runs `check` in one of the driver's modes: the check asks for what both do alike. `make guests` runs it in both.
fn by_turns(its: usize, what: &str, mut check: impl FnMut(usize) -> Result<(), String>) {
    with_each(what, |nic| if nic == its || scene::is_whole() { check(nic) } else { Ok(()) });
}

/// MTUs up to the largest one.
pub fn long_frames(guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    for mtu in ["9001", "67"] {
        settings::fails(&guests[0], &format!("ip link set eth{nic} mtu {mtu}"))?;
    }
    crate::e1000::long::with_mtus(guests, nic, &[1501, 9000])?;
    pings(&guests[0], &address(1, nic), &[64])
}
