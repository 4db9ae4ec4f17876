//! Requests about switches and their ports: attach, detach, list, persistent ports, header length, polling.

use std::ffi::c_int;

use ringway_abi::netmap::{PortName, Reply, Request, Wish};

use super::abi::{AttachBody, DetachBody, ListBody, NewBody, PollingBody, PortHeaderBody, mode};
use super::call::Call;
use super::headers;
use crate::clock::Deadline;
use crate::daemon;

/// `NM_BDG_NOPORT`: the switch has no port of this name.
const NO_PORT: u32 = 254;

impl Call<'_> {
    fn done(&self, request: &Request) -> Result<(), c_int> {
        let _held = self.begin()?;
        match daemon::ask(self.socket(), request)?.0 {
            Reply::Done => Ok(()),
            _ => Err(libc::EPROTO),
        }
    }

    pub(super) fn attach(&mut self, body: &mut AttachBody) -> Result<(), c_int> {
        let name = self.port_name()?;
        // The mode says whether the host's rings are attached, too. A port has none.
        if !matches!(body.register.mode, mode::ALL_NIC | mode::DEFAULT) {
            return Err(libc::EINVAL);
        }
        self.done(&Request::Attach(name.clone()))?;
        body.port_index = self.place_of(&name)?.1;
        Ok(())
    }

    pub(super) fn detach(&mut self, body: &mut DetachBody) -> Result<(), c_int> {
        let name = self.port_name()?;
        body.port_index = self.place_of(&name).map_or(0, |(_, port)| port);
        self.done(&Request::Detach(name))
    }

    pub(super) fn new_port(&mut self, _: &mut NewBody) -> Result<(), c_int> {
        let name = self.persistent_name()?;
        self.done(&Request::New(name))
    }

    pub(super) fn delete_port(&mut self) -> Result<(), c_int> {
        let name = self.persistent_name()?;
        self.done(&Request::Delete(name))
    }

    /// Returns the name of a persistent port, which has no switch in it.
    fn persistent_name(&self) -> Result<String, c_int> {
        let name = std::str::from_utf8(self.name()).map_err(|_| libc::EINVAL)?;
        if !ringway_abi::attach::is_name(name) || name.starts_with("vale") {
            return Err(libc::EINVAL);
        }
        Ok(name.to_owned())
    }

    /// Returns the port of this number, counted over all switches.
    fn listed(&self, number: u32, deadline: Deadline) -> Result<(PortName, u32, u32), c_int> {
        match daemon::ask_until(self.socket(), &Request::List(number), deadline)?.0 {
            Reply::Listed { name, switch_index, port_index } => Ok((name, switch_index, port_index)),
            _ => Err(libc::EPROTO),
        }
    }

    /// Returns the numbers of a port's switch and of the port.
    fn place_of(&self, wanted: &PortName) -> Result<(u32, u32), c_int> {
        let _held = self.begin()?;
        let deadline = daemon::deadline();
        for number in 0.. {
            match self.listed(number, deadline) {
                Ok((name, switch, port)) if name == *wanted => return Ok((switch, port)),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        Err(libc::ENOENT)
    }

    /// Finds a port by its name, or the first one at or after the given switch and port.
    pub(super) fn list(&mut self, body: &mut ListBody) -> Result<(), c_int> {
        let _held = self.begin()?;
        let wanted = String::from_utf8_lossy(self.name()).into_owned();
        let switch = wanted.split(':').next().unwrap_or_default();
        let from = (u32::from(body.bridge), body.port);
        let (mut switch_index, deadline) = (None, daemon::deadline());
        for number in 0.. {
            let (name, bridge, port) = match self.listed(number, deadline) {
                Ok(listed) => listed,
                Err(libc::ENOENT) => break,
                Err(error) => return Err(error),
            };
            if wanted.is_empty() && (bridge, port) >= from {
                self.header.name = [0; 64];
                let text = name.to_string();
                let end = text.len().min(63);
                self.header.name[..end].copy_from_slice(&text.as_bytes()[..end]);
                (body.bridge, body.port) = (bridge as u16, port);
                return Ok(());
            }
            if name.switch == switch {
                switch_index = Some(bridge);
                if name.to_string() == wanted {
                    (body.bridge, body.port) = (bridge as u16, port);
                    return Ok(());
                }
            }
        }
        if wanted.is_empty() {
            return Err(libc::ENOENT);
        }
        body.bridge = switch_index.ok_or(libc::ENOENT)? as u16;
        body.port = NO_PORT;
        Ok(())
    }

    /// Sets the header length of a port that this process registers later, or confirms that of one that exists.
    pub(super) fn set_header(&mut self, body: &mut PortHeaderBody) -> Result<(), c_int> {
        let len = u8::try_from(body.len).ok().filter(|len| matches!(len, 0 | 10 | 12)).ok_or(libc::EINVAL)?;
        let name = self.port_name()?;
        if let Ok(has) = self.header_of(&name) {
            // Frames may be in the rings: a port keeps its header.
            return if has == len { Ok(()) } else { Err(libc::EBUSY) };
        }
        headers::set(&name, len)
    }

    pub(super) fn get_header(&mut self, body: &mut PortHeaderBody) -> Result<(), c_int> {
        let name = self.port_name()?;
        body.len = self.header_of(&name)?.into();
        Ok(())
    }

    /// Returns the header length of a port that exists.
    fn header_of(&self, name: &PortName) -> Result<u8, c_int> {
        self.place_of(name).map_err(|_| libc::ENXIO)?;
        let _held = self.begin()?;
        Ok(self.numbers(Request::Info(name.clone(), Wish::default()))?.header)
    }

    /// No thread of the kernel polls ports.
    pub(super) fn polling(&mut self, _: &mut PollingBody) -> Result<(), c_int> {
        let name = self.port_name().map_err(|_| libc::EINVAL)?;
        self.place_of(&name).map_err(|_| libc::ENXIO)?;
        Err(libc::EOPNOTSUPP)
    }
}
