//! The keeper's side.
//!
//! One thread, which never waits for the switch: messages to it are sent when there is room, and what a close waits for is left to threads of
//! their own.

mod closing;
mod death;
mod grants;
mod hang;
mod opening;
mod pauses;
mod requests;
mod store;
mod switch;
mod upgrade;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior, setrlimit};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use crate::link::HANDED_OVER;
use crate::message::{BYTES_MOST, Message, Received, State, receive, send};
use crate::page::{Cause, note_hang};
use crate::request::Answer;
use death::{Death, status_of_ending};
use grants::Grants;
use hang::{LOOK_EVERY, Looks, SUSPECT_AFTER};
use opening::Opening;
use pauses::Pauses;
use requests::{Request, Requests};
use store::Store;
use switch::{SEND_AGAIN, Switch, has_ended, how};
use upgrade::{Check, Phase, Upgrade};

/// Most messages of the switch between two looks at everything else. Its socket has room for fewer.
const MESSAGES_MOST: usize = 1024;
/// The service manager is told no more often that all is well.
const ALIVE_EVERY: Duration = Duration::from_millis(5);
/// Longest time for a successor to serve. Programs are waited for so long, and devices.
const SERVES_WITHIN: Duration = Duration::from_secs(120);
/// Most switches that a signal ends before the first one has served.
const FIRST_STARTS: u32 = 5;

/// What to keep.
#[derive(Debug)]
pub struct Options<C> {
    /// Makes the command that executes this path in this role. Its standard input is the keeper's.
    pub command: C,
    /// Longest time from SIGTERM to the end of the switch, which is killed then.
    pub end_within: Duration,
    /// Where administrators ask for an upgrade, once the switch has served.
    pub socket: PathBuf,
    /// The names whose files a new version looks at before it is the switch.
    pub checked: &'static [&'static str],
}

/// What a process is started for. Either calls [`Link::from_keeper`](crate::Link::from_keeper).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// To be the switch.
    Switch,
    /// To open for the switch what it may not open: [`opener`](crate::opener). Its standard input is the switch's socket.
    Opener,
    /// To say whether it could go on with what is kept: by its status, and by its last line on stderr.
    Check,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The switch says what it is about.
    Is(State),
    /// The switch has died, and another one is started after this pause.
    Died {
        /// How it ended: `signal 9`, `status 70`, `hang`.
        how: String,
        /// The pause.
        pause: Duration,
    },
    /// Another switch serves what the one before left, so long after that one's end.
    Again(Duration),
    /// Another executable is the switch now, so long after the end of the one before.
    Upgraded(Duration),
    /// It is not, for this reason.
    NotUpgraded(String),
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
pub fn run(options: Options<impl FnMut(&Path, Role) -> Command>, notify: impl FnMut(Event)) -> io::Result<Ended> {
    // Its memory has what the descriptors of all clients are for.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let limit = getrlimit(Resource::Nofile);
    // With fewer descriptors it holds less.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    // A parent that ignores SIGCHLD passes that on. The kernel would then forget how the switch ended.
    signal_hook::flag::register(SIGCHLD, Arc::default())?;
    let signals = Signals::new()?;
    let mut keeper = Keeper {
        options,
        notify,
        signals,
        store: Store::new(files_most()),
        requests: None,
        grants: Grants::new()?,
        executable: None,
        upgrade: None,
        told_to_end: None,
        is_last: false,
        was_ready: false,
        pauses: Pauses::default(),
    };
    let ended = keeper.run();
    // Before another daemon can have the directory.
    keeper.requests = None;
    // Closing all that can take long. The end of the process does the same.
    std::mem::forget(keeper.store);
    ended
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
    requests: Option<Requests>,
    /// What administrators let the switch have.
    grants: Grants,
    /// What the switch executes; none: what the keeper does.
    executable: Option<OwnedFd>,
    upgrade: Option<Upgrade>,
    told_to_end: Option<Instant>,
    /// No other switch follows this one: it was started to end in order what one that died has left.
    is_last: bool,
    /// A switch has served.
    was_ready: bool,
    pauses: Pauses,
}

/// The switch, as it is served.
struct Serving {
    switch: Switch,
    opening: Opening,
    /// What it is still to be told of what was left.
    unsent: VecDeque<Message>,
    /// When that is tried again.
    send_at: Option<Instant>,
    /// The end of the one before.
    died: Option<Instant>,
    /// When it was started, has served, and said last that all is well.
    begun: Instant,
    ready: Option<Instant>,
    alive: Option<Instant>,
    /// It is about to end by itself: it need not say any more that all is well.
    is_ending: bool,
    /// What was seen of it since it said that, and when the next look is.
    looks: Looks,
    look_at: Option<Instant>,
    /// The slot of a thread that hung: it was killed for that.
    hung: Option<usize>,
    /// Tells its death early.
    death: Option<Death>,
}

