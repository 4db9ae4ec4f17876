//! The JSON of a port's identity.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::identity::{Identity, Ports, Vlan};
use crate::config::{Mac, Port};

/// A port's identity, and the ports that it may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IdentityStatus {
    /// IP addresses bound to it; none: any.
    #[serde(default)]
    pub ip: Vec<String>,
    /// What its source guard checks: of `mac`, `ip`, `dhcp`, `ra`.
    #[serde(default)]
    pub guard: Vec<String>,
    /// Whether it leads out.
    #[serde(default)]
    pub uplink: bool,
    /// The uplinks that it may use; null: all.
    #[serde(default)]
    pub uplinks: Option<Vec<String>>,
    /// The ports besides uplinks that it may reach; null: all.
    #[serde(default)]
    pub allow: Option<Vec<String>>,
    /// The VLAN it is in without tags; null: none, or what `native` says.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// The VLANs it is in with tags, like `10` or `20-29`; null: it is no trunk.
    #[serde(default)]
    pub trunk: Option<Vec<String>>,
    /// The VLAN that a trunk is in without tags.
    #[serde(default)]
    pub native: Option<u16>,
}

impl IdentityStatus {
    /// The identity that is configured.
    pub fn of(port: &Port) -> Self {
        let identity = &port.identity;
        let (vlan, trunk, native) = match &identity.vlans() {
            Vlan::Unset => (None, None, None),
            Vlan::Access(vlan) => (Some(*vlan), None, None),
            Vlan::Trunk { tagged, native } => (None, Some(tagged.ranges().collect()), *native),
        };
        Self {
            ip: identity.ip.iter().map(ToString::to_string).collect(),
            guard: checks(identity, &port.mac),
            uplink: identity.uplink,
            uplinks: names(&identity.uplinks),
            allow: names(&identity.allow),
            vlan,
            trunk,
            native,
        }
    }
}

fn checks(identity: &Identity, macs: &BTreeSet<Mac>) -> Vec<String> {
    let checks = identity.checks(macs);
    let all = [("mac", checks.mac), ("ip", checks.ip), ("dhcp", checks.dhcp), ("ra", checks.ra)];
    all.iter().filter(|(_, on)| *on).map(|(name, _)| (*name).to_owned()).collect()
}

fn names(ports: &Ports) -> Option<Vec<String>> {
    match ports {
        Ports::All => None,
        Ports::These(names) => Some(names.iter().map(ToString::to_string).collect()),
    }
}
