//! The switch is killed under guests whose QEMU never connects again: its keeper starts another one, which goes on with their connections.

use ringway_guests::{Builder, Guest, Nic, PATIENCE, bulk};
use ringway_scenes::{Daemon, until};

use crate::features::pings;
use crate::scene::{address, addresses, boot, mac, nic, port, turn};
use crate::streams;

/// The TCP port of the data.
const PORT: u16 = 7000;
const DEATHS: usize = 5;
/// Options of the NICs, one on a port of its own each.
const KINDS: [&str; 2] = ["packed=off", "packed=on"];
/// Models of NICs on streams.
const STREAMS: [&str; 2] = ["virtio-net-pci", "e1000"];

fn name(guest: usize, nic: usize) -> String {
    format!("vm{guest}{nic}")
}

/// A guest and one of its NICs.
fn all(nics: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..nics).flat_map(|nic| [0, 1].map(|guest| (guest, nic)))
}

fn switches(nics: usize) -> String {
    (0..nics).map(|nic| format!("[switch.lan{nic}]\n")).collect()
}

#[test]
fn guests_whose_qemu_never_connects_again_notice_no_death_of_the_switch() {
    let Some(_turn) = turn() else { return };
    let nics = KINDS.len();
    let ports: String = all(nics).map(|(guest, nic)| port(&name(guest, nic), &format!("lan{nic}"), "")).collect();
    let daemon = Daemon::start(&(switches(nics) + &ports));
    let builder = |guest: usize| {
        let nics = KINDS
            .iter()
            .enumerate()
            .map(|(number, options)| nic(&daemon, &name(guest, number)).mac(&mac(guest, number)).option(options));
        nics.fold(Guest::builder(["vm0", "vm1"][guest]), Builder::nic)
    };
    let guests = boot([builder(0), builder(1)]);
    notice_no_death(&daemon, &guests, &KINDS);
}

/// The second guest's QEMU listens.
#[test]
fn guests_on_streams_whose_qemu_never_connects_again_notice_no_death_of_the_switch() {
    let Some(_turn) = turn() else { return };
    let nics = STREAMS.len();
    let role = |guest: usize| ["server", "client"][guest];
    let ports: String =
        all(nics).map(|(guest, nic)| streams::port(&name(guest, nic), &format!("lan{nic}"), role(guest))).collect();
    let daemon = Daemon::start(&(switches(nics) + &ports));
    let builder = |guest: usize| {
        let nics = STREAMS.iter().enumerate().map(|(number, model)| {
            let nic = Nic::stream(daemon.socket(&format!("{}.sock", name(guest, number))));
            let nic = nic.model(model).mac(&mac(guest, number));
            if guest == 1 { nic.listen() } else { nic }
        });
        nics.fold(Guest::builder(["vm0", "vm1"][guest]), Builder::nic)
    };
    let guests = boot([builder(0), builder(1)]);
    guests.iter().for_each(streams::name);
    notice_no_death(&daemon, &guests, &STREAMS);
}

/// Kills the switch while the guests exchange data, by one NIC after the other.
fn notice_no_death(daemon: &Daemon, guests: &[Guest; 2], kinds: &[&str]) {
    let all = || all(kinds.len());
    for (number, guest) in guests.iter().enumerate() {
        addresses(guest, number, kinds.len());
    }
    guests.iter().for_each(|guest| drop(bulk::make(guest, 1).unwrap()));
    for (nic, kind) in kinds.iter().enumerate() {
        pings(&guests[0], &address(1, nic), &[64]).unwrap();
        // Data flows both ways at once.
        let jobs = [(0, 1), (1, 0)].map(|(from, to): (usize, usize)| {
            let receiver = bulk::receive(&guests[to], PORT).unwrap();
            let sender = guests[from].start(&bulk::send_until_stopped(&address(to, nic), PORT)).unwrap();
            (from, to, receiver, sender)
        });
        let frames = |guest| daemon.port(&name(guest, nic))["in"]["frames"].as_u64().unwrap_or(0);
        for _ in 0..DEATHS {
            // In segments of 64 KiB, or of 1,500 bytes by a stream. The counts of another switch begin anew.
            let before = [frames(0), frames(1)];
            until("data flows both ways", || (0..2).all(|guest| frames(guest) > before[guest] + 30));
            daemon.kill_switch();
            all().for_each(|(guest, nic)| daemon.until_state(&name(guest, nic), "up"));
            guests[0].until(&format!("ping -q -c 1 -W 1 {} >/tmp/heard", address(1, nic)), PATIENCE).unwrap();
        }
        until("data flows both ways", || (0..2).all(|guest| frames(guest) > 30));
        guests.iter().for_each(|guest| bulk::stop(guest, PORT).unwrap());
        for (from, to, receiver, sender) in jobs {
            let times = bulk::sent(&guests[from], &sender).unwrap();
            let came = bulk::received(&guests[to], &receiver).unwrap();
            let sum = bulk::sum_of(&guests[from], times).unwrap();
            assert!(sum == came, "{}: {times} MiB from vm{from} arrived changed", kind);
        }
        // Also tells if one comes twice.
        pings(&guests[0], &address(1, nic), &[1, 1472]).unwrap();
        pings(&guests[1], &address(0, nic), &[1, 1472]).unwrap();
    }
    // Quiet guests are not stranded either.
    daemon.kill_switch();
    all().for_each(|(guest, nic)| daemon.until_state(&name(guest, nic), "up"));
    for nic in 0..kinds.len() {
        pings(&guests[0], &address(1, nic), &[1, 1472]).unwrap();
        pings(&guests[1], &address(0, nic), &[1, 1472]).unwrap();
    }
    assert!(daemon.status()["faults"].as_array().is_none_or(Vec::is_empty), "{}", daemon.ok(&["status"]));
}
