//! How an end leaves: a thread for closings moves its last frames and hands its slots over, in steps.
//!
//! The memory of both ends can make a step last (`docs/decisions/waits.md`). So a step counts against the processes of both, waits for
//! no lock, and all steps of an end together have a limited time.

use std::num::NonZeroU32;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ringway_abi::netmap::PipeRole;
use ringway_port::front_end::{Parties, pause_step};
use ringway_runtime::{contain, warn_limited};

use super::super::region::RegionPort;
use super::closing::ENDS;
use super::lane::{Allowance, Lane, Transfer};
use super::state::{End, Pipe, Stage, State};

/// Most slots that one step moves. Meanwhile no poller has the pipe.
const MOST_STEP: u32 = 256;
/// Time that a step may take: 2 MiB with a page fault for each page take less.
const STEP_TIME: Duration = Duration::from_millis(10);
/// An end that was closed, until it has left.
pub(super) struct Leaving {
    pipe: Arc<Pipe>,
    role: PipeRole,
    parties: Parties,
    has_left: bool,
    /// The other end, whose clients have to be called.
    other: Weak<RegionPort>,
}

/// What a step has done.
struct Step {
    has_left: bool,
    other: Weak<RegionPort>,
    lost: u32,
}

impl Leaving {
    /// Makes one step, and calls the clients of the other end: they may have got frames, or slots to send from. Returns the processes
    /// that the next step counts against, or none after the last one. If the other end has another process than the step counts
    /// against, the step does nothing.
    pub(super) fn step(&mut self) -> Option<Parties> {
        let is_done = contain(|| self.make_step()).unwrap_or_else(|place| {
            warn_limited(&format!(
                "a defect of Ringway, please report it: it failed at {place} when it closed an end of a pipe"
            ));
            if !self.has_left {
                let _ = self.pipe.failure.set(place);
            }
            self.has_left
        });
        (!is_done).then_some(self.parties)
    }

    fn make_step(&mut self) -> bool {
        if !self.has_left {
            let counted = std::mem::replace(&mut self.parties, self.pipe.parties(self.role));
            let Some(step) = self.pipe.step_close(self.role, counted) else {
                pause_step();
                return false;
            };
            if step.lost > 0 {
                let [own, other] = counted.map(|process| process.map_or(0, NonZeroU32::get));
                warn_limited(&format!(
                    "last frames of a closed end of a pipe are lost, in {} slots: the memory of process {own} or {other} makes moving \
                     them last",
                    step.lost
                ));
            }
            (self.has_left, self.other) = (step.has_left, step.other);
        }
        // After a failure the other end's poller has to notice it.
        let has_called = self.other.upgrade().is_none_or(|other| {
            let has_kicked = !self.pipe.has_failed() || other.kick();
            other.call_all() && has_kicked
        });
        if !has_called {
            pause_step();
        }
        self.has_left && has_called
    }
}

impl Pipe {
    /// Closes an end, and returns at once. Another thread moves the frames that the end has published to the other end, in steps, and
    /// calls the clients of the other end. The frames that the end has not returned go to the next one that opens it.
    pub fn close(self: &Arc<Self>, role: PipeRole) {
        let mut leaving = self.begin_close(role);
        ENDS.close_in_steps(leaving.parties, move || leaving.step());
    }

    pub(super) fn begin_close(self: &Arc<Self>, role: PipeRole) -> Leaving {
        self.set(role, Stage::Closing);
        self.numbers[role as usize].store(0, Ordering::SeqCst);
        let (pipe, parties) = (Arc::clone(self), self.parties(role));
        Leaving { pipe, role, parties, has_left: false, other: Weak::new() }
    }

    /// Returns the processes of an end and of the other one, if that is open or has not left.
    fn parties(&self, role: PipeRole) -> Parties {
        let other = if self.is(role.other(), Stage::Closed) { role } else { role.other() };
        [role, other].map(|role| NonZeroU32::new(self.processes[role as usize].load(Ordering::Relaxed)))
    }

