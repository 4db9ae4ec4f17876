//! `[engine]`: the pollers.

use std::time::Duration;

use serde_json::Value as Json;

use super::host::Host;
use crate::keys::form::{Choice, Form, Integer, Time};
use crate::keys::{Class, Keys, Shape, Table, keys};

/// The behaviour of an idle poller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Keeps polling: lowest latency, a whole core.
    Spin,
    /// Polls for [`Engine::spin`] after the last work, then arms notifications and sleeps; at once while others want the processor of a poller that is not pinned.
    #[default]
    Adaptive,
    /// Sleeps as soon as there is nothing to do.
    Sleep,
}

impl Idle {
    /// The words of the configuration.
    pub const WORDS: [(&'static str, Self); 3] =
        [("spin", Self::Spin), ("adaptive", Self::Adaptive), ("sleep", Self::Sleep)];
}

/// The words of `pacing`.
const PACING: [(&str, bool); 2] = [("adaptive", true), ("off", false)];

keys! {
    /// Settings of the polling engine.
    pub struct Engine {
        cores: Vec<u32> = Vec::new(), Cores, Live, "CPUs given to pollers, one poller each; empty: one poller, on any CPU.";
        idle: Idle = Idle::Adaptive, Choice(&Idle::WORDS), Live, "What an idle poller does: never sleeps (spin), sleeps after a while (adaptive), or at once (sleep).";
        batch: u32 = 256, Integer(1..=1024), Live, "Most frames taken from one port in one pass.";
        spin: Duration = Duration::from_micros(50), Time(Duration::ZERO..=Duration::from_secs(1)), Live, "How long an adaptive poller polls after the last work before it sleeps.";
        pacing: bool = true, Choice(&PACING), Live, "Whether a ring is left alone for microseconds where its driver then sends more.";
    }
}

impl Engine {
    /// Returns the number of pollers.
    pub fn pollers(&self) -> usize {
        self.cores.len().max(1)
    }

    /// Reads `[engine]` for this machine.
    pub fn read_section(keys: Keys<'_>, host: &Host) -> Self {
        let mut engine = Self::default();
        engine.read(&keys);
        if keys.understood("cores") {
            engine.cores = read_cores(&keys, host).unwrap_or_default();
        }
        keys.finish();
        engine
    }
}

/// The expectation of `cores` in messages.
const CORES: &str = "a list of CPU numbers like [1]";

/// The form of `cores`. [`Engine::read_section`] checks that the machine has these CPUs.
#[derive(Clone, Copy, Debug)]
struct Cores;

impl Form for Cores {
    type Value = Vec<u32>;

    fn read(&self, keys: &Keys<'_>, key: &'static str, _: Option<&Vec<u32>>) -> Option<Vec<u32>> {
        let numbers = keys.integers(key, CORES)?;
        Some(numbers.into_iter().filter_map(|(number, _)| u32::try_from(number).ok()).collect())
    }

    fn write(&self, value: &Vec<u32>) -> Json {
        value.clone().into()
    }

    fn shape(&self) -> Shape {
        Shape::text("[NUMBER,...]", CORES).class(Class::Numbers)
    }
}

fn read_cores(keys: &Keys<'_>, host: &Host) -> Option<Vec<u32>> {
    let mut cores = Vec::new();
    for (number, span) in keys.integers("cores", CORES)? {
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
