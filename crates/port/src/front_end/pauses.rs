//! The pause between two connections of a port. It depends on how the connection ended.

use std::time::Duration;

use super::backoff::Backoff;
use super::blocked_calls::BlockedCalls;
use super::role::Role;

/// Pause after a connection without a fault, so that peers that disconnect at once do not occupy a core.
pub const BETWEEN: Duration = Duration::from_millis(10);
/// Pauses after a fault: of a listening port, of a connecting port at first, and of a connecting port at most.
const AFTER_FAULT_SERVER: Duration = Duration::from_millis(100);
const AFTER_FAULT_CLIENT: Duration = Duration::from_secs(1);
const LONGEST_AFTER_FAULT: Duration = Duration::from_secs(10);

/// The pauses of one port.
#[derive(Debug)]
pub struct Pauses {
    faults: Backoff,
    blocked_calls: BlockedCalls,
}

impl Pauses {
    pub fn new(role: Role) -> Pauses {
        let faults = match role {
            Role::Server => Backoff::listening(AFTER_FAULT_SERVER),
            Role::Client => Backoff::connecting(AFTER_FAULT_CLIENT, LONGEST_AFTER_FAULT),
        };
        Pauses { faults, blocked_calls: BlockedCalls::new() }
    }

    /// Returns the pause after a connection that lasted `lasted` and ended with the fault `fault`, or without one.
    pub fn after(&mut self, fault: Option<&'static str>, lasted: Duration) -> Duration {
        let Some(fault) = fault else { return BETWEEN };
        self.blocked_calls.pause(fault, lasted).unwrap_or_else(|| self.faults.after_fault(lasted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_after_a_fault_depends_on_the_role_and_on_the_fault() {
        let after = |role, fault| Pauses::new(role).after(fault, Duration::ZERO);
        assert_eq!(after(Role::Server, None), BETWEEN);
        assert_eq!(after(Role::Client, None), BETWEEN);
        assert_eq!(after(Role::Server, Some("bad_message")), AFTER_FAULT_SERVER);
        assert_eq!(after(Role::Client, Some("bad_message")), AFTER_FAULT_CLIENT);
        assert_eq!(after(Role::Server, Some(super::super::end::CALL_BLOCKED)), Duration::from_secs(1));
    }
}
