//! Opens devices and sockets of configured ports. Each port kind has an arm here.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringway_engine::Source;
use ringway_memory::Limits;
use ringway_ports::{Sides, e1000, stream, tap, vhost_user};

use super::front_end::{Events, FrontEnd, Link};
use super::live::NewPort;
use super::{Refused, netns};
use crate::config::e1000::{Cable, Model, Registers, address};
use crate::config::{E1000, Memory, Name, Port, Role, Socket, VhostUser};
use crate::inject;

/// Makes the port `name` of its settings, to be served by `poller`.
///
/// # Errors
/// Its device or socket cannot be had.
pub fn port(
    name: &Name,
    settings: &Port,
    poller: usize,
    runtime_dir: &Path,
    events: &Arc<Events>,
) -> Result<NewPort, Refused> {
    let label = format!("{}:{name}", settings.switch);
    let (sides, front_end) = match &settings.socket {
        Some(socket) => {
            let (sides, front_end) = front_end(name, &label, settings, socket, runtime_dir, events)?;
            (sides, Some(Arc::new(front_end)))
        }
        None => (device(settings)?, None),
    };
    let sides = inject::sides(&label, sides);
    let port = Arc::new(ringway_switch::Port::new(label, sides.output, sides.bell));
    let source = Arc::new(Source::new(sides.input, sides.signal));
    Ok(NewPort { settings: settings.clone(), port, source, poller, client: None, front_end })
}

fn device(settings: &Port) -> Result<Sides, Refused> {
    let Some(device) = settings.device.clone() else {
        return Err(Refused::Failed("the port has no device".to_owned()));
    };
    let wanted = tap::Settings { device };
    netns::inside(settings.netns.as_deref(), move || {
        tap::open(&wanted).map_err(|why| Refused::by_system(why.to_string(), &why))
    })
}

fn front_end(
    name: &Name,
    label: &str,
    settings: &Port,
    socket: &Socket,
    runtime_dir: &Path,
    events: &Arc<Events>,
) -> Result<(Sides, FrontEnd), Refused> {
    let (label, path) = (label.to_owned(), runtime_dir.join(&socket.path));
    let role = match socket.role {
        Role::Server => vhost_user::Role::Server,
        Role::Client => vhost_user::Role::Client,
    };
    let (id, observer) = events.observer();
    let memory = limits(settings.memory);
    let (name_of_port, tells) = (label.clone(), Arc::clone(&observer));
    let opened = match (&settings.vhost_user, &settings.e1000) {
        (Some(VhostUser { queues, mtu, offload }), _) => {
            let record = Some(runtime_dir.join(format!(".inflight-{name}")));
            let (queues, mtu, offload) = (*queues, *mtu, *offload);
            let wanted = vhost_user::Settings { label, socket: path, role, queues, mtu, offload, record, memory };
            vhost_user::open(&wanted, observer).map(|(sides, link)| (sides, Link::VhostUser(link)))
        }
        (None, Some(nic)) => {
            let wanted = e1000_settings(label, path, nic, address(name, &settings.mac), memory);
            e1000::open(&wanted, observer).map(|(sides, link)| (sides, Link::E1000(link)))
        }
        (None, None) => {
            let wanted = stream::Settings { label, socket: path, role };
            stream::open(&wanted, observer).map(|(sides, link)| (sides, Link::Stream(link)))
        }
    };
    let (sides, link) = opened
        .map_err(|why| Refused::by_system(format!("cannot open socket \"{}\": {why}", socket.path.display()), &why))?;
    let nic = settings.e1000.as_ref().map(|nic| (nic.link == Cable::Up, nic.completion_delay));
    Ok((sides, FrontEnd::new(name_of_port, id, tells, link, nic)))
}

/// As the memory's home has them.
pub fn limits(memory: Memory) -> Limits {
    Limits { bytes: memory.size, mappings: memory.mappings.into(), holes: memory.holes }
}

/// The bounds of all ports together.
pub fn limits_of_all(memory: Memory) -> Limits {
    let limits = limits(memory);
    let system = rustix::system::sysinfo();
    let half = system.totalram.saturating_mul(system.mem_unit.into()) / 2;
    Limits { holes: if limits.holes == u64::MAX { half } else { limits.holes }, ..limits }
}

fn e1000_settings(label: String, socket: PathBuf, nic: &E1000, mac: [u8; 6], memory: Limits) -> e1000::Settings {
    let model = match nic.model {
        Model::E1000 => e1000::Model::E1000,
        Model::E1000e => e1000::Model::E1000e,
    };
    let (link, mapped) = (nic.link == Cable::Up, nic.registers == Registers::Mapped);
    let (csb, completion_delay, receive_buffer) = (nic.csb, nic.completion_delay, e1000::RECEIVE_BUFFER);
    e1000::Settings { label, socket, model, mac, link, mapped, csb, completion_delay, receive_buffer, memory }
}
