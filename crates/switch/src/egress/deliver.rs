//! Delivery: a list of frames for each destination, and each destination served once (VALE §3.3.2).

use super::flood::Flood;
use super::limit::BeyondLimit;
use super::outgoing::Outgoing;
use super::tag::{needs_retag, retain_heard};
use super::transmit::Transmitter;
use crate::batch::{Audience, Batch, Destination, Lists};
use crate::forward::receiver;
use crate::policy::Cause;
use crate::port::{DeliveryTime, TimeSpent, Touching};
use crate::time::{Measure, Moment};
use crate::topology::Context;

/// Delivers batches. Its memory is kept between passes, and only the lists that were used are cleared.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(super) lists: Lists,
    /// Frame indices of the list that is being delivered.
    order: Vec<u16>,
    /// The indices of all frames of a batch: 0, 1, 2, ...
    pub(super) all: Box<[u16]>,
    pub(super) transmitter: Transmitter,
    /// Number of frames in the batch that is being delivered. 0: no batch is.
    pub(super) delivering: usize,
}

/// Result of stage "deliver".
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    /// A receiver broke the rules.
    pub(crate) fault: bool,
    /// Set if the whole batch went to one port, and that port's limit refused the last frames.
    pub(crate) exhausted: Option<Exhausted>,
}

/// A batch with a single destination port whose limit refused the last frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exhausted {
    /// The destination port.
    pub(crate) port: u16,
    /// Both Ethernet addresses of the last frame.
    pub(crate) addresses: [u8; 12],
    /// True if the first frame has the same addresses.
    pub(crate) is_uniform: bool,
    /// Number of frames that the limit let pass.
    pub(crate) given: usize,
    /// Which limit refused the others.
    pub(crate) cause: Cause,
}

impl Delivery {
    pub(crate) fn new(batch_limit: usize, touching: Touching) -> Delivery {
        let (lists, order) = (Lists::new(batch_limit), Vec::with_capacity(batch_limit));
        let (all, transmitter) = ((0..batch_limit as u16).collect(), Transmitter::new(batch_limit, touching));
        Delivery { lists, order, all, transmitter, delivering: 0 }
    }

    /// Stage "deliver": serves every destination of the batch once.
    #[inline(always)]
    pub(crate) fn deliver(&mut self, out: Outgoing<'_, '_, '_>) -> Delivered {
        self.transmitter.served.clear();
        self.transmitter.progress.clear();
        self.delivering = out.batch.len();
        let delivered = if let Some(Destination::Port(port)) = out.batch.only_destination()
            && !out.context.switch.is_watched()
            && let Some(retag) = retag_all(out, port)
        {
            self.deliver_all(out, port, retag)
        } else {
            Delivered { fault: self.deliver_lists(out), exhausted: None }
        };
        self.delivering = 0;
        delivered
    }

    /// Delivers a batch whose frames all go to one port, without captures or mirrors. This is the usual case.
    #[inline(always)]
    fn deliver_all(&mut self, out: Outgoing<'_, '_, '_>, port: u16, retag: bool) -> Delivered {
        let Outgoing { context: &Context { from, switch, .. }, batch, .. } = out;
        let to = match receiver(port, from, switch) {
            Ok(to) => to,
            Err(reason) => {
                from.port.counters().drop_in(reason, batch.len() as u64);
                return Delivered::default();
            }
        };
        let all = &self.all[..batch.len()];
        let transmitted = self.transmitter.transmit(out, all, to, None, retag.then_some(&to.vlans));
        let exhausted =
            transmitted.beyond.filter(|beyond| !beyond.is_listed).map(|beyond| exhausted(batch, port, beyond));
        Delivered { fault: transmitted.fault, exhausted }
    }

    /// Delivers a batch whose frames go to several ports, or that captures or mirrors see.
    #[inline(never)]
    fn deliver_lists(&mut self, out: Outgoing<'_, '_, '_>) -> bool {
        let Outgoing { context, batch, .. } = out;
        let &Context { from, switch, .. } = context;
        self.sort(*context, batch);
        let flood = self.lists.has_flood().then(|| Flood::new(*context, batch, &self.lists));
        let audience = flood.and_then(|flood| flood.audience());
        let (mut fault, mut is_heard) = (false, false);
        for place in 0..self.lists.used().len() {
            let port = self.lists.used()[place];
            let hears = flood.is_some_and(|flood| flood.is_heard_by(port));
            is_heard |= hears;
            fault |= self.deliver_list(out, port, hears, audience);
        }
        if let Some(flood) = flood {
            for &port in switch.flooded() {
                if !self.lists.has(port) && flood.is_heard_by(port) {
                    fault |= self.deliver_list(out, port, true, audience);
                    is_heard = true;
                }
            }
            flood.count_undeliverable(batch, &self.lists, is_heard);
        }
        self.lists.clear();
        if switch.is_watched() {
            let mirrors = switch.watch(from.owner.index()).map_or(&[][..], |watch| &watch.mirrors_in);
            fault |= self.transmitter.copy_to_mirrors(out, &self.all[..batch.len()], mirrors, None);
            self.transmitter.serve_mirrors();
        }
        fault
    }

