//! Ports in quarantine: a poller hands a port over to a quarantine poller, which serves it until it no longer stalls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_runtime::clock;
use ringway_runtime::thread_usage::moment;
use ringway_switch::{DetourEnd, DetourRoom, TimeSpent, empty};

use super::thread::{NO_PORT, Poller};
use crate::poller_state::DORMANT;
use crate::quarantine::{self, CHECK_ENDING_EVERY_NS, CHECK_EVERY_NS, ENDS_IN_VAIN};
use crate::topology::Topology;

impl Poller {
    /// A quarantine poller's check: releases the ports whose quarantine has ended, and becomes dormant without ports.
    /// Returns when the next check is due, in nanoseconds.
    #[cold]
    pub(super) fn check_quarantine(&mut self) -> u64 {
        let now = clock::nanoseconds();
        let (mut released, mut ending) = (false, false);
        for served in self.ports.iter_mut().flatten() {
            let source = &served.attached.source;
            let Some(port) = served.attached.port() else { continue };
            if source.is_quarantined(now) {
                port.close_detour(false);
                served.ends_in_vain = 0;
            } else if served.has_input && !port.is_output_held() {
                // The port leaves only after the frames in its detour were delivered.
                let end = quarantine::end(source, port);
                (released, ending) = (released | (end == DetourEnd::Ended), ending | (end != DetourEnd::Ended));
                match end {
                    // Calls may have found no room in the detour.
                    DetourEnd::Ended => source.owe_calls(),
                    // A thread may be kept that copies frames: those of others come meanwhile.
                    DetourEnd::Used => port.close_detour(false),
                    // Beside a sender that always fills it, the detour would not end.
                    DetourEnd::Filled => {
                        served.ends_in_vain += 1;
                        port.close_detour(served.ends_in_vain >= ENDS_IN_VAIN);
                    }
                }
            }
        }
        if released {
            self.shared.relief.prepare();
            self.shared.topology.touch();
            self.shared.wake();
        } else if self.slots.is_empty() && self.work.calls.due().is_none() {
            self.be_dormant();
        }
        now.saturating_add(if ending { CHECK_ENDING_EVERY_NS } else { CHECK_EVERY_NS })
    }

    /// Waits without a topology until this poller gets a port or the engine ends.
    fn be_dormant(&mut self) {
        self.state.load.store(0, Ordering::Relaxed);
        self.topology = Arc::new(Topology::default());
        self.state.account.adopted.store(DORMANT, Ordering::Release);
        self.shift.is_asleep.store(true, Ordering::Relaxed);
        self.wait(None);
        self.shift.is_asleep.store(false, Ordering::Relaxed);
        self.shared.relief.look();
        self.meter.slept();
        // Set before the topology is read: see `crate::quarantine`.
        self.state.account.adopted.store(0, Ordering::SeqCst);
        self.version = 0;
    }

    /// Returns true if the detour of a port has frames, and no other thread has its output.
    pub(super) fn has_detoured(&self, slot: usize) -> bool {
        let port = self.ports[slot].as_ref().and_then(|served| served.attached.port());
        port.is_some_and(|port| port.has_detoured_frames() && !port.is_output_held())
    }

    /// Requests a wake-up for the detours of all ports of a quarantine poller. Returns a port whose detour has frames
    /// already, and whose output no other thread has: such frames wait for the next check.
    pub(super) fn find_detoured(&self) -> Option<usize> {
        if !self.is_quarantine_poller() {
            return None;
        }
        let is_detoured = |slot: usize| {
            let port = self.ports[slot].as_ref().and_then(|served| served.attached.port());
            port.is_some_and(|port| !port.may_sleep() && !port.is_output_held())
        };
        let mut slots = self.schedule.active().chain(self.schedule.parked().iter().copied());
        slots.find(|&slot| is_detoured(slot))
    }

    /// Ends the detour of a port whose output a kept thread had. It stays if the port is shut, and for a while if another thread copies frames for it:
    /// the thread `relief` has it tried again. If the kernel keeps that one, it loses those frames, which are of the client that keeps it.
    #[cold]
    pub(super) fn end_diversion(&mut self, slot: usize) {
        let Some(served) = self.ports[slot].as_mut() else { return };
        served.ends_in_vain += 1;
        let waits = served.ends_in_vain <= ENDS_IN_VAIN;
        let attached = served.attached.clone();
        let (source, Some(port)) = (&attached.source, attached.port()) else { return };
        // Beside a sender that always fills it, the detour ends only if it takes no more.
        for is_ending in [false, true] {
            port.close_detour(is_ending);
            self.empty_detour(slot);
            if quarantine::end_diversion(source, port, waits) == DetourEnd::Ended {
                self.ports[slot].as_mut().into_iter().for_each(|served| served.ends_in_vain = 0);
                // Calls may have been left in the detour.
                source.owe_calls();
                if source.is_quarantined(self.now.nanoseconds) {
                    quarantine::begin(&self.shared, &attached, DetourRoom::Prepared);
                }
                return;
            }
        }
        port.close_detour(false);
    }

    /// Delivers the frames of a port's detour. Returns how many.
    pub(super) fn empty_detour(&mut self, slot: usize) -> u64 {
        let Some(served) = self.ports[slot].as_ref() else { return 0 };
        let attached = served.attached.clone();
        // Nobody touches the memory of a port that is shut: the frames wait.
        let Some(port) = attached.port().filter(|_| !attached.source.is_shut()) else { return 0 };
        self.note.serve(attached.source.id());
        let began = moment();
        let emptied = empty(port, &mut self.work, &self.now);
        let spent = TimeSpent::between(began, moment());
        self.note.serve(NO_PORT);
        if emptied.fault {
            self.shared.report_fault();
        }
        let (nanoseconds, frames, bytes) =
            (spent.nanoseconds.saturating_sub(emptied.cutting), emptied.frames, emptied.bytes);
        self.charge_emptied(slot, TimeSpent { nanoseconds, frames, bytes, ..spent });
        emptied.frames
    }
}
