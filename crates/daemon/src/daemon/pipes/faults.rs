//! Ends of pipes that have a fault, and ends that an operator names.

use std::time::Instant;

use ringway_abi::netmap::PipeEnd;
use ringway_config::keys::PortRef;
use ringway_runtime::warn_limited;
use ringway_switch::PortFault;

use super::live::EndName;
use crate::daemon::refused::Refused;
use crate::daemon::state::{Daemon, the_one};

impl Daemon {
    /// Closes every end of a pipe that has a fault. Returns true if there was one.
    pub(in crate::daemon) fn end_faulty_pipes(&mut self) -> bool {
        let faulty = self.pipes.faulty();
        let is_any = !faulty.is_empty();
        for (end, fault) in faulty {
            let (label, detail) = (end.to_string(), fault.to_string());
            self.close_end(&end, &detail);
            if let PortFault::InternalError(_) = fault {
                tracing::error!("pipe {label} ended: {detail}");
                self.count_dynamic_defect(&end.pipe.switch, Instant::now());
            } else {
                warn_limited(&format!("pipe {label} ended: {detail}"));
            }
        }
        is_any
    }

    /// Returns the end in use that `port` names by `pipe`.
    ///
    /// # Errors
    /// There is no such end, or several switches have one.
    pub(in crate::daemon) fn resolve_end(&self, port: &PortRef, pipe: &PipeEnd) -> Result<EndName, Refused> {
        let ends = self.pipes.ends_in_use().map(|(end, _)| end);
        let is_meant = |EndName { pipe: of, role }: &EndName| {
            port.matches(&of.switch, &of.port) && of.id == pipe.id && *role == pipe.role
        };
        let found: Vec<EndName> = ends.filter(is_meant).collect();
        the_one(port, &found, EndName::to_string).cloned()
    }
}