/// How a switch ended.
struct End {
    status: ExitStatus,
    /// How long it has served.
    served: Option<Duration>,
    /// It was killed as it hung.
    hung: bool,
}

impl End {
    /// For users, and for the successor.
    fn text(&self) -> String {
        if self.hung { Cause::Hang.to_string() } else { how(self.status) }
    }

    /// Returns true if what it did ended it.
    fn is_its_own(&self) -> bool {
        self.hung || is_its_own(&self.status)
    }
}

impl<C: FnMut(&Path, Role) -> Command, N: FnMut(Event)> Keeper<C, N> {
    fn run(&mut self) -> io::Result<Ended> {
        let (mut starts, mut end, mut died) = (0, String::new(), None);
        loop {
            let program = self.program();
            let switch = match Switch::start((self.options.command)(&program, Role::Switch)) {
                Err(why) if starts == 0 => return Err(why),
                other => other,
            };
            let ended = switch.map(|switch| {
                let opening = Opening::new(program);
                let begin = Message::Begin { starts, failed: self.pauses.failed(), end: end.clone() };
                let unsent = self.left(begin);
                self.serve(Serving::new(switch, opening, unsent, died))
            });
            starts += 1;
            died = Some(Instant::now());
            end = match &ended {
                Ok(end) => end.text(),
                Err(why) => format!("it could not be started: {why}"),
            };
            if let Some(upgrade) = self.upgrade.take() {
                match upgrade.phase {
                    _ if self.told_to_end.is_some() => upgrade.refuse("the daemon ends"),
                    Phase::HandingOver => {
                        HANDED_OVER.clone_into(&mut end);
                        self.upgrade = Some(upgrade.start(Instant::now()));
                        continue;
                    }
                    Phase::Starting(_) => {
                        let why = format!("the new version did not serve ({end}): the old one does again");
                        upgrade.refuse(&why);
                        (self.notify)(Event::NotUpgraded(why));
                        continue;
                    }
                    Phase::Checking(_) => upgrade.refuse("the switch died meanwhile, and is started again: try again"),
                }
            }
            if let Ok(End { status, .. }) = &ended
                && let Some(ended) = self.end_after(*status)
            {
                return Ok(ended);
            }
            let served = ended.as_ref().ok().and_then(|end| end.served);
            let pause = self.pauses.next(served, ended.as_ref().is_ok_and(End::is_its_own));
            let pause = if self.told_to_end.is_some() { Duration::ZERO } else { pause };
            if !self.was_ready && starts >= FIRST_STARTS {
                tracing::error!("the switch does not start: {end}");
                return Ok(Ended { status: 1 });
            }
            if self.told_to_end.is_some_and(|told| self.is_last || told.elapsed() >= self.options.end_within) {
                return Ok(Ended { status: 1 });
            }
            (self.notify)(Event::Died { how: end.clone(), pause });
            self.sleep(pause);
            self.is_last = self.told_to_end.is_some();
        }
    }

    /// What is executed next.
    fn program(&self) -> PathBuf {
        let new = self.upgrade.as_ref().map(|upgrade| &upgrade.request.executable);
        new.or(self.executable.as_ref()).map_or_else(|| PathBuf::from("/proc/self/exe"), upgrade::program)
    }

    /// All that is kept, in messages.
    fn left(&self, begin: Message) -> VecDeque<Message> {
        std::iter::once(begin).chain(self.store.left()).chain([Message::All]).collect()
    }

