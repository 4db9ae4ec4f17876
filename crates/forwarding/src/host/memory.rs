//! The ranges of memory that a program names.

use wasmtime::Caller;

use crate::fault::{Fault, FaultKind};
use crate::state::{Phase, State};

/// The name of the module whose functions can be imported.
pub(crate) const MODULE: &str = "ringway";

/// The memory of the calling instance, and its state.
///
/// # Errors
/// The module is being instantiated.
#[inline]
pub(super) fn parts<'c>(caller: &'c mut Caller<'_, State>) -> wasmtime::Result<(&'c mut [u8], &'c mut State)> {
    match caller.data().memory {
        Some(memory) => Ok(memory.data_and_store_mut(caller)),
        None => {
            Fault::end(FaultKind::Call, "a host function was called by the start section: call it in ringway_start")
        }
    }
}

/// The bytes of a range.
///
/// # Errors
/// The range is not within the memory.
#[inline]
pub(super) fn range(memory: &[u8], at: i32, length: i32) -> wasmtime::Result<&[u8]> {
    let (at, length) = (at as u32 as usize, length as u32 as usize);
    match at.checked_add(length).and_then(|end| memory.get(at..end)) {
        Some(bytes) => Ok(bytes),
        None => outside(at, length, memory.len()),
    }
}

/// The bytes of a range, to be written.
///
/// # Errors
/// The range is not within the memory.
#[inline]
pub(super) fn range_mut(memory: &mut [u8], at: i32, length: i32) -> wasmtime::Result<&mut [u8]> {
    let (at, length, size) = (at as u32 as usize, length as u32 as usize, memory.len());
    match at.checked_add(length).and_then(|end| memory.get_mut(at..end)) {
        Some(bytes) => Ok(bytes),
        None => outside(at, length, size),
    }
}

#[cold]
fn outside<T>(at: usize, length: usize, size: usize) -> wasmtime::Result<T> {
    let what = format!("a host function was given {length} bytes at {at}: the memory has {size}");
    Fault::end(FaultKind::Pointer, what)
}

/// Copies as much of a text as fits into a range. Returns the whole length.
///
/// # Errors
/// The range is not within the memory.
pub(super) fn copy_out(memory: &mut [u8], to: i32, capacity: i32, text: &[u8]) -> wasmtime::Result<i32> {
    let room = range_mut(memory, to, capacity)?;
    let count = room.len().min(text.len());
    room[..count].copy_from_slice(&text[..count]);
    Ok(i32::try_from(text.len()).unwrap_or(i32::MAX))
}

/// Checks that a function is called by this export.
///
/// # Errors
/// It is not.
#[inline]
pub(super) fn only_in(state: &State, phase: Phase, function: &str) -> wasmtime::Result<()> {
    if state.phase == phase {
        return Ok(());
    }
    let what = format!("{function} was called by {}: only {} may call it", state.phase.export(), phase.export());
    Fault::end(FaultKind::Call, what)
}
