//! What an instance knows: the data of its wasmtime store.

use std::sync::Arc;

use ringway_switch::{MAX_SETS, Owner, PortSet, View};
use wasmtime::{Memory, ResourceLimiter};

use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use crate::limits::{MEMORY_MAX, TABLE_MAX};
use crate::shared::Shared;
use crate::ticker::CallClock;

/// The export that is being called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The module is being instantiated.
    Instantiate,
    Start,
    Frames,
    Ports,
    Timer,
    Tell,
    Save,
    Restore,
}

impl Phase {
    /// The export's name.
    pub(crate) fn export(self) -> &'static str {
        match self {
            Phase::Instantiate => "the start section",
            Phase::Start => "ringway_start",
            Phase::Frames => "ringway_frames",
            Phase::Ports => "ringway_ports",
            Phase::Timer => "ringway_timer",
            Phase::Tell => "ringway_tell",
            Phase::Save => "ringway_save",
            Phase::Restore => "ringway_restore",
        }
    }
}

/// A batch, as the host functions see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sending {
    /// The port that the frames came from.
    pub(crate) from: Owner,
    /// The time in seconds.
    pub(crate) now: u32,
    /// Addresses may be learned from the frames.
    pub(crate) may_learn: bool,
}

/// A set of ports: as the program named them, and those that are there.
#[derive(Debug, Default)]
pub(crate) struct Sets {
    named: Vec<Vec<Owner>>,
    /// By number. `None`: never set.
    pub(crate) present: Vec<Option<PortSet>>,
}

impl Sets {
    fn new() -> Sets {
        Sets { named: vec![Vec::new(); MAX_SETS], present: vec![None; MAX_SETS] }
    }

    /// Sets the ports of a set below [`MAX_SETS`].
    pub(crate) fn set(&mut self, number: usize, ports: impl Iterator<Item = Owner>, view: &View) {
        let (Some(named), Some(present)) = (self.named.get_mut(number), self.present.get_mut(number)) else { return };
        named.clear();
        named.extend(ports);
        fill(present.get_or_insert_default(), named, view);
    }

    /// Leaves out the ports that are not there any more.
    pub(crate) fn follow(&mut self, view: &View) {
        for (named, present) in self.named.iter().zip(&mut self.present) {
            if let Some(present) = present {
                fill(present, named, view);
            }
        }
    }
}

fn fill(set: &mut PortSet, named: &[Owner], view: &View) {
    set.clear();
    named.iter().filter(|owner| view.port(**owner).is_some()).for_each(|owner| set.insert(owner.index()));
}

/// What an instance knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: usize,
    pub(crate) phase: Phase,
    /// `None` while the module is being instantiated.
    pub(crate) memory: Option<Memory>,
    pub(crate) layout: Option<Layout>,
    pub(crate) view: Arc<View>,
    pub(crate) sets: Sets,
    /// The drop reasons, counters and gauges that the instance has registered are below these numbers.
    pub(crate) reasons: usize,
    pub(crate) counters: usize,
    pub(crate) gauges: usize,
    /// The batch that is being judged.
    pub(crate) sending: Option<Sending>,
    /// The message of `ringway_tell`.
    pub(crate) message: Vec<u8>,
    /// The state that `ringway_save` gives.
    pub(crate) saved: Vec<u8>,
    /// The state that `ringway_restore` reads.
    pub(crate) restored: Arc<[u8]>,
    /// When the timer fires, in nanoseconds; 0: not.
    pub(crate) timer: u64,
    pub(crate) last_line: String,
    pub(crate) clock: CallClock,
    random: u64,
}

impl State {
    pub(crate) fn new(shared: Arc<Shared>, number: usize, view: Arc<View>, clock: CallClock, seed: u64) -> State {
        State {
            shared,
            number,
            phase: Phase::Instantiate,
            memory: None,
            layout: None,
            view,
            sets: Sets::new(),
            reasons: 0,
            counters: 0,
            gauges: 0,
            sending: None,
            message: Vec::new(),
            saved: Vec::new(),
            restored: Arc::default(),
            timer: 0,
            last_line: String::new(),
            clock,
            random: seed,
        }
    }

    /// 64 random bits (SplitMix64).
    pub(crate) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

/// A program that wants more than its limit is at fault: it would fail anyway, and the reason should be seen.
impl ResourceLimiter for State {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired <= MEMORY_MAX {
            return Ok(true);
        }
        let what = format!("the memory was to grow to {desired} bytes: it may have {MEMORY_MAX}");
        Fault::end(FaultKind::Memory, what)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        if desired <= TABLE_MAX {
            return Ok(true);
        }
        let what = format!("a table was to grow to {desired} elements: it may have {TABLE_MAX}");
        Fault::end(FaultKind::Memory, what)
    }

    fn instances(&self) -> usize {
        1
    }

    fn memories(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        16
    }
}
