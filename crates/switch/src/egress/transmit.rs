//! Delivery to one port: the output's lock, the chain of wrappers, and the port's mirrors.

use super::chain::{Chain, Scratch};
use super::detour::divert;
use super::limit::BeyondLimit;
use super::outgoing::Outgoing;
use super::progress::{BacklogProgress, Progress};
use super::receiver::Receiver;
use crate::batch::Frames;
use crate::frame::MAX_PORTS;
use crate::policy::Membership;
use crate::port::{DeliveryTime, TimeSpent, Touching, Watch};
use crate::time::Moment;
use crate::topology::Member;

/// Delivers frames to one port after the other. Its memory is kept between passes.
#[derive(Debug)]
pub(super) struct Transmitter {
    pub(super) progress: Progress,
    pub(super) backlog: BacklogProgress,
    pub(super) scratch: Scratch,
    /// Ports that were given frames in this pass.
    pub(super) served: Vec<u16>,
    /// Mirrors that were given frames in this pass.
    pub(super) mirrors: Vec<u16>,
    /// Time that each receiver took, while passes are examined. The time of software offloads is not in it.
    pub(super) examined: Option<Vec<DeliveryTime>>,
    /// Nanoseconds of software offloads, while passes are examined: the work that a sender leaves to the switch.
    pub(super) offloading: u64,
    /// Names the port that is being given frames.
    touching: Touching,
}

/// Result of a delivery to one port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transmitted {
    /// A port broke the rules.
    pub(super) fault: bool,
    /// The port's limit refused some frames.
    pub(super) beyond: Option<BeyondLimit>,
}

impl Transmitter {
    pub(super) fn new(batch_limit: usize, touching: Touching) -> Transmitter {
        Transmitter {
            progress: Progress::default(),
            backlog: BacklogProgress::default(),
            scratch: Scratch::new(batch_limit),
            served: Vec::with_capacity(MAX_PORTS),
            mirrors: Vec::with_capacity(MAX_PORTS),
            examined: None,
            offloading: 0,
            touching,
        }
    }

    /// Delivers the frames with the indices `order` to a port. `watch`: the port's captures and mirrors. `tags`: the
    /// port's VLANs, if some frames need a tag added or removed.
    #[inline(always)]
    pub(super) fn transmit(
        &mut self,
        out: Outgoing<'_, '_, '_>,
        order: &[u16],
        to: &Member,
        watch: Option<&Watch>,
        tags: Option<&Membership>,
    ) -> Transmitted {
        let Outgoing { context, batch, is_reserved } = out;
        let is_shared = to.port.congestion().is_on(context.now.nanoseconds);
        // This comes before the lock: the own thread of a port in quarantine may hold it for a long time.
        if is_shared
            && to.port.detour().is_on()
            && let Some(transmitted) = self.divert(out, order, to, watch, tags)
        {
            return transmitted;
        }
        let counters = to.port.counters();
        let mut output = to.port.output();
        // After the lock: who waits for it touches nobody's memory.
        self.touching.begin(&to.port);
        let began = self.examined.is_some().then(|| self.begin());
        self.progress.begin(order.len(), counters);
        self.served.push(to.owner.index());

        let before = counters.delivered_and_lost();
        let receiver = Receiver::new(to, watch, context, &self.progress);
        let chain = Chain {
            receiver,
            limit: to.egress(),
            is_reserved,
            is_shared,
            is_detour: false,
            tags,
            coalesces: to.coalesces,
        };
        let mut beyond = None;
        let result = chain.deliver(Frames::of(batch, order), &mut **output, &mut self.scratch, &mut beyond);
        let after = counters.delivered_and_lost();

        if after.1 != before.1 && !is_shared {
            let bytes = after.0.wrapping_sub(before.0);
            to.port.congestion().begin(context.from.sender(), bytes, context.now.nanoseconds);
        }
        if is_shared || beyond.is_some() {
            // Some frames may have been dropped before they came to the output.
            output.note_losses(counters);
            // Frames that were cut are refused as segments, which are more than the frames of the batch.
            if self.progress.frames() == 0 && self.progress.given(counters) == 0 {
                self.served.pop();
            }
        }
        self.touching.end();
        drop(output);
        let mut fault = false;
        if let Err(broke) = result {
            to.port.fail(broke);
            fault = true;
        }
        if let Some(began) = began {
            self.note_given(out, order, to.owner.index(), began);
        }
        if let Some(watch) = watch {
            fault |= self.mirror(out, order, beyond, &watch.mirrors_out, tags);
        }
        Transmitted { fault, beyond }
    }

    /// Adds the frames to the backlog of a port in quarantine. Returns `None` if the port's detour has ended.
    #[cold]
    #[inline(never)]
    fn divert(
        &mut self,
        out: Outgoing<'_, '_, '_>,
        order: &[u16],
        to: &Member,
        watch: Option<&Watch>,
        tags: Option<&Membership>,
    ) -> Option<Transmitted> {
        let Outgoing { context, batch, is_reserved } = out;
        let receiver = Receiver::new(to, watch, context, &self.progress);
        let (is_shared, is_detour) = (true, true);
        let chain = Chain { receiver, limit: to.egress(), is_reserved, is_shared, is_detour, tags, coalesces: false };
        let beyond = divert(chain, Frames::of(batch, order), &mut self.scratch)?;
        let mirrors = watch.map_or(&[][..], |watch| &watch.mirrors_out);
        Some(Transmitted { fault: self.mirror(out, order, beyond, mirrors, tags), beyond: None })
    }

