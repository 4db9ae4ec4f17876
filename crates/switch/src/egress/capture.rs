//! Frames shown to others than those they are for: to captures and to mirror ports.
//!
//! A port that nobody watches costs one test per batch at its source and one per batch at each destination. Watching costs a
//! copy for each frame and watcher: whoever is too slow to take it loses frames, and holds nobody up.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, MutexGuard};

use super::offload::{Finisher, hand_over};
use crate::batch::{Batch, Frames};
use crate::frame::{Accepts, DropReason, MAX_PORTS};
use crate::port::{Counters, Output, PortFault, Seen, Tap, Watch, Way};
use crate::topology::{Member, Switch};

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
