//! The front ends of ports whose peer comes and goes, and what happens to them.
//!
//! A port's own thread notes what happens and goes on. That thread never waits for the daemon, because the daemon may be
//! waiting for the thread's end. A status shows a port whose locks a stuck thread holds as it was seen last.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringway_ports::vhost_user::Observer;
use ringway_switch::{Defect, Role};
use tokio::sync::Notify;

use super::Daemon;
use super::chores::{Chore, not_closed};
use super::faults::Key;
use crate::api::types::PortStatus;
use crate::kinds::{Link, Settings, State};

/// How many events of one port wait to be taken note of; when there are more, the oldest of that port are forgotten.
const WAITING_MAX: usize = 16;

/// The control side of a port whose peer comes and goes. Nothing here waits for the peer, nor for a thread that serves it, except
/// [`FrontEnd::close`].
pub struct FrontEnd {
    /// `SWITCH:PORT`.
    label: String,
    /// The number of its events.
    id: u64,
    observer: Arc<dyn Observer>,
    link: Mutex<Option<Box<dyn Link>>>,
    setting: Arc<Mutex<Setting>>,
}

/// Settings on their way to a front end, by a thread of this port's own: the guest can keep that thread waiting.
#[derive(Debug)]
struct Setting {
    wanted: Settings,
    is_running: bool,
}

impl FrontEnd {
    /// The front end of `link`, which was opened with these settings. Its events have this number and go to `observer`.
    pub fn new(label: String, id: u64, observer: Arc<dyn Observer>, link: Box<dyn Link>, settings: Settings) -> Self {
        let setting = Arc::new(Mutex::new(Setting { wanted: settings, is_running: false }));
        Self { label, id, observer, link: Mutex::new(Some(link)), setting }
    }

    /// `SWITCH:PORT` of the port that it was made for.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Reports what is known of the peer: as of now, or as it was seen last where that cannot be told before `until`. Returns
    /// `None` when it was closed, or was never seen.
    pub fn report(&self, until: Instant, status: &mut PortStatus) -> Option<State> {
        self.link().as_mut()?.report(until, status)
    }

    /// Gives the running port these settings. A thread does it and uses `chore` to tell when it is done.
    pub fn set(&self, settings: &Settings, chore: impl FnOnce() -> Chore) {
        let link = self.link();
        let Some(setter) = link.as_ref().and_then(|link| link.setter()) else { return };
        let mut setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut setting.wanted, settings.clone());
        if before == *settings || setting.is_running {
            return;
        }
        setting.is_running = true;
        let (mine, chore, observer) = (Arc::clone(&self.setting), chore(), Arc::clone(&self.observer));
        let set = move || {
            let mut done = None;
            loop {
                let wanted = {
                    let mut setting = mine.lock().unwrap_or_else(PoisonError::into_inner);
                    setting.is_running = done.as_ref() != Some(&setting.wanted);
                    setting.is_running.then(|| setting.wanted.clone())
                };
                let Some(wanted) = wanted else { return };
                setter(wanted.own());
                done = Some(wanted);
            }
        };
        // The port may be half set: it is made anew.
        chore.spawn("set-nic", set, move |place| observer.failed(Defect { role: Role::Thread, place }));
    }

    /// Ends the connection and removes the socket. The front end can make this last.
    pub fn close(&self) {
        let link = self.link().take();
        drop(link);
    }

    fn link(&self) -> MutexGuard<'_, Option<Box<dyn Link>>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FrontEnd {
    /// One that nobody closed, as its port never came to be: whoever drops it does not wait.
    fn drop(&mut self) {
        if let Some(link) = self.link().take() {
            let label = self.label.clone();
            Chore::default().spawn("close", move || drop(link), move |place| not_closed(&label, place));
        }
    }
}

impl fmt::Debug for FrontEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrontEnd").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What happened to front ends.
#[derive(Debug, Default)]
pub struct Events {
    next_id: AtomicU64,
    waiting: Mutex<BTreeMap<u64, VecDeque<Event>>>,
    news: Notify,
}

#[derive(Debug)]
enum Event {
    Connected(bool),
    Fault { reason: &'static str, detail: String },
    Failed(Defect),
    Refused { reason: &'static str, detail: String },
}

struct Watch {
    id: u64,
    events: Arc<Events>,
}

impl Events {
    /// Waits until something happened.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// What a new port tells its events to, and the id they have.
    pub fn observer(self: &Arc<Self>) -> (u64, Arc<dyn Observer>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        (id, Arc::new(Watch { id, events: Arc::clone(self) }))
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, VecDeque<Event>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, id: u64, event: Event) {
        let mut all = self.waiting();
        let waiting = all.entry(id).or_default();
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back(event);
        drop(all);
        self.news.notify_one();
    }
}

impl Observer for Watch {
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

impl Daemon {
    /// What happens to front ends.
    pub fn events(&self) -> Arc<Events> {
        Arc::clone(&self.events)
    }

    /// Takes note of what happened to front ends. True when Ringway failed on a port's own thread: that port has a fault now.
    pub fn note_events(&mut self) -> bool {
        let mut failed = false;
        let events = std::mem::take(&mut *self.events.waiting());
        for (id, events) in events {
            let Some(key) = self.port_of(id) else { continue };
            for event in events {
                failed |= matches!(event, Event::Failed(_));
                self.note_event(&key, event);
            }
        }
        failed
    }

    fn note_event(&mut self, key: &Key, event: Event) {
        if let Event::Failed(defect) = event {
            let live = self.switches.get(&key.0).and_then(|switch| switch.ports().get(&key.1));
            // It ends as one does at which a poller failed.
            live.inspect(|live| live.port.retire(defect, 0));
            return;
        }
        let text = match &event {
            Event::Failed(_) => return,
            Event::Connected(true) => ": a front end has connected".to_owned(),
            Event::Connected(false) => ": the front end has gone".to_owned(),
            Event::Fault { detail, .. } => format!(": the front end loses its connection: {detail}"),
            Event::Refused { detail, .. } => format!(": the front end was refused something: {detail}"),
        };
        if let Some(line) = self.line(key, &text) {
            match &event {
                Event::Connected(_) => tracing::info!("{line}"),
                Event::Failed(_) | Event::Fault { .. } | Event::Refused { .. } => tracing::warn!("{line}"),
            }
        }
        match event {
            Event::Connected(_) | Event::Failed(_) => {}
            Event::Fault { reason, detail } | Event::Refused { reason, detail } => {
                self.note_fault(key, reason, detail, None);
            }
        }
    }

    fn port_of(&self, id: u64) -> Option<Key> {
        let mut all = self.switches.iter().flat_map(|(switch, s)| s.ports().iter().map(move |p| (switch, p)));
        let (switch, (port, _)) = all.find(|(_, (_, live))| live.front_end.as_ref().is_some_and(|f| f.id == id))?;
        Some((switch.clone(), port.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_end_that_comes_and_goes_all_the_time_pushes_out_no_events_of_other_ports() {
        let events = Arc::new(Events::default());
        let [(quiet, mine), (noisy, theirs)] = [(); 2].map(|()| events.observer());
        mine.fault("bad", "once".to_owned());
        (0..1000).for_each(|number| theirs.fault("bad", number.to_string()));
        let waiting = events.waiting();
        assert_eq!((waiting[&quiet].len(), waiting[&noisy].len()), (1, WAITING_MAX));
        assert!(matches!(&waiting[&noisy][WAITING_MAX - 1], Event::Fault { detail, .. } if detail == "999"));
    }
}
