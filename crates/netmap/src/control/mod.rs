//! `NIOCCTRL`: the control requests of netmap, answered as the kernel answers them.

pub(crate) mod abi;
mod call;
mod headers;
mod legacy;
mod options;
mod register;
mod vale;

pub(crate) use headers::reset_lock;

use std::ffi::c_int;

use crate::file::Pinned;
use crate::user;
use abi::{Header, request};
use call::Call;

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
}
