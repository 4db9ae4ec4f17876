//! Devices whose other end sends frames that are longer than a frame can be: BIG TCP of a veth device. TCP goes on then, at a hundredth of its rate.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_config::keys::Mistake;

use super::faults::Key;

/// How long a port is named after its last such frame.
const NAMED_FOR: Duration = Duration::from_secs(60);

/// The ports of devices that have dropped such frames.
#[derive(Debug, Default)]
pub struct LargeFrames(BTreeMap<Key, Dropped>);

#[derive(Debug)]
struct Dropped {
    /// The network device of the port.
    device: String,
    frames: u64,
    /// When the last one was noticed.
    noticed: Instant,
}

impl LargeFrames {
    /// Takes note of how many such frames each port has dropped, with its device.
    pub fn note(&mut self, dropped: impl Iterator<Item = (Key, String, u64)>, now: Instant) {
        let mut all = BTreeMap::new();
        for (key, device, frames) in dropped {
            let before = self.0.get(&key).filter(|before| before.frames == frames);
            let noticed = before.map_or(now, |before| before.noticed);
            all.insert(key, Dropped { device, frames, noticed });
        }
        self.0 = all;
    }

    /// Returns what there is to say of ports that have dropped such frames lately.
    pub fn warnings(&self, now: Instant) -> impl Iterator<Item = Mistake> {
        let recent = self.0.iter().filter(move |(_, port)| now.saturating_duration_since(port.noticed) < NAMED_FOR);
        recent.map(|((_, name), Dropped { device, frames, .. })| Mistake {
            key: format!("port.{name}"),
            span: None,
            what: format!(
                "{frames} frames from device {device:?} were longer than 64 KiB (oversize): its other end sends BIG TCP"
            ),
            right: format!(
                "at the other end, which \"ip link show dev {device}\" names behind its \"@\": \
                 ip link set dev OTHER_END gso_max_size 65536"
            ),
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
            frames.note(std::iter::once((key.clone(), "eth7".to_owned(), count)), now);
            frames.warnings(now).count()
        };
        assert_eq!(
            [named(1, 0), named(1, 59), named(1, 60), named(2, 61), named(2, 120), named(2, 121)],
            [1, 1, 0, 1, 1, 0]
        );
        let named = frames.warnings(start + Duration::from_secs(62)).next().unwrap().to_string();
        assert!(named.contains("port.v0") && named.contains("2 frames from device \"eth7\""), "{named}");
        assert!(named.contains("ip link set dev OTHER_END gso_max_size 65536"), "{named}");
    }
}
