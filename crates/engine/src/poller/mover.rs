//! Movers: what a poller does for them in another way than for the ports of a switch.
//!
//! A mover has a slot in the schedule, as a port has, so that it is looked at, armed, parked, charged and quarantined in the same way. A
//! visit to it is no pass: the mover moves the frames, and the poller counts them at both clients and calls the one that got them.

use std::sync::atomic::{Ordering, fence};

use ringway_runtime::thread_usage::moment;
use ringway_runtime::{Moved, Mover};
use ringway_switch::{CallReason, DropReason, PanicLocation, PortFault, Time, TimeSpent, Workspace};

use super::thread::{NO_PORT, Poller, Served};
use crate::schedule::Visit;
use crate::topology::{Attached, Ends, Place};

impl Poller {
    /// Tells a mover that it is served in this topology. Returns true if it has to be visited.
    #[cold]
    pub(super) fn adopt_mover(&mut self, slot: usize) -> bool {
        self.time(slot, |poller| {
            let Some(Served { attached, .. }) = poller.ports[slot].as_ref() else { return false };
            let Some(mut custody) = attached.source.hold(&poller.shift) else { return false };
            let Some(mover) = custody.mover() else { return false };
            mover.adopt();
            true
        })
    }

    /// Visits a mover. Also returns the bytes that had come from it before, with those that were not copied. The time of an examined visit is
    /// added to `source`.
    #[cold]
    pub(super) fn visit_mover(&mut self, slot: usize, source: Option<&mut TimeSpent>) -> (Visit, u64) {
        let mut visit = Visit::default();
        let Some(Served { attached, .. }) = self.ports[slot].as_ref() else { return (visit, 0) };
        let Place::Mover(ends) = &attached.place else { return (visit, 0) };
        let Some(mut custody) = attached.source.hold(&self.shift) else { return (visit, 0) };
        let Some(mover) = custody.mover() else { return (visit, 0) };
        self.note.serve(attached.source.id());
        let (moved, fault) = move_frames(mover, self.batch, source);
        let peer_fault = account(ends, &moved, &mut self.work, &self.now);
        let bytes = ends.own.counters().in_bytes().wrapping_sub(moved.copied);
        if let Some(fault) = fault {
            ends.own.fail(fault);
            custody.end();
        }
        if fault.is_some() || peer_fault {
            self.shared.report_fault();
        } else {
            visit.more = moved.more || work_of(&moved) >= self.batch as u64;
        }
        visit.frames = work_of(&moved);
        self.note.serve(NO_PORT);
        (visit, bytes)
    }

    /// Retires the mover's client after a panic in work for it, or its peer, if that was being called.
    pub(super) fn blame_mover(&mut self, attached: &Attached, place: PanicLocation) {
        let own_goes = attached.port().is_none_or(|port| self.work.blame_beside(port, place));
        if own_goes {
            self.drop_work(attached);
        }
    }
}

/// What a visit was worth. Slots that went back are work as well: a receiver that returns slots all the time is not idle.
fn work_of(moved: &Moved) -> u64 {
    moved.frames + moved.returned
}

/// Has a mover move what it has, and adds the time to `source`.
fn move_frames(mover: &mut dyn Mover, most: usize, source: Option<&mut TimeSpent>) -> (Moved, Option<PortFault>) {
    let mut moved = Moved::default();
    let Some(source) = source else {
        let fault = if mover.pending() { mover.move_frames(most, &mut moved).err() } else { None };
        return (moved, fault);
    };
    let mut began = moment();
    let pending = mover.pending();
    source.add(TimeSpent::between(began, moment()));
    if !pending {
        return (moved, None);
    }
    began = moment();
    let fault = mover.move_frames(most, &mut moved).err();
    source.add(TimeSpent { frames: moved.frames, bytes: moved.copied, ..TimeSpent::between(began, moment()) });
    (moved, fault)
}

