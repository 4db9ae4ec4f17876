//! What a thread does first that relieves another one ([`crate::relieving`]).

use std::sync::atomic::Ordering;

use super::thread::Poller;
use crate::poller_state::Shift;

impl Poller {
    /// Takes the inputs away that the thread before does not hold, and makes its pending calls: its list of them is out of reach.
    #[cold]
    pub(super) fn relieve(&mut self, before: &Shift) {
        let (topology, _) = self.shared.topology.get();
        topology.ports.iter().for_each(|attached| attached.source.take_away(before));
        let using = before.using.load(Ordering::Relaxed);
        for attached in &topology.ports {
            // Nobody touches the memory of a port that is shut: it is called when it is opened.
            // A quarantine poller makes the calls of its ports, and the port that keeps the thread would keep this one, too.
            let is_kept = attached.source.id() == using && attached.source.is_held_by(before);
            let Some(port) = attached
                .port()
                .filter(|_| !is_kept && attached.source.quarantine_poller().is_none() && !attached.source.is_shut())
            else {
                continue;
            };
            if self.work.calls.ring_anew(port, &self.now) {
                self.shared.report_fault();
            }
        }
    }
}
