//! Sending.

use std::ffi::{c_int, c_void};
use std::slice;

use ringway_abi::layout::MAX_FRAME;
use ringway_client::{MAX_SLOTS, TxRing, prefetch_write};

use crate::error::{RINGWAY_E_ARGUMENT, RINGWAY_E_LENGTH};
use crate::offload::Offload;
use crate::port::Port;
use crate::ring::{Frame, MORE_BIT, RINGWAY_MORE, Run, Slot};

/// Returns the number of frames or bytes as a result. No ring has more than 32,768 slots, and no frame more than 65,601 bytes.
#[inline]
pub(crate) fn number(count: usize) -> c_int {
    count as c_int
}

/// No frame has so many bytes: a `length` above it is a mistake, and no memory is read.
const LONGEST: usize = i32::MAX as usize;

/// Returns the number of slots that can be filled now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_room(port: *mut Port, ring: u32) -> c_int {
    // SAFETY: the caller's port.
    unsafe { Port::tx(port, ring) }.map_or(RINGWAY_E_ARGUMENT, |tx| number(tx.room()))
}

/// Returns the result for a frame that was not queued: no room now, or never.
#[cold]
pub(crate) fn not_queued(tx: &TxRing, length: usize) -> c_int {
    if length > tx.longest() { RINGWAY_E_LENGTH } else { 0 }
}

/// Returns the bytes of the longest frame that can be queued: 65535, or fewer if they do not fit into 64 slots or the ring. On a port
/// with an offload header it is 65601: the header, and a frame with an offload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_longest(port: *mut Port, ring: u32) -> c_int {
    // SAFETY: the caller's port.
    unsafe { Port::tx(port, ring) }.map_or(RINGWAY_E_ARGUMENT, |tx| number(tx.longest()))
}

/// Queues a copy of a frame. Returns 1, or 0 if there is no room. A frame that is longer than a buffer takes several slots. If it is
/// longer than ringway_longest(), returns RINGWAY_E_LENGTH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_push(port: *mut Port, ring: u32, frame: *const c_void, length: usize) -> c_int {
    // SAFETY: the caller's port, and `length` bytes of the caller.
    unsafe {
        let Some(tx) = Port::tx(port, ring).filter(|_| !frame.is_null()) else { return RINGWAY_E_ARGUMENT };
        let pushed = length <= LONGEST && tx.push(slice::from_raw_parts(frame.cast(), length));
        if pushed { 1 } else { not_queued(tx, length) }
    }
}

/// Queues copies of up to `count` frames, in order. Returns how many were queued: fewer if there is no room for the next one. If the
/// first frame is too long for any room, returns RINGWAY_E_LENGTH.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_push_batch(port: *mut Port, ring: u32, frames: *const Frame, count: usize) -> c_int {
    // SAFETY: the caller's port, `count` frames of the caller, and the bytes of each.
    unsafe {
        let Some(tx) = Port::tx(port, ring).filter(|_| !frames.is_null()) else { return RINGWAY_E_ARGUMENT };
        // No ring takes more; and a `count` beyond all memory is not read.
        let count = count.min(MAX_SLOTS as usize);
        let frames = slice::from_raw_parts(frames, count);
        let mut queued = 0;
        loop {
            queued += push_short(tx, &frames[queued..]);
            // One that is longer than a buffer, or wrong, or there is no room.
            let Some(frame) = frames.get(queued) else { return number(count) };
            let bad = frame.data.is_null();
            let possible = !bad && frame.length <= LONGEST;
            if !possible || !tx.push(slice::from_raw_parts(frame.data.cast(), frame.length)) {
                return match queued {
                    0 if bad => RINGWAY_E_ARGUMENT,
                    0 => not_queued(tx, frame.length),
                    _ => number(queued),
                };
            }
            queued += 1;
        }
    }
}

/// Sets length and flag of a slot. A word that would not change is not written: it may be in the cache of the switch.
#[inline(always)]
fn set_word(word: &mut u64, length: u64, more: u32) {
    let new = u64::from(*word as u32) | length << 32 | u64::from(more) << MORE_BIT;
    if new != *word {
        *word = new;
    }
}

/// How many slots ahead the beginning of a buffer is prefetched for writing.
const PREFETCH_AHEAD: usize = 8;

/// Queues copies of the first frames, as long as each fits into a buffer and there is room. Returns their number. One by one,
/// by `TxRing::push`, a short frame takes twice as many instructions.
///
/// # Safety
/// The bytes of each frame are the caller's.
unsafe fn push_short(tx: &mut TxRing, frames: &[Frame]) -> usize {
    let mut queued = 0;
    'runs: for run in tx.reserve_runs(frames.len()).map(Run::from) {
        // SAFETY: the slots are free, and nothing else refers to them.
        let words = unsafe { run.words() };
        for slot in 0..words.len() {
            let frame = &frames[queued];
            if frame.data.is_null() || frame.length > run.buffer_size as usize {
                break 'runs;
            }
            if let Some([word, _]) = words.get(slot + PREFETCH_AHEAD) {
                prefetch_write(run.data(*word));
            }
            let word = &mut words[slot][0];
            // SAFETY: `length` bytes of the caller, into a buffer of this port that nobody else uses.
            unsafe { run.data(*word).copy_from_nonoverlapping(frame.data.cast(), frame.length) };
            set_word(word, frame.length as u64, 0);
            queued += 1;
        }
    }
    tx.commit_run(queued);
    queued
}

