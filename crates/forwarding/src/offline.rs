//! A program without a switch: one instance, ports that are only names, and a clock that the caller sets.
//!
//! For `ringway program run`, which shows what a program does with the frames of a capture.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ringway_switch::policy::{Bound, Domain, Rules};
use ringway_switch::{Mac, MacTable, Owner, Seen, Verdict, View, ViewPort};

use crate::compiler::Compiler;
use crate::fault::{Fault, FaultKind};
use crate::instance::{Instance, Source};
use crate::keeper::{Job, Jobs};
use crate::limits::CONFIG_MAX;
use crate::map::SharedMap;
use crate::module;
use crate::modules::Module;
use crate::program::TellError;
use crate::runtime::Runtime;
use crate::shared::Shared;
use crate::unacceptable::Unacceptable;

/// Addresses that the MAC table has room for.
const TABLE: usize = 1 << 16;
/// Bytes of a frame that a program can see.
const HEAD: usize = 128;

/// A frame for a program.
#[derive(Clone, Copy, Debug)]
pub struct OfflineFrame<'f> {
    /// Its first bytes.
    pub bytes: &'f [u8],
    /// Bytes of the whole frame.
    pub len: usize,
}

/// Where a program sends a frame. Ports are places in the list of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// Where the learning bridge sends it: to this port, or to all.
    BuiltIn(Option<usize>),
    /// To a port.
    Port(usize),
    /// To all ports except its own.
    Flood,
    /// To these ports.
    Ports(Vec<usize>),
    /// Nowhere, for this reason of the program.
    Dropped(String),
}

/// A program without a switch.
#[derive(Debug)]
pub struct Offline {
    runtime: Arc<Runtime>,
    module: Arc<Module>,
    shared: Arc<Shared>,
    jobs: Receiver<Job>,
    view: Arc<View>,
    instance: Instance,
}

/// Returns all that is wrong with the imports and exports of a module. An empty list: it can be started.
///
/// # Errors
/// The runtime cannot be started.
pub fn check(bytes: &[u8]) -> Result<Vec<Unacceptable>, Unacceptable> {
    check_with(Compiler::Installed, bytes)
}

/// The same with another compiler.
fn check_with(compiler: Compiler, bytes: &[u8]) -> Result<Vec<Unacceptable>, Unacceptable> {
    Ok(module::judge(&*Runtime::with(compiler)?, bytes))
}

impl Offline {
    /// Starts a program in a switch with ports of these names, at most 4,096.
    ///
    /// # Errors
    /// Why it is not acceptable, or refuses to start.
    pub fn start(bytes: &[u8], config: &str, ports: &[String]) -> Result<Offline, Unacceptable> {
        Offline::with(Compiler::Installed, bytes, config, ports)
    }

    /// The same with another compiler.
    ///
    /// # Errors
    /// As for [`Offline::start`].
    pub fn with(compiler: Compiler, bytes: &[u8], config: &str, ports: &[String]) -> Result<Offline, Unacceptable> {
        if config.len() > CONFIG_MAX {
            let what = format!("the configuration has {} bytes: {CONFIG_MAX} are the most", config.len());
            return Err(Unacceptable::Refused(what));
        }
        let runtime = Runtime::with(compiler)?;
        let module = module::acceptable(&runtime, bytes, &AtomicBool::new(false))?;
        let (sink, jobs) = Jobs::collected();
        let mut shared = Shared::new("", config, 1, Arc::new(SharedMap::new()), sink);
        shared.given_time = Some(AtomicU64::new(1));
        let shared = Arc::new(shared);
        let named = ports.iter().enumerate().map(|(index, name)| ViewPort {
            owner: Owner::new(index as u16, 0),
            name: name.clone(),
            port: Weak::new(),
            is_mirror: false,
        });
        let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
        let table = Arc::new(MacTable::new(TABLE, TABLE as u32, [1, 2]));
        let view = Arc::new(View::new(named, ports.len() as u16, table, domain));
        let instance = Instance::start(&module, &runtime.ticker, &shared, 0, &view)?;
        Ok(Offline { runtime, module, shared, jobs, view, instance })
    }

    /// Sets the clock, which begins at 0 and never goes back, and fires the timers that are due by then.
    ///
    /// # Errors
    /// The program failed. It is started anew, if it can be.
    pub fn advance(&mut self, to: Duration) -> Result<(), Fault> {
        let to = u64::try_from(to.as_nanos()).unwrap_or(u64::MAX).max(self.shared.now_ns());
        while (1..=to).contains(&self.instance.timer()) {
            self.set_clock(self.instance.timer());
            let fired = self.instance.fire();
            self.recover(fired)?;
        }
        self.set_clock(to);
        Ok(())
    }

    fn set_clock(&self, ns: u64) {
        if let Some(time) = &self.shared.given_time {
            time.store(ns.max(self.shared.now_ns()), Ordering::Relaxed);
        }
    }

