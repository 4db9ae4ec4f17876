//! A poller's memory between passes, and the ports to retire after a panic.

use std::sync::atomic::{Ordering, fence};

use crate::batch::{Batch, BatchStorage, MAX_BATCH};
use crate::defect::{Defect, PanicLocation, Role, take_receiving};
use crate::egress::Delivery;
use crate::frame::DropReason;
use crate::port::{CallReason, DeliveryTime, PendingCalls, Port, TimeSpent, Touching};
use crate::time::{Measure, Time};
use crate::topology::{Member, Switch};

/// Instead of a port index: no port.
pub(super) const NO_PORT: u16 = u16::MAX;

/// A poller's memory for passes, allocated once, and its pending calls.
#[derive(Debug)]
pub struct Workspace {
    pub(super) batch: Option<BatchStorage>,
    pub(super) delivery: Delivery,
    pub(super) limit: usize,
    /// The port whose client is being called after a batch was delivered, or [`NO_PORT`].
    pub(super) calling: u16,
    /// After a panic: ports whose clients were not called yet, and for which event.
    to_notify: Vec<(u16, CallReason)>,
    /// Memory for [`Workspace::given`], kept here while no pass is examined.
    spare: Vec<DeliveryTime>,
    pub(super) touching: Touching,
    /// The pending calls. The owner of the workspace makes them when they are due.
    pub calls: PendingCalls,
}

/// Nanoseconds that a byte of work ([`crate::Passed::work`]) takes at most: several times what it takes in far, uncached memory.
const LONGEST_BYTE: u64 = 2;

/// Number of receivers whose times are noted without an allocation.
const USUAL_RECEIVERS: usize = 64;

impl Workspace {
    /// Returns a workspace for batches of up to `batch` frames (1 to [`crate::MAX_BATCH`]).
    #[must_use]
    pub fn new(batch: usize) -> Workspace {
        Workspace::noting(batch, Touching::default())
    }

    /// The same of an owner that notes in `touching` whose memory it touches as a receiver.
    #[must_use]
    pub fn noting(batch: usize, touching: Touching) -> Workspace {
        let limit = batch.clamp(1, MAX_BATCH);
        Workspace {
            batch: Some(BatchStorage::new(limit)),
            delivery: Delivery::new(limit, touching),
            limit,
            calling: NO_PORT,
            to_notify: Vec::new(),
            spare: Vec::with_capacity(USUAL_RECEIVERS),
            calls: PendingCalls::noting(touching),
            touching,
        }
    }

    /// The note of the port whose memory the owner of the workspace touches as a receiver.
    #[must_use]
    pub fn touching(&self) -> Touching {
        self.touching
    }

    /// Returns an empty batch.
    #[inline(always)]
    pub(super) fn begin_batch<'m>(&mut self) -> Batch<'m> {
        self.batch.take().unwrap_or_else(|| BatchStorage::new(self.limit)).into_batch()
    }

    /// Keeps the memory of a batch for the next one.
    #[inline(always)]
    pub(super) fn end_batch(&mut self, batch: Batch<'_>) {
        self.batch = Some(batch.into_storage());
    }

