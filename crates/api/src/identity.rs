//! The JSON of a port's identity.

use serde::{Deserialize, Serialize};

/// A port's identity, and the ports that it may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IdentityStatus {
    /// IP addresses and prefixes bound to it; none: any.
    #[serde(default)]
    pub ip: Vec<String>,
    /// The checks of its source guard: some of `mac`, `ip`, `dhcp`, `ra`.
    #[serde(default)]
    pub guard: Vec<String>,
    /// Whether it is an uplink.
    #[serde(default)]
    pub uplink: bool,
    /// The uplinks that it may use; null: all.
    #[serde(default)]
    pub uplinks: Option<Vec<String>>,
    /// The ports except uplinks that it may reach; null: all.
    #[serde(default)]
    pub allow: Option<Vec<String>>,
    /// Its VLAN without tags; null: none, or that of `native`.
    #[serde(default)]
    pub vlan: Option<u16>,
    /// Its VLANs with tags, like `10` or `20-29`; null: it is no trunk.
    #[serde(default)]
    pub trunk: Option<Vec<String>>,
    /// A trunk's VLAN without tags.
    #[serde(default)]
    pub native: Option<u16>,
}
