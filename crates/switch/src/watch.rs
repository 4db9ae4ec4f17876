//! Frames shown to others than those they are for: to captures and to mirror ports.
//!
//! A port that nobody watches costs one test per batch at its source and one per batch at each destination. Watching costs a
//! copy for each frame and watcher: whoever is too slow to take it loses frames, and holds nobody up.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard};

use crate::batch::{Batch, Destination, Frame};
use crate::counters::{Counters, DropReason};
use crate::deliver::{Frames, hand_over, reach};
use crate::offload::{Accepts, Finisher};
use crate::port::{Output, PortFault};
use crate::switch::{MAX_PORTS, Member, Switch};

/// Which way a frame went at the port where it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the port's client into the switch.
    In,
    /// From the switch to the port's client.
    Out,
}

/// A frame as a watcher sees it: the head is what was judged and delivered; the rest is read from the sender's memory once
/// more, and a sender that changes it meanwhile shows something else than it sent.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'b, 'm> {
    /// The frame; out, as it was delivered: finished for a port that does not accept its offload.
    pub frame: Frame<'b, 'm>,
    /// Which way it went.
    pub way: Way,
    /// Why it went no further.
    pub dropped: Option<DropReason>,
}

/// Is shown the frames of a port, those that were lost included.
pub trait Tap: Send + Sync {
    /// Sees frames of one batch, in order. Called by pollers in the midst of their work, by several at the same time:
    /// must neither wait nor allocate.
    fn see<'b, 'm: 'b>(&self, frames: &mut dyn Iterator<Item = Seen<'b, 'm>>);

    /// Whether it wants to see what a port sends beyond its limit, which is otherwise given back without being read.
    fn sees_refused(&self) -> bool {
        false
    }

    /// Wakes whoever waits for what was seen. Called after everything of a pass is published and fenced.
    fn ring(&self);
}

/// Who watches a port, and whether it is itself a watcher.
#[derive(Clone, Default)]
pub struct Watch {
    /// Those that see what the port sends and is given.
    pub taps: Vec<Arc<dyn Tap>>,
    /// Ports that are given a copy of every frame taken from the port, whatever becomes of it.
    pub mirrors_in: Vec<u16>,
    /// Ports that are given a copy of every frame sent to the port, also of those that it has no room for.
    pub mirrors_out: Vec<u16>,
    /// The port is a mirror: it is given copies, and nothing else; what it sends is dropped.
    pub is_mirror: bool,
}

impl Watch {
    /// Stage "forward" for frames from a port that is watched, or is a mirror.
    #[cold]
    pub(crate) fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        if self.is_mirror {
            batch.place(|_, _| Destination::Drop(DropReason::MirrorPort));
        } else {
            switch.forward().forward(batch, from, switch, now);
        }
    }

    /// Shows the taps frames from the port, which is `from`, as soon as it is decided where they go.
    #[cold]
    pub(crate) fn show(&self, batch: &Batch<'_>, from: &Member, switch: &Switch) {
        for tap in &self.taps {
            // Frames of one class that follow each other to one port share their fate.
            let mut last = None;
            tap.see(&mut (0..batch.len()).map(|index| {
                let way = (batch.destination(index), batch.class(index));
                let dropped = match last {
                    Some((before, fate)) if before == way && matches!(way.0, Destination::Port(_)) => fate,
                    _ => lost_on_the_way(batch, index, from, switch),
                };
                last = Some((way, dropped));
                Seen { frame: batch.frame(index), way: Way::In, dropped }
            }));
        }
    }

    /// Whether somebody wants to see what the port sends beyond its limit.
    #[cold]
    pub(crate) fn sees_refused(&self) -> bool {
        self.taps.iter().any(|tap| tap.sees_refused())
    }

    /// Shows the taps the frames of the batch from `first` on, which the port sent beyond its limit.
    #[cold]
    pub(crate) fn show_refused(&self, batch: &Batch<'_>, first: usize) {
        let dropped = Some(DropReason::RateLimited);
        for tap in self.taps.iter().filter(|tap| tap.sees_refused()) {
            let frames = (first..batch.len()).map(|index| batch.frame(index));
            tap.see(&mut frames.map(|frame| Seen { frame, way: Way::In, dropped }));
        }
    }

    /// Shows the taps frames that the port is not given.
    #[cold]
    pub(crate) fn lose<'b, 'm: 'b>(&self, frames: impl Iterator<Item = Frame<'b, 'm>> + Clone, reason: DropReason) {
        for tap in &self.taps {
            tap.see(&mut frames.clone().map(|frame| Seen { frame, way: Way::Out, dropped: Some(reason) }));
        }
        // The port may not be given anything in this pass, and so not be one of those whose readers are woken at its end.
        fence(Ordering::SeqCst);
        self.ring();
    }

    /// Wakes the readers of what was seen at this port.
    #[cold]
    pub(crate) fn ring(&self) {
        self.taps.iter().for_each(|tap| tap.ring());
    }
}

