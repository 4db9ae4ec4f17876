//! Rules about known addresses (fairness paper, §4.3): an address is known if it is bound to a port.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};

use crate::frame::{DropReason, Mac};
use crate::policy::rule::Rule;

/// The paper's four cases; true: such frames pass. Frames for groups belong to none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Source and destination are known: between virtual machines.
    pub local: bool,
    /// Only the source is known.
    pub outbound: bool,
    /// Only the destination is known.
    pub inbound: bool,
    /// Neither is known.
    pub transit: bool,
}

impl Rules {
    /// All frames pass.
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

/// The binding of an address.
#[derive(Clone, Copy, Debug)]
struct Binding {
    port: u16,
    /// True if the address is bound to other ports, too.
    is_shared: bool,
    /// True if no other port may use the address.
    guarded: bool,
}

/// The addresses that are bound to the ports of a switch.
#[derive(Debug, Default)]
pub struct Bound {
    bindings: HashMap<u64, Binding, KeyedState>,
    /// Address and port, for each address that is bound to several ports.
    shared: HashSet<(u64, u16)>,
}

impl Bound {
    /// Binds addresses to the port of this index. `guarded`: no other port may use them.
    pub(crate) fn bind(&mut self, port: u16, macs: &[Mac], guarded: bool) {
        for mac in macs {
            let binding = Binding { port, is_shared: false, guarded };
            let Some(before) = self.bindings.insert(mac.bits(), binding) else { continue };
            if before.port != port {
                self.shared.extend([(mac.bits(), before.port), (mac.bits(), port)]);
                let binding = Binding { is_shared: true, guarded: guarded || before.guarded, ..binding };
                self.bindings.insert(mac.bits(), binding);
            }
        }
    }

    /// Returns true if no address is bound.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bindings.is_empty()
    }

    /// The port that an address is bound to; the last of several.
    #[inline]
    #[must_use]
    pub fn port(&self, mac: Mac) -> Option<u16> {
        self.bindings.get(&mac.bits()).map(|binding| binding.port)
    }
}

/// The policies of a switch: bound addresses, rules and VLANs.
#[derive(Debug)]
pub struct Domain {
    /// The known addresses.
    pub bound: Bound,
    /// The rules about known addresses.
    pub rules: Rules,
    /// True if the switch has VLANs.
    pub vlans: bool,
}

/// How a source address is bound, where it may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceBinding {
    /// Bound to this port and guarded. It need not be learned.
    Guarded,
    /// Not bound, or not guarded. It is learned.
    Learnable,
}

impl Domain {
    /// Returns true if there are no such policies.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.bound.is_empty() && self.rules == Rules::ALLOW && !self.vlans
    }

    /// Checks the source address of a frame from port `from` against the bound addresses.
    ///
    /// # Errors
    /// The address is guarded at another port.
    #[inline]
    pub(crate) fn check_source(&self, source: Mac, from: u16) -> Result<SourceBinding, DropReason> {
        match self.bound.bindings.get(&source.bits()) {
            None => Ok(SourceBinding::Learnable),
            Some(binding) if binding.port == from && binding.guarded && !binding.is_shared => {
                Ok(SourceBinding::Guarded)
            }
            Some(binding) if binding.is_shared && self.bound.shared.contains(&(source.bits(), from)) => {
                Ok(SourceBinding::Learnable)
            }
            Some(binding) if binding.guarded => Err(DropReason::SpoofedMac),
            Some(_) => Ok(SourceBinding::Learnable),
        }
    }

    /// The port of a guarded address: the only port that may send from it.
    #[inline]
    pub(crate) fn guarded_port(&self, mac: Mac) -> Option<u16> {
        self.bound
            .bindings
            .get(&mac.bits())
            .filter(|binding| binding.guarded && !binding.is_shared)
            .map(|binding| binding.port)
    }

    /// Checks a frame against the rules.
    ///
    /// # Errors
    /// The drop reason of the rule that forbids it.
    #[inline]
    pub(crate) fn check_pair(&self, source: Mac, destination: Mac) -> Result<(), DropReason> {
        if self.rules == Rules::ALLOW {
            return Ok(());
        }
        let known = |mac: Mac| self.bound.bindings.contains_key(&mac.bits());
        self.rules.judge(known(source), known(destination))
    }
}

impl Rule for Domain {
    /// Bound addresses and rules depend on the addresses only. VLANs depend on the frame's tag.
    fn may_drop_unread(&self) -> bool {
        // All fields are named, so that a new policy does not compile until it is listed here.
        let Domain { bound: _, rules: _, vlans } = self;
        !vlans
    }
}

/// A fast keyed hash of one number. The key is secret, so clients cannot choose addresses that collide.
#[derive(Clone, Debug)]
struct KeyedState([u64; 2]);

impl Default for KeyedState {
    fn default() -> Self {
        let random = RandomState::new();
        Self([random.hash_one(0), random.hash_one(1)])
    }
}

impl BuildHasher for KeyedState {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { key: self.0, mixed: 0 }
    }
}

#[derive(Debug)]
struct KeyedHasher {
    key: [u64; 2],
    mixed: u64,
}

impl Hasher for KeyedHasher {
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
