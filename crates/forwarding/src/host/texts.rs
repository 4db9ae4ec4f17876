//! Configuration, messages, state, the log.

use std::sync::Arc;

use wasmtime::{Caller, Linker};

use super::memory::{MODULE, copy_out, only_in, parts, range, range_mut};
use crate::fault::{Fault, FaultKind};
use crate::limits::STATE_MAX;
use crate::shared;
use crate::state::{Phase, State};

pub(super) fn define(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "config", config)?;
    linker.func_wrap(MODULE, "message", message)?;
    linker.func_wrap(MODULE, "save", save)?;
    linker.func_wrap(MODULE, "restore", restore)?;
    linker.func_wrap(MODULE, "log", log)?;
    Ok(())
}

fn config(mut caller: Caller<'_, State>, to: i32, capacity: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    copy_out(memory, to, capacity, state.shared.config.as_bytes())
}

fn message(mut caller: Caller<'_, State>, to: i32, capacity: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    copy_out(memory, to, capacity, &state.message)
}

fn save(mut caller: Caller<'_, State>, from: i32, length: i32) -> wasmtime::Result<()> {
    let (memory, state) = parts(&mut caller)?;
    let bytes = range(memory, from, length)?;
    only_in(state, Phase::Save, "save")?;
    if state.saved.len() + bytes.len() > STATE_MAX {
        return Fault::end(FaultKind::Call, format!("save: the state is more than {STATE_MAX} bytes"));
    }
    state.saved.extend_from_slice(bytes);
    Ok(())
}

fn restore(mut caller: Caller<'_, State>, offset: i32, to: i32, capacity: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    let room = range_mut(memory, to, capacity)?;
    only_in(state, Phase::Restore, "restore")?;
    let bytes = Arc::clone(&state.restored);
    let bytes = bytes.get(offset as u32 as usize..).unwrap_or_default();
    let count = room.len().min(bytes.len());
    room[..count].copy_from_slice(&bytes[..count]);
    Ok(count as i32)
}

fn log(mut caller: Caller<'_, State>, text: i32, length: i32) -> wasmtime::Result<()> {
    let (memory, state) = parts(&mut caller)?;
    let line = shared::line(range(memory, text, length)?);
    state.shared.log(&line);
    state.last_line = line;
    Ok(())
}
