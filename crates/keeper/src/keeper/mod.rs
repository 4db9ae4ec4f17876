//! The keeper's side.
//!
//! One thread, which never waits for the switch: messages to it are sent when there is room, and what a close waits for is left to threads of
//! their own.

mod closing;
mod pauses;
mod store;
mod switch;

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::message::{BYTES_MOST, Message, Received, State, receive, send};
use pauses::Pauses;
use store::Store;
use switch::Switch;

/// Pause after the kernel refused to pass descriptors, because too many are on their way.
const SEND_AGAIN: Duration = Duration::from_millis(5);

/// What to keep.
#[derive(Debug)]
pub struct Options<C> {
    /// Makes the command of the switch, which calls [`Link::from_keeper`](crate::Link::from_keeper). Its standard input is the keeper's.
    pub command: C,
    /// Longest time from SIGTERM to the end of the switch, which is killed then.
    pub end_within: Duration,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The switch says what it is about.
    Is(State),
    /// The switch has died, and another one is started after this pause.
    Died {
        /// How it ended: `signal 9`.
        how: String,
        /// The pause.
        pause: Duration,
    },
    /// Another switch serves what the one before left, so long after that one's end.
    Again(Duration),
}

/// How the switch ended, when no other one was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The status to exit with.
    pub status: u8,
}

/// Starts the switch, and another one whenever it dies, until it ends because it was told to or because it cannot start. SIGTERM, SIGINT and SIGHUP
/// are for the switch. Only one call in a process.
///
/// # Errors
/// The first switch cannot be started.
pub fn run(options: Options<impl FnMut() -> Command>, notify: impl FnMut(Event)) -> io::Result<Ended> {
    // Its memory has what the descriptors of all clients are for.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let limit = getrlimit(Resource::Nofile);
    // With fewer descriptors it holds less.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let signals = Signals::new()?;
    Keeper {
        options,
        notify,
        signals,
        store: Store::new(files_most()),
        told_to_end: None,
        is_last: false,
        was_ready: false,
    }
    .run()
}

fn files_most() -> usize {
    // A few for itself.
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)) / 8 * 7
}

/// Signals for the switch, each readable here once it has come.
struct Signals {
    end: UnixStream,
    reload: UnixStream,
}

impl Signals {
    fn new() -> io::Result<Self> {
        let pipe = |signals: &[i32]| {
            let (come, write) = UnixStream::pair()?;
            come.set_nonblocking(true)?;
            for signal in signals {
                signal_hook::low_level::pipe::register(*signal, write.try_clone()?)?;
            }
            Ok::<_, io::Error>(come)
        };
        Ok(Self { end: pipe(&[SIGTERM, SIGINT])?, reload: pipe(&[SIGHUP])? })
    }
}

/// Returns true if one has come, once.
fn has_come(signal: &UnixStream) -> bool {
    let mut has = false;
    let mut bytes = [0; 64];
    while matches!(rustix::io::read(signal, &mut bytes), Ok(1..)) {
        has = true;
    }
    has
}

struct Keeper<C, N> {
    options: Options<C>,
    notify: N,
    signals: Signals,
    store: Store,
    told_to_end: Option<Instant>,
    /// No other switch follows this one: it was started to end in order what one that died has left.
    is_last: bool,
    /// A switch has served.
    was_ready: bool,
}

/// The end of one switch.
struct Death {
    status: ExitStatus,
    was_ready: bool,
}

impl<C: FnMut() -> Command, N: FnMut(Event)> Keeper<C, N> {
    fn run(mut self) -> io::Result<Ended> {
        let (mut pauses, mut starts, mut end, mut died) = (Pauses::default(), 0, String::new(), None);
        loop {
            let begun = Instant::now();
            let started = Switch::start((self.options.command)());
            let switch = match started {
                Err(why) if starts == 0 => return Err(why),
                other => other,
            };
            let death = match switch {
                Ok(switch) => {
                    let begin = Message::Begin { starts, failed: pauses.failed(), end: end.clone() };
                    Ok(self.serve(switch, begin, died))
                }
                Err(why) => Err(why),
            };
            starts += 1;
            died = Some(Instant::now());
            let was_ready = death.as_ref().is_ok_and(|death| death.was_ready);
            end = match death {
                Ok(death) => {
                    if let Some(ended) = self.end_after(&death) {
                        return Ok(ended);
                    }
                    how(death.status)
                }
                Err(why) => format!("it could not be started: {why}"),
            };
            let pause = pauses.next(was_ready.then(|| begun.elapsed()));
            let pause = if self.told_to_end.is_some() { Duration::ZERO } else { pause };
            if self.told_to_end.is_some_and(|told| self.is_last || told.elapsed() >= self.options.end_within) {
                return Ok(Ended { status: 1 });
            }
            (self.notify)(Event::Died { how: end.clone(), pause });
            self.sleep(pause);
            self.is_last = self.told_to_end.is_some();
        }
    }

