//! Events of front ends, from the ports' own threads to the daemon.
//!
//! A port's own thread notes an event and continues. That thread never waits for the daemon, because the daemon may be waiting for
//! the thread's end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringway_port_vhost_user::Observer;
use ringway_switch::Defect;
use tokio::sync::Notify;

/// Most pending events of one port. One more displaces the oldest of that port.
const PENDING_MAX: usize = 16;

/// The pending events of all front ends.
#[derive(Debug, Default)]
pub struct Events {
    next_id: AtomicU64,
    pending: Mutex<BTreeMap<u64, VecDeque<Event>>>,
    noted: Notify,
}

/// An event of a front end.
#[derive(Debug)]
pub enum Event {
    /// The front end connected, or its connection ended.
    Connected(bool),
    /// The connection is ended because the front end broke the protocol.
    Fault {
        /// The fault, as one word.
        reason: &'static str,
        /// What happened.
        detail: String,
    },
    /// Ringway failed on the port's own thread.
    Failed(Defect),
    /// A request of the front end was refused; the connection continues.
    Refused {
        /// The fault, as one word.
        reason: &'static str,
        /// What was refused.
        detail: String,
    },
}

/// The observer of one port.
struct PortObserver {
    id: u64,
    events: Arc<Events>,
}

impl Events {
    /// Waits for an event.
    pub async fn wait(&self) {
        self.noted.notified().await;
    }

    /// Returns the observer of a new port, and the number that the port's events have.
    pub fn observer(self: &Arc<Self>) -> (u64, Arc<dyn Observer>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        (id, Arc::new(PortObserver { id, events: Arc::clone(self) }))
    }

    /// Takes the pending events, by the number of their front end.
    pub fn take(&self) -> BTreeMap<u64, VecDeque<Event>> {
        std::mem::take(&mut *self.pending())
    }

    /// Ends [`Events::wait`]: the control thread has something else to look at.
    pub fn wake(&self) {
        self.noted.notify_one();
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<u64, VecDeque<Event>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, id: u64, event: Event) {
        let mut all = self.pending();
        let pending = all.entry(id).or_default();
        if pending.len() == PENDING_MAX {
            pending.pop_front();
        }
        pending.push_back(event);
        drop(all);
        self.noted.notify_one();
    }
}

impl Observer for PortObserver {
    fn connected(&self, on: bool) {
        self.events.note(self.id, Event::Connected(on));
    }

    fn fault(&self, reason: &'static str, detail: String) {
        self.events.note(self.id, Event::Fault { reason, detail });
    }

    fn failed(&self, defect: Defect) {
        self.events.note(self.id, Event::Failed(defect));
    }

    fn refused(&self, reason: &'static str, detail: String) {
        self.events.note(self.id, Event::Refused { reason, detail });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_end_that_comes_and_goes_all_the_time_pushes_out_no_events_of_other_ports() {
        let events = Arc::new(Events::default());
        let [(quiet, quiet_observer), (noisy, noisy_observer)] = [(); 2].map(|()| events.observer());
        quiet_observer.fault("bad", "once".to_owned());
        (0..1000).for_each(|number| noisy_observer.fault("bad", number.to_string()));
        let pending = events.pending();
        assert_eq!((pending[&quiet].len(), pending[&noisy].len()), (1, PENDING_MAX));
        assert!(matches!(&pending[&noisy][PENDING_MAX - 1], Event::Fault { detail, .. } if detail == "999"));
    }
}
