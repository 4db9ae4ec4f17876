//! Frames that an input has moved to the other port of its switch itself: those of a pipe.

use std::sync::atomic::{Ordering, fence};

use super::passed::Passed;
use super::workspace::{NO_PORT, Workspace};
use crate::frame::DropReason;
use crate::port::{CallReason, Input, Moved};
use crate::topology::{Context, Member};

/// Counts what the input has moved, and calls the other port's client.
#[inline]
pub(super) fn handle_moved(context: Context<'_>, input: &mut dyn Input, work: &mut Workspace) -> Passed {
    let moved = input.take_moved();
    if moved == Moved::default() { Passed::default() } else { account(context, &moved, work) }
}

#[cold]
fn account(context: Context<'_>, moved: &Moved, work: &mut Workspace) -> Passed {
    let Context { from, switch, now } = context;
    from.port.counters().add_in(moved.frames, moved.bytes);
    from.port.counters().drop_in(DropReason::BadBuffer, moved.bad_here);
    // All stores to clients' memory are before the loads of their wishes.
    fence(Ordering::SeqCst);
    // Slots that went back are work as well: a receiver that returns slots all the time is not idle.
    let frames = moved.frames + moved.returned;
    let mut passed = Passed { frames, more: moved.more, is_exhausted: moved.more, ..Passed::default() };
    for to in switch.members().filter(|to| to.owner != from.owner) {
        count_given(to, moved);
        if let Some(fault) = moved.other_fault {
            to.port.fail(fault);
            passed.receiver_fault = true;
        }
        work.calling = to.owner.index();
        work.touching.begin(&to.port);
        if moved.frames > 0 || moved.calls_again {
            passed.receiver_fault |= work.calls.ring(&to.port, CallReason::Frames, now);
        }
        if moved.returned > 0 || moved.calls_again {
            passed.receiver_fault |= work.calls.ring(&to.port, CallReason::Room, now);
        }
        work.touching.end();
        work.calling = NO_PORT;
    }
    passed
}

/// Counts the frames at their receiver.
fn count_given(to: &Member, moved: &Moved) {
    // Who holds the output writes its counters.
    let _output = to.port.output();
    let given = moved.frames.saturating_sub(moved.bad_here).saturating_sub(moved.bad_there);
    to.port.counters().add_out(given, moved.bytes);
    to.port.counters().drop_out(DropReason::BadBuffer, moved.bad_there);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{Armed, Discarded, PortFault, WakeOn};
    use crate::testing::Plan;
    use crate::{Batch, Time, pass};

    /// An end of a pipe that has moved this.
    struct Moves(Moved);

    impl Input for Moves {
        fn collect<'m>(&'m mut self, _: &mut Batch<'m>) -> Result<(), PortFault> {
            Ok(())
        }

        fn release(&mut self) {}

        fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
            Ok(Discarded::default())
        }

        fn pending(&mut self) -> bool {
            true
        }

        fn arm(&mut self, _: WakeOn) -> Armed {
            Armed::Kick
        }

        fn disarm(&mut self) {}

        fn take_moved(&mut self) -> Moved {
            self.0
        }
    }

    #[test]
    fn a_receiver_that_returns_slots_is_not_idle_and_counts_no_frames() {
        let mut lan = Plan::new(2).learning();
        let from = lan.switch.member(0).expect("a port");
        let passed = pass(
            &lan.switch,
            from,
            &mut Moves(Moved { returned: 7, ..Moved::default() }),
            &mut lan.work,
            &Time::at_second(1),
        );
        assert_eq!((passed.frames, passed.more), (7, false));
        assert_eq!((lan.counters(0).in_frames, lan.counters(1).out_frames), (0, 0));
    }

    #[test]
    fn a_client_that_is_called_again_is_called_for_frames_and_for_room_and_nothing_is_counted() {
        let mut lan = Plan::new(2).learning();
        let from = lan.switch.member(0).expect("a port");
        let again = Moved { calls_again: true, ..Moved::default() };
        let passed = pass(&lan.switch, from, &mut Moves(again), &mut lan.work, &Time::at_second(1));
        assert_eq!((passed.frames, lan.sink(1, |kept| kept.rings), lan.counters(1).out_frames), (0, 2, 0));
    }
}
