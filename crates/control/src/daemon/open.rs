//! Opens what is at the other side of configured ports: devices and sockets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringway_engine::Source;
use ringway_ports::{Sides, tap, vhost_user};

use super::front_end::{Events, FrontEnd};
use super::live::NewPort;
use super::netns;
use crate::config::{Name, Port, Role, VhostUser};

/// Makes the port `name` of its settings, to be served by `poller`. The error is for users.
pub fn port(
    name: &Name,
    settings: &Port,
    poller: usize,
    runtime_dir: &Path,
    events: &Arc<Events>,
) -> Result<NewPort, String> {
    let label = format!("{}:{name}", settings.switch);
    let (sides, front_end) = match &settings.vhost_user {
        Some(wanted) => {
            let record = runtime_dir.join(format!(".inflight-{name}"));
            let (sides, front_end) = front_end(&label, wanted, runtime_dir, record, events)?;
            (sides, Some(Arc::new(front_end)))
        }
        None => (device(settings)?, None),
    };
    let port = Arc::new(ringway_switch::Port::new(label, sides.output, sides.bell));
    let source = Arc::new(Source::new(sides.input, sides.signal));
    Ok(NewPort { settings: settings.clone(), port, source, poller, client: None, front_end })
}

fn device(settings: &Port) -> Result<Sides, String> {
    let Some(device) = settings.device.clone() else { return Err("the port has no device".to_owned()) };
    let wanted = tap::Settings { device };
    netns::inside(settings.netns.as_deref(), move || tap::open(&wanted).map_err(|e| e.to_string()))
}

fn front_end(
    label: &str,
    settings: &VhostUser,
    runtime_dir: &Path,
    record: PathBuf,
    events: &Arc<Events>,
) -> Result<(Sides, FrontEnd), String> {
    let wanted = vhost_user::Settings {
        label: label.to_owned(),
        socket: runtime_dir.join(&settings.socket),
        role: match settings.role {
            Role::Server => vhost_user::Role::Server,
            Role::Client => vhost_user::Role::Client,
        },
        queues: settings.queues,
        mtu: settings.mtu,
        offload: settings.offload,
        record: Some(record),
    };
    let (id, observer) = events.observer();
    let failed = |error: std::io::Error| format!("cannot open socket \"{}\": {error}", settings.socket.display());
    let (sides, link) = vhost_user::open(&wanted, observer).map_err(failed)?;
    Ok((sides, FrontEnd::new(id, link)))
}
