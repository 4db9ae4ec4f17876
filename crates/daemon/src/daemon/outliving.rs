//! What of the daemon itself outlives it, beside its ports: the configuration in force.

use std::collections::BTreeSet;

use ringway_config::Name;
use ringway_keeper::Link;
use ringway_port_device::xdp;
use ringway_runtime::serving;

use super::deaths::Deaths;

/// The name of the version, and the version of what ports and the daemon keep: of names, notes and memory. It changes with them.
const VERSION: &str = "version";
const STATE_VERSION: u32 = 3;
/// The name of the text of the configuration file.
const CONFIGURATION: &str = "configuration";
/// What another version looks at before it is the switch.
pub const CHECKED: &[&str] = &[VERSION, CONFIGURATION];
/// Successors that die before they serve, in a row, after which the next one does without ports of predecessors.
const WITHOUT_PORTS: u32 = 2;
/// The same where each has died of a port that it was opening: the next one does without that port.
const WITHOUT_ALL_PORTS: u32 = 8;

/// What of counters and addresses is with the keeper, and when it is next.
#[derive(Debug, Default)]
pub struct Counted {
    /// The counters of all ports.
    pub counters: String,
    /// Seconds until the addresses are kept again.
    pub pause: usize,
    /// Ports of clients that commands have changed.
    pub changed: BTreeSet<(Name, Name)>,
    /// The same of the predecessor.
    pub changed_before: Option<Vec<String>>,
}

impl Counted {
    /// Addresses are kept at the next second.
    pub fn soon(&mut self) {
        self.pause = 0;
    }
}

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

/// Has the keeper hold the version of what this process has kept.
pub fn keep_version(keeper: &Link) {
    if let Err(why) = keeper.keep(VERSION, &STATE_VERSION.to_le_bytes(), &[]) {
        tracing::warn!("a successor of another version will not know what it finds: {why}");
    }
}

/// Says whether this version understands what predecessors left.
///
/// # Errors
/// It does not: why, for users.
pub fn check_version(keeper: &Link) -> Result<(), String> {
    let Some(left) = keeper.inherit(VERSION) else { return Ok(()) };
    let version = left.note.try_into().map_or(0, u32::from_le_bytes);
    if version == STATE_VERSION {
        return Ok(());
    }
    Err(format!(
        "what the running switch has kept is of version {version}, and this one understands {STATE_VERSION}: restart the daemon"
    ))
}

/// Adds the death of the predecessor to what is known of deaths, and notes from now on whose port each thread serves. To be called by the control thread,
/// before there are others that serve ports.
#[must_use]
pub fn begin(keeper: &Link) -> Deaths {
    let deaths = Deaths::of(keeper);
    if let Err(why) = serving::begin(keeper.page().and_then(|page| page.try_clone_to_owned().ok())) {
        tracing::warn!("no port will be blamed for a death of the switch: {why}");
    }
    deaths
}

/// Gives up what predecessors left, if this version does not understand it, and some of it, if those after them died of it.
pub fn give_up_some(keeper: &Link, deaths: &Deaths) {
    let Some(failed) = keeper.predecessor().map(|predecessor| predecessor.failed) else { return };
    let of_directory = |name: &str| {
        matches!(name, "directory" | "state-lock") || name.starts_with("socket/") || name.starts_with("listener/")
    };
    if let Err(why) = check_version(keeper) {
        tracing::error!("{why}: this one serves no port that it has served");
        keeper.give_up(of_directory);
        return;
    }
    if failed >= WITHOUT_PORTS && !(deaths.leave_out() && failed < WITHOUT_ALL_PORTS) {
        tracing::error!(
            "{failed} switches in a row died before they served: this one serves no port that one before has served"
        );
        xdp::let_go_of_left(keeper, |_| false);
        keeper.give_up(|name| of_directory(name) || name == CONFIGURATION);
    }
}