    /// Delivers frames to one of several destinations. Not inlined: all callers share one copy of the code.
    #[inline(never)]
    pub(super) fn transmit_in_list(
        &mut self,
        out: Outgoing<'_, '_, '_>,
        order: &[u16],
        to: &Member,
        tags: Option<&Membership>,
    ) -> Transmitted {
        self.transmit(out, order, to, out.context.switch.watch(to.owner.index()), tags)
    }

    /// Delivers a copy of the frames that the limit of a port let pass to the port's mirrors. Returns true if a mirror broke the rules.
    #[cold]
    #[inline(never)]
    fn mirror(
        &mut self,
        out: Outgoing<'_, '_, '_>,
        order: &[u16],
        beyond: Option<BeyondLimit>,
        mirrors: &[u16],
        tags: Option<&Membership>,
    ) -> bool {
        let passed = std::mem::take(&mut self.scratch.passed);
        let given = match beyond {
            None => order,
            Some(beyond) if beyond.is_listed => &passed,
            Some(beyond) => &order[..beyond.given],
        };
        let fault = self.copy_to_mirrors(out, given, mirrors, tags);
        self.scratch.passed = passed;
        fault
    }

    /// Delivers a copy of the frames with the indices `order` to mirrors. `tags`: the VLANs of the mirrored port, if
    /// some frames need a tag added or removed. Returns true if a mirror broke the rules.
    #[cold]
    #[inline(never)]
    pub(super) fn copy_to_mirrors(
        &mut self,
        out: Outgoing<'_, '_, '_>,
        order: &[u16],
        mirrors: &[u16],
        tags: Option<&Membership>,
    ) -> bool {
        self.progress.end();
        let mut fault = false;
        for &port in mirrors.iter().filter(|_| !order.is_empty()) {
            let Some(mirror) = out.context.switch.member(port) else { continue };
            let receiver = Receiver::new(mirror, out.context.switch.watch(port), out.context, &self.progress);
            let chain = Chain {
                receiver,
                limit: None,
                is_reserved: false,
                is_shared: false,
                is_detour: false,
                tags,
                coalesces: false,
            };
            let frames = Frames::of(out.batch, order);
            if mirror.port.detour().is_on() && divert(chain, frames.clone(), &mut self.scratch).is_some() {
                continue;
            }
            if !self.mirrors.contains(&port) {
                self.mirrors.push(port);
            }
            let mut output = mirror.port.output();
            self.touching.begin(&mirror.port);
            let began = self.examined.is_some().then(|| self.begin());
            self.progress.begin(order.len(), mirror.port.counters());
            let result = chain.deliver(frames, &mut **output, &mut self.scratch, &mut None);
            self.touching.end();
            drop(output);
            if let Err(broke) = result {
                mirror.port.fail(broke);
                fault = true;
            }
            if let Some(began) = began {
                self.note_given(out, order, port, began);
            }
            self.progress.end();
        }
        fault
    }

    /// Moves the mirrors that were given frames into the list of served ports.
    #[cold]
    pub(super) fn serve_mirrors(&mut self) {
        self.served.append(&mut self.mirrors);
    }

    /// While passes are examined: counts the time since `began` and the frames that were not refused for a receiver.
    #[cold]
    #[inline(never)]
    fn note_given(&mut self, out: Outgoing<'_, '_, '_>, order: &[u16], port: u16, began: Moment) {
        let spent = TimeSpent::between(began, self.begin());
        let given = &order[..self.progress.frames().min(order.len())];
        let bytes = Frames::of(out.batch, given).map(|frame| frame.len() as u64).sum();
        // As many as the port counts: fewer if some were joined, more if some were cut.
        let frames = given.len().saturating_sub(self.progress.joined()) as u64;
        let segments = out.context.switch.member(port).map_or(0, |to| self.progress.given(to.port.counters()));
        let offloading = std::mem::take(&mut self.scratch.offload.spent);
        self.offloading = self.offloading.saturating_add(offloading);
        let nanoseconds = spent.nanoseconds.saturating_sub(offloading);
        self.note_spent(port, TimeSpent { nanoseconds, frames: frames.max(segments), bytes, ..spent });
    }

    /// The present moment, while passes are examined.
    #[cold]
    fn begin(&self) -> Moment {
        self.scratch.offload.clock.map_or_else(Moment::default, |measure| measure())
    }

    /// While passes are examined: counts time for a receiver.
    #[cold]
    pub(super) fn note_spent(&mut self, port: u16, spent: TimeSpent) {
        let Some(given) = &mut self.examined else { return };
        let place = given.iter().position(|given| given.port == port).unwrap_or_else(|| {
            given.push(DeliveryTime { port, spent: TimeSpent::default() });
            given.len() - 1
        });
        given[place].spent.add(spent);
    }
}
