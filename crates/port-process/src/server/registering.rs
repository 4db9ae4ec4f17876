//! Registrations are made on threads that do nothing else: they touch memory that the client can punch holes into, and each page fault then waits
//! until the kernel has punched (`docs/decisions/waits.md`). Two threads at most wait for one process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ringway_abi::netmap::{Family, Register};
use ringway_port::front_end::{Process, check_unclosed_ports, register_in_steps};
use ringway_runtime::{contain, fatal};
use rustix::io::Errno;

use super::super::region::{Extra, Registration};
use super::host::{ClientId, NetmapHost, Refusal};
use super::queue::{Command, Queue};

/// For this time a want of memory may pass in any case: connections may have been closed that the server has not looked at yet.
const LOOKS_AROUND_FOR: Duration = Duration::from_millis(10);
/// The pause before a registration is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(1);

/// What became of a request for a registration.
pub(super) type Outcome = Result<Box<Registration>, Refusal>;

/// A registration that is being made.
pub(super) struct Registering(Arc<Mutex<Slot>>);

#[derive(Default)]
struct Slot {
    outcome: Option<Outcome>,
    /// The client has gone.
    is_abandoned: bool,
}

/// Who registers what.
pub(super) struct Wanted {
    pub(super) client: ClientId,
    pub(super) process: Process,
    pub(super) family: Family,
    pub(super) register: Register,
    /// See [`super::limits::TimeLimits::tries_for`].
    pub(super) tries_for: Duration,
}

impl Registering {
    /// Begins. The server is told when it has ended ([`Command::Registered`]).
    pub(super) fn begin(host: Box<dyn NetmapHost + Send>, wanted: Wanted, server: Arc<Queue>) -> Self {
        let slot = Arc::new(Mutex::new(Slot::default()));
        let parties = [wanted.process; 2];
        let mut work =
            Work { host, wanted, server, slot: Arc::clone(&slot), begun: Instant::now(), registration: None };
        register_in_steps(parties, move || work.step().then_some(parties));
        Self(slot)
    }

    /// Takes the outcome, once there is one.
    pub(super) fn take(&self) -> Option<Outcome> {
        self.0.lock().outcome.take()
    }

    /// The client has gone. Whoever has the registration ends it: the server, if it was made before, or its thread.
    pub(super) fn abandon(&self) {
        self.0.lock().is_abandoned = true;
    }
}

/// The work of a thread.
struct Work {
    host: Box<dyn NetmapHost + Send>,
    wanted: Wanted,
    server: Arc<Queue>,
    slot: Arc<Mutex<Slot>>,
    begun: Instant,
    registration: Option<Box<Registration>>,
}

impl Work {
    /// Registers, or adds some extra buffers. Returns true if more is to be done.
    fn step(&mut self) -> bool {
        if self.slot.lock().is_abandoned {
            return self.end(None);
        }
        // After the last try, a registration gets those extra buffers that there are.
        let waits = self.begun.elapsed() < self.wanted.tries_for;
        let registration = match self.registration.take() {
            Some(registration) => registration,
            None => match self.register() {
                Ok(registration) => Box::new(registration),
                Err(refusal) if self.may_pass(&refusal, waits) => {
                    std::thread::sleep(RETRY_EVERY);
                    return true;
                }
                Err(refusal) => return self.end(Some(Err(refusal))),
            },
        };
        let registration = self.registration.insert(registration);
        match registration.add_extra(waits) {
            Extra::Complete => {
                let registration = self.registration.take().map(Ok);
                self.end(registration)
            }
            Extra::Incomplete => true,
            Extra::Leaving => {
                std::thread::sleep(RETRY_EVERY);
                true
            }
        }
    }

    fn register(&mut self) -> Result<Registration, Refusal> {
        let Self { host, wanted: Wanted { client, process, family, register, .. }, .. } = self;
        check_unclosed_ports(*process).map_err(|text| Refusal::new(Errno::AGAIN, text))?;
        let registration = contain(|| host.register(*client, *process, *family, register)).unwrap_or_else(|place| {
            // State that the daemon shares with other threads may be half changed.
            fatal(&format!("a defect of Ringway, please report it: a registration failed at {place}"))
        })?;
        if let Err(error) = registration.hold(*process) {
            host.unregister(*client);
            let text = format!("the switch has no closer for the descriptors of another registration: {error}");
            return Err(Refusal::new(Errno::NFILE, text));
        }
        Ok(registration)
    }

    /// Returns true if a refused registration is tried again.
    fn may_pass(&self, refusal: &Refusal, waits: bool) -> bool {
        match refusal.errno {
            Errno::NOMEM if self.begun.elapsed() < LOOKS_AROUND_FOR => true,
            _ => refusal.is_transient && waits,
        }
    }

    /// Hands the outcome over, or ends the registration of a client that has gone.
    fn end(&mut self, outcome: Option<Outcome>) -> bool {
        let mut slot = self.slot.lock();
        if slot.is_abandoned {
            drop(slot);
            self.host.unregister(self.wanted.client);
            self.registration = None;
            drop(outcome);
        } else {
            slot.outcome = outcome;
            drop(slot);
            self.server.send(Command::Registered(self.wanted.client));
        }
        false
    }
}