    /// Most frames of a batch.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.instance.capacity()
    }

    /// Shows the program a batch of frames of the port at place `from`. Returns where each goes.
    ///
    /// # Errors
    /// The program failed. It is started anew, if it can be.
    pub fn frames(&mut self, from: usize, frames: &[OfflineFrame<'_>]) -> Result<Vec<Sent>, Fault> {
        let owner = Owner::new(from as u16, 0);
        let copy = |frame: &OfflineFrame<'_>| {
            let mut head = [0; HEAD];
            let len = frame.bytes.len().min(HEAD);
            head[..len].copy_from_slice(&frame.bytes[..len]);
            (head, frame.len)
        };
        let batch = Batch { from: owner, frames: frames.iter().map(copy).collect() };
        let now = (self.shared.now_ns() / 1_000_000_000) as u32;
        let words = self.instance.judge_alone(&self.view, &batch, frames.len(), now);
        let sent = words.and_then(|words| {
            let sent = words.iter().zip(&batch.frames).map(|(word, (head, _))| self.sent(*word, head, owner, now));
            sent.collect::<Result<Vec<Sent>, Fault>>()
        });
        if let (Ok(sent), Some(meters)) = (&sent, self.shared.meters.of(0)) {
            meters.add_batch();
            let mut drops = [0; ringway_switch::MAX_REASONS];
            for (reason, (name, _)) in self.shared.meters.drops().iter().enumerate() {
                drops[reason] =
                    sent.iter().filter(|sent| matches!(sent, Sent::Dropped(why) if why == name)).count() as u64;
            }
            meters.add_drops(&drops);
        }
        self.recover(sent)
    }

    fn sent(&self, word: u32, head: &[u8; HEAD], from: Owner, now: u32) -> Result<Sent, Fault> {
        let wrong = |what: String| Err(Fault::new(FaultKind::Verdict, what));
        Ok(match Verdict::read(word) {
            None => return wrong(format!("a verdict is {word:#x}: no such verdict")),
            Some(Verdict::BuiltIn) => {
                self.view.learn(0, Mac::source(head), from, now);
                Sent::BuiltIn(self.view.lookup(0, Mac::destination(head)).map(|owner| owner.index().into()))
            }
            Some(Verdict::Flood) => Sent::Flood,
            Some(Verdict::Port(owner)) if self.view.port(owner).is_none() => {
                return wrong(format!("a verdict is {word:#x}: there is no port {}", owner.bits()));
            }
            Some(Verdict::Port(owner)) => Sent::Port(owner.index().into()),
            Some(Verdict::Ports(number)) => {
                let Some(set) = self.instance.set(number) else {
                    return wrong(format!("a verdict is {word:#x}: set {number} of ports was never set"));
                };
                let ports = self.view.ports().map(|port| port.owner);
                let hears = ports.filter(|port| *port != from && set.contains(port.index()));
                Sent::Ports(hears.map(|port| port.index().into()).collect())
            }
            Some(Verdict::Drop(reason)) if reason >= self.instance.reasons() => {
                return wrong(format!("a verdict is {word:#x}: drop reason {reason} is not registered"));
            }
            Some(Verdict::Drop(reason)) => {
                let name = self.shared.meters.drops().get(reason).map(|(name, _)| name.clone());
                Sent::Dropped(name.unwrap_or_else(|| reason.to_string()))
            }
        })
    }

    /// Gives the program a message.
    ///
    /// # Errors
    /// The program does not take it.
    pub fn tell(&mut self, message: &str) -> Result<(), TellError> {
        let told = self.instance.tell(message);
        match self.recover(told) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(TellError::Refused(why)),
            Err(fault) => Err(TellError::Failed(fault)),
        }
    }

    /// Starts the instance anew after a fault, as a switch does.
    fn recover<T>(&mut self, result: Result<T, Fault>) -> Result<T, Fault> {
        if let Err(fault) = &result
            && fault.kind != FaultKind::Verdict
        {
            match Instance::start(&self.module, &self.runtime.ticker, &self.shared, 0, &self.view) {
                Ok(instance) => self.instance = instance,
                Err(why) => {
                    return Err(Fault::new(fault.kind, format!("{}; it cannot be started anew: {why}", fault.what)));
                }
            }
        }
        result
    }

    /// The lines of the log since the last call.
    pub fn log(&mut self) -> Vec<String> {
        let lines = self.jobs.try_iter().filter_map(|job| match job {
            Job::Log(line) => Some(line),
            _ => None,
        });
        let prefix = self.shared.log_prefix();
        lines.map(|line| line.strip_prefix(&prefix).map_or_else(|| line.clone(), str::to_owned)).collect()
    }

    /// Lines of the log that were one too many in their second.
    #[must_use]
    pub fn lost_lines(&self) -> u64 {
        self.shared.lost_lines()
    }

    /// Frames dropped, by the program's own reasons.
    #[must_use]
    pub fn drops(&self) -> Vec<(String, u64)> {
        self.shared.meters.drops()
    }

    /// The program's counters.
    #[must_use]
    pub fn counters(&self) -> Vec<(String, u64)> {
        self.shared.meters.counters()
    }

    /// The program's gauges.
    #[must_use]
    pub fn gauges(&self) -> Vec<(String, i64)> {
        self.shared.meters.gauges()
    }

    /// Calls of `ringway_frames` that ended well.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.shared.meters.batches()
    }
}

/// Frames of one port.
struct Batch {
    from: Owner,
    frames: Vec<([u8; HEAD], usize)>,
}

impl Source for Batch {
    fn from(&self) -> Owner {
        self.from
    }

    fn each(&self, first: usize, end: usize, mut look: impl FnMut(Seen<'_>)) {
        for (head, len) in &self.frames[first..end] {
            look(Seen { head, len: *len, vlan: 0, offload: 0, segment: 0 });
        }
    }
}

#[cfg(test)]
#[path = "offline_tests.rs"]
mod offline_tests;
