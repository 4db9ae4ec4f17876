//! `kind = "e1000"`: a virtual machine's emulated NIC, by a hypervisor that speaks vfio-user.

use std::any::Any;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ringway_api::types::{E1000Status, PortStatus};
use ringway_port_e1000 as port;

use super::contract::{CannotOpen, End, Link, Named, Opened, Opening, PortKind, Setter, State};
use super::memory::{FrontEndMemory, set_used};
use super::socket::SocketPath;
use crate::keys::form::{Boolean, Choice, Time};
use crate::keys::units::show_duration;
use crate::keys::{Keys, Mac, Name, keys};

/// Default of `completion_delay`. From 64,000 frames a second on, half of a ring of 256 descriptors is full before it ends.
const COMPLETION_DELAY: Duration = Duration::from_millis(2);

/// The NIC that the guest sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// 82540EM; the driver is e1000.
    #[default]
    E1000,
    /// 82574L; the driver is e1000e.
    E1000e,
}

impl Model {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 2] = [("e1000", Self::E1000), ("e1000e", Self::E1000e)];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
        }
    }

    /// Returns the faster access to the ring registers. An 82540EM has an interrupt pin only, and its first interrupt removes all mappings
    /// in QEMU.
    pub fn registers(self) -> Registers {
        match self {
            Self::E1000 => Registers::Trapped,
            Self::E1000e => Registers::Mapped,
        }
    }
}

/// The guest's access to the registers of its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registers {
    /// The registers are mapped into the guest, and a poller reads them.
    Mapped,
    /// Each access of the guest is a message.
    Trapped,
}

impl Registers {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 2] = [("mapped", Self::Mapped), ("trapped", Self::Trapped)];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Trapped => "trapped",
        }
    }
}

/// The state of the NIC's cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cable {
    /// Plugged in.
    #[default]
    Up,
    /// Not plugged in.
    Down,
}

impl Cable {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 2] = [("up", Self::Up), ("down", Self::Down)];

    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Bounds of `completion_delay`.
const DELAYS: std::ops::RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(1);

keys! {
    /// Settings of an e1000 port.
    pub struct E1000 {
        model: Model = Model::E1000, Choice(&Model::WORDS), Fixed, "The NIC: an Intel 82540EM (e1000) or an 82574L (e1000e).",
            "The NIC has the lowest address of mac when the port is made, or else one made of the port's name.";
        link: Cable = Cable::Up, Choice(&Cable::WORDS), Live, "Whether the NIC's cable is plugged in.";
        registers: Registers = Model::E1000.registers(), Choice(&Registers::WORDS), Fixed, "How the guest accesses the registers of its rings; by default mapped for an e1000e, and trapped for an e1000, which can have no others.";
        csb: bool = false, Boolean, Fixed, "Whether drivers are offered the Communication Status Block, by which they need hardly any register.";
        completion_delay: Duration = COMPLETION_DELAY, Time(DELAYS), Live, "Longest time until the guest is told that frames were sent; 0s: at once.",
            "The guest is told earlier when half of its ring or 128 KiB wait for that, or with another interrupt.";
    }
    groups {
        /// The socket on which the hypervisor connects.
        socket: SocketPath,
        /// How much memory the front end may give.
        memory: FrontEndMemory,
    }
}

impl E1000 {
    /// The defaults for a model.
    pub fn new(model: Model) -> Self {
        Self { model, registers: model.registers(), ..Self::default() }
    }
}

impl Named for E1000 {
    const NAME: &'static str = "e1000";
    const ABOUT: &'static str = "A virtual machine's emulated NIC, by a hypervisor that speaks vfio-user.";
}

impl PortKind for E1000 {
    fn named(&mut self, name: &Name) {
        self.socket = SocketPath::of_port(name);
    }

    fn validate(&mut self, _: &Name, keys: &Keys<'_>) {
        if !keys.understood("registers") {
            self.registers = self.model.registers();
        }
        if (self.model, self.registers) == (Model::E1000, Registers::Mapped) {
            let what = "an e1000's registers cannot be mapped: its first interrupt would undo that";
            let right = "leave it out, or write model = \"e1000e\"";
            keys.wrong("registers", keys.span_of_key("registers"), what, right);
        }
    }

