//! `NIOCCTRL`: the control requests of netmap, answered as the kernel answers them.

pub(crate) mod abi;
mod legacy;
mod options;
mod register;
mod vale;

use std::ffi::c_int;
use std::os::fd::BorrowedFd;

use ringway_abi::netmap::PortName;

use crate::file::Pinned;
use crate::user::{self, Plain};
use abi::{Header, request};
use options::Options;

/// A control request, for its handler.
pub(crate) struct Call<'a> {
    pub(crate) file: &'a Pinned,
    pub(crate) fd: c_int,
    pub(crate) header: Header,
    pub(crate) options: Options,
}

/// Performs an ioctl on a netmap descriptor.
///
/// # Errors
/// The errno that netmap gives.
pub(crate) fn ioctl(file: &Pinned, fd: c_int, number: u64, argument: u64) -> Result<(), c_int> {
    // The kernel takes the lower 32 bits.
    match number & 0xffff_ffff {
        abi::NIOCTXSYNC => crate::sync::sync(file, fd, crate::ring::Dir::Tx),
        abi::NIOCRXSYNC => crate::sync::sync(file, fd, crate::ring::Dir::Rx),
        abi::NIOCCTRL => control(file, fd, argument),
        abi::NIOCREGIF | abi::NIOCGINFO => legacy::request(file, fd, number & 0xffff_ffff, argument),
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// Returns true if the number is one of netmap's.
pub(crate) fn is_netmap(number: u64) -> bool {
    use abi::{NIOCCONFIG, NIOCCTRL, NIOCGINFO, NIOCREGIF, NIOCRXSYNC, NIOCTXSYNC};
    matches!(number & 0xffff_ffff, NIOCTXSYNC | NIOCRXSYNC | NIOCCTRL | NIOCREGIF | NIOCGINFO | NIOCCONFIG)
}

fn control(file: &Pinned, fd: c_int, argument: u64) -> Result<(), c_int> {
    let mut header: Header = user::read(argument)?;
    if !abi::VERSIONS.contains(&header.version) {
        header.version = abi::VERSION;
        user::write(argument, &header)?;
        return Err(libc::EINVAL);
    }
    if header.reserved != 0 {
        return Err(libc::EINVAL);
    }
    let bytes = body_bytes(header.kind);
    if (bytes != 0) != (header.body != 0) {
        return Err(libc::EINVAL);
    }
    let options = options::walk(header.options, bytes)?;
    header.name[63] = 0;
    let mut call = Call { file, fd, header, options };
    let result = call.perform();
    user::write(argument, &call.header)?;
    result
}

fn body_bytes(kind: u16) -> u64 {
    let bytes = match kind {
        request::REGISTER => size_of::<abi::RegisterBody>(),
        request::PORT_INFO_GET => size_of::<abi::PortInfoBody>(),
        request::VALE_ATTACH => size_of::<abi::AttachBody>(),
        request::VALE_DETACH => size_of::<abi::DetachBody>(),
        request::VALE_LIST => size_of::<abi::ListBody>(),
        request::PORT_HDR_SET | request::PORT_HDR_GET => size_of::<abi::PortHeaderBody>(),
        request::VALE_NEWIF => size_of::<abi::NewBody>(),
        request::VALE_POLLING_ENABLE | request::VALE_POLLING_DISABLE => size_of::<abi::PollingBody>(),
        request::POOLS_INFO_GET => size_of::<abi::PoolsBody>(),
        request::SYNC_KLOOP_START => size_of::<abi::KloopBody>(),
        _ => 0,
    };
    bytes as u64
}

impl Call<'_> {
    /// Reads the body, lets `work` change it, and writes it back if that succeeds.
    fn with<T: Plain>(&mut self, work: impl FnOnce(&mut Self, &mut T) -> Result<(), c_int>) -> Result<(), c_int> {
        let mut body: T = user::read(self.header.body)?;
        work(self, &mut body)?;
        user::write(self.header.body, &body)
    }

    fn perform(&mut self) -> Result<(), c_int> {
        match self.header.kind {
            request::REGISTER => self.with(Self::register),
            request::PORT_INFO_GET => self.with(Self::port_info),
            request::POOLS_INFO_GET => self.with(Self::pools_info),
            request::VALE_ATTACH => self.with(Self::attach),
            request::VALE_DETACH => self.with(Self::detach),
            request::VALE_LIST => self.with(Self::list),
            request::VALE_NEWIF => self.with(Self::new_port),
            request::VALE_DELIF => self.delete_port(),
            request::PORT_HDR_SET => self.with(Self::set_header),
            request::PORT_HDR_GET => self.with(Self::get_header),
            request::VALE_POLLING_ENABLE | request::VALE_POLLING_DISABLE => self.with(Self::polling),
            // Without CSB mode there is nothing that a loop could work on, or that could be stopped.
            request::SYNC_KLOOP_START | request::SYNC_KLOOP_STOP => Err(libc::EINVAL),
            request::CSB_ENABLE => Err(if self.options.csb { libc::EOPNOTSUPP } else { libc::EINVAL }),
            _ => Err(libc::EINVAL),
        }
    }

    /// Returns the name, up to its first NUL byte.
    fn name(&self) -> &[u8] {
        self.header.name.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    /// Returns the name as `SWITCH:PORT`.
    ///
    /// # Errors
    /// EOPNOTSUPP: a pipe. ENXIO: it is no name of a port.
    fn port_name(&self) -> Result<PortName, c_int> {
        let name = std::str::from_utf8(self.name()).map_err(|_| libc::ENXIO)?;
        if name.contains(['{', '}']) {
            return Err(libc::EOPNOTSUPP);
        }
        name.parse().map_err(|_| libc::ENXIO)
    }

    fn socket(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor that the program called with.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}
