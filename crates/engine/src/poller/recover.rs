//! Recovery after a panic of a poller's loop: the poller discards unfinished work, retires the ports that it was
//! working on, and continues with all others.
//!
//! Each retired port gets the source line of the panic and a role (`ringway_switch::Role`), which says whose client can
//! have caused the panic. The table of roles is at `Workspace::blame`.

use std::time::Instant;

use ringway_runtime::clock;
use ringway_runtime::contain::{fatal, warn_limited};
use ringway_switch::{Defect, PanicLocation, Role, contain};

use super::thread::{NO_PORT, Poller, Served};
use crate::topology::Attached;

impl Poller {
    /// Continues after a panic in [`Poller::run`].
    ///
    /// Nothing that was in use is used again: the memory for a batch is allocated anew, and the input of the visited
    /// port is dropped without a release. All other ports become active, so that no work for them is lost.
    #[cold]
    pub(super) fn recover(&mut self, place: PanicLocation) {
        let using = self.note.using();
        self.note.serve(NO_PORT);
        self.now = clock::time(Instant::now());
        if using != NO_PORT {
            self.blame(using, place);
        } else if !self.work.calls.blame(place) {
            let name = format!("poller{}", self.state.number);
            let what = format!("a defect of Ringway, please report it: {name} itself failed at {place}");
            if self.strikes.count_panic() {
                fatal(&what);
            }
            warn_limited(&format!("{what}, and goes on"));
        }
        self.begin_anew();
        self.shared.report_fault();
    }

    /// Retires the visited port, and the ports that were receiving its frames.
    fn blame(&mut self, using: u64, place: PanicLocation) {
        let is_it = |served: &&Served| served.attached.source.id() == using;
        let Some(served) = self.ports.iter().flatten().find(is_it) else { return };
        let attached = served.attached.clone();
        let Some((switch, from)) = attached.member() else { return self.blame_mover(&attached, place) };
        let mut place = Err(place);
        // The call of a client may panic in its port, too. Each client is called once.
        while let Err(at) = place {
            let source_goes = self.work.blame(switch, from, at);
            if source_goes {
                self.drop_work(&attached);
            }
            let (work, now) = (&mut self.work, &self.now);
            place = contain(|| work.make_remaining_calls(switch, now)).map(drop);
        }
    }

    /// Drops what the poller used for a client. Not left to the reaper: a front end that stops the queue waits for the frames that the input holds. It
    /// happens between two batches of other ports, so it must be short.
    pub(super) fn drop_work(&self, attached: &Attached) {
        let custody = attached.source.hold_even_if_shut(&self.shift);
        if let Some(work) = custody.and_then(|mut custody| custody.work.take()) {
            let _ = contain(|| drop(work));
        }
    }

    /// Rebuilds the schedule from the states of the ports, and disarms the active ones: all other records may be half
    /// changed.
    fn begin_anew(&mut self) {
        self.schedule.rebuild();
        self.slots.clear();
        self.ports.resize_with(self.schedule.slots(), || None);
        for (slot, served) in self.ports.iter_mut().enumerate() {
            let Some(served) = served.as_mut() else {
                // The slot is vacant, or the panic happened while it was assigned.
                self.schedule.remove(slot);
                continue;
            };
            self.slots.insert(served.attached.source.id(), slot);
            if !self.schedule.is_active(slot) || !self.schedule.disarm(slot) {
                continue;
            }
            let Some(mut custody) = served.attached.source.hold(&self.shift) else { continue };
            if let Err(place) = contain(|| custody.disarm()) {
                let work = custody.work.take();
                let _ = contain(|| drop(work));
                if let Some(port) = served.attached.port() {
                    port.retire(Defect { role: Role::Source, place }, 0);
                }
            }
        }
    }
}
