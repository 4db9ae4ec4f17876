//! Waking the clients of the ports that a pass has served.

use std::sync::atomic::{Ordering, fence};

use super::workspace::Workspace;
use crate::port::{Input, News};
use crate::time::Time;
use crate::topology::{Member, Switch};

/// Rings at the ports that were given frames, and notes how long each took.
#[cold]
pub(super) fn ring_examined(switch: &Switch, work: &mut Workspace, now: &Time) -> bool {
    let mut fault = false;
    for place in 0..work.delivery.served.len() {
        let port = work.delivery.served[place];
        if let Some(member) = switch.member(port) {
            work.calling = port;
            let began = (now.read)();
            fault |= work.calls.ring(&member.port, News::Frames, now);
            work.delivery.note_given(member.owner.index(), began, 0, 0, now);
        }
    }
    fault
}

/// Rings at the port that frames came from; where receivers' times are noted, so is this one's.
#[inline(always)]
pub(super) fn ring_source(from: &Member, work: &mut Workspace, now: &Time) -> bool {
    if work.delivery.given.is_none() {
        return work.calls.ring(&from.port, News::Room, now);
    }
    let began = (now.read)();
    let fault = work.calls.ring(&from.port, News::Room, now);
    work.delivery.note_given(from.owner.index(), began, 0, 0, now);
    fault
}

/// Of a port whose frames may not pass, or that has none: tells its client what else came up. True when that cost the port its
/// place, as [`crate::Passed::receiver_fault`].
pub fn see_news(from: &Member, input: &mut dyn Input, work: &mut Workspace, now: &Time) -> bool {
    if !input.has_news() {
        return false;
    }
    fence(Ordering::SeqCst);
    let fault = work.calls.ring(&from.port, News::Room, now);
    from.port.output().count_late(from.port.counters());
    fault
}
