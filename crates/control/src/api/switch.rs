//! The JSON of a switch's settings.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::Switch;
use crate::config::switch::RULES;
use crate::config::units::show_duration;

/// The keys of a switch, as in `[switch.NAME]`. Unknown keys are refused; what is not there stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SwitchKeys {
    /// How destinations are found: `learning` or `map`.
    pub forwarding: Option<String>,
    /// Learned addresses are forgotten when nothing came from them for so long, like `300s`; `0s`: never.
    pub ageing: Option<String>,
    /// Size of the MAC table: a power of two.
    pub mac_entries: Option<u32>,
    /// Most addresses learned behind one port.
    pub mac_limit: Option<u32>,
    /// Frames to everybody: `flood`, `drop` or `port:NAME`.
    pub broadcast: Option<String>,
    /// Frames to groups.
    pub multicast: Option<String>,
    /// Frames to one station whose port is not known.
    pub unknown_unicast: Option<String>,
    /// Frames between addresses that are bound to ports: `allow` or `drop`.
    pub local: Option<String>,
    /// From a bound address to one that is not.
    pub outbound: Option<String>,
    /// From an address that is not bound to one that is.
    pub inbound: Option<String>,
    /// Between addresses that are not bound.
    pub transit: Option<String>,
}

impl SwitchKeys {
    /// As they are.
    pub fn of(switch: &Switch) -> Self {
        let rule = |rule: bool| RULES.iter().find(|(_, allows)| *allows == rule).map(|(word, _)| (*word).to_owned());
        Self {
            forwarding: Some(switch.forwarding.as_str().to_owned()),
            ageing: Some(show_duration(switch.ageing)),
            mac_entries: Some(switch.mac_entries),
            mac_limit: Some(switch.mac_limit),
            broadcast: Some(switch.broadcast.to_string()),
            multicast: Some(switch.multicast.to_string()),
            unknown_unicast: Some(switch.unknown_unicast.to_string()),
            local: rule(switch.rules.local),
            outbound: rule(switch.rules.outbound),
            inbound: rule(switch.rules.inbound),
            transit: rule(switch.rules.transit),
        }
    }
}
