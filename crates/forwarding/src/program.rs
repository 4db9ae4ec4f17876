//! A loaded program: an instance for each poller, and what happens after a fault.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ringway_switch::{Judging, ProgramFailed, View, poller_number};

use crate::clock::monotonic_ns;
use crate::fault::{Fault, FaultKind};
use crate::instance::Instance;
use crate::keeper::{Job, Jobs, Kept, Timers};
use crate::limits::{CONFIG_MAX, FAULT_WINDOW, FAULTS, LONG_FAULT_WINDOW, MANY_FAULTS, MESSAGE_MAX};
use crate::map::SharedMap;
use crate::module;
use crate::modules::Module;
use crate::runtime::Runtime;
use crate::shared::Shared;
use crate::slot::Slot;
use crate::unacceptable::Unacceptable;

/// What to load.
#[derive(Clone, Copy, Debug)]
pub struct Load<'l> {
    /// The module.
    pub module: &'l [u8],
    /// The switch's name, for messages.
    pub switch: &'l str,
    /// The text `config`.
    pub config: &'l str,
    /// Number of pollers, at least 1.
    pub pollers: usize,
    /// The switch's ports as they are now.
    pub view: &'l Arc<View>,
    /// The program that this one replaces.
    pub before: Option<&'l Program>,
    /// Set to true by who does not wait for the program any more: compiling it then ends.
    pub stop: &'l AtomicBool,
}

/// Why a message did not reach a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TellError {
    /// The program does not understand it.
    #[error("{0}")]
    Refused(String),
    /// The program failed.
    #[error("the program failed: {0}")]
    Failed(Fault),
    /// The program is taken out, or is being started anew.
    #[error("the program does not run: {0}")]
    Down(&'static str),
}

/// Whether a program judges frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// It does.
    Running,
    /// It was taken out after faults. The last fault.
    Failed(Fault),
}

/// The state and the counters of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether it judges frames.
    pub state: ProgramState,
    /// The last fault, and when.
    pub last_fault: Option<(Fault, Instant)>,
    /// Number of faults of each kind.
    pub faults: Vec<(FaultKind, u64)>,
    /// Calls of `ringway_frames`.
    pub batches: u64,
    /// Frames dropped, by the program's own reasons.
    pub drops: Vec<(String, u64)>,
    /// The program's counters.
    pub counters: Vec<(String, u64)>,
    /// The program's gauges.
    pub gauges: Vec<(String, i64)>,
    /// Entries of the shared map.
    pub entries: usize,
    /// Lines of the log that were not written.
    pub lost_lines: u64,
}

/// The faults of a program.
#[derive(Debug, Default)]
struct FaultLog {
    recent: VecDeque<Instant>,
    last: Option<(Fault, Instant)>,
}

impl FaultLog {
    /// Notes a fault. Returns true if there were too many.
    fn is_too_many(&mut self, now: Instant) -> bool {
        if self.recent.len() == MANY_FAULTS {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let within = |faults: usize, window: Duration| {
            let first = self.recent.len().checked_sub(faults).and_then(|first| self.recent.get(first));
            first.is_some_and(|first| now.saturating_duration_since(*first) <= window)
        };
        within(FAULTS, FAULT_WINDOW) || within(MANY_FAULTS, LONG_FAULT_WINDOW)
    }
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    runtime: Arc<Runtime>,
    module: Arc<Module>,
    shared: Arc<Shared>,
    slots: Box<[Slot]>,
    /// It was taken out.
    is_out: AtomicBool,
    /// Some instance has to be started anew.
    has_ended: AtomicBool,
    /// Lets one thread at a time start instances anew.
    restarts: Mutex<()>,
    faults: Mutex<FaultLog>,
    counts: [AtomicU64; FaultKind::ALL.len()],
    /// The switch's ports as they were seen last.
    view: Mutex<Arc<View>>,
    jobs: Jobs,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Module")
    }
}

