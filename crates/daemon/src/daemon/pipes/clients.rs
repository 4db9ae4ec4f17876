//! Clients of the netmap API open and close ends of pipes.
//!
//! A pipe belongs to a port by its name only: the port may be open or not, and another program may have it. A program that may make
//! the port may open its pipes. An end belongs to the family that opens it first, as a port does.

use std::collections::HashSet;
use std::sync::Arc;

use ringway_abi::Layout;
use ringway_abi::layout::MAX_RINGS;
use ringway_abi::netmap::{Family, Numbers, PipeEnd, PortName, Register, Wish};
use ringway_config::{Kind, Port};
use ringway_engine::Source;
use ringway_port_process::{
    ClientId, Pipe, Process, Refusal, Region, RegionError, RegionPort, Registration, check_unclosed_pipes,
};
use rustix::io::Errno;

use super::live::{EndName, LiveEnd, PipeName};
use crate::daemon::attach::{AttachHost, Wanted};
use crate::daemon::netmap::{beyond_limits, check_region_of, has_gone, names, open_in_region, refusal};
use crate::daemon::state::{Daemon, choose_poller};

/// An end that a client may open.
struct Opening {
    end: EndName,
    pipe: Arc<Pipe>,
    poller: usize,
    colour: u32,
    /// Most bytes of a region.
    most: u64,
}

fn end_name(name: &PortName, end: &PipeEnd) -> Result<EndName, Refusal> {
    let (switch, port) = names(name)?;
    Ok(EndName { pipe: PipeName { switch, port, id: end.id.clone() }, role: end.role })
}

impl AttachHost {
    /// Registers an end of a pipe, or some of its rings.
    ///
    /// # Errors
    /// Why the request is refused.
    pub(in crate::daemon) fn register_end(
        &mut self,
        client: ClientId,
        process: Process,
        family: Family,
        register: &Register,
        end: &PipeEnd,
    ) -> Result<Registration, Refusal> {
        let name = &register.name;
        let end = end_name(name, end)?;
        if let Some(registration) = self.share_end(client, family, register, &end)? {
            return Ok(registration);
        }
        self.check_region(&family, register)?;
        check_unclosed_pipes(process).map_err(|why| {
            let refusal = Refusal::new(Errno::BUSY, format!("{name}: {why}"));
            Refusal { is_transient: true, ..refusal }
        })?;
        let Opening { end, pipe, poller, colour, most } =
            self.lock().check_end(name, end, &self.sized(&family, &register.wish))?;
        let role = end.role;
        let wish = Wish { buffer_size: register.wish.buffer_size, ..pipe.wish(role) };
        if pipe.is_closing(role) {
            // Before a region is made, as the registration is tried again.
            return Err(Refusal { is_transient: true, ..refusal(name, &RegionError::Closing) });
        }
        let region = self.regions().take((family, process), &wish, most).map_err(|error| refusal(name, &error))?;
        let (io, shared) = open_in_region(&region, name, || pipe.open(role, &region, colour, process))?;
        let registration = Registration::new(&shared, register, [0; 6]).map_err(|error| {
            pipe.close(role);
            refusal(name, &error)
        })?;
        let port = Arc::new(ringway_switch::Port::without_output(end.to_string(), io.bell));
        let source = Arc::new(Source::of_mover(io.mover, io.signal));
        let live = LiveEnd { family, process, shared, port, source, members: HashSet::from([client]) };
        let mut daemon = self.lock();
        if !daemon.pipes.may_insert(&end, &pipe) {
            drop(daemon);
            pipe.close(role);
            return Err(has_gone(name));
        }
        daemon.pipes.insert(end, pipe, poller, live);
        // The pollers that get this topology exchange frames with the end.
        daemon.publish();
        Ok(registration)
    }

    /// Registers rings of an end that is in use. Returns none if it is not.
    fn share_end(
        &mut self,
        client: ClientId,
        family: Family,
        register: &Register,
        end: &EndName,
    ) -> Result<Option<Registration>, Refusal> {
        let name = &register.name;
        let Some(shared) = self.lock().end_of(&family, register, end)? else { return Ok(None) };
        // Without the daemon's lock, as it writes to memory of the program.
        let registration = Registration::new(&shared, register, [0; 6]).map_err(|error| refusal(name, &error))?;
        if self.lock().pipes.join(end, &shared, client) { Ok(Some(registration)) } else { Err(has_gone(name)) }
    }

