//! Offloads that a receiver accepts.

use std::ops::{BitOr, BitOrAssign};

use ringway_abi::offload::{Gso, Offload};

/// The set of offloads with which a receiver accepts frames. USO and UFO each cover IPv4 and IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepts(u8);

impl Accepts {
    /// Complete frames only.
    pub const NOTHING: Accepts = Accepts(0);
    /// Frames without checksum. All other offloads require this one.
    pub const CSUM: Accepts = Accepts(1);
    /// Unsegmented TCP over IPv4.
    pub const TSO4: Accepts = Accepts(2);
    /// Unsegmented TCP over IPv6.
    pub const TSO6: Accepts = Accepts(4);
    /// Unsegmented TCP that reports congestion.
    pub const ECN: Accepts = Accepts(8);
    /// Unfragmented UDP.
    pub const UFO: Accepts = Accepts(16);
    /// Unsegmented UDP.
    pub const USO: Accepts = Accepts(32);
    /// Unsegmented TCP and UDP in UDP tunnels.
    pub const TUNNEL: Accepts = Accepts(64);
    /// The same in tunnels whose UDP headers have checksums.
    pub const TUNNEL_CSUM: Accepts = Accepts(128);
    /// All offloads.
    pub const EVERYTHING: Accepts = Accepts(255);
    /// All offloads that [`Offload::encode`] can tell a receiver of.
    pub const UNTUNNELLED: Accepts = Accepts::EVERYTHING.without(Accepts(64 | 128));

    /// The set without the members of `other`.
    #[must_use]
    pub const fn without(self, other: Accepts) -> Accepts {
        Accepts(self.0 & !other.0)
    }

    /// All offloads that require segmentation.
    pub(crate) const SEGMENTED: Accepts = Accepts(Self::TSO4.0 | Self::TSO6.0 | Self::UFO.0 | Self::USO.0);

    /// Returns true if the sets have a member in common.
    #[inline]
    #[must_use]
    pub(crate) const fn meets(self, other: Accepts) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns true if all members of `other` are in the set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Accepts) -> bool {
        self.0 & other.0 == other.0
    }

    /// What a receiver must accept to take a frame with this offload unchanged.
    #[inline]
    #[must_use]
    pub fn needed_by(offload: &Offload) -> Accepts {
        let csum = if offload.needs_csum { Accepts::CSUM } else { Accepts::NOTHING };
        let ecn = if offload.ecn { Accepts::ECN } else { Accepts::NOTHING };
        let tunnel = match offload.tunnel {
            None => Accepts::NOTHING,
            Some(tunnel) if tunnel.csum => Accepts::TUNNEL | Accepts::TUNNEL_CSUM,
            Some(_) => Accepts::TUNNEL,
        };
        csum | ecn
            | tunnel
            | match offload.gso {
                Gso::None => Accepts::NOTHING,
                Gso::Tcp4 => Accepts::TSO4,
                Gso::Tcp6 => Accepts::TSO6,
                Gso::Udp4Frag => Accepts::UFO,
                Gso::UdpL4 => Accepts::USO,
            }
    }

    /// Returns true if the receiver takes a frame with this offload unchanged.
    #[inline]
    #[must_use]
    pub fn covers(self, offload: &Offload) -> bool {
        self.contains(Accepts::needed_by(offload))
    }
}

impl BitOr for Accepts {
    type Output = Accepts;

    #[inline]
    fn bitor(self, other: Accepts) -> Accepts {
        Accepts(self.0 | other.0)
    }
}

impl BitOrAssign for Accepts {
    #[inline]
    fn bitor_assign(&mut self, other: Accepts) {
        *self = *self | other;
    }
}
