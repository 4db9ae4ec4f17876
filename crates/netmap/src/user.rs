//! The program's own memory, through the kernel: a bad pointer is EFAULT and no crash, as in a system call.

use std::ffi::c_int;
use std::mem::MaybeUninit;

/// Reads a value at the program's address.
///
/// # Errors
/// EFAULT.
pub(crate) fn read<T: Plain>(address: u64) -> Result<T, c_int> {
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: zeroed, and as many bytes as the type has. Any bytes are a valid value of a plain type.
    unsafe {
        read_into(address, std::slice::from_raw_parts_mut(value.as_mut_ptr().cast(), size_of::<T>()))?;
        Ok(value.assume_init())
    }
}

/// Writes a value to the program's address.
///
/// # Errors
/// EFAULT.
pub(crate) fn write<T: Plain>(address: u64, value: &T) -> Result<(), c_int> {
    // SAFETY: a plain type has no padding.
    let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) };
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    transfer(libc::SYS_process_vm_writev, local, address)
}

/// Reads the bytes at the program's address.
///
/// # Errors
/// EFAULT.
pub(crate) fn read_into(address: u64, into: &mut [u8]) -> Result<(), c_int> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    transfer(libc::SYS_process_vm_readv, local, address)
}

fn transfer(number: libc::c_long, local: libc::iovec, address: u64) -> Result<(), c_int> {
    let remote = libc::iovec { iov_base: address as *mut _, iov_len: local.iov_len };
    if local.iov_len == 0 {
        return Ok(());
    }
    let flags = 0 as libc::c_ulong;
    crate::errno::kept(|| {
        // SAFETY: the kernel checks the remote addresses; the local ones are a slice of this process.
        let moved = unsafe {
            libc::syscall(number, libc::getpid(), &raw const local, 1usize, &raw const remote, 1usize, flags)
        };
        if moved == local.iov_len as libc::c_long { Ok(()) } else { Err(libc::EFAULT) }
    })
}

/// The kernel lets no program have memory below.
const LOWEST: usize = 4096;

/// Returns false for an address at which no memory of a program can be, such as a small number that is no pointer.
#[inline]
pub(crate) fn is_address(pointer: *const std::ffi::c_void) -> bool {
    (LOWEST..isize::MAX as usize).contains(&pointer.addr())
}

/// A type that is nothing but its bytes.
///
/// # Safety
/// Every pattern of bytes is a value, and there is no padding.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: a number.
unsafe impl Plain for u32 {}

// SAFETY: numbers. Where it has padding it is only read.
unsafe impl Plain for libc::epoll_event {}