    /// Makes one step of closing an end, whose time counts against these processes. Returns none, without effect, if the ends have
    /// others, or while another thread has the pipe: it may wait for pages of clients.
    fn step_close(&self, role: PipeRole, counted: Parties) -> Option<Step> {
        // No end opens meanwhile.
        let mut guard = self.state.try_lock().filter(|_| self.parties(role) == counted)?;
        let State { ends, lanes, .. } = &mut *guard;
        let mut left = ends[role as usize].take();
        let other = ends[role.other() as usize].as_ref();
        let called = other.map_or_else(Weak::new, |other| Weak::clone(&other.port));
        // A failure can have left slots with either end: none are moved after it.
        if let Some(end) = &mut left
            && !self.has_failed()
        {
            let other = other.map(|other| (other, end.transfer(other)));
            // Nobody receives the last frames of an end whose peer closes, too.
            let receives = !self.is(role.other(), Stage::Closing);
            if !end.step_leave(role, other, lanes, receives) {
                ends[role as usize] = left;
                return Some(Step { has_left: false, other: called, lost: 0 });
            }
        }
        drop(guard);
        let lost = left.as_ref().map_or(0, |end| end.lost);
        // Its memory may go with it. Only then another program may open the end.
        drop(left);
        self.set(role, Stage::Closed);
        Some(Step { has_left: true, other: called, lost })
    }
}

impl End {
    /// Moves last frames, or hands slots over. Returns true if nothing is left to do.
    fn step_leave(
        &mut self,
        role: PipeRole,
        other: Option<(&End, Transfer)>,
        lanes: &mut [Box<[Lane]>; 2],
        receives: bool,
    ) -> bool {
        if let Some((other, transfer)) = other {
            let is_moving = receives && self.left == 0;
            if is_moving && !self.move_last(&mut lanes[role as usize], other, transfer) {
                return false;
            }
        }
        self.leave(role, other, lanes)
    }

    /// Moves as many of the last frames as one step may. Returns true if none is left, or their time is over.
    fn move_last(&mut self, lanes: &mut [Lane], other: &End, transfer: Transfer) -> bool {
        let (began, most) = (Instant::now(), self.rest.min(MOST_STEP));
        let mut allowance = Allowance::new(most, Pipe::MOST_BYTES).until(began + STEP_TIME + self.patience);
        let mut is_done = true;
        for (ring, lane) in lanes.iter_mut().enumerate() {
            // A `head` that is none of its slots publishes nothing.
            let taken = lane.take(&self.tx[ring], &other.rx[ring], transfer, &mut allowance);
            is_done &= taken.is_err() || taken.is_ok_and(|taken| taken.head.is_some());
        }
        self.rest -= most - allowance.slots;
        self.patience = self.patience.saturating_sub(began.elapsed().saturating_sub(STEP_TIME));
        if !is_done && self.patience.is_zero() {
            self.lost = lanes.iter().zip(&self.tx).map(|(lane, ring)| lane.published(ring)).sum();
        }
        is_done || self.rest == 0 || self.patience.is_zero()
    }

    /// Gives what the end has to the other end, if there is one: between them the slots change hands for the last time. Copies the
    /// slots of one ring pair at a time. Returns true after the last one. Slots that were handed over stay as they are: if both ends do
    /// so in turns, each is complete, and the one that stays longer has the buffers.
    fn leave(&mut self, role: PipeRole, other: Option<(&End, Transfer)>, lanes: &mut [Box<[Lane]>; 2]) -> bool {
        let swapping = other.filter(|(_, transfer)| *transfer == Transfer::Swap).map(|(other, _)| other);
        for ring in self.left..self.tx.len().max(self.rx.len()) {
            if swapping.is_some() && ring > self.left {
                self.left = ring;
                return false;
            }
            if let (Some(lane), Some(other)) = (lanes[role as usize].get(ring), swapping) {
                lane.leave_buffers(&self.tx[ring], &other.rx[ring]);
            }
            if let Some(lane) = lanes[role.other() as usize].get_mut(ring) {
                let from = other.map(|(other, transfer)| (&other.tx[ring], transfer));
                let _ = lane.give_back(&self.rx[ring], from, u32::MAX);
                lane.take_back(&self.rx[ring], from);
            }
        }
        if let Some(other) = swapping {
            self.part.set_has_buffers(false);
            other.part.set_has_buffers(true);
        }
        true
    }
}
