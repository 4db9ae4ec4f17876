//! Sending messages.

use std::ffi::{c_int, c_void};
use std::slice;

use ringway_link::AnyLink;
use ringway_lwep::{Endpoint, Outgoing, SendError};

use super::endpoint::{Lwep, send_code};
use super::held::Held;
use crate::error::{RINGWAY_E_ARGUMENT, RINGWAY_E_LENGTH};
use crate::ring::Frame;

/// A buffer of an endpoint that the program has: to write a message, or with one that was kept, which is only read.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LwepBuffer {
    /// The bytes.
    pub data: *mut u8,
    /// Number of bytes.
    pub length: usize,
    /// The buffer's number, for the functions that take it back.
    pub handle: u64,
}

/// Returns the caller's bytes, if they are possible.
///
/// # Safety
/// `length` bytes can be read at `data`, or it is NULL.
#[inline]
unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Result<&'a [u8], c_int> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(RINGWAY_E_ARGUMENT);
    }
    // No message is so long: a mistake, and no memory is read.
    if length > i32::MAX as usize {
        return Err(RINGWAY_E_LENGTH);
    }
    // SAFETY: the caller's.
    Ok(unsafe { slice::from_raw_parts(data.cast(), length) })
}

/// Sends a copy of a message by `send`.
///
/// # Safety
/// `lwep` is as for [`Lwep::of`], the message as for [`bytes`].
#[inline(always)]
unsafe fn send_by(
    lwep: *mut Lwep,
    (message, length): (*const c_void, usize),
    send: impl FnOnce(&mut Endpoint<AnyLink>, &[u8]) -> Result<(), SendError>,
) -> c_int {
    // SAFETY: the caller's endpoint, and `length` bytes of the caller.
    let (Some(lwep), message) = (unsafe { (Lwep::of(lwep), bytes(message, length)) }) else {
        return RINGWAY_E_ARGUMENT;
    };
    match message.map(|message| send(&mut lwep.endpoint, message)) {
        Ok(Ok(())) => 1,
        Ok(Err(error)) => send_code(error),
        Err(code) => code,
    }
}

/// Sends a copy of a message. Returns 1, or 0 if there is no room: RINGWAY_LWEP_ROOM tells when there is. Returns RINGWAY_E_LENGTH if it
/// is longer than a frame or than the peer takes, RINGWAY_E_OVER if there is no such connection or its end was announced. It goes out
/// at once if the windows allow; ringway_lwep_flush(), and ringway_lwep_poll() when nothing more has arrived, hand it to the switch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_send(
    lwep: *mut Lwep,
    connection: u32,
    message: *const c_void,
    length: usize,
    now: u64,
) -> c_int {
    // SAFETY: the caller's endpoint, and `length` bytes of the caller.
    unsafe {
        send_by(lwep, (message, length), |endpoint, message| endpoint.send(Lwep::connection(connection), message, now))
    }
}

/// Sends copies of up to `count` messages of a connection, in order. Returns how many were taken: fewer if there is no room for the next
/// one. If the first one is refused, returns as ringway_lwep_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_send_batch(
    lwep: *mut Lwep,
    connection: u32,
    messages: *const Frame,
    count: usize,
    now: u64,
) -> c_int {
    // SAFETY: the caller's endpoint.
    let (Some(lwep), false) = (unsafe { Lwep::of(lwep) }, messages.is_null()) else { return RINGWAY_E_ARGUMENT };
    for taken in 0..count.min(c_int::MAX as usize) {
        // SAFETY: one of `count` messages of the caller, and its bytes.
        let message = unsafe {
            let Frame { data, length } = messages.add(taken).read();
            bytes(data, length)
        };
        let code = match message.map(|message| lwep.endpoint.send(Lwep::connection(connection), message, now)) {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => send_code(error),
            Err(code) => code,
        };
        return if taken > 0 { taken as c_int } else { code };
    }
    count as c_int
}

/// Sends a copy of a message of any length that the peer takes, in as many frames as it needs. Returns as ringway_lwep_send(). After 0
/// a part of it may have been sent: after RINGWAY_LWEP_ROOM the program calls this again with the same message, until it returns 1. Until
/// then the connection takes nothing else, which RINGWAY_E_IN_MESSAGE tells.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_send_long(
    lwep: *mut Lwep,
    connection: u32,
    message: *const c_void,
    length: usize,
    now: u64,
) -> c_int {
    // SAFETY: the caller's endpoint, and `length` bytes of the caller.
    unsafe {
        send_by(lwep, (message, length), |endpoint, message| {
            endpoint.send_long(Lwep::connection(connection), message, now)
        })
    }
}

