//! Memory of the program that its ports use in place of memory of the switch.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use ringway_client::{Area as Part, ExternalMemory};

use crate::error::{RINGWAY_E_ARGUMENT, RINGWAY_E_SYSTEM};
use crate::port::{Port, Shape, store};
use crate::tx::not_queued;

/// Memory of the program for its ports. ringway_memory_new() and ringway_memory_from_fd() make it, ringway_memory_free() ends it.
pub struct Memory(ExternalMemory);

/// A part of a memory that the program has to itself. ringway_area_take() and ringway_area_take_at() take it, ringway_area_free() ends
/// it.
pub struct Area(Part);

/// Stores what was made, or NULL. Returns the code.
///
/// # Safety
/// `to` is NULL, or a pointer can be written there.
unsafe fn made(to: *mut *mut Memory, make: impl FnOnce() -> io::Result<ExternalMemory>) -> c_int {
    if to.is_null() {
        return RINGWAY_E_ARGUMENT;
    }
    let (memory, code) = match make() {
        Ok(memory) => (Box::into_raw(Box::new(Memory(memory))), 0),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => (ptr::null_mut(), RINGWAY_E_ARGUMENT),
        Err(_) => (ptr::null_mut(), RINGWAY_E_SYSTEM),
    };
    // SAFETY: not NULL, and the caller's.
    unsafe { *to = memory };
    code
}

/// Makes a memory of `bytes` zeroed bytes, and stores it in `*memory`. Frames are sent from multiples of `unit`: a power of two from 1
/// to 64. The memory has less than 2^32 units. Returns 0; after an error `*memory` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_memory_new(bytes: usize, unit: u32, memory: *mut *mut Memory) -> c_int {
    // SAFETY: the caller's pointer.
    unsafe { made(memory, || ExternalMemory::new(bytes, unit)) }
}

/// Makes a memory of the whole of a memfd, like ringway_memory_new(). The library seals it against shrinking (F_SEAL_SHRINK), if it is
/// not sealed. The caller keeps its descriptor, and may close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_memory_from_fd(fd: RawFd, unit: u32, memory: *mut *mut Memory) -> c_int {
    let make = || {
        if fd < 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the caller's descriptor, which stays open for this call.
        let file = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
        ExternalMemory::from_file(file, unit)
    };
    // SAFETY: the caller's pointer.
    unsafe { made(memory, make) }
}

/// Ends a memory. Ports and areas that use it keep what they use. `memory` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_memory_free(memory: *mut Memory) {
    if !memory.is_null() {
        // SAFETY: made by `made`, and the caller does not use it again.
        drop(unsafe { Box::from_raw(memory) });
    }
}

/// Stores an area, or NULL. Returns the result of a function that takes areas.
///
/// # Safety
/// `memory` is NULL or a memory that nobody else uses; `to` is NULL, or a pointer can be written there.
unsafe fn taken(
    memory: *mut Memory,
    to: *mut *mut Area,
    take: impl FnOnce(&mut ExternalMemory) -> Option<Part>,
) -> c_int {
    // SAFETY: the caller's memory.
    let (Some(memory), false) = (unsafe { memory.as_mut() }, to.is_null()) else { return RINGWAY_E_ARGUMENT };
    let area = take(&mut memory.0).map_or(ptr::null_mut(), |part| Box::into_raw(Box::new(Area(part))));
    // SAFETY: not NULL, and the caller's.
    unsafe { *to = area };
    (!area.is_null()).into()
}

/// Takes `bytes` bytes of a memory that nothing else has, and stores the area in `*area`. They stay taken. Returns 1, or 0 if so many
/// are not left in one piece: then `*area` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_area_take(memory: *mut Memory, bytes: usize, area: *mut *mut Area) -> c_int {
    // SAFETY: the caller's memory and pointer.
    unsafe { taken(memory, area, |memory| memory.take(bytes)) }
}

/// Takes the `bytes` bytes from `offset` on, like ringway_area_take(). Returns 0 if a part of them is taken already, is outside, or is in
/// the first two units. While an area exists, the program uses these bytes only through the area.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_area_take_at(
    memory: *mut Memory,
    offset: usize,
    bytes: usize,
    area: *mut *mut Area,
) -> c_int {
    // SAFETY: the caller's memory and pointer.
    unsafe { taken(memory, area, |memory| memory.take_at(offset..offset.checked_add(bytes)?)) }
}

/// Returns the first byte of an area; NULL if `area` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_area_data(area: *mut Area) -> *mut c_void {
    // SAFETY: the caller's area.
    unsafe { area.as_ref() }.map_or(ptr::null_mut(), |area| area.0.start().as_ptr().cast())
}

/// Ends an area. Its bytes stay taken. Frames that were queued from it have to be sent before. `area` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_area_free(area: *mut Area) {
    if !area.is_null() {
        // SAFETY: made by `taken`, and the caller does not use it again.
        drop(unsafe { Box::from_raw(area) });
    }
}

/// Attaches like ringway_attach(), with the port's buffers in `memory` instead of in memory of the switch. The port takes a part of the
/// memory for the buffers of its slots; RINGWAY_E_MEMORY if there is no room for them. After an error the memory is as before, unless the
/// switch has asked for it: then the part stays taken, as the switch may have used it. Ports of one process may share a memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_attach_with_memory(
    socket: *const c_char,
    name: *const c_char,
    shape: *const Shape,
    memory: *mut Memory,
    port: *mut *mut Port,
    text: *mut c_char,
    text_size: usize,
) -> c_int {
    // SAFETY: the caller's pointers, as the comments of this function and of `ringway_attach` describe them.
    unsafe {
        let attached = match memory.as_mut() {
            Some(memory) => Port::attach(socket, name, shape, Some(&mut memory.0)),
            None => Err((RINGWAY_E_ARGUMENT, "memory is NULL".to_owned())),
        };
        store(attached, port, text, text_size)
    }
}

/// Queues `length` bytes of an area from `offset` on as a frame, without a copy: the switch reads them when it takes the frame. That is
/// done when ringway_room() is the number of slots less 1. The area is in the port's memory, and the frame begins at a multiple of the
/// memory's unit. Returns as ringway_push().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_push_from(
    port: *mut Port,
    ring: u32,
    area: *const Area,
    offset: usize,
    length: usize,
) -> c_int {
    // SAFETY: the caller's port and area.
    let (Some(tx), Some(area)) = (unsafe { Port::tx(port, ring) }, unsafe { area.as_ref() }) else {
        return RINGWAY_E_ARGUMENT;
    };
    let Some(part) = offset.checked_add(length).map(|end| offset..end).filter(|part| tx.takes_from(&area.0, part))
    else {
        return RINGWAY_E_ARGUMENT;
    };
    if tx.push_from(&area.0, part) { 1 } else { not_queued(tx, length) }
}
