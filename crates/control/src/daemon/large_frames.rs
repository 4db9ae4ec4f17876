//! Devices whose other end sends frames that are longer than a frame can be: BIG TCP of a veth device. TCP goes on then, at a hundredth of its rate.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_switch::DropReason;

use super::faults::Key;
use super::state::Daemon;
use crate::keys::Mistake;

/// How long a port is named after its last such frame.
const NAMED_FOR: Duration = Duration::from_secs(60);

/// The ports of devices that have dropped such frames: how many, and when the last one was noticed.
#[derive(Debug, Default)]
pub(super) struct LargeFrames(BTreeMap<Key, (u64, Instant)>);

impl Daemon {
    /// Notices ports of devices that have dropped frames which are too long.
    pub(super) fn note_large_frames(&mut self) {
        let live = self.switches.iter().flat_map(|(switch, live)| live.ports().iter().map(move |port| (switch, port)));
        let counted =
            live.filter(|(_, (_, port))| port.settings.settings.is_device()).filter_map(|(switch, (name, port))| {
                let dropped = port.counters().drops().find(|(reason, _)| *reason == DropReason::Oversize)?;
                Some(((switch.clone(), name.clone()), dropped.1))
            });
        let now = Instant::now();
        let mut noticed = BTreeMap::new();
        for (key, count) in counted {
            let before = self.large_frames.0.get(&key).filter(|(before, _)| *before == count);
            noticed.insert(key, (count, before.map_or(now, |(_, at)| *at)));
        }
        self.large_frames.0 = noticed;
    }

    /// Returns what there is to say of ports that have dropped such frames lately.
    pub(super) fn large_frames(&self, now: Instant) -> impl Iterator<Item = Mistake> {
        let recent =
            self.large_frames.0.iter().filter(move |(_, (_, at))| now.saturating_duration_since(*at) < NAMED_FOR);
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
