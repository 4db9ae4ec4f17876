//! After a panic: whose it was loses its place, and the poller begins anew with all others.

use std::cmp::Reverse;
use std::time::Instant;

use ringway_switch::{Defect, Place, Role, contain};

use crate::clock;
use crate::contain::{fatal, say_rarely};
use crate::poller::{NOBODY, Poller};

impl Poller {
    /// Goes on after a panic in [`Poller::run`].
    ///
    /// Nothing that was in use then is used again: the memory for a batch is made anew, and the input of the port that was
    /// served is dropped without being released. Every other port is active afterwards, so that whatever the poller was about
    /// to do for it is done.
    #[cold]
    pub(crate) fn recover(&mut self, place: Place) {
        let index = std::mem::replace(&mut self.at, NOBODY);
        self.now = clock::time(Instant::now());
        if index != NOBODY {
            self.blame(index, place);
        } else if !self.work.calls.blame(place) {
            let name = format!("poller{}", self.state.number);
            let what = format!("a defect of Ringway, please report it: {name} itself failed at {place}");
            if self.strikes.strike() {
                fatal(&what);
            }
            say_rarely(&format!("{what}, and goes on"));
        }
        self.begin_anew();
        self.report_fault();
    }

    /// A port was served: it and those that were being given its frames lose their places.
    fn blame(&mut self, index: usize, place: Place) {
        let Some(served) = self.served.get_mut(index).and_then(Option::as_mut) else { return };
        let attached = served.attached.clone();
        let Some(from) = attached.switch.member(attached.index) else {
            let input = served.input.take();
            let _ = contain(|| drop(input));
            return;
        };
        let mut place = Err(place);
        // Whoever is called may be the next to panic. Each is called once.
        while let Err(at) = place {
            let source_goes = self.work.blame(&attached.switch, from, at);
            if let Some(input) = served.input.take_if(|_| source_goes) {
                // Something that a poller does between two batches of other ports: it must not last.
                let _ = contain(|| drop(input));
            }
            let (work, now) = (&mut self.work, &self.now);
            place = contain(|| work.tell_rest(&attached.switch, now)).map(drop);
        }
    }

    /// Whatever the poller noted of its ports may be half done: looks at each.
    fn begin_anew(&mut self) {
        self.places.clear();
        self.vacant.clear();
        self.active.clear();
        self.parked.clear();
        self.waiting.clear();
        self.watched.clear();
        (self.next_look, self.next_waiting) = (0, 0);
        for index in 0..self.served.len() {
            let Some(served) = self.served[index].as_mut() else {
                self.vacant.push(index);
                continue;
            };
            self.places.insert(served.attached.source.id(), index);
            (served.idle, served.watched) = (0, false);
            served.active = served.waits.is_none();
            match served.waits {
                Some(until) => self.waiting.push(Reverse((until, index))),
                None => self.active.push(index),
            }
            if served.active
                && let Err(place) = contain(|| served.disarm())
            {
                let attached = served.attached.clone();
                if let Some(input) = served.input.take() {
                    let _ = contain(|| drop(input));
                }
                if let Some(member) = attached.switch.member(attached.index) {
                    member.port.retire(Defect { role: Role::Source, place }, 0);
                }
            }
        }
    }
}