impl Program {
    /// Compiles a module, starts its instances and gives them the state of the program before. Takes long: not to be called by a poller or with
    /// a lock that pollers take.
    ///
    /// # Errors
    /// Why the module is not acceptable. Nothing has changed.
    pub fn load(runtime: &Arc<Runtime>, load: Load<'_>) -> Result<Arc<Program>, Unacceptable> {
        let Load { module, switch, config, pollers, view, before, stop } = load;
        if config.len() > CONFIG_MAX {
            let what = format!("the configuration has {} bytes: {CONFIG_MAX} are the most", config.len());
            return Err(Unacceptable::Refused(what));
        }
        let module = module::acceptable(runtime, module, stop)?;
        let pollers = pollers.max(1);
        let hands_over = before.filter(|before| before.module.has("ringway_save") && module.has("ringway_restore"));
        let map = hands_over.map_or_else(|| Arc::new(SharedMap::new()), |before| Arc::clone(&before.shared.map));
        let jobs = runtime.keeper.jobs();
        let shared = Arc::new(Shared::new(switch, config, pollers, map, jobs.clone()));
        let start = |number| Instance::start(&module, &runtime.ticker, &shared, number, view);
        let mut instances = (0..pollers).map(start).collect::<Result<Vec<Instance>, Unacceptable>>()?;
        if let Some(before) = hands_over
            && !hand_over(before, &mut instances)?
        {
            tracing::info!("the program of switch {switch} does not take the state of the one before: it starts empty");
            return Program::load(runtime, Load { before: None, ..load });
        }
        let program = Arc::new(Program {
            runtime: Arc::clone(runtime),
            module,
            shared,
            slots: instances.into_iter().map(|instance| Slot::new(Some(instance))).collect(),
            is_out: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            restarts: Mutex::new(()),
            faults: Mutex::default(),
            counts: Default::default(),
            view: Mutex::new(Arc::clone(view)),
            jobs,
        });
        let kept: Weak<Program> = Arc::downgrade(&program);
        program.jobs.watch(kept);
        Ok(program)
    }

    /// Gives every instance a message.
    ///
    /// # Errors
    /// The program does not take it. Instances before the first that does not take it have it.
    pub fn tell(&self, message: &str) -> Result<(), TellError> {
        if message.len() > MESSAGE_MAX {
            let what = format!("the message has {} bytes: {MESSAGE_MAX} are the most", message.len());
            return Err(TellError::Refused(what));
        }
        for slot in &self.slots {
            if self.is_out.load(Ordering::Relaxed) {
                return Err(TellError::Down("it was taken out after faults: set it again"));
            }
            slot.borrow(|instance| self.tell_one(slot, instance, message))?;
        }
        Ok(())
    }

    fn tell_one(&self, slot: &Slot, instance: &mut Option<Instance>, message: &str) -> Result<(), TellError> {
        let Some(present) = instance.as_mut() else {
            return Err(TellError::Down("it is being started anew after a fault: try again"));
        };
        match present.tell(message) {
            Ok(None) => {
                self.note_timer(slot, present.timer());
                Ok(())
            }
            Ok(Some(why)) => Err(TellError::Refused(why)),
            Err(fault) => {
                self.note(instance, slot, fault.clone());
                Err(TellError::Failed(fault))
            }
        }
    }

    /// The state and the counters.
    #[must_use]
    pub fn read(&self) -> Reading {
        let last_fault = self.fault_log().last.clone();
        let state = match &last_fault {
            Some((fault, _)) if self.is_out.load(Ordering::Acquire) => ProgramState::Failed(fault.clone()),
            _ => ProgramState::Running,
        };
        let meters = &self.shared.meters;
        Reading {
            state,
            last_fault,
            faults: FaultKind::ALL
                .iter()
                .map(|&kind| (kind, self.counts[kind as usize].load(Ordering::Relaxed)))
                .collect(),
            batches: meters.batches(),
            drops: meters.drops(),
            counters: meters.counters(),
            gauges: meters.gauges(),
            entries: self.shared.map.len(),
            lost_lines: self.shared.lost_lines(),
        }
    }

