//! What a poller keeps between passes, and whose a panic is.

use std::sync::atomic::{Ordering, fence};

use crate::batch::{BatchStorage, MAX_BATCH};
use crate::defect::{Defect, Place, Role, take_giving};
use crate::egress::Delivery;
use crate::frame::DropReason;
use crate::port::{Given, News, PendingCalls, Port};
use crate::time::Time;
use crate::topology::{Member, Switch};

/// No port of a switch.
pub(super) const NOBODY: u16 = u16::MAX;

/// What a poller needs for passing frames, allocated once, and the calls that its passes left pending.
#[derive(Debug)]
pub struct Workspace {
    pub(super) batch: Option<BatchStorage>,
    pub(super) delivery: Delivery,
    pub(super) limit: usize,
    /// The port that is being called, after a batch was delivered; [`NOBODY`].
    pub(super) calling: u16,
    /// After a panic: ports with news of which they were not told.
    untold: Vec<(u16, News)>,
    /// Memory for [`Workspace::given`], while no pass is examined.
    spare: Vec<Given>,
    /// To be made when they are due, by whoever has the workspace.
    pub calls: PendingCalls,
}

/// Receivers of a pass whose times are noted without an allocation.
const USUAL_RECEIVERS: usize = 64;

impl Workspace {
    /// For batches of up to `batch` frames (1 to [`crate::MAX_BATCH`]).
    #[must_use]
    pub fn new(batch: usize) -> Workspace {
        let limit = batch.clamp(1, MAX_BATCH);
        let (batch, delivery) = (Some(BatchStorage::new(limit)), Delivery::new(limit));
        let (untold, spare, calls) = (Vec::new(), Vec::with_capacity(USUAL_RECEIVERS), PendingCalls::new());
        Workspace { batch, delivery, limit, calling: NOBODY, untold, spare, calls }
    }

    /// After a panic in [`crate::pass`], [`crate::see_news`], [`crate::empty`] or [`Workspace::tell_rest`] for `from`: what was half done is thrown
    /// away, and whose it was is retired: the port that was being called, or else `from` and every port that was being given
    /// frames. Their frames of the batch are counted as lost. True when `from` is retired: its input is of no use any more.
    ///
    /// `from` is a [`Role::Source`] only where nobody else chose what was read: while frames are delivered it is a
    /// [`Role::Sender`], and while it is given what others left for it, a [`Role::Receiver`].
    ///
    /// Ports that have their frames of the batch are to be told by [`Workspace::tell_rest`].
    #[cold]
    pub fn blame(&mut self, switch: &Switch, from: &Member, place: Place) -> bool {
        let delivery = std::mem::replace(&mut self.delivery, Delivery::new(self.limit));
        self.batch = None;
        let is_given = take_giving();
        let retire = |port: &Port, role, lost| port.retire(Defect { role, place }, lost);
        let calling = std::mem::replace(&mut self.calling, NOBODY);
        self.untold.push((from.owner.index(), News::Room));
        if let Some(called) = switch.member(calling).filter(|called| called.owner != from.owner) {
            // All frames are where they belong, and the input has its own back.
            let served = delivery.served.iter().skip_while(|&&port| port != calling).skip(1);
            self.untold.extend(served.map(|&port| (port, News::Frames)));
            retire(&called.port, Role::Receiver, 0);
            return false;
        }
        let mut filled = None;
        for to in switch.members().filter(|to| to.owner != from.owner && to.port.is_output_broken()) {
            retire(&to.port, Role::Receiver, delivery.lost(Some(to)).0);
            filled = Some(to);
        }
        from.port.counters().drop_in(DropReason::InternalError, delivery.lost(filled).1);
        let role = match (is_given, delivery.is_delivering()) {
            (true, _) => Role::Receiver,
            (false, true) => Role::Sender,
            (false, false) => Role::Source,
        };
        retire(&from.port, role, delivery.lost_of_left(from));
        if is_given {
            // Nobody empties it any more.
            from.port.abandon_detour();
        }
        self.untold.extend({ delivery }.take_served().into_iter().map(|port| (port, News::Frames)));
        true
    }

    /// After [`Workspace::blame`]: calls the clients of the ports that have news since the batch. True when that cost a port its
    /// place, as [`crate::Passed::receiver_fault`].
    #[cold]
    pub fn tell_rest(&mut self, switch: &Switch, now: &Time) -> bool {
        fence(Ordering::SeqCst);
        let mut fault = false;
        while let Some((port, news)) = self.untold.pop() {
            let Some(member) = switch.member(port) else { continue };
            self.calling = port;
            fault |= self.calls.ring(&member.port, news, now);
            switch.watch(port).inspect(|watch| watch.ring());
            self.calling = NOBODY;
        }
        fault
    }
}

impl Workspace {
    /// Starts to note what each receiver takes of the passes, from nothing, or ends it.
    pub fn examine(&mut self, on: bool) {
        if let Some(mut given) = self.delivery.given.take() {
            given.clear();
            self.spare = given;
        }
        if on {
            self.delivery.given = Some(std::mem::take(&mut self.spare));
        }
    }

    /// What receivers took since [`Workspace::examine`] was called.
    #[must_use]
    pub fn given(&self) -> &[Given] {
        self.delivery.given.as_deref().unwrap_or_default()
    }
}
