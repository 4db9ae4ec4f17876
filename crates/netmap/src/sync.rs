//! `NIOCTXSYNC`, `NIOCRXSYNC` and the synchronisation that `poll` makes, over the rings of a file.

use std::ffi::{c_int, c_short};
use std::sync::atomic::Ordering;

use libc::{POLLERR, POLLIN, POLLOUT, POLLRDNORM, POLLWRNORM};

use crate::file::{File, Registration};
use crate::ring::{Dir, Synced};

/// After so many synchronisations in a row without a frame, look at the clock.
const IDLE_BEFORE_CLOCK: u32 = 256;

/// What a ring's synchronisation says about the file.
#[derive(Default)]
struct Sum {
    moved: bool,
    bad: bool,
    ready: bool,
    moves: u64,
    is_partial: bool,
}

impl Sum {
    fn add(&mut self, synced: Synced) {
        self.moved |= synced.moved;
        self.bad |= synced.bad;
        self.ready |= synced.ready;
    }
}

/// Synchronises the rings of one direction. Waits for another thread, of any process, that synchronises one of them: that thread may have looked before the
/// program moved `head`, or before the switch moved `tail`. A signal handler leaves a ring alone that its own thread synchronises.
#[inline]
fn sync_rings(file: &File, registration: &Registration, dir: Dir) -> Sum {
    let mut sum = Sum::default();
    for ring in registration.rings(dir) {
        if let Some(held) = ring.lock().take_shared() {
            let synced = ring.sync();
            // Within the turn: who takes the ring over from a thread that has granted the switch's wish, and has not kicked, kicks.
            if synced.kick || held.is_taken_over() && ring.is_waited_for() {
                file.kick_switch();
            }
            sum.add(synced);
            // Within the turn, too: another one that is on its way counts a frame before `tail` shows it.
            sum.moves = sum.moves.wrapping_add(ring.moved().load(Ordering::Relaxed));
        } else {
            sum.is_partial = true;
        }
    }
    sum
}

/// `NIOCTXSYNC` or `NIOCRXSYNC`. Makes no system call unless the switch sleeps, but for one look at the connection in a second in which no
/// frame moved.
///
/// # Errors
/// ENXIO: not registered, or the daemon has gone. A ring with bad positions is reset, which is no error here, as in netmap
/// (`netmap_ioctl` in `netmap.c`); `poll` tells it.
pub(crate) fn sync(file: &File, fd: c_int, dir: Dir) -> Result<(), c_int> {
    let registration = file.registration(fd)?;
    let sum = sync_rings(file, registration, dir);
    if sum.moved {
        file.idle.store(0, Ordering::Relaxed);
    } else if is_found_gone(file, fd) {
        return Err(libc::ENXIO);
    }
    Ok(())
}

/// Counts a look of a program that does not sleep, in which nothing moved. Returns true if it finds that the daemon has gone: it asks the
/// kernel at most once a second.
pub(crate) fn is_found_gone(file: &File, fd: c_int) -> bool {
    file.idle.fetch_add(1, Ordering::Relaxed) % IDLE_BEFORE_CLOCK == IDLE_BEFORE_CLOCK - 1 && has_gone(file, fd)
}

/// Looks at the connection if this second has not.
#[cold]
fn has_gone(file: &File, fd: c_int) -> bool {
    let now = crate::clock::now(libc::CLOCK_MONOTONIC_COARSE).tv_sec;
    file.looked.swap(now, Ordering::Relaxed) != now && file.look_for_end(fd)
}

/// What is ready, as `poll` says it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ready {
    pub(crate) events: c_short,
    /// A ring had bad positions: the next synchronisation finds it reset.
    pub(crate) bad: bool,
    /// The slots by which the `tail`s of the rings have moved that the events are about, from the first registration on. It repeats no number.
    pub(crate) moves: u64,
    /// Something was left out: the thread itself seems to work with it. After a jump out of a signal handler it can be had in a second.
    pub(crate) is_partial: bool,
}

/// A registration that has ended is another state than each that the file was in before.
const ENDED: Ready = Ready { events: POLLERR, bad: false, moves: u64::MAX, is_partial: false };

impl Ready {
    /// Adds what the rings of one direction report. `wanted` are the events that the program asks for in that direction.
    fn add(&mut self, sum: &Sum, wanted: c_short) {
        self.events |= if sum.ready { wanted } else { 0 } | if sum.bad { POLLERR } else { 0 };
        self.bad |= sum.bad;
        self.is_partial |= sum.is_partial;
        if wanted != 0 {
            self.moves = self.moves.wrapping_add(sum.moves);
        }
    }
}

/// A registration that cannot be asked for at this time.
const BUSY: Ready = Ready { events: 0, bad: false, moves: 0, is_partial: true };

/// Synchronises a file as `poll` does, and returns which of the events are ready.
pub(crate) fn poll_once(file: &File, fd: c_int, events: c_short) -> Ready {
    match file.registration(fd) {
        Ok(registration) => poll_rings(file, registration, events),
        Err(libc::EBUSY) => BUSY,
        Err(_) => ENDED,
    }
}

/// As [`poll_once`], without asking the daemon for the registration. `is_asked`: it was asked.
pub(crate) fn poll_known(file: &File, events: c_short, is_asked: bool) -> Ready {
    match file.known() {
        Some(registration) => poll_rings(file, registration, events),
        None if file.is_unknown() && !is_asked => BUSY,
        None => ENDED,
    }
}

fn poll_rings(file: &File, registration: &Registration, events: c_short) -> Ready {
    let (want_tx, want_rx) = (events & (POLLOUT | POLLWRNORM), events & (POLLIN | POLLRDNORM));
    let mut ready = Ready::default();
    let is_pending = || registration.rings(Dir::Tx).any(|ring| ring.is_pending());
    if want_tx != 0 || (!registration.polling.no_tx && is_pending()) {
        let sum = sync_rings(file, registration, Dir::Tx);
        ready.add(&sum, want_tx);
    }
    if want_rx != 0 || registration.polling.do_rx {
        let sum = sync_rings(file, registration, Dir::Rx);
        ready.add(&sum, want_rx);
    }
    ready
}

/// Asks the switch for a call when one of the events becomes ready. Returns false if it could not: the file has no registration yet, or
/// none any more.
pub(crate) fn ask(file: &File, events: c_short) -> bool {
    each_waited_ring(file, events, crate::ring::Ring::ask)
}

/// Ends a wait that began with an [`ask`] that returned true.
pub(crate) fn withdraw(file: &File, events: c_short) {
    each_waited_ring(file, events, crate::ring::Ring::withdraw);
}

/// Returns false if this process knows no registration.
fn each_waited_ring(file: &File, events: c_short, act: impl Fn(&crate::ring::Ring)) -> bool {
    let Some(registration) = file.known() else { return false };
    for (dir, wanted) in [(Dir::Tx, POLLOUT | POLLWRNORM), (Dir::Rx, POLLIN | POLLRDNORM)] {
        if events & wanted != 0 {
            registration.rings(dir).for_each(|ring| act(&ring));
        }
    }
    true
}