/// Why a frame from `from` will not reach any port, as [`crate::deliver`] will find.
fn lost_on_the_way(batch: &Batch<'_>, index: usize, from: &Member, switch: &Switch) -> Option<DropReason> {
    let take = |to: &Member| if switch.has_vlans() { to.vlans.take(batch.class(index)) } else { Ok(()) };
    match batch.destination(index) {
        Destination::Drop(reason) => Some(reason),
        Destination::Port(port) => reach(port, from, switch).and_then(|to| take(to).map(|()| to)).err(),
        Destination::Flood => {
            let mut reason = DropReason::NoDestination;
            for to in switch.flooded().iter().filter_map(|&port| reach(port, from, switch).ok()) {
                match take(to) {
                    Ok(()) => return None,
                    Err(DropReason::VlanStacked) => reason = DropReason::VlanStacked,
                    Err(_) => {}
                }
            }
            Some(reason)
        }
    }
}

/// What a poller needs to serve watched ports, kept between passes.
#[derive(Debug)]
pub(crate) struct Watchers {
    /// Mirror ports that were given frames in this pass.
    mirrors: Vec<u16>,
    /// All frames of a batch, in order.
    all: Vec<u16>,
}

impl Watchers {
    /// For deliveries of up to `limit` frames.
    pub(crate) fn new(limit: usize) -> Watchers {
        Watchers { mirrors: Vec::with_capacity(MAX_PORTS), all: Vec::with_capacity(limit) }
    }

    /// Gives frames to a port that is watched, whose output is locked, and to those that watch it. True when any broke the
    /// rules.
    #[cold]
    #[allow(clippy::too_many_arguments, reason = "the parts of a pass, each by itself")]
    pub(crate) fn serve(
        &mut self,
        batch: &Batch<'_>,
        frames: Frames<'_, '_>,
        member: &Member,
        output: MutexGuard<'_, Box<dyn Output>>,
        watch: &Watch,
        switch: &Switch,
        finisher: &mut Finisher,
    ) -> bool {
        let mut fault = self.give(batch, frames.clone(), member, output, Some(watch), finisher);
        for &mirror in &watch.mirrors_out {
            fault |= self.copy_to(mirror, batch, frames.clone(), switch, finisher);
        }
        fault
    }

    /// Ends a pass: gives all frames of the batch to `mirrors`, and notes which mirrors were `served`. True when any broke the
    /// rules.
    #[cold]
    pub(crate) fn finish(
        &mut self,
        batch: &Batch<'_>,
        mirrors: &[u16],
        switch: &Switch,
        finisher: &mut Finisher,
        served: &mut Vec<u16>,
    ) -> bool {
        let mut fault = false;
        if !mirrors.is_empty() && !batch.is_empty() {
            let mut all = std::mem::take(&mut self.all);
            all.extend(all.len() as u16..batch.len() as u16);
            for &mirror in mirrors {
                fault |= self.copy_to(mirror, batch, Frames::of(batch, &all[..batch.len()]), switch, finisher);
            }
            self.all = all;
        }
        self.add_mirrors(served);
        fault
    }