    /// Returns true if the program was taken out after faults.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.is_out.load(Ordering::Acquire)
    }

    /// Number of instances.
    #[must_use]
    pub fn instances(&self) -> usize {
        self.slots.len()
    }

    fn fault_log(&self) -> MutexGuard<'_, FaultLog> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fires the timer of an instance if it is due.
    fn fire_one(&self, slot: &Slot, instance: &mut Option<Instance>, now: u64) {
        let Some(present) = instance.as_mut().filter(|present| (1..=now).contains(&present.timer())) else { return };
        match present.fire() {
            Ok(()) => slot.timer.store(present.timer(), Ordering::Relaxed),
            Err(fault) => self.note(instance, slot, fault),
        }
    }

    /// Counts a fault. Ends the instance if its memory may be in disorder, and takes the program out if there were too many.
    #[cold]
    fn note(&self, instance: &mut Option<Instance>, slot: &Slot, fault: Fault) {
        self.counts[fault.kind as usize].fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let takes_out = {
            let mut log = self.fault_log();
            let is_out = self.is_out.load(Ordering::Relaxed);
            let takes_out = log.is_too_many(now) && !is_out;
            if !is_out {
                log.last = Some((fault.clone(), now));
            }
            takes_out
        };
        if takes_out {
            self.is_out.store(true, Ordering::Release);
        }
        let (switch, end) =
            (&self.shared.switch, if takes_out { ". It is taken out until it is set again" } else { "" });
        let line = format!("the program of switch {switch} failed: {fault}{end}");
        let _ = self.jobs.give(Job::Fault(line));
        if fault.kind == FaultKind::Verdict {
            return;
        }
        if let Some(mut old) = instance.take() {
            if fault.kind == FaultKind::Time {
                old.shorten();
            }
            slot.short_until.store(old.short_until(), Ordering::Relaxed);
            slot.timer.store(0, Ordering::Relaxed);
            self.has_ended.store(true, Ordering::Release);
            // Its memory is unmapped by another thread.
            if let Some(Job::Drop(old)) = self.jobs.give(Job::Drop(Box::new(old))) {
                drop(old);
            }
            let _ = self.jobs.give(Job::Look);
        }
    }

    /// Tells the keeper when a timer fires that was set. The keeper looks at the earlier time anyway, so that it need not hear of a later one.
    #[inline]
    fn note_timer(&self, slot: &Slot, timer: u64) {
        let before = slot.timer.load(Ordering::Relaxed);
        if before == timer {
            return;
        }
        slot.timer.store(timer, Ordering::Relaxed);
        if timer > 0 && (before == 0 || timer < before) {
            let _ = self.jobs.give(Job::Look);
        }
    }
}

/// The timer of a slot that is fired apart from others, until this is dropped.
struct FiredApart<'s>(&'s Slot);

impl Drop for FiredApart<'_> {
    fn drop(&mut self) {
        self.0.is_fired_apart.store(false, Ordering::Release);
    }
}

