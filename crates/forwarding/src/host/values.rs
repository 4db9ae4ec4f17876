//! Counters, gauges, time, random numbers, the shared map.

use std::time::Duration;

use wasmtime::{Caller, Linker};

use super::memory::{MODULE, copy_out, parts, range, range_mut};
use crate::fault::{Fault, FaultKind};
use crate::limits::{KEY_MAX, TIMER_MIN, VALUE_MAX};
use crate::meters::NameOf;
use crate::state::State;

pub(super) fn define(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "counter_add", counter_add)?;
    linker.func_wrap(MODULE, "gauge_set", gauge_set)?;
    linker.func_wrap(MODULE, "instance", |caller: Caller<'_, State>| caller.data().number as i32)?;
    linker.func_wrap(MODULE, "instances", |caller: Caller<'_, State>| caller.data().shared.instances as i32)?;
    linker.func_wrap(MODULE, "now_ns", |caller: Caller<'_, State>| caller.data().shared.now_ns() as i64)?;
    linker.func_wrap(MODULE, "random", |mut caller: Caller<'_, State>| caller.data_mut().random() as i64)?;
    linker.func_wrap(MODULE, "timer_set", timer_set)?;
    linker.func_wrap(MODULE, "map_get", map_get)?;
    linker.func_wrap(MODULE, "map_set", map_set)?;
    linker.func_wrap(MODULE, "map_remove", map_remove)?;
    Ok(())
}

/// The number of a meter that the instance has registered.
fn registered(of: NameOf, known: usize, number: i32) -> wasmtime::Result<usize> {
    match usize::try_from(number).ok().filter(|meter| *meter < known) {
        Some(meter) => Ok(meter),
        None => {
            Fault::end(FaultKind::Call, format!("there is no {} {number}: register it in ringway_start", of.word()))
        }
    }
}

fn counter_add(mut caller: Caller<'_, State>, counter: i32, value: i64) -> wasmtime::Result<()> {
    let state = caller.data_mut();
    let counter = registered(NameOf::Counter, state.counters, counter)?;
    if let Some(meters) = state.shared.meters.of(state.number) {
        meters.add_counter(counter, value as u64);
    }
    Ok(())
}

fn gauge_set(mut caller: Caller<'_, State>, gauge: i32, value: i64) -> wasmtime::Result<()> {
    let state = caller.data_mut();
    let gauge = registered(NameOf::Gauge, state.gauges, gauge)?;
    if let Some(meters) = state.shared.meters.of(state.number) {
        meters.set_gauge(gauge, value);
    }
    Ok(())
}

fn timer_set(mut caller: Caller<'_, State>, ns: i64) -> wasmtime::Result<()> {
    let after = match u64::try_from(ns) {
        Ok(0) => {
            caller.data_mut().timer = 0;
            return Ok(());
        }
        Ok(after) => Duration::from_nanos(after).max(TIMER_MIN),
        Err(_) => return Fault::end(FaultKind::Call, format!("timer_set: {ns} ns is no time")),
    };
    let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
    let state = caller.data_mut();
    state.timer = state.shared.now_ns().saturating_add(after).max(1);
    Ok(())
}

/// The bytes of a key.
fn key(memory: &[u8], at: i32, length: i32) -> wasmtime::Result<&[u8]> {
    let key = range(memory, at, length)?;
    if (1..=KEY_MAX).contains(&key.len()) {
        return Ok(key);
    }
    Fault::end(FaultKind::Call, format!("a key of the map has {} bytes: give 1 to {KEY_MAX}", key.len()))
}

fn map_get(mut caller: Caller<'_, State>, at: i32, length: i32, to: i32, capacity: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    let mut copy = [0; KEY_MAX];
    let length = {
        let key = key(memory, at, length)?;
        copy[..key.len()].copy_from_slice(key);
        key.len()
    };
    range_mut(memory, to, capacity)?;
    state.shared.map.get(&copy[..length], |value| copy_out(memory, to, capacity, value)).unwrap_or(Ok(-1))
}

fn map_set(mut caller: Caller<'_, State>, at: i32, length: i32, value: i32, bytes: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    let (key, value) = (key(memory, at, length)?, range(memory, value, bytes)?);
    if value.len() > VALUE_MAX {
        let what = format!("a value of the map has {} bytes: give 0 to {VALUE_MAX}", value.len());
        return Fault::end(FaultKind::Call, what);
    }
    Ok(i32::from(state.shared.map.set(key, value)))
}

fn map_remove(mut caller: Caller<'_, State>, at: i32, length: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    Ok(i32::from(state.shared.map.remove(key(memory, at, length)?)))
}
