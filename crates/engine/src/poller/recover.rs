//! Recovery after a panic of a poller's loop: the poller throws away what was half done, retires the ports that it was busy
//! with, and begins anew with all others.
//!
//! Each retired port has its place in the source and a role (`ringway_switch::Role`), which says whose client can have caused
//! the panic. The table of roles is at `Workspace::blame`.

use std::time::Instant;

use ringway_switch::{Defect, Place, Role, contain};

use super::thread::{NO_PORT, Poller};
use crate::clock;
use crate::contain::{fatal, say_rarely};

impl Poller {
    /// Goes on after a panic in [`Poller::run`].
    ///
    /// Nothing that was in use then is used again: the memory for a batch is made anew, and the input of the port that was
    /// visited is dropped without being released. Every other port is active afterwards, so that whatever the poller was about
    /// to do for it is done.
    #[cold]
    pub(super) fn recover(&mut self, place: Place) {
        let slot = std::mem::replace(&mut self.using, NO_PORT);
        self.now = clock::time(Instant::now());
        if slot != NO_PORT {
            self.blame(slot, place);
        } else if !self.work.calls.blame(place) {
            let name = format!("poller{}", self.state.number);
            let what = format!("a defect of Ringway, please report it: {name} itself failed at {place}");
            if self.strikes.strike() {
                fatal(&what);
            }
            say_rarely(&format!("{what}, and goes on"));
        }
        self.begin_anew();
        self.shared.report_fault();
    }

    /// A port was being visited: it and those that were being given its frames lose their places.
    fn blame(&mut self, slot: usize, place: Place) {
        let Some(served) = self.ports.get_mut(slot).and_then(Option::as_mut) else { return };
        let attached = served.attached.clone();
        let Some(from) = attached.switch.member(attached.index) else {
            let input = served.input.take();
            let _ = contain(|| drop(input));
            return;
        };
        let mut place = Err(place);
        // A client that is called may have its port panic next. Each is called once.
        while let Err(at) = place {
            let source_goes = self.work.blame(&attached.switch, from, at);
            if let Some(input) = served.input.take_if(|_| source_goes) {
                // A poller does this between two batches of other ports: it must not take long.
                let _ = contain(|| drop(input));
            }
            let (work, now) = (&mut self.work, &self.now);
            place = contain(|| work.tell_rest(&attached.switch, now)).map(drop);
        }
    }

    /// Makes the schedule anew from the states of the ports, and disarms the active ones: whatever else the poller noted may be
    /// half done.
    fn begin_anew(&mut self) {
        self.schedule.rebuild();
        self.slots.clear();
        self.ports.resize_with(self.schedule.slots(), || None);
        for (slot, served) in self.ports.iter_mut().enumerate() {
            let Some(served) = served.as_mut() else {
                // The slot is vacant, or the panic was while it was given out.
                self.schedule.remove(slot);
                continue;
            };
            self.slots.insert(served.attached.source.id(), slot);
            if !self.schedule.is_active(slot) || !self.schedule.disarm(slot) {
                continue;
            }
            let Some(input) = served.input.as_mut() else { continue };
            if let Err(place) = contain(|| input.disarm()) {
                let input = served.input.take();
                let _ = contain(|| drop(input));
                if let Some(port) = served.attached.port() {
                    port.retire(Defect { role: Role::Source, place }, 0);
                }
            }
        }
    }
}