    /// Returns the numbers that an end has or would get.
    ///
    /// # Errors
    /// Why the request is refused.
    pub(in crate::daemon) fn info_of_end(
        &mut self,
        family: Family,
        name: &PortName,
        wish: &Wish,
        end: &PipeEnd,
    ) -> Result<Numbers, Refusal> {
        let end = end_name(name, end)?;
        let sized = self.sized(&family, wish);
        let Opening { pipe, most, end, .. } = {
            let mut daemon = self.lock();
            if let Some(live) = daemon.pipes.end(&end) {
                return Ok(live.shared.numbers(name.clone(), [0; 6]));
            }
            daemon.check_end(name, end, &sized)?
        };
        let wish = Wish { buffer_size: wish.buffer_size, ..pipe.wish(end.role) };
        let error = |error: RegionError| refusal(name, &error);
        let (region, region_bytes, shape) = match self.regions().of(&family) {
            Some(region) => (region.id(), region.bytes(), region.shape(&wish).map_err(error)?),
            None => {
                let (shape, bytes) = Region::plan(&wish, most).map_err(error)?;
                (0, bytes, shape)
            }
        };
        Ok(Numbers { name: name.clone(), region, region_bytes, shape, header: 0, mac: [0; 6] })
    }
}

impl Daemon {
    /// Returns an end in use, if it is, for further registrations of this family.
    fn end_of(&self, family: &Family, register: &Register, end: &EndName) -> Result<Option<Arc<RegionPort>>, Refusal> {
        let name = &register.name;
        let Some(live) = self.pipes.end(end) else { return Ok(None) };
        if live.family != *family {
            return Err(Refusal::new(Errno::BUSY, format!("another program has {name}: choose another name")));
        }
        check_region_of(&live.shared, register)?;
        Ok(Some(Arc::clone(&live.shared)))
    }

    /// Checks that an end that is not in use may be opened, by a wish that [`AttachHost::sized`] has returned. A new pipe gets the
    /// numbers of the wish; its slots are by default as
    /// many as those of its port.
    fn check_end(&mut self, name: &PortName, end: EndName, wish: &Wish) -> Result<Opening, Refusal> {
        let PipeName { switch, port, .. } = &end.pipe;
        if self.live(switch, port).is_none() {
            self.settings_for(switch, port).map_err(|why| Refusal::new(Errno::NXIO, why))?;
        }
        self.may_make(switch, &end.to_string()).map_err(|why| Refusal::new(Errno::NXIO, why))?;
        let (pipe, poller) = match self.pipes.pipe(&end.pipe) {
            Some(live) => (Arc::clone(&live.pipe), live.poller),
            None => {
                let (tx_slots, rx_slots) = self.slots_of(switch, port).unwrap_or_default();
                let slots = |asked: u32, has| if asked == 0 { has } else { asked }.min(Pipe::MOST_SLOTS);
                let wish = Wish {
                    tx_rings: wish.tx_rings.min(MAX_RINGS),
                    rx_rings: wish.rx_rings.min(MAX_RINGS),
                    tx_slots: slots(wish.tx_slots, tx_slots),
                    rx_slots: slots(wish.rx_slots, rx_slots),
                    ..*wish
                };
                let settings = Port::new(switch.clone(), Kind::Process, port);
                let poller = choose_poller(&settings, &self.switches, self.engine.pollers());
                (Pipe::new(end.role, &wish), poller)
            }
        };
        let layout = Layout::new(pipe.wish(end.role).shape(wish.buffer_size), 0);
        let bytes = layout.map_err(|error| Refusal::new(Errno::INVAL, format!("{name}: {error}")))?.bytes as u64;
        let wanted = Wanted { switch: switch.clone(), name: port.clone(), bytes, any_source: false, monitor: None };
        self.within_limits(&wanted).map_err(beyond_limits)?;
        let colour = self.next_colour;
        self.next_colour = self.next_colour.wrapping_add(1);
        let most = self.running.config.attach.max_region;
        Ok(Opening { end, pipe, poller, colour, most })
    }

    /// Ends a client's registration of an end, if it has one. The last one closes the end.
    pub(in crate::daemon) fn leave_pipe(&mut self, client: ClientId) {
        if let Some(end) = self.pipes.leave(client) {
            self.pipes.close(&end);
            self.publish();
        }
    }

    /// Closes an end at once and disconnects its clients with this reason.
    pub(in crate::daemon) fn close_end(&mut self, end: &EndName, reason: &str) {
        let clients = self.pipes.close(end);
        if let Some(disconnector) = &self.disconnector {
            clients.into_iter().for_each(|client| disconnector.end(client, reason.to_owned()));
        }
        self.publish();
    }
}
