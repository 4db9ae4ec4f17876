//! Ports and addresses of the switch.

use ringway_switch::{MAX_SETS, Mac, Owner};
use wasmtime::{Caller, Linker};

use super::memory::{MODULE, copy_out, only_in, parts, range, range_mut};
use crate::fault::{Fault, FaultKind};
use crate::state::{Phase, State};

/// Bytes of a port's number in memory.
const NUMBER: i32 = 2;

/// Instead of a port's number: none.
const NONE: i32 = -1;

pub(super) fn define(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.func_wrap(MODULE, "port_by_name", port_by_name)?;
    linker.func_wrap(MODULE, "port_name", port_name)?;
    linker.func_wrap(MODULE, "ports", ports)?;
    linker.func_wrap(MODULE, "port_set", port_set)?;
    linker.func_wrap(MODULE, "mac_learn", mac_learn)?;
    linker.func_wrap(MODULE, "mac_lookup", mac_lookup)?;
    Ok(())
}

fn port_by_name(mut caller: Caller<'_, State>, name: i32, length: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    // A text of the length of the memory would take longer than a call may.
    let name = Some(range(memory, name, length)?).filter(|name| name.len() <= state.view.longest_name());
    let name = name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
    Ok(state.view.by_name(name).map_or(NONE, |port| port.owner.bits().into()))
}

fn port_name(mut caller: Caller<'_, State>, port: i32, to: i32, capacity: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    let owner = u16::try_from(port).ok().map(Owner::from_bits);
    match owner.and_then(|owner| state.view.port(owner)) {
        Some(port) => copy_out(memory, to, capacity, port.name.as_bytes()),
        None => range_mut(memory, to, capacity).map(|_| NONE),
    }
}

fn ports(mut caller: Caller<'_, State>, to: i32, capacity: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    let room = range_mut(memory, to, bytes_of(capacity))?;
    let mut places = room.chunks_exact_mut(NUMBER as usize);
    let mut count = 0;
    for port in state.view.ports() {
        count += 1;
        if let Some(place) = places.next() {
            place.copy_from_slice(&port.owner.bits().to_le_bytes());
        }
    }
    Ok(count)
}

/// Bytes of so many numbers of ports.
fn bytes_of(count: i32) -> i32 {
    (count as u32).saturating_mul(NUMBER as u32) as i32
}

fn port_set(mut caller: Caller<'_, State>, set: i32, ports: i32, count: i32) -> wasmtime::Result<()> {
    let (memory, state) = parts(&mut caller)?;
    let ports = range(memory, ports, bytes_of(count))?;
    let Some(number) = usize::try_from(set).ok().filter(|set| *set < MAX_SETS) else {
        return Fault::end(FaultKind::Call, format!("port_set: there is no set {set}: give 0 to {}", MAX_SETS - 1));
    };
    let (numbers, _) = ports.as_chunks::<2>();
    if numbers.len() > ringway_switch::MAX_PORTS {
        let what = format!("port_set: {} ports: a switch has {} at most", numbers.len(), ringway_switch::MAX_PORTS);
        return Fault::end(FaultKind::Call, what);
    }
    let owners = numbers.iter().map(|number| Owner::from_bits(u16::from_le_bytes(*number)));
    state.sets.set(number, owners, &state.view);
    Ok(())
}

/// Reads an address and the VLAN that it is in.
fn address(memory: &[u8], at: i32, vlan: i32) -> wasmtime::Result<(Mac, u16)> {
    let mut octets = [0; 6];
    octets.copy_from_slice(range(memory, at, 6)?);
    match u16::try_from(vlan) {
        Ok(vlan) if vlan < 4096 => Ok((Mac::new(octets), vlan)),
        _ => Fault::end(FaultKind::Call, format!("there is no VLAN {vlan}: give that of a descriptor")),
    }
}

fn mac_learn(mut caller: Caller<'_, State>, at: i32, vlan: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    let (mac, vlan) = address(memory, at, vlan)?;
    let Some(sending) = state.sending else {
        return only_in(state, Phase::Frames, "mac_learn").map(|()| 0);
    };
    Ok(i32::from(sending.may_learn && state.view.learn(vlan, mac, sending.from, sending.now)))
}

fn mac_lookup(mut caller: Caller<'_, State>, at: i32, vlan: i32) -> wasmtime::Result<i32> {
    let (memory, state) = parts(&mut caller)?;
    let (mac, vlan) = address(memory, at, vlan)?;
    Ok(state.view.lookup(vlan, mac).map_or(NONE, |owner| owner.bits().into()))
}
