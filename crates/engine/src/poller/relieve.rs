//! What a thread does first that relieves another one ([`crate::relieving`]).

use super::thread::Poller;
use crate::poller_state::Shift;

impl Poller {
    /// Takes the inputs away that the thread before does not hold, and has all clients asked anew whether they want calls: its list of pending ones is
    /// out of reach. Nobody touches the memory of a port that is shut: its client is asked when it is opened.
    #[cold]
    pub(super) fn relieve(&mut self, before: &Shift) {
        let (topology, _) = self.shared.topology.get();
        topology.ports.iter().for_each(|attached| attached.source.take_away(before));
        self.shared.owe_calls();
    }
}