/// Gives each instance the state of those of the program before. Returns false if one does not take it.
fn hand_over(before: &Program, instances: &mut [Instance]) -> Result<bool, Unacceptable> {
    let failed = |export: &'static str| move |fault: Fault| Unacceptable::Failed { export, fault };
    let count = instances.len();
    for (number, slot) in before.slots.iter().enumerate() {
        // An instance that failed has no state that could be trusted.
        let saved = slot.borrow(|instance| match instance.as_mut().map(Instance::save) {
            Some(Ok(saved)) => saved,
            Some(Err(fault)) => {
                before.note(instance, slot, fault);
                None
            }
            None => None,
        });
        let (Some(saved), Some(instance)) = (saved, instances.get_mut(number % count)) else { continue };
        if !instance.restore(saved).map_err(failed("ringway_restore"))? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Program {
    /// The number of the present poller's instance.
    #[inline]
    fn number(&self) -> usize {
        poller_number() % self.slots.len()
    }

    /// Returns true if the instance of the present poller belongs to another: that of a port in quarantine, whose client can make it
    /// wait without bound while it collects frames.
    #[inline]
    fn is_guest(&self) -> bool {
        poller_number() >= self.slots.len()
    }

    #[inline]
    fn judge_by(
        &self,
        number: usize,
        instance: &mut Option<Instance>,
        batch: &mut Judging<'_, '_>,
    ) -> Result<(), ProgramFailed> {
        let slot = &self.slots[number];
        let Some(present) = instance.as_mut() else { return Err(ProgramFailed) };
        match present.judge(batch) {
            Ok(()) => {
                if let Some(meters) = self.shared.meters.of(number) {
                    if !batch.is_empty() {
                        meters.add_batch();
                    }
                    meters.add_drops(batch.drops());
                }
                self.note_timer(slot, present.timer());
                Ok(())
            }
            Err(fault) => {
                *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(batch.view());
                self.note(instance, slot, fault);
                Err(ProgramFailed)
            }
        }
    }
}

impl ringway_switch::Program for Program {
    #[inline]
    fn enter(&self) -> bool {
        self.is_guest() || self.slots[self.number()].enter()
    }

    #[inline]
    fn leave(&self) {
        if !self.is_guest() {
            self.slots[self.number()].leave();
        }
    }

    #[inline]
    fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
        if self.is_out.load(Ordering::Relaxed) {
            return Err(ProgramFailed);
        }
        let number = self.number();
        if self.is_guest() {
            return self.slots[number].borrow(|instance| {
                // The wait for the slot was another pass's.
                batch.begin();
                self.judge_by(number, instance, batch)
            });
        }
        self.judge_by(number, &mut self.slots[number].lock(), batch)
    }
}

impl Kept for Program {
    fn has_ended(&self) -> bool {
        !self.is_out.load(Ordering::Acquire) && self.has_ended.swap(false, Ordering::Acquire)
    }

    fn restart(&self) {
        let _one = self.restarts.lock().unwrap_or_else(PoisonError::into_inner);
        let view = Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner));
        for (number, slot) in self.slots.iter().enumerate() {
            if slot.borrow(|instance| instance.is_some()) {
                continue;
            }
            match Instance::start(&self.module, &self.runtime.ticker, &self.shared, number, &view) {
                Ok(mut new) => {
                    if let Some(meters) = self.shared.meters.of(number) {
                        meters.reset_gauges();
                    }
                    new.inherit(slot.short_until.load(Ordering::Relaxed));
                    slot.timer.store(new.timer(), Ordering::Relaxed);
                    slot.borrow(|instance| *instance = Some(new));
                }
                Err(why) => {
                    tracing::error!("the program of switch {} cannot be started anew: {why}", self.shared.switch);
                    let fault = Fault::new(FaultKind::Trap, format!("it cannot be started anew: {why}"));
                    self.fault_log().last = Some((fault, Instant::now()));
                    self.is_out.store(true, Ordering::Release);
                    return;
                }
            }
        }
    }

    fn fire(&self, now: u64) -> Timers {
        let mut timers = Timers::default();
        for (number, slot) in self.slots.iter().enumerate() {
            if slot.is_fired_apart.load(Ordering::Acquire) {
                continue;
            }
            let is_due = |slot: &Slot| (1..=now).contains(&slot.timer.load(Ordering::Relaxed));
            if is_due(slot)
                && !self.is_out()
                && slot.borrow_soon(|instance| self.fire_one(slot, instance, now)).is_none()
            {
                slot.is_fired_apart.store(true, Ordering::Relaxed);
                timers.held.push(number);
                continue;
            }
            let due = slot.timer.load(Ordering::Relaxed);
            timers.next = [timers.next, (due > 0 && !self.is_out()).then_some(due)].into_iter().flatten().min();
        }
        timers
    }

    fn fire_held(&self, number: usize) {
        let slot = &self.slots[number];
        let _apart = FiredApart(slot);
        slot.borrow(|instance| self.fire_one(slot, instance, monotonic_ns()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_faults_in_a_second_or_thirty_in_a_minute_are_too_many() {
        let begun = Instant::now();
        let first_too_many = |every: Duration| {
            let mut log = FaultLog::default();
            (1..=200).find(|number| log.is_too_many(begun + every * (*number - 1)))
        };
        assert_eq!(first_too_many(Duration::from_millis(500)), Some(3));
        assert_eq!(first_too_many(Duration::from_millis(501)), Some(30));
        assert_eq!(first_too_many(Duration::from_secs(2)), Some(30));
        assert_eq!(first_too_many(Duration::from_millis(2100)), None);
    }
}