    fn end(&self) -> End<'_> {
        End::Socket { path: &self.socket.path, listens: true }
    }

    fn open(&self, at: &Opening<'_>) -> Result<Opened, CannotOpen> {
        let wanted = port::Settings {
            label: at.label.to_owned(),
            socket: at.runtime_dir.join(&self.socket.path),
            access: self.socket.access.get(at.access),
            model: match self.model {
                Model::E1000 => port::Model::E1000,
                Model::E1000e => port::Model::E1000e,
            },
            mac: address(at.name, at.macs),
            link: self.link == Cable::Up,
            mapped: self.registers == Registers::Mapped,
            csb: self.csb,
            completion_delay: self.completion_delay,
            receive_buffer: port::RECEIVE_BUFFER,
            memory: self.memory.memory.limits(),
        };
        let opened = port::open_kept(&wanted, at.observer.clone(), at.keeper);
        let (sides, port) = opened.map_err(|why| CannotOpen::socket(&self.socket.path, why))?;
        Ok(Opened { sides, link: Some(Box::new(FrontEnd { port, seen: None })), namespace: None })
    }

    fn report(&self, name: &Name, macs: &BTreeSet<Mac>, status: &mut PortStatus) {
        status.memory = Some(self.memory.memory.status());
        status.e1000 = Some(E1000Status {
            socket: self.socket.path.display().to_string(),
            model: self.model.as_str().to_owned(),
            address: ringway_switch::Mac::new(address(name, macs)).to_string(),
            link: self.link.as_str().to_owned(),
            registers: self.registers.as_str().to_owned(),
            csb: self.csb,
            completion_delay: show_duration(self.completion_delay),
            ..E1000Status::default()
        });
    }
}

/// The control side of a port, with the status of the guest that was seen last.
struct FrontEnd {
    port: port::E1000,
    seen: Option<port::Status>,
}

impl Link for FrontEnd {
    fn report(&mut self, until: Instant, status: &mut PortStatus) -> Option<State> {
        if let Some(memory) = &mut status.memory {
            set_used(memory, self.port.memory());
        }
        self.seen = self.port.status_until(until).or(self.seen);
        let seen = self.seen?;
        if let Some(status) = &mut status.e1000 {
            let port::Accesses { reads, writes, tails, unmasks, interrupts, .. } = seen.accesses;
            status.address = ringway_switch::Mac::new(self.port.address()).to_string();
            status.interrupts = seen.interrupts.to_owned();
            status.transmit_ring = seen.transmit_ring;
            status.receive_ring = seen.receive_ring;
            status.register_reads = reads;
            status.register_writes = writes;
            status.tail_writes = tails;
            status.messages = reads + writes + unmasks;
            status.interrupts_raised = interrupts;
        }
        Some(seen.state)
    }

    fn setter(&self) -> Option<Setter> {
        let nic = self.port.nic();
        Some(Box::new(move |settings: &dyn Any| {
            let Some(E1000 { link, completion_delay, .. }) = settings.downcast_ref() else { return };
            nic.set_link(*link == Cable::Up);
            nic.set_completion_delay(*completion_delay);
        }))
    }
}

/// Returns the address of a NIC: the lowest address that is bound to its port, or else a hash of the port's name.
pub fn address(name: &Name, bound: &BTreeSet<Mac>) -> [u8; 6] {
    if let Some(mac) = bound.first() {
        return mac.get().octets();
    }
    // FNV-1a: the same in every build.
    let hash = name
        .as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |sum: u64, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [a, b, c, d, e, f, ..] = (hash ^ hash >> 48).to_le_bytes();
    // A locally administered unicast address.
    [a & 0xfc | 2, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_has_the_bound_address_or_one_of_its_name() {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let bound = ["52:54:00:00:00:02", "52:54:00:00:00:01"].map(|text| text.parse::<Mac>().expect("an address"));
        assert_eq!(address(&name("vm1"), &bound.into()), [0x52, 0x54, 0, 0, 0, 1]);
        let none = BTreeSet::new();
        let all: BTreeSet<[u8; 6]> = (0..1000).map(|n| address(&name(&format!("vm{n}")), &none)).collect();
        assert_eq!(all.len(), 1000, "each its own");
        assert!(all.iter().all(|mac| mac[0] & 3 == 2), "locally administered, of one station");
        assert_eq!(address(&name("vm1"), &none), [0x72, 0xf0, 0xc5, 0x4e, 0x19, 0x5f], "the same in every version");
    }
}
