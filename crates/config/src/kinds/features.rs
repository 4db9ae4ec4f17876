//! Names of virtio's feature bits.

/// Bits of a network device and of any device that a vhost-user port knows (virtio 1.3, 5.1.3 and 6; vhost-user, "Feature
/// bits").
const NAMES: [(u32, &str); 32] = [
    (0, "csum"),
    (1, "guest_csum"),
    (3, "mtu"),
    (5, "mac"),
    (7, "guest_tso4"),
    (8, "guest_tso6"),
    (9, "guest_ecn"),
    (10, "guest_ufo"),
    (11, "host_tso4"),
    (12, "host_tso6"),
    (13, "host_ecn"),
    (14, "host_ufo"),
    (15, "mrg_rxbuf"),
    (16, "status"),
    (17, "ctrl_vq"),
    (18, "ctrl_rx"),
    (19, "ctrl_vlan"),
    (21, "guest_announce"),
    (22, "mq"),
    (26, "log_all"),
    (27, "any_layout"),
    (28, "indirect_desc"),
    (29, "event_idx"),
    (30, "protocol_features"),
    (32, "version_1"),
    (33, "access_platform"),
    (34, "ring_packed"),
    (35, "in_order"),
    (40, "ring_reset"),
    (54, "guest_uso4"),
    (55, "guest_uso6"),
    (56, "host_uso"),
];

/// Returns the names of the bits that are set, in order, and `bit_N` for a bit without a name.
pub fn feature_names(bits: u64) -> Vec<String> {
    let name = |bit: u32| match NAMES.iter().find(|(known, _)| *known == bit) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("bit_{bit}"),
    };
    (0..u64::BITS).filter(|bit| bits >> bit & 1 == 1).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_have_their_names_in_order() {
        assert_eq!(feature_names(1 << 34 | 1 << 15 | 1 << 2), ["bit_2", "mrg_rxbuf", "ring_packed"]);
        assert!(NAMES.is_sorted_by_key(|(bit, _)| *bit));
    }
}