    /// Cleans up after a panic in [`crate::pass()`], [`crate::handle_event`], [`crate::empty`] or
    /// [`Workspace::make_remaining_calls`] for `from`. Discards the interrupted batch, and retires the ports that were being
    /// served: the port whose client was being called, or otherwise `from` and every port that was being given frames.
    /// Frames of the batch that were not delivered count as dropped. Returns true if `from` is retired: its input must
    /// not be used any more.
    ///
    /// `from` is retired as [`Role::Source`] only if no other port took part. It is retired as [`Role::Sender`] if
    /// frames were being delivered, and as [`Role::Receiver`] if it was being given the frames in its backlog.
    ///
    /// Afterwards, call [`Workspace::make_remaining_calls`] for the ports that got their frames of the batch before the panic.
    #[cold]
    pub fn blame(&mut self, switch: &Switch, from: &Member, place: PanicLocation) -> bool {
        let delivery = std::mem::replace(&mut self.delivery, Delivery::new(self.limit, self.touching));
        self.touching.end();
        self.batch = None;
        let is_given = take_receiving();
        let retire = |port: &Port, role, lost| port.retire(Defect { role, place }, lost);
        let calling = std::mem::replace(&mut self.calling, NO_PORT);
        self.to_notify.push((from.owner.index(), CallReason::Room));
        if let Some(called) = switch.member(calling).filter(|called| called.owner != from.owner) {
            // All frames of the batch are delivered and released.
            let served = delivery.served().iter().skip_while(|&&port| port != calling).skip(1);
            self.to_notify.extend(served.map(|&port| (port, CallReason::Frames)));
            retire(&called.port, Role::Receiver, 0);
            return false;
        }
        let mut filled = None;
        for to in switch.members().filter(|to| to.owner != from.owner && to.port.is_output_broken()) {
            retire(&to.port, Role::Receiver, delivery.lost(Some(to)).of_filled);
            filled = Some(to);
        }
        from.port.counters().drop_in(DropReason::InternalError, delivery.lost(filled).of_others);
        let role = match (is_given, delivery.is_delivering()) {
            (true, _) => Role::Receiver,
            (false, true) => Role::Sender,
            (false, false) => Role::Source,
        };
        retire(&from.port, role, delivery.lost_of_backlog(from));
        if is_given {
            // No thread empties the backlog any more.
            from.port.abandon_detour();
        }
        self.to_notify.extend({ delivery }.take_served().into_iter().map(|port| (port, CallReason::Frames)));
        true
    }

    /// After [`Workspace::blame`]: calls the clients of the ports that got frames of the interrupted batch. Returns
    /// true if a port must end, with a fault.
    #[cold]
    pub fn make_remaining_calls(&mut self, switch: &Switch, now: &Time) -> bool {
        fence(Ordering::SeqCst);
        let mut fault = false;
        while let Some((port, reason)) = self.to_notify.pop() {
            let Some(member) = switch.member(port) else { continue };
            self.calling = port;
            self.touching.begin(&member.port);
            fault |= self.calls.ring(&member.port, reason, now);
            switch.watch(port).inspect(|watch| watch.ring());
            self.touching.end();
            self.calling = NO_PORT;
        }
        fault
    }
}

impl Workspace {
    /// Starts or stops measuring how much time each receiver takes. Starting clears earlier results.
    pub fn examine(&mut self, measure: Option<Measure>) {
        let (offloading, spent) = self.delivery.offloading();
        (*offloading, *spent) = (measure, 0);
        if let Some(mut given) = self.delivery.examined().take() {
            given.clear();
            self.spare = given;
        }
        if measure.is_some() {
            self.batch.as_ref().inspect(|batch| batch.make_resident());
            *self.delivery.examined() = Some(std::mem::take(&mut self.spare));
        }
    }

    /// What the switch computed for the source of the last pass, if that was examined: the time of the forwarding program, and of offloads
    /// in software, which is the longer the more receivers frames are cut for. `work` is that of the pass ([`crate::Passed::work`]), and
    /// explains the latter.
    pub fn take_source_time(&mut self, work: u64) -> TimeSpent {
        let offloading = std::mem::take(self.delivery.offloading().1);
        let program = self.batch.as_mut().map_or(0, BatchStorage::take_program_time);
        let nanoseconds = program.saturating_add(offloading);
        let explained = program.saturating_add(offloading.min(work.saturating_mul(LONGEST_BYTE)));
        TimeSpent { nanoseconds, explained, ..TimeSpent::default() }
    }

    /// Time that each receiver took since [`Workspace::examine`] was called.
    #[must_use]
    pub fn given(&self) -> &[DeliveryTime] {
        self.delivery.given()
    }
}