/// Stores a buffer for a message to any connection in `*buffer`, with its size as `length`. Returns 1, or 0 if no buffer is free. The
/// caller writes a message into it and calls ringway_lwep_commit() or ringway_lwep_discard().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_reserve(lwep: *mut Lwep, buffer: *mut LwepBuffer) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { reserve(lwep, buffer, Endpoint::reserve) }
}

/// Stores a buffer for many messages of equal length in `*buffer`, like ringway_lwep_reserve(), for ringway_lwep_commit_many().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_reserve_many(lwep: *mut Lwep, buffer: *mut LwepBuffer) -> c_int {
    // SAFETY: the caller's pointers.
    unsafe { reserve(lwep, buffer, Endpoint::reserve_many) }
}

/// Stores a buffer.
///
/// # Safety
/// `lwep` is as for [`Lwep::of`]; `buffer` is NULL or can be written.
#[inline]
unsafe fn reserve(
    lwep: *mut Lwep,
    buffer: *mut LwepBuffer,
    reserve: impl FnOnce(&mut Endpoint<AnyLink>) -> Option<Outgoing>,
) -> c_int {
    // SAFETY: the caller's endpoint.
    let (Some(lwep), false) = (unsafe { Lwep::of(lwep) }, buffer.is_null()) else { return RINGWAY_E_ARGUMENT };
    let Some(mut outgoing) = reserve(&mut lwep.endpoint) else { return 0 };
    let (data, length) = (outgoing.as_mut_ptr(), outgoing.len());
    let handle = lwep.held.add(Held::Outgoing(outgoing));
    // SAFETY: the caller's, not NULL.
    unsafe { buffer.write(LwepBuffer { data, length, handle }) };
    1
}

/// Sends the first `length` bytes of a buffer of ringway_lwep_reserve() as one message. Returns as ringway_lwep_send(). If it is 1 the
/// buffer is the endpoint's again; otherwise it is still the program's, as it was. RINGWAY_E_ARGUMENT if `handle` is not one of a
/// buffer to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_commit(
    lwep: *mut Lwep,
    connection: u32,
    handle: u64,
    length: usize,
    now: u64,
) -> c_int {
    // SAFETY: the caller's endpoint.
    unsafe { commit(lwep, connection, handle, (length, length), now) }
}

/// Sends the first `length` bytes of a buffer of ringway_lwep_reserve_many() as messages of `part` bytes each, the last one shorter if
/// it has to be. Where both ends have an IPv4 address in their options and the port has offloads, the buffer goes out as a whole, and
/// segmentation makes the frames. Returns as ringway_lwep_commit().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_commit_many(
    lwep: *mut Lwep,
    connection: u32,
    handle: u64,
    length: usize,
    part: usize,
    now: u64,
) -> c_int {
    if part == 0 || length == 0 {
        return RINGWAY_E_ARGUMENT;
    }
    // SAFETY: the caller's endpoint.
    unsafe { commit(lwep, connection, handle, (length, part.min(length)), now) }
}

/// Commits the first `length` bytes of the buffer with this handle as messages of `part` bytes.
///
/// # Safety
/// `lwep` is as for [`Lwep::of`].
unsafe fn commit(lwep: *mut Lwep, connection: u32, handle: u64, (length, part): (usize, usize), now: u64) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    let outgoing = match lwep.held.lift(handle) {
        Some(Held::Outgoing(outgoing)) => outgoing,
        Some(other) => {
            lwep.held.put_back(handle, other);
            return RINGWAY_E_ARGUMENT;
        }
        None => return RINGWAY_E_ARGUMENT,
    };
    if length > outgoing.len() {
        lwep.held.put_back(handle, Held::Outgoing(outgoing));
        return RINGWAY_E_LENGTH;
    }
    // One message is `commit_many` of one part.
    match lwep.endpoint.commit_many(Lwep::connection(connection), outgoing, length, part, now) {
        Ok(()) => {
            lwep.held.retire(handle);
            1
        }
        Err(refused) => {
            lwep.held.put_back(handle, Held::Outgoing(refused.outgoing));
            send_code(refused.error)
        }
    }
}

/// Gives a buffer of ringway_lwep_reserve() or ringway_lwep_reserve_many() back unsent. Returns 0; RINGWAY_E_ARGUMENT if `handle` is not
/// one of a buffer to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_discard(lwep: *mut Lwep, handle: u64) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    match lwep.held.lift(handle) {
        Some(Held::Outgoing(outgoing)) => {
            lwep.endpoint.discard(outgoing);
            lwep.held.retire(handle);
            0
        }
        Some(other) => {
            lwep.held.put_back(handle, other);
            RINGWAY_E_ARGUMENT
        }
        None => RINGWAY_E_ARGUMENT,
    }
}

/// Hands over to the switch what was sent, and wakes it if it sleeps. ringway_lwep_poll() does it, too, when nothing more has arrived.
/// Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_flush(lwep: *mut Lwep) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    lwep.endpoint.flush();
    0
}
