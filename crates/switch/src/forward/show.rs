//! Shows a source's frames to its taps.

use super::permission::may_receive;
use crate::batch::{Batch, Destination};
use crate::frame::DropReason;
use crate::port::{FrameDirection, TappedFrame, Watch};
use crate::topology::{Member, Switch};

/// Stage "forward" for frames from a port that has taps or is a mirror.
#[cold]
pub(crate) fn forward_watched(watch: &Watch, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
    if watch.is_mirror {
        batch.set_destinations(|_, _| Destination::Drop(DropReason::MirrorPort));
    } else {
        switch.forward().forward(batch, from, switch, now);
    }
}

/// Shows the frames from port `from` to the taps of `watch`, once their destinations are set.
#[cold]
pub(crate) fn show(watch: &Watch, batch: &Batch<'_>, from: &Member, switch: &Switch) {
    for tap in &watch.taps {
        // Consecutive frames of one class for one port get the same result.
        let mut last = None;
        tap.see(&mut (0..batch.len()).map(|index| {
            let way = (batch.destination(index), batch.class(index));
            let dropped = match last {
                Some((before, fate)) if before == way && matches!(way.0, Destination::Port(_)) => fate,
                _ => lost_on_the_way(batch, index, from, switch),
            };
            last = Some((way, dropped));
            TappedFrame { frame: batch.frame(index), way: FrameDirection::In, dropped }
        }));
    }
}

/// Why a frame from `from` will reach no port; `None` if delivery ([`crate::egress`]) will find a receiver.
fn lost_on_the_way(batch: &Batch<'_>, index: usize, from: &Member, switch: &Switch) -> Option<DropReason> {
    let class = switch.has_vlans().then(|| batch.class(index));
    match batch.destination(index) {
        Destination::Drop(reason) => Some(reason),
        Destination::Port(port) => match switch.member(port) {
            Some(to) => may_receive(to, from, class).err(),
            None => Some(DropReason::NoDestination),
        },
        Destination::Flood => {
            let mut reason = DropReason::NoDestination;
            let hears = |port: &u16| switch.audience(batch).is_none_or(|audience| audience.hears(index, *port));
            for to in switch.flooded().iter().copied().filter(hears).filter_map(|port| switch.member(port)) {
                match may_receive(to, from, class) {
                    Ok(()) => return None,
                    Err(DropReason::VlanStacked) => reason = DropReason::VlanStacked,
                    // As delivery counts it.
                    Err(DropReason::VlanDenied)
                        if reason == DropReason::NoDestination
                            && switch.audience(batch).is_none()
                            && may_receive(to, from, None).is_ok() =>
                    {
                        reason = DropReason::VlanDenied;
                    }
                    Err(_) => {}
                }
            }
            Some(reason)
        }
    }
}
