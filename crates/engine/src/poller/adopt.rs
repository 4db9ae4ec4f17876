//! Adoption of a new topology: ports that stay, go or are new.
//!
//! A removed port's client may have published frames and ended at once. The poller delivers these frames, in the topology that
//! it leaves, before it lets the port go (`docs/decisions/last-frames.md`).

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_switch::pass;

use super::thread::{NO_PORT, Poller, Served};
use crate::quarantine::poller_of;
use crate::schedule::Kind;
use crate::topology::{Attached, Place};

/// Most frames of a removed port that are delivered: those of the largest ring.
const MOST_LAST_FRAMES: usize = 1 << 15;
/// Most bytes that they may take when each is copied to every member of the switch. The poller serves nobody else meanwhile.
const MOST_LAST_BYTES: u64 = 32 << 20;

impl Poller {
    /// Takes over the newest topology.
    #[cold]
    pub(super) fn adopt(&mut self) {
        let (topology, version) = self.shared.topology.get();
        self.unadopted.push(Arc::clone(&topology));
        if self.shared.inject_panic.swap(false, Ordering::Acquire) {
            panic!("injected: poller");
        }
        // The ports' limits may have changed.
        for slot in self.schedule.resume_all(self.now.nanoseconds) {
            self.disarm(slot);
        }
        let mut gone = std::mem::take(&mut self.slots);
        self.waits_for_input = false;
        self.has_devices = false;
        let mut owed = Vec::new();
        let number = self.state.number;
        let pollers = self.shared.pollers;
        for attached in topology.ports.iter().filter(|attached| poller_of(attached, pollers) == Some(number)) {
            let id = attached.source.id();
            let slot = match gone.remove(&id) {
                Some(slot) => slot,
                None => self.admit(attached),
            };
            self.slots.insert(id, slot);
            self.has_devices |= !attached.source.signal().in_memory();
            let Some(served) = self.ports[slot].as_mut() else { continue };
            let before = std::mem::replace(&mut served.attached, attached.clone());
            let had_input = served.has_input;
            if !had_input {
                served.has_input = attached.source.take(&self.state, &self.shift);
                // Only the thread that has the input watches the port: a late thread must not take the kicks of the one that serves it.
                if served.has_input {
                    attached.source.signal().watch().enter(&self.epoll, slot as u64);
                }
                self.waits_for_input |= !served.has_input;
            }
            if served.has_input {
                if attached.source.is_diverted() && attached.port().is_some_and(|port| !port.is_output_held()) {
                    self.end_diversion(slot);
                }
                if attached.source.takes_owed_calls() {
                    owed.push(slot);
                }
            }
            let has_work = match &attached.place {
                Place::Mover(ends) if !had_input || ends.has_other_peer(&before.place) => {
                    let adopted = self.adopt_mover(slot);
                    // It is shut: the next adoption finds the other peer again.
                    if had_input
                        && !adopted
                        && let Some(served) = self.ports[slot].as_mut()
                    {
                        served.attached.place = before.place;
                    }
                    adopted
                }
                _ => false,
            };
            // A port without its input may have been parked, and therefore not armed. A device does not repeat an event from
            // that time.
            if !had_input || has_work {
                self.unpark(slot);
            }
        }
        let moved: HashSet<u64> =
            topology.ports.iter().map(|attached| attached.source.id()).filter(|id| gone.contains_key(id)).collect();
        for (id, slot) in gone {
            if !moved.contains(&id) {
                self.deliver_last(slot);
            }
            self.let_go(slot);
        }
        self.work.calls.reconsider();
        for slot in owed {
            let Some(port) = self.ports[slot].as_ref().and_then(|served| served.attached.port().cloned()) else {
                continue;
            };
            // Its successor has its ports asked before it has adopted them, perhaps before this thread took note of that.
            if self.shift.is_relieved() {
                self.shared.owe_calls();
                break;
            }
            if self.time(slot, |poller| poller.work.calls.ring_anew(&port, &poller.now)) {
                self.shared.report_fault();
            }
        }
        // Last: the reaper releases what it alone still refers to.
        self.topology = topology;
        self.unadopted.clear();
        self.version = version;
        if self.shift.is_relieved() {
            return;
        }
        self.state.load.store(self.slots.len(), Ordering::Relaxed);
        self.state.account.adopted.store(version, Ordering::Release);
    }

    /// Gives a new port a slot. Its input is taken later.
    fn admit(&mut self, attached: &Attached) -> usize {
        let signal = attached.source.signal();
        let slot = self.schedule.admit(if signal.in_memory() { Kind::Memory } else { Kind::Device });
        if self.ports.len() <= slot {
            self.ports.resize_with(slot + 1, || None);
        }
        self.ports[slot] = Some(Served { attached: attached.clone(), has_input: false, ends_in_vain: 0 });
        slot
    }

    /// Delivers the frames that the client of a removed port has published. Does not wait: frames that a limit holds back
    /// are lost. A slow port loses its frames, too.
    fn deliver_last(&mut self, slot: usize) {
        let Some(served) = self.ports[slot].as_mut() else { return };
        let attached = &served.attached;
        let (Some(mut custody), Some((switch, member))) = (attached.source.hold(&self.shift), attached.member()) else {
            return;
        };
        let Some(input) = custody.input() else { return };
        let mut left = input.last_frames().min(MOST_LAST_FRAMES) as u64;
        if left == 0
            || member.port.fault().is_some()
            || attached.source.quarantine_poller().is_some()
            || attached.source.is_slow(self.now.nanoseconds)
        {
            return;
        }
        let counters = member.port.counters();
        let most_bytes = MOST_LAST_BYTES / (switch.members().count() as u64).max(1);
        let begun = counters.read().in_bytes;
        self.note.serve(attached.source.id());
        while left > 0 && !self.shift.is_relieved() && counters.read().in_bytes - begun < most_bytes && input.pending()
        {
            let passed = pass(switch, member, input, &mut self.work, &self.now);
            if passed.receiver_fault {
                self.shared.report_fault();
            }
            if passed.frames == 0 || passed.fault.is_some() || passed.until.is_some() {
                break;
            }
            left = left.saturating_sub(passed.frames);
        }
        self.note.serve(NO_PORT);
        self.meter.mark();
    }

    /// Removes a port that belongs to another poller now, or to none, and puts its input back.
    fn let_go(&mut self, slot: usize) {
        self.unpark(slot);
        self.disarm(slot);
        let Some(mut served) = self.ports[slot].take() else { return };
        served.attached.source.signal().watch().leave(&self.epoll);
        self.schedule.remove(slot);
        if std::mem::take(&mut served.has_input) {
            served.attached.source.put_back(&self.shift);
        }
    }
}