    /// Returns how the keeper ends, if no other switch is to be started.
    fn end_after(&self, death: &Death) -> Option<Ended> {
        let ended = |status| Some(Ended { status });
        match death.status.code() {
            Some(0) => ended(0),
            // It says why it cannot start: so it would again.
            Some(code) if !self.was_ready => ended(u8::try_from(code).unwrap_or(1)),
            Some(code) if self.told_to_end.is_some() => ended(u8::try_from(code).unwrap_or(1)),
            // A last one ends in order what this one has left: sockets, and clients who want to know.
            _ => None,
        }
    }

    /// Waits before another switch is started, unless this is to end.
    fn sleep(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            if has_come(&self.signals.end) {
                self.told_to_end.get_or_insert_with(Instant::now);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.told_to_end.is_some() {
                return;
            }
            let _ = poll(&mut [PollFd::new(&self.signals.end, PollFlags::IN)], Some(&timespec(left)));
        }
    }

    /// Serves a switch until its end.
    fn serve(&mut self, mut switch: Switch, begin: Message, died: Option<Instant>) -> Death {
        let mut unsent: VecDeque<Message> = std::iter::once(begin).chain(self.store.left()).collect();
        unsent.push_back(Message::All);
        let (mut was_ready, mut send_at) = (false, None);
        loop {
            let sends = !unsent.is_empty() && send_at.is_none();
            let killed_at = self.told_to_end.map(|told| told + self.options.end_within);
            let wake_at = [send_at, killed_at].into_iter().flatten().min();
            let wait = wake_at.map(|at: Instant| timespec(at.saturating_duration_since(Instant::now())));
            let flags = if sends { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            let mut ends = [
                PollFd::new(&self.signals.end, PollFlags::IN),
                PollFd::new(&self.signals.reload, if switch.hears { PollFlags::IN } else { PollFlags::empty() }),
                PollFd::new(&switch.process, PollFlags::IN),
                PollFd::new(&*switch.socket, flags),
            ];
            if poll(&mut ends, wait.as_ref()).is_err() {
                // A signal has come. Whether the switch has ended decides whom it is for.
                continue;
            }
            let [_, _, process, socket] = ends.map(|end| end.revents());
            if process.contains(PollFlags::IN) {
                // What it said before its end holds. Signals are for the next one.
                self.hear(&mut switch, &mut was_ready, died);
                return Death { status: switch.status(), was_ready };
            }
            if has_come(&self.signals.end) {
                self.told_to_end.get_or_insert_with(Instant::now);
                if switch.hears {
                    switch.signal(Signal::TERM);
                }
            }
            if switch.hears && has_come(&self.signals.reload) {
                switch.signal(Signal::HUP);
            }
            if killed_at.is_some_and(|at| at <= Instant::now()) {
                switch.signal(Signal::KILL);
            }
            if socket.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.hear(&mut switch, &mut was_ready, died);
            }
            send_at = send_at.filter(|at| *at > Instant::now());
            if send_at.is_none() && !self.send_left(&switch, &mut unsent) {
                send_at = Some(Instant::now() + SEND_AGAIN);
            }
        }
    }

    /// Sends what a predecessor left, as much as there is room for. Returns false if it has to be tried again after a while.
    fn send_left(&self, switch: &Switch, unsent: &mut VecDeque<Message>) -> bool {
        while let Some(message) = unsent.front() {
            let files = match message {
                Message::Left { name, .. } => self.store.files(name),
                _ => Vec::new(),
            };
            match send(&*switch.socket, message, &files, SendFlags::DONTWAIT) {
                Ok(()) => _ = unsent.pop_front(),
                Err(Errno::AGAIN) => return true,
                // ETOOMANYREFS: too many descriptors are on their way.
                Err(Errno::TOOMANYREFS | Errno::NOMEM | Errno::NOBUFS) => return false,
                // The switch has ended.
                Err(_) => {
                    unsent.clear();
                    return true;
                }
            }
        }
        true
    }

    /// Does what the switch says.
    fn hear(&mut self, switch: &mut Switch, was_ready: &mut bool, died: Option<Instant>) {
        let mut bytes = vec![0; BYTES_MOST + 1];
        loop {
            match receive(&*switch.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok(Received::Message { message: Message::Keep { name, note }, files, whole }) => {
                    if !self.store.keep(name, note, files, whole) {
                        return switch.end_for("it keeps more than the keeper can hold");
                    }
                }
                Ok(Received::Message { message: Message::Release { token, name }, .. }) => {
                    self.store.release(&name, (token != 0).then(|| (token, switch.socket.clone())));
                }
                Ok(Received::Message { message: Message::Hears, .. }) => {
                    switch.hears = true;
                    if self.told_to_end.is_some() {
                        switch.signal(Signal::TERM);
                    }
                }
                Ok(Received::Message { message: Message::Is(state), .. }) => {
                    if state == State::Ready && !std::mem::replace(was_ready, true) {
                        self.was_ready = true;
                        if let Some(died) = died {
                            (self.notify)(Event::Again(died.elapsed()));
                        }
                    }
                    (self.notify)(Event::Is(state));
                }
                Ok(Received::Message { .. } | Received::Nonsense) => {
                    return switch.end_for("it says what the keeper does not understand");
                }
                Ok(Received::End) | Err(_) => return,
            }
        }
    }
}

/// How a process ended, for users.
fn how(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown end".to_owned(),
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 })
}