    /// Returns how the keeper ends, or `None` if it starts another switch.
    fn end_after(&self, status: ExitStatus) -> Option<Ended> {
        let ended = |status| Some(Ended { status });
        match status.code() {
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
    fn serve(&mut self, mut serving: Serving) -> End {
        // The switch hears of its opener first.
        let Serving { switch, opening, .. } = &mut serving;
        opening.go_on(switch, &self.grants, |program| (self.options.command)(program, Role::Opener));
        loop {
            self.wait(&serving);
            let ends = self.status_of_dying(&mut serving);
            if ends.is_some() || has_ended(&serving.switch.process) {
                // What it said before its end holds. Signals are for the next one.
                self.hear(&mut serving);
                let Serving { switch, .. } = serving;
                let (status, socket) = match ends {
                    Some(status) => switch.leave(status),
                    None => switch.end(),
                };
                // A successor does not wait for it.
                if status.success() {
                    serving.opening.end();
                }
                // What is unread in it may have files.
                self.store.refuse(Arc::into_inner(socket).into_iter().collect());
                let hung = serving.hung.zip(self.store.page()).filter(|_| is_by_kill(&status));
                let noted = hung.map(|(slot, page)| note_hang(page, slot));
                return End { status, served: serving.ready.map(|ready| ready.elapsed()), hung: noted.is_some() };
            }
            if has_come(&self.signals.end) {
                self.told_to_end.get_or_insert_with(Instant::now);
                if serving.switch.hears {
                    serving.switch.signal(Signal::TERM);
                }
            }
            if serving.switch.hears && has_come(&self.signals.reload) {
                serving.switch.signal(Signal::HUP);
            }
            if !serving.switch.is_killed() && serving.kill_at(self).is_some_and(|at| at <= Instant::now()) {
                serving.switch.signal(Signal::KILL);
            }
            self.hear(&mut serving);
            let Serving { switch, opening, .. } = &mut serving;
            opening.go_on(switch, &self.grants, |program| (self.options.command)(program, Role::Opener));
            serving.send_at = serving.send_at.filter(|at| *at > Instant::now());
            if serving.send_at.is_none() && !send_left(&self.store, &serving.switch, &mut serving.unsent, None) {
                serving.send_at = Some(Instant::now() + SEND_AGAIN);
            }
            self.go_on_with_upgrade(&serving);
            self.end_if_it_hangs(&mut serving);
        }
    }

    /// Returns how a switch ended that is dead already, if not for the kernel. A last one is waited for: nothing is left of it when the keeper ends.
    fn status_of_dying(&self, serving: &mut Serving) -> Option<ExitStatus> {
        serving.death.take_if(|death| has_ended(&death.told))?;
        serving.switch.signal(Signal::KILL);
        let hands_over = matches!(&self.upgrade, Some(Upgrade { phase: Phase::HandingOver, .. }));
        let Switch { process, .. } = &serving.switch;
        status_of_ending(serving.switch.number(), process, hands_over).filter(|_| self.told_to_end.is_none())
    }

    /// Looks whether a switch that should say that all is well hangs, if it is time for that, and ends it then.
    fn end_if_it_hangs(&mut self, serving: &mut Serving) {
        let now = Instant::now();
        // One that ends, or hands over, is given its time by others.
        let is_watched = !serving.is_ending && self.told_to_end.is_none() && !serving.switch.is_killed();
        serving.look_at = serving.look_at.filter(|_| is_watched);
        if serving.look_at.is_none_or(|at| at > now) {
            return;
        }
        serving.look_at = Some(now + LOOK_EVERY);
        let Some(page) = self.store.page() else { return };
        if let Some((slot, thread)) = serving.looks.look(page, serving.switch.number(), now) {
            tracing::error!("the switch hangs: its thread {thread} makes no progress; it is killed");
            serving.hung = Some(slot);
            serving.switch.signal(Signal::KILL);
        }
    }

    /// Waits until there may be something to do.
    fn wait(&self, serving: &Serving) {
        let mut ends = vec![PollFd::new(&serving.switch.process, PollFlags::IN)];
        ends.push(PollFd::new(&self.signals.end, PollFlags::IN));
        ends.extend(serving.death.iter().map(|death| PollFd::new(&*death.told, PollFlags::IN)));
        if serving.switch.is_killed() {
            let _ = poll(&mut ends, None);
            return;
        }
        let told_until = serving.kill_at(self);
        let upgrade_until = self.upgrade.as_ref().map(|upgrade| upgrade.until);
        let request_until = self.requests.as_ref().and_then(Requests::wake_at);
        let (opening_at, look_at) = (serving.opening.wake_at(), serving.look_at);
        let wake_at = [serving.send_at, told_until, upgrade_until, request_until, opening_at, look_at];
        let wake_at = wake_at.into_iter().flatten().min();
        let wait = wake_at.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        let both = PollFlags::IN | PollFlags::OUT;
        let sends = (!serving.unsent.is_empty() && serving.send_at.is_none()) || serving.opening.sends();
        let reloads = if serving.switch.hears { PollFlags::IN } else { PollFlags::empty() };
        ends.push(PollFd::new(&self.signals.reload, reloads));
        ends.push(PollFd::new(&*serving.switch.socket, if sends { both } else { PollFlags::IN }));
        ends.extend(serving.opening.process().map(|process| PollFd::new(process, PollFlags::IN)));
        // Nobody reads requests while an upgrade is under way or the daemon ends.
        let reads = self.upgrade.is_none() && self.told_to_end.is_none();
        let requests = self.requests.iter().filter(|_| reads).flat_map(Requests::ends);
        ends.extend(requests.map(|end| PollFd::new(end, PollFlags::IN)));
        if let Some(Upgrade { phase: Phase::Checking(check), .. }) = &self.upgrade {
            ends.push(PollFd::new(&check.process.process, PollFlags::IN));
            if !check.unsent.is_empty() {
                ends.push(PollFd::new(&*check.process.socket, PollFlags::OUT));
            }
        }
        let _ = poll(&mut ends, wait.as_ref());
    }

    /// Begins an upgrade, and its next phase.
    fn go_on_with_upgrade(&mut self, serving: &Serving) {
        if self.told_to_end.is_some() {
            let checking = self.upgrade.take_if(|upgrade| matches!(upgrade.phase, Phase::Checking(_)));
            checking.into_iter().for_each(|upgrade| upgrade.refuse("the daemon ends"));
            return;
        }
        let Some(mut upgrade) = self.upgrade.take() else {
            let own: Vec<_> = serving.opening.number().into_iter().chain([serving.switch.number()]).collect();
            if let Some(request) = self.requests.as_mut().and_then(|requests| requests.next(&mut self.grants, &own)) {
                self.begin_upgrade(request);
            }
            return;
        };
        let is_late = upgrade.until <= Instant::now();
        match &mut upgrade.phase {
            Phase::Checking(check) => {
                send_left(&self.store, &check.process, &mut check.unsent, Some(self.options.checked));
                if !has_ended(&check.process.process) {
                    if is_late {
                        return self
                            .give_up(&upgrade, "the new version does not say whether it understands what is kept");
                    }
                    self.upgrade = Some(upgrade);
                    return;
                }
                let Upgrade { request, phase: Phase::Checking(check), until } = upgrade else { return };
                let refusal = check.refusal();
                let upgrade = Upgrade { request, phase: Phase::HandingOver, until };
                match refusal {
                    Some(why) => self.give_up(&upgrade, &why),
                    None if send(&*serving.switch.socket, &Message::HandOver, &[], SendFlags::DONTWAIT).is_err() => {
                        self.give_up(&upgrade, "the switch does not hear the keeper");
                    }
                    None => self.upgrade = Some(upgrade.hand_over()),
                }
            }
            Phase::HandingOver | Phase::Starting(_) => {
                if is_late && !serving.switch.is_killed() {
                    serving.switch.signal(Signal::KILL);
                }
                self.upgrade = Some(upgrade);
            }
        }
    }

    fn begin_upgrade(&mut self, request: Request) {
        let program = upgrade::program(&request.executable);
        let command = (self.options.command)(&program, Role::Check);
        let begin = Message::Begin { starts: 1, failed: 0, end: String::new() };
        match Check::start(command, self.left(begin)) {
            Ok(check) => self.upgrade = Some(Upgrade::begin(request, check)),
            Err(why) => {
                let why = format!("it cannot be executed: {why}");
                request.answer(&Answer::refused(&*why));
                (self.notify)(Event::NotUpgraded(why));
            }
        }
    }

    fn give_up(&mut self, upgrade: &Upgrade, why: &str) {
        upgrade.refuse(why);
        (self.notify)(Event::NotUpgraded(why.to_owned()));
    }

    /// Does what the switch says. The files that come are closed on other threads.
    fn hear(&mut self, serving: &mut Serving) {
        let mut bytes = vec![0; BYTES_MOST + 1];
        for _ in 0..MESSAGES_MOST {
            let (message, files, whole) = match receive(&*serving.switch.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok(Received::Message { message, files, whole }) => (message, files, whole),
                Ok(Received::Nonsense(files)) => {
                    self.store.refuse(files);
                    return serving.switch.end_for("it says what the keeper does not understand");
                }
                Ok(Received::End) => return serving.switch.signal(Signal::KILL),
                Err(_) => return,
            };
            match message {
                Message::Keep { name, note } => self.store.keep(name, note, files, whole),
                _ if !files.is_empty() => {
                    self.store.refuse(files);
                    return serving.switch.end_for("it says what the keeper does not understand");
                }
                Message::Release { token, name } => {
                    self.store.release(&name, (token != 0).then(|| (token, serving.switch.socket.clone())));
                }
                Message::Hears => {
                    serving.switch.hears = true;
                    if self.told_to_end.is_some() {
                        serving.switch.signal(Signal::TERM);
                    }
                }
                Message::Is(State::Ready) => {
                    if serving.ready.is_none() {
                        serving.ready = Some(Instant::now());
                        serving.death = self.store.page().and_then(|page| Death::watch(page).ok());
                        self.serves(serving.died);
                        (self.notify)(Event::Is(State::Ready));
                    }
                }
                Message::Is(State::Alive) => {
                    (serving.looks, serving.look_at) = (Looks::default(), Some(Instant::now() + SUSPECT_AFTER));
                    if serving.alive.is_none_or(|said| said.elapsed() >= ALIVE_EVERY) {
                        serving.alive = Some(Instant::now());
                        (self.notify)(Event::Is(State::Alive));
                    }
                }
                Message::Is(state) => {
                    serving.is_ending |= state == State::Stopping;
                    (self.notify)(Event::Is(state));
                }
                _ => return serving.switch.end_for("it says what the keeper does not understand"),
            }
        }
    }

    /// A switch serves, for the first time. `died`: the end of the one before.
    fn serves(&mut self, died: Option<Instant>) {
        self.was_ready = true;
        self.pauses.serves();
        if self.requests.is_none() {
            // The directory may have been made by the switch, and be named by a link.
            let folder = self.options.socket.parent().and_then(|folder| folder.canonicalize().ok());
            let named = folder.zip(self.options.socket.file_name()).map(|(folder, name)| folder.join(name));
            let listening = Requests::listen(named.as_deref().unwrap_or(&self.options.socket));
            let failed =
                |why| tracing::error!("{} cannot be had: no upgrade is possible: {why}", self.options.socket.display());
            self.requests = listening.map_err(failed).ok();
        }
        match self.upgrade.take() {
            Some(Upgrade { request, phase: Phase::Starting(ended), .. }) => {
                let pause = ended.elapsed();
                request
                    .answer(&Answer::done(format!("upgraded: the new switch serves after {} ms", pause.as_millis())));
                self.executable = Some(request.into_executable());
                (self.notify)(Event::Upgraded(pause));
            }
            other => {
                self.upgrade = other;
                died.into_iter().for_each(|died| (self.notify)(Event::Again(died.elapsed())));
            }
        }
    }
}

/// Sends what was left, as much as there is room for, with the files of `only` these names, if it says so. Returns false if it has to be tried again after a while.
fn send_left(store: &Store, switch: &Switch, unsent: &mut VecDeque<Message>, only: Option<&[&str]>) -> bool {
    while let Some(message) = unsent.front() {
        let files = match message {
            // What a switch does is no matter to a process that only looks.
            Message::Begin { .. } if only.is_none() => store.page().into_iter().map(AsFd::as_fd).collect(),
            Message::Left { name, .. } if only.is_none_or(|only| only.contains(&&**name)) => store.files(name),
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

impl Serving {
    /// A switch that was just started.
    fn new(switch: Switch, opening: Opening, unsent: VecDeque<Message>, died: Option<Instant>) -> Self {
        Self {
            switch,
            opening,
            unsent,
            send_at: None,
            died,
            begun: Instant::now(),
            ready: None,
            alive: None,
            is_ending: false,
            looks: Looks::default(),
            look_at: None,
            hung: None,
            death: None,
        }
    }

    /// When the switch is killed, if it does not do what it should.
    fn kill_at<C, N>(&self, keeper: &Keeper<C, N>) -> Option<Instant> {
        let told = keeper.told_to_end.map(|told| told + keeper.options.end_within);
        // The service manager, or the user, judges how long the first one may take.
        let late = (keeper.was_ready && self.ready.is_none()).then(|| self.begun + SERVES_WITHIN);
        told.into_iter().chain(late).min()
    }
}

/// Returns true if a process ended by what it did itself.
fn is_its_own(status: &ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let own = [Signal::SEGV, Signal::BUS, Signal::ILL, Signal::ABORT, Signal::FPE, Signal::TRAP, Signal::SYS];
    status.signal().is_none_or(|signal| own.iter().any(|own| own.as_raw() == signal))
}

/// Returns true if a process was killed.
fn is_by_kill(status: &ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(Signal::KILL.as_raw())
}

fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 })
}
