//! Ports with a detour: they are given what others left for them.

use std::sync::atomic::{Ordering, fence};

use super::workspace::Workspace;
use crate::batch::BatchStorage;
use crate::defect::giving;
use crate::port::News;
use crate::time::Time;
use crate::topology::Member;

/// What came of [`empty`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    /// Frames that were left, and their bytes.
    pub frames: u64,
    /// See `frames`.
    pub bytes: u64,
    /// The port broke the rules and must end: [`crate::Port::fault`] says how.
    pub fault: bool,
}

/// Gives a port what others left for it ([`crate::Port::begin_detour`]), for the one thread that does.
#[cold]
pub fn empty(member: &Member, work: &mut Workspace, now: &Time) -> Emptied {
    giving(|| give_left(member, work, now))
}

fn give_left(member: &Member, work: &mut Workspace, now: &Time) -> Emptied {
    if !member.port.detour().has_something() {
        return Emptied::default();
    }
    let Some(taken) = member.port.detour().take() else { return Emptied::default() };
    let mut emptied = Emptied { frames: taken.frames() as u64, bytes: taken.bytes() as u64, fault: false };
    for &(news, call) in &taken.calls {
        work.calls.take_over(&member.port, news, call);
    }
    if taken.frames() > 0 {
        let storage = work.batch.take().unwrap_or_else(|| BatchStorage::new(work.limit));
        let mut output = member.port.output();
        let (storage, given) = work.delivery.give_taken(&taken, storage, &mut **output, member.port.counters());
        drop(output);
        work.batch = Some(storage);
        if let Err(fault) = given {
            member.port.fail(fault);
            emptied.fault = true;
        }
    }
    member.port.detour().give_back(taken);
    if emptied.frames > 0 {
        fence(Ordering::SeqCst);
        emptied.fault |= work.calls.ring(&member.port, News::Frames, now);
    }
    emptied
}
