//! What `kind = "e1000"` has beside the keys of every port and its socket.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

use super::name::{Mac, Name};

/// Longest time, by default, until a guest is told that its frames were sent: with a ring of 256 descriptors 128 frames, at 64,000 a
/// second, come first.
const COMPLETION_DELAY: Duration = Duration::from_millis(2);

/// Which NIC the guest sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// 82540EM; the driver is e1000.
    #[default]
    E1000,
    /// 82574L; the driver is e1000e.
    E1000e,
}

impl Model {
    /// As they are written.
    pub const WORDS: [(&'static str, Self); 2] = [("e1000", Self::E1000), ("e1000e", Self::E1000e)];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
        }
    }

    /// The way to the ring registers that is the faster one. An 82540EM has the pin only, whose first interrupt undoes all
    /// mappings in QEMU.
    pub fn registers(self) -> Registers {
        match self {
            Self::E1000 => Registers::Trapped,
            Self::E1000e => Registers::Mapped,
        }
    }
}

/// How the guest gets at the registers of its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Registers {
    /// They are mapped into it: a poller looks at them.
    Mapped,
    /// By messages.
    Trapped,
}

impl Registers {
    /// As they are written.
    pub const WORDS: [(&'static str, Self); 2] = [("mapped", Self::Mapped), ("trapped", Self::Trapped)];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mapped => "mapped",
            Self::Trapped => "trapped",
        }
    }
}

/// Whether the NIC's cable is plugged in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cable {
    /// It is.
    #[default]
    Up,
    /// It is not.
    Down,
}

impl Cable {
    /// As they are written.
    pub const WORDS: [(&'static str, Self); 2] = [("up", Self::Up), ("down", Self::Down)];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Settings of an e1000 port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct E1000 {
    /// Which NIC the guest sees.
    pub model: Model,
    /// Whether its cable is plugged in; may change while frames flow.
    pub link: Cable,
    /// How the guest gets at the registers of its rings.
    pub registers: Registers,
    /// Whether the papers' extension is offered, by which a driver that knows it needs hardly any register.
    pub csb: bool,
    /// Longest time until the guest is told that frames were sent; it is told earlier when half of its ring or 128 KiB wait for that, or
    /// with another interrupt. May change while frames flow.
    pub completion_delay: Duration,
}

impl E1000 {
    /// The defaults for a model.
    pub fn new(model: Model) -> Self {
        Self {
            model,
            link: Cable::default(),
            registers: model.registers(),
            csb: false,
            completion_delay: COMPLETION_DELAY,
        }
    }

    /// What cannot change while the port exists.
    pub fn fixed(&self) -> (Model, Registers, bool) {
        (self.model, self.registers, self.csb)
    }
}

/// The address of a NIC: the lowest that is bound to its port, or one that is made of the port's name and always the same.
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
    // Locally administered, of one station.
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
