//! `[engine]`: the pollers.

use std::time::Duration;

use super::host::Host;
use super::keys::Keys;

/// What a poller does when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Keeps polling: lowest latency, a whole core.
    Spin,
    /// Polls for [`Engine::spin`] after the last work, then asks to be woken and sleeps.
    #[default]
    Adaptive,
    /// Sleeps as soon as there is nothing to do.
    Sleep,
}

impl Idle {
    /// As it is written.
    pub const WORDS: [(&'static str, Self); 3] =
        [("spin", Self::Spin), ("adaptive", Self::Adaptive), ("sleep", Self::Sleep)];
}

/// Settings of the polling engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// CPUs given to pollers, one poller each; empty: one poller that runs where the kernel puts it.
    pub cores: Vec<u32>,
    /// What an idle poller does.
    pub idle: Idle,
    /// Most frames taken from one port in one go: 1 to 1024.
    pub batch: u32,
    /// How long a poller keeps polling after the last work under [`Idle::Adaptive`]: up to 1 s.
    pub spin: Duration,
    /// Whether rings are left alone for a while where that lets their drivers send more (`adaptive`), or never (`off`).
    pub pacing: bool,
}

/// How `pacing` is written.
const PACING: [(&str, bool); 2] = [("adaptive", true), ("off", false)];

impl Default for Engine {
    fn default() -> Self {
        Self { cores: Vec::new(), idle: Idle::default(), batch: 256, spin: Duration::from_micros(50), pacing: true }
    }
}

impl Engine {
    /// How many pollers there are.
    pub fn pollers(&self) -> usize {
        self.cores.len().max(1)
    }

    /// Reads `[engine]`.
    pub fn read(keys: Keys<'_>, host: &Host) -> Self {
        let default = Self::default();
        let engine = Self {
            cores: read_cores(&keys, host).unwrap_or_default(),
            idle: keys.choice("idle", &Idle::WORDS).unwrap_or(default.idle),
            batch: keys.integer("batch", 1..=1024).unwrap_or(default.batch),
            spin: keys.duration("spin", Duration::ZERO..=Duration::from_secs(1)).unwrap_or(default.spin),
            pacing: keys.choice("pacing", &PACING).unwrap_or(default.pacing),
        };
        keys.finish();
        engine
    }
}

fn read_cores(keys: &Keys<'_>, host: &Host) -> Option<Vec<u32>> {
    let mut cores = Vec::new();
    for (number, span) in keys.integers("cores", "a list of CPU numbers like [1]")? {
        match u32::try_from(number).ok().filter(|n| host.cpus.contains(n)) {
            None => {
                let cpus: Vec<String> = host.cpus.iter().map(u32::to_string).collect();
                keys.wrong(
                    "cores",
                    span,
                    format!("there is no CPU {number}"),
                    format!("this machine has {}", cpus.join(", ")),
                );
            }
            Some(n) if cores.contains(&n) => {
                keys.wrong("cores", span, format!("CPU {n} is listed twice"), "give each poller its own CPU");
            }
            Some(n) => cores.push(n),
        }
    }
    Some(cores)
}
