//! Guests with NICs that programs in them drive, beside NICs that their kernels have.

use std::io;
use std::path::Path;

use ringway_guests::{Error, Guest, Job, Nic};
use serde_json::{Value, json};

use crate::patience::PATIENCE;

/// Huge pages of 2 MiB: of 256 MiB. A program with buffers of 64 KiB needs 17 of them.
const HUGE_PAGES: u32 = 40;
/// Tells address, PCI address and driver of each NIC that the guest's kernel has.
const NICS: &str = "cd /sys/class/net; for n in eth*; do \
    echo $n $(cat $n/address) $(readlink -f $n/device | sed 's,/virtio[0-9]*$,,; s,.*/,,'); done";

/// A NIC of a guest.
#[derive(Clone, Debug)]
pub struct Card {
    /// Its name in the guest, while the guest's kernel has it.
    name: String,
    /// Its address.
    pub mac: String,
    /// Its PCI address.
    pub pci: String,
}

/// A guest, and its NICs in the order in which they were given.
pub struct Machine {
    /// The guest.
    pub guest: Guest,
    /// Its NICs.
    pub cards: Vec<Card>,
}

impl Machine {
    /// Boots a guest. NICs are given with their address; one of them may have an address of its own, unknown here: `None`.
    ///
    /// # Errors
    /// Something that guests need is missing. The message names it.
    pub fn boot(name: &str, nics: Vec<(Nic, Option<&str>)>, programs: &[&Path]) -> io::Result<Machine> {
        let macs: Vec<Option<String>> = nics.iter().map(|(_, mac)| mac.map(str::to_owned)).collect();
        let builder = programs.iter().fold(Guest::builder(name), |builder, path| builder.program(*path));
        let builder = nics.into_iter().fold(builder, |builder, (nic, _)| builder.nic(nic));
        let guest = builder.vfio_user_qemu().start().map_err(io::Error::other)?;
        let cards = find(&guest, &macs)?;
        Ok(Machine { guest, cards })
    }

    /// Gives the kernel's NIC an address, and the others to programs.
    ///
    /// # Errors
    /// The guest does not obey.
    pub fn share_out(&self, kernels: Option<(usize, &str)>) -> Result<(), Error> {
        let guest = &self.guest;
        // Without IPv6 a guest sends nothing by itself.
        guest.ok("for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done")?;
        guest.ok("for m in uio uio_pci_generic; do insmod /modules/$m.ko; done")?;
        guest.ok(&format!("echo {HUGE_PAGES} >/proc/sys/vm/nr_hugepages"))?;
        for (number, Card { name, pci, .. }) in self.cards.iter().enumerate() {
            match kernels {
                Some((kernels, address)) if kernels == number => {
                    guest.ok(&format!("ip link set {name} up; ip addr add {address}/24 dev {name}"))?
                }
                _ => guest.ok(&format!("echo {pci} >/sys/bus/pci/devices/{pci}/driver/unbind"))?,
            };
        }
        Ok(())
    }

    /// Runs a program that reports as JSON.
    ///
    /// # Errors
    /// It fails, or reports something else.
    pub fn json(&self, command: &str) -> io::Result<Value> {
        parse(&self.guest.ok_within(command, PATIENCE).map_err(io::Error::other)?)
    }

    /// Starts a program.
    ///
    /// # Errors
    /// The guest does not obey.
    pub fn start(&self, command: &str) -> io::Result<Job> {
        self.guest.start(command).map_err(io::Error::other)
    }

    /// Ends a program, and returns what it wrote.
    ///
    /// # Errors
    /// The guest does not obey.
    pub fn end(&self, job: &Job, program: &str) -> io::Result<String> {
        let end = || {
            self.guest.ok(&format!("kill $(pidof {program})"))?;
            Ok::<_, Error>(self.guest.wait(job, PATIENCE)?.text)
        };
        end().map_err(io::Error::other)
    }

    /// Stops the guest and its clock.
    ///
    /// # Errors
    /// QEMU does not obey.
    pub fn hold(&self) -> io::Result<()> {
        self.guest.qmp("stop", json!({})).map_err(io::Error::other).map(drop)
    }

    /// Lets the guest go on.
    ///
    /// # Errors
    /// QEMU does not obey.
    pub fn resume(&self) -> io::Result<()> {
        self.guest.qmp("cont", json!({})).map_err(io::Error::other).map(drop)
    }
}

/// Finds the NICs with these addresses.
fn find(guest: &Guest, macs: &[Option<String>]) -> io::Result<Vec<Card>> {
    let text = guest.ok(NICS).map_err(io::Error::other)?;
    let cards: Vec<Card> = text
        .lines()
        .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [name, mac, pci] => Some(Card { name: name.into(), mac: mac.into(), pci: pci.into() }),
            _ => None,
        })
        .collect();
    let is_known = |card: &&Card| macs.iter().flatten().any(|mac| *mac == card.mac);
    let found = macs.iter().map(|mac| match mac {
        Some(mac) => cards.iter().find(|card| card.mac == *mac),
        None => cards.iter().find(|card| !is_known(card)),
    });
    let found: Option<Vec<Card>> = found.map(|card| card.cloned()).collect();
    found.ok_or_else(|| io::Error::other(format!("a NIC is missing in the guest, which has: {text}")))
}

/// Reads what a program reports. A server writes a line before.
///
/// # Errors
/// It is no JSON.
pub fn parse(text: &str) -> io::Result<Value> {
    let from = text.find('{').unwrap_or(0);
    serde_json::from_str(&text[from..]).map_err(|error| io::Error::other(format!("{error}: {text}")))
}

/// Returns a number of a report.
///
/// # Errors
/// It is not there.
pub fn number(report: &Value, path: &str) -> io::Result<f64> {
    let number = report.pointer(path).and_then(Value::as_f64);
    number.ok_or_else(|| io::Error::other(format!("no {path} in {report}")))
}
