//! Showing a source's frames to those that watch it.

use super::hear::may_hear;
use crate::batch::{Batch, Destination};
use crate::frame::DropReason;
use crate::port::{Seen, Watch, Way};
use crate::topology::{Member, Switch};

/// Stage "forward" for frames from a port that is watched, or is a mirror.
#[cold]
pub(crate) fn forward_watched(watch: &Watch, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
    if watch.is_mirror {
        batch.place(|_, _| Destination::Drop(DropReason::MirrorPort));
    } else {
        switch.forward().forward(batch, from, switch, now);
    }
}

/// Shows the taps of `watch` frames from the port `from`, as soon as it is decided where they go.
#[cold]
pub(crate) fn show(watch: &Watch, batch: &Batch<'_>, from: &Member, switch: &Switch) {
    for tap in &watch.taps {
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

/// Why a frame from `from` will not reach any port, as [`crate::egress`] will find.
fn lost_on_the_way(batch: &Batch<'_>, index: usize, from: &Member, switch: &Switch) -> Option<DropReason> {
    let class = switch.has_vlans().then(|| batch.class(index));
    match batch.destination(index) {
        Destination::Drop(reason) => Some(reason),
        Destination::Port(port) => match switch.member(port) {
            Some(to) => may_hear(to, from, class).err(),
            None => Some(DropReason::NoDestination),
        },
        Destination::Flood => {
            let mut reason = DropReason::NoDestination;
            for to in switch.flooded().iter().filter_map(|&port| switch.member(port)) {
                match may_hear(to, from, class) {
                    Ok(()) => return None,
                    Err(DropReason::VlanStacked) => reason = DropReason::VlanStacked,
                    Err(_) => {}
                }
            }
            Some(reason)
        }
    }
}
