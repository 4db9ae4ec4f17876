//! What of the daemon itself outlives it, beside its ports: the configuration in force.

use ringway_keeper::Link;

/// The name of the text of the configuration file.
const CONFIGURATION: &str = "configuration";
/// Successors that die before they serve, in a row, after which the next one does without ports of predecessors, and after which it
/// also reads the configuration file anew.
const WITHOUT_PORTS: u32 = 2;
const WITHOUT_CONFIGURATION: u32 = 4;

/// Has the keeper hold the text of the configuration file, as it was read last: a successor starts with it, whatever the file has become since.
pub fn keep_configuration(keeper: &Link, text: &str) {
    if let Err(why) = keeper.keep_bytes(CONFIGURATION, text.as_bytes()) {
        tracing::warn!("a successor will read the configuration file anew: {why}");
    }
}

/// Returns the text of the configuration file that a predecessor had in force.
#[must_use]
pub fn configuration_left(keeper: &Link) -> Option<String> {
    String::from_utf8(keeper.inherit_bytes(CONFIGURATION)?).ok()
}

/// Gives up some of what predecessors left, if those after them died of it.
pub fn give_up_after_failures(keeper: &Link) {
    let Some(failed) = keeper.predecessor().map(|predecessor| predecessor.failed) else { return };
    if failed < WITHOUT_PORTS {
        return;
    }
    tracing::error!(
        "{failed} switches in a row died before they served: this one serves no port that one before has served"
    );
    keeper.give_up(|name| {
        name == "directory"
            || name.starts_with("socket/")
            || name.starts_with("listener/")
            || failed < WITHOUT_CONFIGURATION && name == CONFIGURATION
    });
}
