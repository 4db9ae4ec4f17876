//! A switch that waits for the death of the present one, so that no process has to be started then: with its opener, and without privileges.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use super::grants::Grants;
use super::next::Next;
use super::switch::has_ended;

/// A switch that has served for so long gets a successor that waits: to start it would hold up what is still to be done at a start.
const AFTER: Duration = Duration::from_secs(3);
/// Pause after one that did not come to wait.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Longest wait for its end.
const ENDED_WITHIN: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The switch that waits, if there is one.
#[derive(Debug, Default)]
pub(super) struct Standby {
    next: Option<Next>,
    is_prepared: bool,
    start_at: Option<Instant>,
}

impl Standby {
    /// The present switch serves.
    pub(super) fn serves(&mut self) {
        if self.next.is_none() {
            self.start_at = Some(Instant::now() + AFTER);
        }
    }

    /// Returns true if it is time to start one.
    pub(super) fn is_due(&self) -> bool {
        self.next.is_none() && self.start_at.is_some_and(|at| at <= Instant::now())
    }

    /// One was started.
    pub(super) fn begin(&mut self, started: io::Result<Next>) {
        match started {
            Ok(next) => (self.next, self.is_prepared, self.start_at) = (Some(next), false, None),
            Err(why) => self.is_lost(&why.to_string()),
        }
    }

    /// Starts its opener, and hears whether it waits.
    pub(super) fn go_on(&mut self, grants: &Grants, opener: impl FnOnce(&Path) -> Command) {
        let Some(next) = &mut self.next else { return };
        if has_ended(&next.switch.process) {
            return self.is_lost("it has ended");
        }
        next.opening.go_on(&next.switch, grants, opener);
        if self.is_prepared {
            return;
        }
        match next.is_prepared() {
            Ok(is_prepared) => self.is_prepared = is_prepared,
            Err(why) => self.is_lost(&why),
        }
    }

    fn is_lost(&mut self, why: &str) {
        tracing::debug!("no switch waits for the death of the present one: {why}");
        self.next = None;
        self.start_at = Some(Instant::now() + AGAIN_AFTER);
    }

    /// Takes the switch that waits. One that does not yet is ended.
    pub(super) fn take(&mut self) -> Option<Next> {
        self.start_at = None;
        self.next.take().filter(|next| self.is_prepared && !has_ended(&next.switch.process))
    }

    /// When to look again, whatever happens.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let opening = self.next.as_ref().and_then(|next| next.opening.wake_at());
        self.start_at.into_iter().chain(opening).min()
    }

    /// What to wait for.
    pub(super) fn ends(&self) -> impl Iterator<Item = &OwnedFd> {
        let next = self.next.iter();
        next.flat_map(|next| {
            let heard = (!self.is_prepared).then_some(&*next.switch.socket);
            [Some(&next.switch.process), heard, next.opening.process()].into_iter().flatten()
        })
    }

    /// Ends it, so that nothing is left behind.
    pub(super) fn end(self) {
        let Some(Next { switch, opening }) = self.next else { return };
        switch.signal(Signal::KILL);
        opening.kill();
        for process in std::iter::once(&switch.process).chain(opening.process()) {
            let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&ENDED_WITHIN));
        }
    }
}
