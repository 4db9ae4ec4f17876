//! A control request, as its handlers share it.

use std::ffi::c_int;

use ringway_abi::netmap::PortName;

use super::abi::Header;
use super::options::Options;
use crate::daemon::Dialogue;
use crate::file::Pinned;
use crate::lock::Held;
use crate::user::{self, Plain};

/// A control request, for its handler.
pub(crate) struct Call<'a> {
    pub(crate) file: &'a Pinned,
    pub(crate) fd: c_int,
    pub(crate) header: Header,
    pub(crate) options: Options,
}

impl<'a> Call<'a> {
    /// Takes the lock for requests to the daemon.
    ///
    /// # Errors
    /// EBUSY: a signal handler has interrupted a request of its own thread.
    pub(super) fn begin(&self) -> Result<Held<'a>, c_int> {
        self.file.request.take_outer().ok_or(libc::EBUSY)
    }

    /// Reads the body, lets `work` change it, and writes it back if that succeeds.
    pub(super) fn with<T: Plain>(
        &mut self,
        work: impl FnOnce(&mut Self, &mut T) -> Result<(), c_int>,
    ) -> Result<(), c_int> {
        let mut body: T = user::read(self.header.body)?;
        work(self, &mut body)?;
        user::write(self.header.body, &body)
    }

    /// Returns the name, up to its first NUL byte.
    pub(super) fn name(&self) -> &[u8] {
        self.header.name.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Returns the name as `SWITCH:PORT`.
    ///
    /// # Errors
    /// EOPNOTSUPP: a pipe. ENXIO: it is no name of a port.
    pub(super) fn port_name(&self) -> Result<PortName, c_int> {
        let name = self.port_or_end()?;
        if name.pipe.is_some() { Err(libc::EOPNOTSUPP) } else { Ok(name) }
    }

    /// Returns the name as `SWITCH:PORT`, or as an end of a pipe.
    ///
    /// # Errors
    /// EINVAL: it is no name of an end. ENXIO: it is no name of a port.
    pub(super) fn port_or_end(&self) -> Result<PortName, c_int> {
        let name = std::str::from_utf8(self.name()).map_err(|_| libc::ENXIO)?;
        let error = if name.contains(['{', '}']) { libc::EINVAL } else { libc::ENXIO };
        name.parse().map_err(|_| error)
    }

    pub(super) fn socket(&self) -> Dialogue<'_> {
        self.file.dialogue(self.fd)
    }
}