    /// Notes which mirrors were served in this pass.
    pub(crate) fn add_mirrors(&mut self, served: &mut Vec<u16>) {
        served.append(&mut self.mirrors);
    }

    /// Leaves frames for the thread that serves a port, and gives them to those that watch the port.
    #[cold]
    pub(crate) fn leave(
        &mut self,
        batch: &Batch<'_>,
        frames: Frames<'_, '_>,
        member: &Member,
        watch: Option<&Watch>,
        switch: &Switch,
        finisher: &mut Finisher,
    ) {
        let count = frames.len() as u64;
        let left = member.port.detour().leave(|output| {
            give_to(batch, frames.clone(), member, output, watch, finisher);
        });
        if !left {
            // The detour ended just now.
            let _output = member.port.output();
            member.port.counters().drop_out(DropReason::ReceiverSlow, count);
        }
        for &mirror in watch.map_or(&[][..], |watch| &watch.mirrors_out) {
            self.copy_to(mirror, batch, frames.clone(), switch, finisher);
        }
        if let Some(watch) = watch {
            fence(Ordering::SeqCst);
            watch.ring();
        }
    }

    fn copy_to(
        &mut self,
        mirror: u16,
        batch: &Batch<'_>,
        frames: Frames<'_, '_>,
        switch: &Switch,
        finisher: &mut Finisher,
    ) -> bool {
        let Some(member) = switch.member(mirror) else { return false };
        if member.port.detour().is_on() {
            let watch = switch.watch(mirror);
            let left = member.port.detour().leave(|output| {
                give_to(batch, frames.clone(), member, output, watch, finisher);
            });
            if left {
                return false;
            }
        }
        if !self.mirrors.contains(&mirror) {
            self.mirrors.push(mirror);
        }
        self.give(batch, frames, member, member.port.output(), switch.watch(mirror), finisher)
    }

    /// Gives frames to a port, whose output is locked, and shows its taps what came of them.
    fn give(
        &mut self,
        batch: &Batch<'_>,
        frames: Frames<'_, '_>,
        member: &Member,
        mut output: MutexGuard<'_, Box<dyn Output>>,
        watch: Option<&Watch>,
        finisher: &mut Finisher,
    ) -> bool {
        give_to(batch, frames, member, &mut **output, watch, finisher)
    }
}

/// Gives frames to an output of a port, and shows its taps what came of them. True when it broke the rules.
fn give_to(
    batch: &Batch<'_>,
    frames: Frames<'_, '_>,
    member: &Member,
    output: &mut dyn Output,
    watch: Option<&Watch>,
    finisher: &mut Finisher,
) -> bool {
    match watch {
        Some(watch) if !watch.taps.is_empty() => {
            let mut shown = Shown { output, taps: &watch.taps };
            hand_over(batch, frames, member, &mut shown, finisher)
        }
        _ => hand_over(batch, frames, member, output, finisher),
    }
}

/// An output whose taps are shown what came of each frame.
struct Shown<'a> {
    output: &'a mut dyn Output,
    taps: &'a [Arc<dyn Tap>],
}

impl Output for Shown<'_> {
    fn accepts(&self) -> Accepts {
        self.output.accepts()
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        frames.all().begin_losses();
        let result = if self.output.names_losses() {
            self.output.deliver(frames.clone(), counters)
        } else {
            self.deliver_singly(frames.clone(), counters)
        };
        for tap in self.taps {
            tap.see(&mut frames.clone().map(|frame| Seen { frame, way: Way::Out, dropped: frame.loss() }));
        }
        frames.all().end_losses();
        result
    }
}

impl Shown<'_> {
    /// An output that says how many frames it lost, but not which.
    fn deliver_singly(&mut self, mut frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let (mut lost, mut result) = (counters.lost_out(), Ok(()));
        while let Some(one) = frames.next_alone() {
            let given = counters.out_frames();
            result = result.and(self.output.deliver(one.clone(), counters));
            if counters.out_frames() == given {
                let reason = counters.lost_since(&mut lost).unwrap_or(DropReason::ReceiverDown);
                one.for_each(|frame| frame.lose(reason));
            }
        }
        result
    }
}
