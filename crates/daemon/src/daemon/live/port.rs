//! Live ports.

use std::sync::Arc;
use std::time::Instant;

use ringway_abi::netmap::Monitor;
use ringway_api::types::PortStatus;
use ringway_config::kinds::State;
use ringway_config::kinds::contract::Namespace;
use ringway_config::{Name, Port};
use ringway_engine::Source;
use ringway_port_process::ClientId;
use ringway_switch::{self as data, Account, CountersReading, Owner, Policy};

use crate::daemon::front_end::FrontEnd;

/// A port that is open: a device, a socket or a client is behind it. A clone is the same port, possibly with other settings.
#[derive(Clone, Debug)]
pub struct LivePort {
    /// Its settings.
    pub settings: Port,
    /// Its counters and output.
    pub port: Arc<data::Port>,
    /// Its input.
    pub source: Arc<Source>,
    /// The poller that serves it.
    pub poller: usize,
    /// The client of a process port.
    pub client: Option<ClientId>,
    /// The control side of a port whose peer comes and goes.
    pub front_end: Option<Arc<FrontEnd>>,
    /// The network namespace of its device, if it is not the daemon's.
    pub namespace: Option<Namespace>,
    /// True for a port of the netmap API: see [`data::Member::any_source`].
    pub any_source: bool,
    /// The port is a monitor of the netmap API: it mirrors this port.
    pub monitor: Option<Monitored>,
    /// The policy that follows from its settings, as of the last build.
    pub policy: Option<Policy>,
    /// The counters of its predecessors, which had its name and its settings.
    pub(super) before: CountersReading,
    /// Its index and generation in the MAC table.
    pub(super) owner: Owner,
    /// Its account at other ports, which it keeps while it is closed.
    pub(super) account: Account,
}

impl LivePort {
    /// Returns true if it mirrors other ports.
    pub fn is_mirror(&self) -> bool {
        !self.settings.mirror.is_empty() || self.monitor.is_some()
    }

    /// Returns true if it waits for a front end, as far as is known at this time.
    pub fn is_waiting(&self, until: Instant) -> bool {
        let report = |front_end: &Arc<FrontEnd>| front_end.report(until, &mut PortStatus::default());
        self.front_end.as_ref().and_then(report) == Some(State::Waiting)
    }

    /// Returns its counters together with those of its predecessors.
    pub fn counters(&self) -> CountersReading {
        self.port.counters().read().and(&self.before)
    }
}

/// A port to be inserted into a switch. The fields are those of [`LivePort`].
#[derive(Debug)]
#[allow(missing_docs, reason = "documented in LivePort")]
pub struct NewPort {
    pub settings: Port,
    pub port: Arc<data::Port>,
    pub source: Arc<Source>,
    pub poller: usize,
    pub client: Option<ClientId>,
    pub front_end: Option<Arc<FrontEnd>>,
    pub namespace: Option<Namespace>,
    pub any_source: bool,
    pub monitor: Option<Monitored>,
}

/// The port that a monitor of the netmap API mirrors. It need not be live.
#[derive(Clone, Debug)]
pub struct Monitored {
    /// Its name, in the monitor's switch.
    pub port: Name,
    /// The frames that the monitor hears.
    pub frames: Monitor,
}

/// What remains of a configured port that was closed, for the port that is opened in its place.
#[derive(Clone, Debug)]
pub struct SuspendedPort {
    /// Its limits, with their fill.
    pub policy: Option<Policy>,
    /// Its counters.
    pub counters: CountersReading,
    /// Its index, and its account at other ports.
    pub(super) index: u16,
    pub(super) account: Account,
}

/// An address that a switch knows.
#[derive(Clone, Copy, Debug)]
pub struct Address<'a> {
    /// The VLAN in which it was heard; 0: none, or every one.
    pub vlan: u16,
    /// The address.
    pub mac: data::Mac,
    /// The port behind which it is.
    pub port: &'a Name,
    /// The second in which it was last heard; none: it is bound by configuration.
    pub heard: Option<u32>,
}
