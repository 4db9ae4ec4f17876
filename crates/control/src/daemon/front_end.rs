//! What becomes of the front ends of vhost-user, e1000 and stream ports.
//!
//! A port's own thread notes what happens and goes on; it never waits for the daemon, which may be waiting for that
//! thread's end.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringway_ports::e1000::{self, E1000};
use ringway_ports::stream::Stream;
use ringway_ports::vhost_user::{Observer, State, Status, VhostUser};
use tokio::sync::Notify;

use super::Daemon;
use crate::config::Name;

/// How many events wait to be taken note of; when there are more, the oldest are forgotten.
const WAITING_MAX: usize = 256;

/// The control side of a port whose peer comes and goes.
pub struct FrontEnd {
    id: u64,
    link: Mutex<Option<Link>>,
}

/// The same by the port's kind.
pub enum Link {
    VhostUser(VhostUser),
    E1000(E1000),
    Stream(Stream),
}

impl FrontEnd {
    /// That of `link`, whose events have this id.
    pub fn new(id: u64, link: Link) -> Self {
        Self { id, link: Mutex::new(Some(link)) }
    }

    /// How far the front end has come; none when it was closed.
    pub fn state(&self) -> Option<State> {
        Some(match self.link().as_ref()? {
            Link::VhostUser(link) => link.status().state,
            Link::E1000(link) => match link.status().state {
                e1000::State::Waiting => State::Waiting,
                e1000::State::Connected => State::Connected,
                e1000::State::Up => State::Up,
            },
            Link::Stream(link) if link.is_connected() => State::Up,
            Link::Stream(_) => State::Waiting,
        })
    }

    /// That of a vhost-user port; none when it was closed.
    pub fn vhost_user(&self) -> Option<Status> {
        match self.link().as_ref()? {
            Link::VhostUser(link) => Some(link.status()),
            Link::E1000(_) | Link::Stream(_) => None,
        }
    }

    /// That of an e1000 port, and its NIC's address; none when it was closed.
    pub fn e1000(&self) -> Option<(e1000::Status, [u8; 6])> {
        match self.link().as_ref()? {
            Link::E1000(link) => Some((link.status(), link.address())),
            Link::VhostUser(_) | Link::Stream(_) => None,
        }
    }

    /// Plugs the cable of an e1000 in, or out, and says how long its guest may wait to hear of what was sent.
    pub fn set_nic(&self, on: bool, completion_delay: Duration) {
        if let Some(Link::E1000(link)) = self.link().as_ref() {
            link.set_link(on);
            link.set_completion_delay(completion_delay);
        }
    }

    /// Ends the connection and removes the socket.
    pub fn close(&self) {
        let link = self.link().take();
        drop(link);
    }

    fn link(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
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
    waiting: Mutex<VecDeque<(u64, Event)>>,
    news: Notify,
}

#[derive(Debug)]
enum Event {
    Connected(bool),
    Fault { reason: &'static str, detail: String },
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

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(u64, Event)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, id: u64, event: Event) {
        let mut waiting = self.waiting();
        if waiting.len() == WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back((id, event));
        drop(waiting);
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

    fn refused(&self, reason: &'static str, detail: String) {
        self.events.note(self.id, Event::Refused { reason, detail });
    }
}

impl Daemon {
    /// What happens to front ends.
    pub fn events(&self) -> Arc<Events> {
        Arc::clone(&self.events)
    }

    /// Takes note of what happened to front ends.
    pub fn note_events(&mut self) {
        let events = std::mem::take(&mut *self.events.waiting());
        for (id, event) in events {
            let Some((switch, port)) = self.port_of(id) else { continue };
            match event {
                Event::Connected(true) => tracing::info!("port {switch}:{port}: a front end has connected"),
                Event::Connected(false) => tracing::info!("port {switch}:{port}: the front end has gone"),
                Event::Fault { reason, detail } => {
                    tracing::warn!("port {switch}:{port}: the front end loses its connection: {detail}");
                    self.faults.note(switch, port, reason, detail);
                }
                Event::Refused { reason, detail } => {
                    tracing::warn!("port {switch}:{port}: the front end was refused something: {detail}");
                    self.faults.note(switch, port, reason, detail);
                }
            }
        }
    }

    fn port_of(&self, id: u64) -> Option<(Name, Name)> {
        let mut all = self.switches.iter().flat_map(|(switch, s)| s.ports().iter().map(move |p| (switch, p)));
        let (switch, (port, _)) = all.find(|(_, (_, live))| live.front_end.as_ref().is_some_and(|f| f.id == id))?;
        Some((switch.clone(), port.clone()))
    }
}
