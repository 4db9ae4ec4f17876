//! What only `ringway_start` may call: the place of frames, and names.

use wasmtime::{Caller, Linker};

use super::memory::{MODULE, only_in, parts, range};
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use crate::meters::NameOf;
use crate::state::{Phase, State};

pub(super) fn define(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "frames_at", frames_at)?;
    linker.func_wrap(MODULE, "drop_reason", |caller: Caller<'_, State>, name: i32, length: i32| {
        register(caller, NameOf::Reason, "drop_reason", name, length)
    })?;
    linker.func_wrap(MODULE, "counter", |caller: Caller<'_, State>, name: i32, length: i32| {
        register(caller, NameOf::Counter, "counter", name, length)
    })?;
    linker.func_wrap(MODULE, "gauge", |caller: Caller<'_, State>, name: i32, length: i32| {
        register(caller, NameOf::Gauge, "gauge", name, length)
    })?;
    Ok(())
}

fn frames_at(
    mut caller: Caller<'_, State>,
    frames: i32,
    heads: i32,
    head_bytes: i32,
    verdicts: i32,
    capacity: i32,
) -> wasmtime::Result<()> {
    let (memory, state) = parts(&mut caller)?;
    only_in(state, Phase::Start, "frames_at")?;
    if state.layout.is_some() {
        return Fault::end(FaultKind::Call, "frames_at was called twice");
    }
    let [frames, heads, head_bytes, verdicts, capacity] =
        [frames, heads, head_bytes, verdicts, capacity].map(|number| number as u32);
    match Layout::check(frames, heads, head_bytes, verdicts, capacity, memory.len()) {
        Ok(layout) => state.layout = Some(layout),
        Err(what) => return Fault::end(FaultKind::Call, what),
    }
    Ok(())
}

fn register(
    mut caller: Caller<'_, State>,
    of: NameOf,
    function: &str,
    name: i32,
    length: i32,
) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    only_in(state, Phase::Start, function)?;
    let name = range(memory, name, length)?;
    match state.shared.meters.register(of, name) {
        Ok(number) => {
            let known = match of {
                NameOf::Reason => &mut state.reasons,
                NameOf::Counter => &mut state.counters,
                NameOf::Gauge => &mut state.gauges,
            };
            *known = (*known).max(number + 1);
            Ok(number as i32)
        }
        Err(what) => Fault::end(FaultKind::Call, what),
    }
}