/// Counts at both clients what was moved, and calls the one that got it. Returns true if that one has a fault.
fn account(ends: &Ends, moved: &Moved, work: &mut Workspace, now: &Time) -> bool {
    if *moved == Moved::default() {
        return false;
    }
    let own = ends.own.counters();
    own.add_in(moved.frames, moved.bytes);
    own.drop_in(DropReason::BadBuffer, moved.bad_here);
    // All stores to clients' memory are before the loads of their wishes.
    fence(Ordering::SeqCst);
    let Some(peer) = &ends.peer else { return false };
    peer.count_given(|counters| {
        let given = moved.frames.saturating_sub(moved.bad_here).saturating_sub(moved.bad_there);
        counters.add_out(given, moved.bytes);
        counters.drop_out(DropReason::BadBuffer, moved.bad_there);
    });
    moved.other_fault.into_iter().for_each(|fault| peer.fail(fault));
    let mut has_fault = moved.other_fault.is_some();
    if moved.frames > 0 || moved.calls_again {
        has_fault |= work.call(peer, CallReason::Frames, now);
    }
    if moved.returned > 0 || moved.calls_again {
        has_fault |= work.call(peer, CallReason::Room, now);
    }
    has_fault
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use ringway_runtime::clock;
    use ringway_switch::{Bell, CallResult, Port};

    use super::*;

    /// Counts the calls, by reason.
    #[derive(Clone, Default)]
    struct Calls(Arc<[AtomicU64; 2]>);

    impl Bell for Calls {
        fn ring(&self, reason: CallReason) -> CallResult {
            self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
            CallResult::Unwanted
        }
    }

    /// Accounts for what was moved between two clients. Returns the ports, and the calls of the second one.
    fn accounted(moved: Moved) -> (Ends, [u64; 2], bool) {
        let calls = Calls::default();
        let port = |bell: &Calls| Arc::new(Port::without_output("p", Box::new(bell.clone())));
        let ends = Ends { own: port(&Calls::default()), peer: Some(port(&calls)) };
        let has_fault = account(&ends, &moved, &mut Workspace::new(1), &clock::time(Instant::now()));
        (ends, [0, 1].map(|reason: usize| calls.0[reason].load(Ordering::Relaxed)), has_fault)
    }

    #[test]
    fn a_receiver_that_returns_slots_is_not_idle_and_counts_no_frames() {
        let moved = Moved { returned: 7, ..Moved::default() };
        let (ends, calls, _) = accounted(moved);
        assert_eq!(work_of(&moved), 7);
        assert_eq!(calls, [0, 1].map(|reason| u64::from(reason == CallReason::Room as u64)));
        assert_eq!((ends.own.counters().in_frames(), ends.peer.expect("a peer").counters().out_frames()), (0, 0));
    }

    #[test]
    fn a_client_that_is_called_again_is_called_for_frames_and_for_room_and_nothing_is_counted() {
        let (ends, calls, _) = accounted(Moved { calls_again: true, ..Moved::default() });
        assert_eq!((calls, ends.peer.expect("a peer").counters().out_frames()), ([1, 1], 0));
    }

    #[test]
    fn a_frame_without_a_buffer_is_dropped_where_its_slots_are_wrong() {
        let moved = Moved { frames: 9, bytes: 90, bad_here: 2, bad_there: 3, ..Moved::default() };
        let (ends, ..) = accounted(moved);
        let [own, peer] = [&ends.own, ends.peer.as_ref().expect("a peer")].map(|port| port.counters().read());
        assert_eq!((own.in_frames, own.in_bytes, own.dropped(DropReason::BadBuffer)), (9, 90, 2));
        assert_eq!((peer.out_frames, peer.out_bytes, peer.dropped(DropReason::BadBuffer)), (4, 90, 3));
    }

    #[test]
    fn a_peer_whose_memory_is_lost_ends_and_the_mover_does_not() {
        let (ends, _, has_fault) = accounted(Moved { other_fault: Some(PortFault::MemoryLost), ..Moved::default() });
        let faults = (ends.own.fault(), ends.peer.expect("a peer").fault());
        assert_eq!((has_fault, faults), (true, (None, Some(PortFault::MemoryLost))));
    }
}
