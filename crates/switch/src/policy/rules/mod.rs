//! Rules about who is known (fairness paper, §4.3): an address is known when it is bound to a port.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

use crate::frame::{DropReason, Mac};
use crate::policy::rule::Rule;

/// The paper's four cases; true: such frames are let through. Frames to groups fall under none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Source and destination are known: between virtual machines.
    pub local: bool,
    /// Only the source is.
    pub outbound: bool,
    /// Only the destination is.
    pub inbound: bool,
    /// Neither is.
    pub transit: bool,
}

impl Rules {
    /// Everything is let through.
    pub const ALLOW: Rules = Rules { local: true, outbound: true, inbound: true, transit: true };

    #[inline]
    fn judge(self, source: bool, destination: bool) -> Result<(), DropReason> {
        let (allowed, reason) = match (source, destination) {
            (true, true) => (self.local, DropReason::LocalDenied),
            (true, false) => (self.outbound, DropReason::OutboundDenied),
            (false, true) => (self.inbound, DropReason::InboundDenied),
            (false, false) => (self.transit, DropReason::TransitDenied),
        };
        if allowed { Ok(()) } else { Err(reason) }
    }
}

/// Where an address is bound.
#[derive(Clone, Copy, Debug)]
struct Place {
    port: u16,
    /// Bound to others, too.
    several: bool,
    /// Nobody else may use it.
    guarded: bool,
}

/// The addresses that are bound to the ports of a switch.
#[derive(Debug, Default)]
pub struct Bound {
    places: HashMap<u64, Place, Keyed>,
    /// Where addresses are that are bound to several ports.
    pairs: HashSet<(u64, u16)>,
}

impl Bound {
    /// Binds addresses to the port of this index. `guarded`: no other port may use them.
    pub(crate) fn bind(&mut self, port: u16, macs: &[Mac], guarded: bool) {
        for mac in macs {
            let place = Place { port, several: false, guarded };
            let Some(before) = self.places.insert(mac.bits(), place) else { continue };
            if before.port != port {
                self.pairs.extend([(mac.bits(), before.port), (mac.bits(), port)]);
                let place = Place { several: true, guarded: guarded || before.guarded, ..place };
                self.places.insert(mac.bits(), place);
            }
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The port that an address is bound to; the last when there are several.
    #[inline]
    #[must_use]
    pub fn port(&self, mac: Mac) -> Option<u16> {
        self.places.get(&mac.bits()).map(|place| place.port)
    }
}

/// What the configuration says of the whole of a switch, besides who is on it.
#[derive(Debug)]
pub struct Domain {
    /// Who is known.
    pub bound: Bound,
    /// What may pass.
    pub rules: Rules,
    /// Whether ports are told apart by VLANs.
    pub vlans: bool,
}

/// What a source address means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It is where it belongs: there is nothing to learn.
    AtHome,
    /// It is bound nowhere.
    Stranger,
}

impl Domain {
    /// Whether there is anything to look at.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.bound.is_empty() && self.rules == Rules::ALLOW && !self.vlans
    }

    /// Looks at the source of a frame from port `from`.
    ///
    /// # Errors
    /// It is bound to another port, and guarded there.
    #[inline]
    pub(crate) fn hear(&self, source: Mac, from: u16) -> Result<Heard, DropReason> {
        match self.bound.places.get(&source.bits()) {
            None => Ok(Heard::Stranger),
            Some(place) if place.port == from && place.guarded && !place.several => Ok(Heard::AtHome),
            Some(place) if place.several && self.bound.pairs.contains(&(source.bits(), from)) => Ok(Heard::Stranger),
            Some(place) if place.guarded => Err(DropReason::SpoofedMac),
            Some(_) => Ok(Heard::Stranger),
        }
    }

    /// The port of a guarded address, from which alone it can be heard.
    #[inline]
    pub(crate) fn home(&self, mac: Mac) -> Option<u16> {
        self.bound.places.get(&mac.bits()).filter(|place| place.guarded && !place.several).map(|place| place.port)
    }

    /// Whether the rules let a frame through.
    ///
    /// # Errors
    /// Which of them does not.
    #[inline]
    pub(crate) fn judge(&self, source: Mac, destination: Mac) -> Result<(), DropReason> {
        if self.rules == Rules::ALLOW {
            return Ok(());
        }
        let known = |mac: Mac| self.bound.places.contains_key(&mac.bits());
        self.rules.judge(known(source), known(destination))
    }
}

impl Rule for Domain {
    /// Bound addresses and rules decide by the addresses. The VLAN of a frame is read from the frame.
    fn may_drop_unread(&self) -> bool {
        // All fields by name: a policy that is added does not compile until it stands here.
        let Domain { bound: _, rules: _, vlans } = self;
        !vlans
    }
}

/// A fast hash of one number with a secret, so that nobody can choose addresses that meet.
#[derive(Clone, Debug)]
struct Keyed([u64; 2]);

impl Default for Keyed {
    fn default() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0), random.hash_one(1)])
    }
}

impl BuildHasher for Keyed {
    type Hasher = Mixed;

    #[inline]
    fn build_hasher(&self) -> Mixed {
        Mixed { key: self.0, mixed: 0 }
    }
}

#[derive(Debug)]
struct Mixed {
    key: [u64; 2],
    mixed: u64,
}

impl Hasher for Mixed {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        self.mixed = fold(fold(self.mixed ^ number ^ self.key[0], self.key[1] | 1), 0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.mixed
    }
}
