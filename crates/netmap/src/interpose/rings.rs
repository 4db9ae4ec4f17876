//! `ioctl`, `mmap` and `recvmsg`.

use std::ffi::{c_int, c_ulong, c_void};
use std::os::fd::AsRawFd;

use libc::{FIOASYNC, FIOCLEX, FIONBIO, FIONCLEX, MAP_FAILED, c_uint, msghdr, off_t, size_t, ssize_t};

use crate::errno::{self, answer, kept};
use crate::file::{self, Pinned};
use crate::real::call_real;
use crate::{control, descriptors, process};

/// See ioctl(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ioctl(fd: c_int, number: c_ulong, argument: *mut c_void) -> c_int {
    if !descriptors::is_other(fd) || control::is_netmap(number) {
        match ioctl_netmap(fd, number, argument) {
            None => {}
            Some(result) => return answer(result),
        }
    }
    call_real!(IOCTL as fn(c_int, c_ulong, *mut c_void) -> c_int, fd, number, argument)
}

/// Performs the ioctl if the descriptor is netmap's.
fn ioctl_netmap(fd: c_int, number: c_ulong, argument: *mut c_void) -> Option<Result<c_int, c_int>> {
    // The kernel itself serves these for every descriptor.
    if [FIOCLEX, FIONCLEX, FIONBIO, FIOASYNC].contains(&number) {
        return None;
    }
    let file = file::of(fd).or_else(|| process::recognise(fd))?;
    Some(control::ioctl(&file, fd, number, argument.addr() as u64).map(|()| 0))
}

type Mmap = (*mut c_void, size_t, c_int, c_int, c_int, off_t);

macro_rules! mmap_functions {
    ($($name:ident = $real:ident;)*) => {$(
        /// See mmap(2).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            address: *mut c_void,
            bytes: size_t,
            protection: c_int,
            flags: c_int,
            fd: c_int,
            offset: off_t,
        ) -> *mut c_void {
            let arguments = (address, bytes, protection, flags, fd, offset);
            if !descriptors::is_other(fd) && let Some(file) = file::of(fd) {
                return mmap_netmap(&file, arguments);
            }
            let result = call_real!(
                $real as fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void,
                address, bytes, protection, flags, fd, offset
            );
            // A socket cannot be mapped: it may be a netmap descriptor that was passed to this process.
            if result == MAP_FAILED && errno::get() == libc::ENODEV && let Some(file) = process::recognise(fd) {
                return mmap_netmap(&file, arguments);
            }
            result
        }
    )*};
}

mmap_functions! {
    mmap = MMAP;
    mmap64 = MMAP64;
}

/// Maps the memory of a registration.
fn mmap_netmap(file: &Pinned, (address, bytes, protection, flags, fd, offset): Mmap) -> *mut c_void {
    let memory = file.registration(fd).ok().and_then(|registration| {
        let end = usize::try_from(offset).ok()?.checked_add(bytes)?;
        (end <= registration.region.bytes()).then(|| registration.region.memory())?
    });
    let Some(memory) = memory else {
        errno::set(libc::EINVAL);
        return MAP_FAILED;
    };
    // MAP_POPULATE would make the whole region's pages, which are made as they are used.
    let flags = flags & !libc::MAP_POPULATE;
    let memory = memory.as_raw_fd();
    call_real!(
        MMAP as fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void,
        address,
        bytes,
        protection,
        flags,
        memory,
        offset
    )
}

/// See recvmsg(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    let received = call_real!(RECVMSG as fn(c_int, *mut msghdr, c_int) -> ssize_t, socket, message, flags);
    if received >= 0 {
        // SAFETY: the kernel has just filled the message in.
        unsafe { look_at_passed(message) };
    }
    received
}

/// See recvmmsg(2).
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvmmsg(
    socket: c_int,
    messages: *mut libc::mmsghdr,
    number: c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    let received = call_real!(
        RECVMMSG as fn(c_int, *mut libc::mmsghdr, c_uint, c_int, *mut libc::timespec) -> c_int,
        socket,
        messages,
        number,
        flags,
        timeout
    );
    for at in 0..usize::try_from(received).unwrap_or(0) {
        // SAFETY: the kernel has just filled these messages in.
        unsafe { look_at_passed(&raw mut (*messages.add(at)).msg_hdr) };
    }
    received
}

/// Recognises netmap descriptors that came with a message.
///
/// # Safety
/// The kernel has filled in the message.
unsafe fn look_at_passed(message: *const msghdr) {
    // SAFETY: as the caller says. The macros of libc stay within the message's control data.
    unsafe {
        if (*message).msg_controllen == 0 {
            return;
        }
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                let bytes = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for at in 0..bytes / size_of::<c_int>() {
                    let fd = data.add(at).read_unaligned();
                    kept(|| {
                        descriptors::closing(fd);
                        drop(process::recognise(fd));
                    });
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}
