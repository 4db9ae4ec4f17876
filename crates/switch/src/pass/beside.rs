//! What a poller does for a port that is in no switch: calls of its client, and blame for a panic.

use std::sync::Arc;

use super::workspace::Workspace;
use crate::defect::{Defect, PanicLocation, Role, take_receiving};
use crate::port::{CallReason, Port};
use crate::time::Time;

impl Workspace {
    /// Calls the client of a port that is in no switch, if it wants that, after all stores to its memory and a full fence. Returns true
    /// if the port must end because of a fault.
    pub fn call(&mut self, port: &Arc<Port>, reason: CallReason, now: &Time) -> bool {
        self.calls.ring_beside(port, reason, now)
    }

    /// Cleans up after a panic in work for `port`, which is in no switch, or in [`Workspace::call`] for another port: retires the port
    /// whose client was being called as [`Role::Receiver`], or otherwise `port`, as [`Role::Source`], or as [`Role::Receiver`] if the
    /// work was in [`crate::giving`]. Returns true if `port` is retired.
    #[cold]
    pub fn blame_beside(&mut self, port: &Port, place: PanicLocation) -> bool {
        let is_given = take_receiving();
        if self.calls.retire_called(place, |_| Role::Receiver) {
            return false;
        }
        port.retire(Defect { role: if is_given { Role::Receiver } else { Role::Source }, place }, 0);
        if is_given {
            // No thread empties the backlog any more.
            port.abandon_detour();
        }
        true
    }
}
