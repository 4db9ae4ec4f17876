//! What predecessors left and no port has taken. What belongs to a configured port that is not open yet, because its device or socket cannot be had or because it
//! pauses, stays with the keeper until the port is open, or is not to be opened any more. All else is let go once the daemon serves.

use std::path::Path;

use ringway_config::Port;
use ringway_keeper::Link;
use ringway_port_device::xdp;

use super::state::Daemon;

impl Daemon {
    /// All ports that can be open are open: from now on, what no port waits for is let go.
    pub fn let_go(&mut self) {
        self.lets_go = true;
        self.let_go_of_unwanted();
    }

    /// Lets go of what no port waits for, if there is any.
    pub(super) fn let_go_of_unwanted(&self) {
        if !self.lets_go {
            return;
        }
        let ports = &self.running.config.ports;
        let closed: Vec<&Port> = self.retries.keys().filter_map(|name| ports.get(name)).collect();
        for name in let_go_of(&self.keeper, &closed, self.running.runtime_dir()) {
            tracing::debug!("{name} is let go: nothing takes it over");
        }
    }
}

/// Lets go of what predecessors left and belongs to none of these ports. Returns the names.
fn let_go_of(keeper: &Link, closed: &[&Port], runtime_dir: &Path) -> Vec<String> {
    let stays = |name: &str| closed.iter().any(|port| port.settings.has_kept(name, runtime_dir));
    if !keeper.has_left(|name| !stays(name)) {
        return Vec::new();
    }
    xdp::let_go_of_left(keeper, stays);
    keeper.give_up(stays)
}
