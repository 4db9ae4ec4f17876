//! Opens the device or socket of a configured port, and makes the parts of it that the switch and the engine take.

use std::path::Path;
use std::sync::Arc;

use ringway_config::kinds::contract::Namespace;
use ringway_config::kinds::{Opened, Opening};
use ringway_config::{Access, Name, Port};
use ringway_engine::Source;
use ringway_keeper::Link;
use ringway_runtime::serving::serve;

use super::events::Events;
use super::front_end::FrontEnd;
use super::live::NewPort;
use super::refused::Refused;
use crate::inject;

/// Where a port is opened.
pub struct Place<'a> {
    /// The daemon's runtime directory.
    pub runtime_dir: &'a Path,
    /// Who may connect to the sockets of ports that do not say otherwise.
    pub access: &'a Access,
    /// The network namespace that the port's device has to be in, if there can be only one.
    pub namespace: Option<&'a Namespace>,
    /// Receives the port's events.
    pub events: &'a Arc<Events>,
    /// Holds what outlives this process.
    pub keeper: &'a Link,
}

/// Opens the port `name` for the poller `poller`.
///
/// # Errors
/// Its device or socket cannot be had.
pub fn port(name: &Name, settings: &Port, poller: usize, place: &Place<'_>) -> Result<NewPort, Refused> {
    let Place { runtime_dir, access, namespace, events, keeper } = *place;
    let label = format!("{}:{name}", settings.switch);
    let _serving = serve(&label);
    if inject::at(&format!("{label}.open")) != inject::Point::Pass {
        return Err(Refused::Unavailable("injected".to_owned()));
    }
    let (id, observer) = events.observer();
    let macs = &settings.mac;
    let opening = Opening {
        name,
        label: &label,
        macs,
        runtime_dir,
        access,
        namespace: namespace.cloned(),
        observer: Arc::clone(&observer),
        keeper,
    };
    let Opened { sides, link, namespace } = settings.settings.own().open(&opening)?;
    let front_end =
        link.map(|link| Arc::new(FrontEnd::new(label.clone(), id, observer, link, settings.settings.clone())));
    let sides = inject::sides(&label, sides);
    let port = Arc::new(ringway_switch::Port::new(label, sides.output, sides.bell));
    let source = Arc::new(Source::new(sides.input, sides.signal));
    Ok(NewPort {
        settings: settings.clone(),
        port,
        source,
        poller,
        client: None,
        front_end,
        namespace,
        any_source: false,
        monitor: None,
    })
}
