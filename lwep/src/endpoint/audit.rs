//! What must always hold, for tests.

use std::collections::HashMap;

use super::core::{Current, Endpoint};
use crate::link::Link;

/// What a test wants to know of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Buffers that no message uses.
    pub free: usize,
    /// Deadlines in the timers, with those that are skipped.
    pub timers: usize,
}

impl<L: Link> Endpoint<L> {
    /// Checks that every buffer has exactly one owner and that all counts are right. Takes long.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&mut self) -> Result<Audit, String> {
        let core = &self.core;
        let mut owners = vec![0_u32; core.pool.len()];
        let mut own = |slot: u32| {
            if let Some(owners) = owners.get_mut(slot as usize) {
                *owners += 1;
            }
        };
        let free = core.pool.unused().inspect(|slot| own(*slot)).count();
        let mut users = vec![0_u32; core.pool.len()];
        if let Current::Kept { slot, .. } = self.current {
            users[slot as usize] += 1;
        }
        for peer in core.table.all() {
            peer.sender.audit().map_err(|error| format!("connection {}: {error}", peer.id))?;
            peer.sender.unacknowledged().for_each(|part| users[part.slot as usize] += 1);
            peer.receiver.waiting().filter_map(|arrival| arrival.data).for_each(|(slot, ..)| users[slot as usize] += 1);
        }
        for (slot, (held, (users, owners))) in core.pool.slots().zip(users.iter().zip(&owners)).enumerate() {
            if *users > 0 && *users != u32::from(held.users) {
                return Err(format!("buffer {slot} counts {} messages and has {users}", held.users));
            }
            let owners = owners + u32::from(*users > 0) + u32::from(held.buffer.is_none());
            if owners != 1 {
                return Err(format!("buffer {slot} has {owners} owners"));
            }
        }
        core.pool.audit()?;
        let mut long = HashMap::<u32, usize>::new();
        for peer in core.table.all() {
            *long.entry(peer.far.station).or_default() += peer.assembly.capacity();
        }
        core.pool.stations.audit(&long)?;
        Ok(Audit { free, timers: core.lists.timers.len() })
    }
}