    /// The ports, including mirrors, that were given frames in this pass.
    #[inline(always)]
    pub(crate) fn served(&self) -> &[u16] {
        &self.transmitter.served
    }

    /// Time that each receiver took, while passes are examined. `None` while they are not.
    #[inline(always)]
    pub(crate) fn examined(&mut self) -> &mut Option<Vec<DeliveryTime>> {
        &mut self.transmitter.examined
    }

    /// The clock for the time of software offloads, and the nanoseconds that they took, while passes are examined.
    pub(crate) fn offloading(&mut self) -> (&mut Option<Measure>, &mut u64) {
        (&mut self.transmitter.scratch.offload.clock, &mut self.transmitter.offloading)
    }

    /// Takes the nanoseconds of offloads that no delivery of a pass has taken.
    #[cold]
    pub(crate) fn take_cutting(&mut self) -> u64 {
        std::mem::take(&mut self.transmitter.scratch.offload.spent)
    }

    /// Time that each receiver took, while passes are examined.
    pub(crate) fn given(&self) -> &[DeliveryTime] {
        self.transmitter.examined.as_deref().unwrap_or_default()
    }

    /// While passes are examined: counts the time since `began` for a port.
    #[cold]
    pub(crate) fn note_called(&mut self, port: u16, began: Option<Moment>) {
        if let (Some(began), Some(measure)) = (began, self.measure()) {
            self.transmitter.note_spent(port, TimeSpent::between(began, measure()));
        }
    }

    /// What measures, while passes are examined.
    #[cold]
    pub(crate) fn measure(&self) -> Option<Measure> {
        self.transmitter.scratch.offload.clock
    }

    /// Links every frame to the list of its destination. Frames without a destination count as dropped at the source.
    /// Consecutive frames with one destination are linked in one step.
    #[inline]
    fn sort(&mut self, context: Context<'_>, batch: &Batch<'_>) {
        let Context { from, switch, .. } = context;
        let mut first = 0;
        while let Some((destination, end)) = batch.run(first) {
            match destination {
                Destination::Port(port) => match receiver(port, from, switch) {
                    Ok(_) => self.lists.link(port, first, end),
                    Err(reason) => from.port.counters().drop_in(reason, (end - first) as u64),
                },
                Destination::Flood => self.lists.link_flooded(first, end),
                Destination::Drop(reason) => from.port.counters().drop_in(reason, (end - first) as u64),
            }
            first = end;
        }
    }

    /// Gives a port its unicast frames, and the flooded frames of its audience if `hears` is true. Returns true if the port broke the
    /// rules.
    #[inline]
    fn deliver_list(&mut self, out: Outgoing<'_, '_, '_>, port: u16, hears: bool, audience: Option<&Audience>) -> bool {
        let Outgoing { context, batch, .. } = out;
        let Some(to) = context.switch.member(port) else { return false };
        self.lists.order(&mut self.order, port, hears);
        if let Some(audience) = audience {
            self.order.retain(|&index| audience.hears(index.into(), port));
            if self.order.is_empty() {
                return false;
            }
        }
        let mut retag = false;
        if context.switch.has_vlans() {
            retag = retain_heard(&mut self.order, batch, context.from, to);
            if self.order.is_empty() {
                return false;
            }
        }
        self.transmitter.transmit_in_list(out, &self.order, to, retag.then_some(&to.vlans)).fault
    }
}

/// Returns whether the frames need a tag added or removed, if this is equal for the whole batch and the port may be
/// given all of it. `None`: each frame must be checked.
#[inline]
fn retag_all(out: Outgoing<'_, '_, '_>, port: u16) -> Option<bool> {
    let Outgoing { context, batch, .. } = out;
    if !context.switch.has_vlans() {
        return Some(false);
    }
    needs_retag(batch, context.from, context.switch.member(port)?)
}

/// Describes a batch with a single destination port whose limit refused the last frames.
#[cold]
fn exhausted(batch: &Batch<'_>, port: u16, beyond: BeyondLimit) -> Exhausted {
    let addresses_of = |index: usize| batch.head(index)[..12].try_into().unwrap_or_default();
    let addresses: [u8; 12] = addresses_of(batch.len() - 1);
    let is_uniform = addresses == addresses_of(0);
    Exhausted { port, addresses, is_uniform, given: beyond.given, cause: beyond.cause }
}
