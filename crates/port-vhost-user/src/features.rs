//! Feature bits (virtio 1.3, 5.1.3 and 6; vhost-user, "Feature bits").

use ringway_switch::Accepts;

use super::settings::Settings;
use crate::virtqueue::{
    F_ANY_LAYOUT, F_EVENT_IDX, F_IN_ORDER, F_INDIRECT_DESC, F_MRG_RXBUF, F_RING_PACKED, F_RING_RESET, F_VERSION_1,
};

const NET_CSUM: u64 = 1 << 0;
const NET_GUEST_CSUM: u64 = 1 << 1;
const NET_MTU: u64 = 1 << 3;
const NET_MAC: u64 = 1 << 5;
const NET_GUEST_TSO4: u64 = 1 << 7;
const NET_GUEST_TSO6: u64 = 1 << 8;
const NET_GUEST_ECN: u64 = 1 << 9;
const NET_GUEST_UFO: u64 = 1 << 10;
const NET_HOST_TSO4: u64 = 1 << 11;
const NET_HOST_TSO6: u64 = 1 << 12;
const NET_HOST_ECN: u64 = 1 << 13;
const NET_HOST_UFO: u64 = 1 << 14;
const NET_STATUS: u64 = 1 << 16;
const NET_CTRL_VQ: u64 = 1 << 17;
const NET_CTRL_RX: u64 = 1 << 18;
const NET_GUEST_ANNOUNCE: u64 = 1 << 21;
const NET_MQ: u64 = 1 << 22;
const NET_GUEST_USO4: u64 = 1 << 54;
const NET_GUEST_USO6: u64 = 1 << 55;
const NET_HOST_USO: u64 = 1 << 56;
/// `VHOST_F_LOG_ALL`.
pub const LOG_ALL: u64 = 1 << 26;
/// `VHOST_USER_F_PROTOCOL_FEATURES`.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

const OFFLOADS: u64 = NET_CSUM
    | NET_GUEST_CSUM
    | NET_GUEST_TSO4
    | NET_GUEST_TSO6
    | NET_GUEST_ECN
    | NET_GUEST_UFO
    | NET_HOST_TSO4
    | NET_HOST_TSO6
    | NET_HOST_ECN
    | NET_HOST_UFO
    | NET_GUEST_USO4
    | NET_GUEST_USO6
    | NET_HOST_USO;

/// Returns the features that a port offers.
pub fn offered(settings: &Settings) -> u64 {
    // The control queue, the link status and announcements are work of the front end, which offers them only if the
    // back end does.
    let mut features = F_RING_PACKED
        | F_IN_ORDER
        | F_VERSION_1
        | F_INDIRECT_DESC
        | F_EVENT_IDX
        | F_ANY_LAYOUT
        | F_MRG_RXBUF
        | NET_STATUS
        | NET_CTRL_VQ
        | NET_CTRL_RX
        | NET_GUEST_ANNOUNCE
        | LOG_ALL
        | PROTOCOL_FEATURES;
    if settings.queues > 1 {
        features |= NET_MQ;
    }
    if settings.mtu.is_some() {
        features |= NET_MTU;
    }
    if settings.config_space && settings.mac.is_some() {
        features |= NET_MAC;
    }
    if settings.ring_reset {
        features |= F_RING_RESET;
    }
    if settings.offload {
        features |= OFFLOADS;
    }
    features
}

/// Returns the bytes of the header before each frame (virtio 1.3, 5.1.6.1).
pub fn header_bytes(features: u64) -> usize {
    if features & (F_VERSION_1 | F_MRG_RXBUF) != 0 { 12 } else { 10 }
}

/// Returns the offloads that the guest accepts in received frames.
pub fn accepts(features: u64) -> Accepts {
    chosen(
        features,
        NET_GUEST_CSUM,
        [
            (NET_GUEST_TSO4, Accepts::TSO4),
            (NET_GUEST_TSO6, Accepts::TSO6),
            (NET_GUEST_ECN, Accepts::ECN),
            (NET_GUEST_UFO, Accepts::UFO),
            (NET_GUEST_USO4 | NET_GUEST_USO6, Accepts::USO),
        ],
    )
}

/// Returns the offloads that the guest may request for transmitted frames.
pub fn leaves(features: u64) -> Accepts {
    chosen(
        features,
        NET_CSUM,
        [
            (NET_HOST_TSO4, Accepts::TSO4),
            (NET_HOST_TSO6, Accepts::TSO6),
            (NET_HOST_ECN, Accepts::ECN),
            (NET_HOST_UFO, Accepts::UFO),
            (NET_HOST_USO, Accepts::USO),
        ],
    )
}

/// Converts feature bits. Segmentation offload without checksum offload is not possible (virtio 1.3, 5.1.3.1).
fn chosen(features: u64, csum: u64, segmentation: [(u64, Accepts); 5]) -> Accepts {
    if features & csum == 0 {
        return Accepts::NOTHING;
    }
    let chosen = segmentation.into_iter().filter(|(feature, _)| features & feature == *feature);
    chosen.fold(Accepts::CSUM, |all, (_, accept)| all | accept)
}
