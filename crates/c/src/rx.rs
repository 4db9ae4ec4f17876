//! Receiving.

use std::ffi::{c_int, c_void};

use ringway_client::prefetch_read;

use crate::error::{RINGWAY_E_ARGUMENT, RINGWAY_E_LENGTH};
use crate::port::Port;
use crate::ring::{MORE_BIT, RINGWAY_MORE, Run, Slot};
use crate::tx::number;

/// Returns the number of slots that hold received frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_available(port: *mut Port, ring: u32) -> c_int {
    // SAFETY: the caller's port.
    unsafe { Port::rx(port, ring) }.map_or(RINGWAY_E_ARGUMENT, |rx| number(rx.available()))
}

/// Stores up to `count` received slots in `slots`, in order. Returns their number. The frames stay where they are until
/// ringway_release(): without it, the next ringway_peek() returns them again. If a frame is longer than a buffer, all its slots but
/// the last one have RINGWAY_MORE; a `count` of 64 is enough for any frame.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_peek(port: *mut Port, ring: u32, slots: *mut Slot, count: usize) -> c_int {
    // SAFETY: the caller's port, and `count` slots of the caller, which are only written.
    unsafe {
        let Some(rx) = Port::rx(port, ring).filter(|_| !slots.is_null()) else { return RINGWAY_E_ARGUMENT };
        let [first, second] = rx.peek_runs(count).map(Run::from);
        let slot = |word: u64, data: *mut u8| {
            prefetch_read(data);
            let flags = (word >> MORE_BIT) as u32 & RINGWAY_MORE;
            Slot { data, length: (word >> 32) as u32 & 0xffff, flags }
        };
        second.store(first.store(slots, slot), slot);
        number((first.count + second.count) as usize)
    }
}

/// Stores up to `count` received slots in `*run`, not beyond the end of the ring. Returns their number. The caller reads frames by
/// ringway_run_data() and ringway_run_length(), and gives the slots back with ringway_release().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_peek_run(port: *mut Port, ring: u32, run: *mut Run, count: usize) -> c_int {
    // SAFETY: the caller's port.
    let (Some(rx), false) = (unsafe { Port::rx(port, ring) }, run.is_null()) else { return RINGWAY_E_ARGUMENT };
    let received = rx.peek_run(count);
    // SAFETY: the caller's, not NULL.
    unsafe { run.write(received.into()) };
    number(received.count as usize)
}

/// Gives the first `count` slots of the last ringway_peek() or ringway_peek_run() back to the switch. Returns 0; RINGWAY_E_ARGUMENT, and gives back
/// nothing, if so many were never returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_release(port: *mut Port, ring: u32, count: usize) -> c_int {
    // SAFETY: the caller's port.
    let Some(rx) = (unsafe { Port::rx(port, ring) }) else { return RINGWAY_E_ARGUMENT };
    if rx.release(count) { 0 } else { RINGWAY_E_ARGUMENT }
}

/// Copies the next received frame into `buffer`. Returns 1 and stores the frame's length in `*length`, or returns 0 if there is no
/// frame. If the frame is longer than `capacity`, it stays, and the result is RINGWAY_E_LENGTH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_pop(
    port: *mut Port,
    ring: u32,
    buffer: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    if buffer.is_null() || length.is_null() {
        return RINGWAY_E_ARGUMENT;
    }
    // SAFETY: the caller's port.
    let Some(rx) = (unsafe { Port::rx(port, ring) }) else { return RINGWAY_E_ARGUMENT };
    let (mut bytes, mut slots, mut whole) = (0, 0, false);
    for piece in rx.peek(MOST) {
        if bytes + piece.bytes.len() <= capacity {
            // SAFETY: inside the caller's `capacity` bytes, which are not in the ring's memory.
            unsafe {
                buffer.cast::<u8>().add(bytes).copy_from_nonoverlapping(piece.bytes.as_ptr(), piece.bytes.len());
            }
        }
        bytes += piece.bytes.len();
        slots += 1;
        if !piece.more {
            whole = true;
            break;
        }
    }
    if !whole {
        return 0;
    }
    // SAFETY: the caller's, not NULL.
    unsafe { *length = bytes };
    if bytes > capacity {
        return RINGWAY_E_LENGTH;
    }
    rx.release(slots);
    1
}

/// Most slots of a frame.
const MOST: usize = ringway_abi::layout::MAX_SLOTS_PER_FRAME;

/// What ringway_drain() calls for each frame: with the caller's context, and the bytes of the frame, which are valid until it
/// returns. It must return, and not by an exception or longjmp().
pub type Take = Option<unsafe extern "C" fn(context: *mut c_void, frame: *const u8, length: usize)>;

/// Calls `take` for up to `most` received frames, in order, and gives their slots back. Returns their number. Frames of several
/// slots are put together. `take` must not use the ring.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_drain(
    port: *mut Port,
    ring: u32,
    most: usize,
    take: Take,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's port.
    let (Some(rx), Some(take)) = (unsafe { Port::rx(port, ring) }, take) else { return RINGWAY_E_ARGUMENT };
    // SAFETY: the caller's function, which takes the caller's context.
    number(rx.drain(most, |frame| unsafe { take(context, frame.as_ptr(), frame.len()) }))
}