/// Queues a copy of a frame after its offload header, on a port with an offload header. `offload` may be NULL: then nothing is left
/// to be done, and the frame has at most 65535 bytes. Returns as ringway_push().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_push_offloaded(
    port: *mut Port,
    ring: u32,
    frame: *const c_void,
    length: usize,
    offload: *const Offload,
) -> c_int {
    // SAFETY: the caller's port, `length` bytes of the caller, and NULL or an offload of the caller.
    unsafe {
        let Some(tx) = Port::tx(port, ring).filter(|_| !frame.is_null()) else { return RINGWAY_E_ARGUMENT };
        let offload = match offload.as_ref().map(Offload::request).transpose() {
            Ok(offload) => offload.flatten(),
            Err(code) => return code,
        };
        let pushed =
            length <= LONGEST && tx.push_offloaded(slice::from_raw_parts(frame.cast(), length), offload.as_ref());
        match pushed {
            true => 1,
            false if offload.is_none() && length > MAX_FRAME => RINGWAY_E_LENGTH,
            false => not_queued(tx, length.saturating_add(crate::offload::RINGWAY_OFFLOAD_BYTES)),
        }
    }
}

/// Stores the buffers of up to `count` free slots in `slots`, with the size of a buffer as `length`. Returns their number. The
/// caller writes frames into the buffers, sets `length` (and RINGWAY_MORE in `flags`), and calls ringway_commit(). Until then, the
/// next ringway_reserve() or ringway_push() takes the same buffers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_reserve(port: *mut Port, ring: u32, slots: *mut Slot, count: usize) -> c_int {
    // SAFETY: the caller's port, and `count` slots of the caller, which are only written.
    unsafe {
        let Some(tx) = Port::tx(port, ring).filter(|_| !slots.is_null()) else { return RINGWAY_E_ARGUMENT };
        let length = tx.buffer_size() as u32;
        let [first, second] = tx.reserve_runs(count).map(Run::from);
        let slot = |_, data: *mut u8| {
            prefetch_write(data);
            Slot { data, length, flags: 0 }
        };
        second.store(first.store(slots, slot), slot);
        number((first.count + second.count) as usize)
    }
}

/// Queues what the caller has written into the first `count` buffers of the last ringway_reserve(). Only `length` and `flags` of
/// `slots` are read. Returns 0. Returns RINGWAY_E_ARGUMENT, and queues nothing, if there are more slots than free ones, if a length
/// exceeds a buffer, or if the last slot has RINGWAY_MORE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_commit(port: *mut Port, ring: u32, slots: *const Slot, count: usize) -> c_int {
    // SAFETY: the caller's port, and `count` slots of the caller.
    unsafe {
        let is_possible = !slots.is_null() && count <= MAX_SLOTS as usize;
        let Some(tx) = Port::tx(port, ring).filter(|_| is_possible) else { return RINGWAY_E_ARGUMENT };
        let [first, second] = tx.reserved_runs(count).map(Run::from);
        let slots = slice::from_raw_parts(slots, count);
        let is_cut = slots.last().is_some_and(|last| last.flags & RINGWAY_MORE != 0);
        if (first.count + second.count) as usize != count || is_cut {
            return RINGWAY_E_ARGUMENT;
        }
        let (to_end, from_start) = slots.split_at(first.count as usize);
        for (run, slots) in [(first, to_end), (second, from_start)] {
            for ([word, _], slot) in run.words().iter_mut().zip(slots) {
                if slot.length > run.buffer_size {
                    return RINGWAY_E_ARGUMENT;
                }
                set_word(word, slot.length.into(), slot.flags & RINGWAY_MORE);
            }
        }
        tx.commit_run(count);
        0
    }
}

/// Stores up to `count` free slots in `*run`, not beyond the end of the ring: call it again for those from its start. Returns their
/// number. The caller writes frames into the buffers, sets each slot's length with ringway_run_set(), and calls
/// ringway_commit_run().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_reserve_run(port: *mut Port, ring: u32, run: *mut Run, count: usize) -> c_int {
    // SAFETY: the caller's port.
    let (Some(tx), false) = (unsafe { Port::tx(port, ring) }, run.is_null()) else { return RINGWAY_E_ARGUMENT };
    let free = tx.reserve_run(count);
    // SAFETY: the caller's, not NULL.
    unsafe { run.write(free.into()) };
    number(free.count as usize)
}

/// Queues the first `count` slots of the last ringway_reserve_run(). Returns 0; RINGWAY_E_ARGUMENT, and queues nothing, if there are
/// fewer free slots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_commit_run(port: *mut Port, ring: u32, count: usize) -> c_int {
    // SAFETY: the caller's port.
    let Some(tx) = (unsafe { Port::tx(port, ring) }) else { return RINGWAY_E_ARGUMENT };
    if tx.commit_run(count) { 0 } else { RINGWAY_E_ARGUMENT }
}

/// Publishes the frames that are queued on one transmit ring, and wakes the switch if it sleeps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_flush_ring(port: *mut Port, ring: u32) -> c_int {
    // SAFETY: the caller's port.
    let Some(tx) = (unsafe { Port::tx(port, ring) }) else { return RINGWAY_E_ARGUMENT };
    tx.flush();
    0
}
