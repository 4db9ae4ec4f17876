//! The interface that receives a port's events.

use ringway_switch::{Defect, PortFault};

/// Receives a port's events. The methods run on the port's own thread.
pub trait Observer: Send + Sync {
    /// A front end connected (`on`) or disconnected.
    fn connected(&self, on: bool);
    /// A front end broke the protocol and lost its connection.
    fn fault(&self, reason: &'static str, detail: String);
    /// A defect in Ringway ended the port's own thread. The port has to be replaced.
    fn failed(&self, defect: Defect) {
        self.fault(PortFault::InternalError(defect).name(), defect.to_string());
    }
    /// A front end asked for something that it cannot have. It was told so and continues without. At most one call for
    /// each connection.
    fn refused(&self, reason: &'static str, detail: String) {
        let _ = (reason, detail);
    }
}
