//! The functions that a module may import, all from the module `ringway`.
//!
//! - `memory`: the ranges that a program names.
//! - `setup`: what only `ringway_start` may call: the place of frames, and names.
//! - `ports`: ports and addresses of the switch.
//! - `texts`: configuration, messages, state, the log.
//! - `values`: counters, gauges, time, random numbers, the shared map.
//!
//! A function that gets bytes outside of the memory, or is called where it may not be, ends the call of the program with a fault. It has no
//! effect then.

mod memory;
mod ports;
mod setup;
mod texts;
mod values;

pub(crate) use memory::MODULE;
use wasmtime::{Engine, Linker};

use crate::state::State;

/// The names of all functions.
pub(crate) const FUNCTIONS: [&str; 25] = [
    "config",
    "counter",
    "counter_add",
    "drop_reason",
    "frames_at",
    "gauge",
    "gauge_set",
    "instance",
    "instances",
    "log",
    "mac_learn",
    "mac_lookup",
    "map_get",
    "map_remove",
    "map_set",
    "message",
    "now_ns",
    "port_by_name",
    "port_name",
    "port_set",
    "ports",
    "random",
    "restore",
    "save",
    "timer_set",
];

/// All functions.
///
/// # Errors
/// Never: each name is defined once.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    setup::define(&mut linker)?;
    ports::define(&mut linker)?;
    texts::define(&mut linker)?;
    values::define(&mut linker)?;
    Ok(linker)
}
