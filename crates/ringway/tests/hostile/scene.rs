//! A daemon with bystanders, and the checks at the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringway_client::Shape;
use ringway_scenes::{Daemon, PATIENCE, PATIENCE_VARIABLE, until};

use crate::attacker::{Attacker, EVIL, PEER};
use crate::bystanders::Bystanders;
use crate::vitals::Vitals;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Waits for this test's turn.
pub fn turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a daemon with the limits of users: attackers make it wait.
pub fn impatient(config: &str) -> Daemon {
    Daemon::start_by(&["env", "-u", PATIENCE_VARIABLE], config)
}

pub struct Scene {
    pub daemon: Daemon,
    pub bystanders: Bystanders,
    before: Vitals,
    _turn: MutexGuard<'static, ()>,
}

impl Scene {
    /// Starts a daemon with the default configuration.
    pub fn start() -> Self {
        Self::start_with("[switch.lan0]\n")
    }

    pub fn start_with(config: &str) -> Self {
        let turn = turn();
        Self::with(turn, impatient(config))
    }

    pub fn with(turn: MutexGuard<'static, ()>, daemon: Daemon) -> Self {
        // Memory that the daemon allocates once for commands and clients does not count as the cost of an attack.
        drop(daemon.attach("lan0:first").expect("a port"));
        daemon.status();
        let bystanders = Bystanders::start(&daemon);
        until("the first client's port is gone", || daemon.port("first").is_null());
        let before = Vitals::of(daemon.pid());
        Self { daemon, bystanders, before, _turn: turn }
    }

    pub fn attach(&self, name: &str) -> Attacker {
        self.attach_as(name, Shape::default())
    }

    pub fn attach_as(&self, name: &str, shape: Shape) -> Attacker {
        Attacker::attach(&self.daemon, name, shape)
    }

    /// Attaches an attacker and a peer, and makes the switch learn their addresses.
    pub fn attach_pair(&self) -> (Attacker, Attacker) {
        let (mut evil, mut peer) = (self.attach("evil"), self.attach("peer"));
        peer.introduce(PEER);
        evil.receive_from(PEER);
        evil.introduce(EVIL);
        peer.receive_from(EVIL);
        (evil, peer)
    }

    /// Returns how often this port was ended for this reason, as far as the daemon remembers.
    pub fn faults(&self, port: &str, reason: &str) -> usize {
        let status = self.daemon.status();
        let faults = status["faults"].as_array().expect("a list");
        faults.iter().filter(|fault| fault["port"] == port && fault["reason"] == reason).count()
    }

    /// Checks that the attacker has lost its port for this reason: the client learns the reason, the status counts it,
    /// and the port is gone.
    pub fn must_have_ended(&self, attacker: &Attacker, reason: &str, words: &str) {
        let (name, mut said) = (attacker.name.as_str(), None);
        until(&format!("{name} is ended for {reason}"), || {
            said = attacker.port.ended();
            said.is_some()
        });
        let said = said.unwrap_or_default();
        assert!(said.contains(words), "{name} was ended for {said:?}, without {words:?}");
        until("the port is gone", || self.daemon.port(name).is_null());
        assert!(self.faults(name, reason) > 0, "{reason}: {}", self.daemon.status()["faults"]);
    }

    /// Returns the count of `drops` in the status.
    pub fn drops(&self, port: &str, reason: &str) -> u64 {
        self.daemon.port(port)["drops"][reason].as_u64().unwrap_or(0)
    }

    /// Ends the test after all attackers are gone. Checks that the daemon uses no more resources than before, and that
    /// the bystanders have kept their frames.
    pub fn end(self) {
        self.bystanders.go_on(2000);
        self.must_return();
        self.bystanders.finish(&self.daemon);
    }

    /// Allows the memory that the daemon's allocator keeps from now on. All other resources must have returned. A leak
    /// shows in a second round.
    pub fn allow_for_the_first_round(&mut self, kib: u64) {
        self.before.anonymous += kib;
        self.must_return();
        self.before.anonymous = Vitals::of(self.daemon.pid()).anonymous;
    }

    pub fn must_return(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = Vitals::of(self.daemon.pid());
            if now.is_back_at(&self.before) {
                return;
            }
            assert!(Instant::now() < deadline, "the daemon does not return to {:?}: {now:?}", self.before);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Stops other threads when dropped, so that a failing test ends.
pub struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
