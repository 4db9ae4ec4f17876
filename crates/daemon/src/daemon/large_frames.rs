//! Devices whose other end sends frames that are longer than a frame can be: BIG TCP of a veth device. TCP goes on then, at a hundredth of its rate.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_config::keys::Mistake;

use super::faults::Key;

/// How long a port is named after its last such frame.
const NAMED_FOR: Duration = Duration::from_secs(60);

/// The ports of devices that have dropped such frames: how many, and when the last one was noticed.
#[derive(Debug, Default)]
pub struct LargeFrames(BTreeMap<Key, (u64, Instant)>);

impl LargeFrames {
    /// Takes note of how many such frames each port has dropped.
    pub fn note(&mut self, dropped: impl Iterator<Item = (Key, u64)>, now: Instant) {
        let mut noticed = BTreeMap::new();
        for (key, count) in dropped {
            let before = self.0.get(&key).filter(|(before, _)| *before == count);
            noticed.insert(key, (count, before.map_or(now, |(_, at)| *at)));
        }
        self.0 = noticed;
    }

    /// Returns what there is to say of ports that have dropped such frames lately.
    pub fn warnings(&self, now: Instant) -> impl Iterator<Item = Mistake> {
        let recent = self.0.iter().filter(move |(_, (_, at))| now.saturating_duration_since(*at) < NAMED_FOR);
        recent.map(|((_, name), (count, _))| Mistake {
            key: format!("port.{name}"),
            span: None,
            what: format!(
                "{count} frames were longer than 64 KiB (oversize): the other end of its device sends BIG TCP"
            ),
            right: "at that end: ip link set dev DEVICE gso_max_size 65536, and gso_ipv4_max_size 65536".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_named_for_a_minute_after_its_last_large_frame() {
        let key: Key = ("lan0".parse().unwrap(), "v0".parse().unwrap());
        let (mut frames, start) = (LargeFrames::default(), Instant::now());
        let mut named = |count, second| {
            let now = start + Duration::from_secs(second);
            frames.note(std::iter::once((key.clone(), count)), now);
            frames.warnings(now).count()
        };
        assert_eq!(
            [named(1, 0), named(1, 59), named(1, 60), named(2, 61), named(2, 120), named(2, 121)],
            [1, 1, 0, 1, 1, 0]
        );
    }
}
