//! The keeper's side.
//!
//! One thread, which never waits for the switch: messages to it are sent when there is room, and what a close waits for is left to threads of
//! their own.

mod closing;
mod death;
mod grants;
mod hang;
mod hurry;
mod left;
mod next;
mod opening;
mod options;
mod pauses;
mod replacing;
mod requests;
mod serving;
mod signals;
mod standby;
mod store;
mod switch;
mod upgrade;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior, setrlimit};
use signal_hook::consts::SIGCHLD;

use crate::link::HANDED_OVER;
use crate::message::{BYTES_MOST, Message, Received, State, receive, send};
use crate::page::{FIRST_SLOT, note_hang};
use crate::request::Answer;
use death::Death;
use grants::Grants;
use hang::{LOOK_EVERY, Looks, SUSPECT_AFTER};
use hurry::Hurry;
use left::send_left;
use next::Next;
use opening::Opening;
pub use options::{Ended, Event, Options, Role};
use pauses::Pauses;
pub use replacing::carry;
use replacing::{Carrier, Given, Resumed, resume};
use requests::{Request, Requests, answer};
use serving::{End, SERVES_WITHIN, Serving, is_by_kill};
use signals::{Signals, has_come};
use standby::Standby;
use store::Store;
use switch::{SEND_AGAIN, Switch, has_ended};
use upgrade::{Check, Phase, Upgrade};

/// Most messages of the switch between two looks at everything else. Its socket has room for fewer.
const MESSAGES_MOST: usize = 1024;
/// The service manager is told no more often that all is well.
const ALIVE_EVERY: Duration = Duration::from_millis(5);
/// Most switches that a signal ends before the first one has served.
const FIRST_STARTS: u32 = 5;

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
    let resumed = if options.resumes { Some(resume().map_err(io::Error::other)?) } else { None };
    let mut keeper = Keeper {
        options,
        notify,
        signals,
        store: Store::new(files_most()),
        requests: None,
        grants: Grants::new()?,
        executable: None,
        upgrade: None,
        standby: Standby::default(),
        told_to_end: None,
        is_last: false,
        was_ready: false,
        pauses: Pauses::default(),
    };
    let serving = resumed.map(|resumed| keeper.resume(resumed));
    let ended = keeper.run(serving);
    keeper.standby.end();
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
    standby: Standby,
    told_to_end: Option<Instant>,
    /// No other switch follows this one: it was started to end in order what one that died has left.
    is_last: bool,
    /// A switch has served.
    was_ready: bool,
    pauses: Pauses,
}

impl<C: FnMut(&Path, Role) -> Command, N: FnMut(Event)> Keeper<C, N> {
    /// `serving`: a switch that another keeper has started.
    fn run(&mut self, mut serving: Option<Serving>) -> io::Result<Ended> {
        let (mut starts, mut end, mut died) = (0, String::new(), None);
        loop {
            let next = match serving.take() {
                Some(serving) => Ok(serving),
                None => self.next(starts, &end, died),
            };
            let ended = match next {
                Err(why) if starts == 0 => return Err(why),
                next => next.map(|serving| {
                    starts = serving.starts;
                    self.serve(serving)
                }),
            };
            starts += 1;
            died = Some(Instant::now());
            end = match &ended {
                Ok(end) => end.text(),
                Err(why) => format!("it could not be started: {why}"),
            };
            if let Some(upgrade) = self.upgrade.take() {
                match upgrade.phase {
                    Phase::HandingOver(_) if self.told_to_end.is_some() => {
                        upgrade.refuse("the daemon ends");
                        // A last switch ends in order what this one has left.
                        HANDED_OVER.clone_into(&mut end);
                        self.is_last = true;
                        continue;
                    }
                    _ if self.told_to_end.is_some() => upgrade.refuse("the daemon ends"),
                    Phase::HandingOver(_) => {
                        // One that dies meanwhile by its own doing has died.
                        if ended.as_ref().is_ok_and(|ended| ended.status.success() || !ended.is_its_own()) {
                            HANDED_OVER.clone_into(&mut end);
                        }
                        self.upgrade = Some(upgrade.start(Instant::now()));
                        continue;
                    }
                    Phase::Starting { .. } => {
                        let why = format!("the new version did not serve ({end}): the old one does again");
                        upgrade.refuse(&why);
                        (self.notify)(Event::NotUpgraded(why));
                        continue;
                    }
                    Phase::Checking(_) | Phase::Preparing(_) | Phase::Replacing(_) => {
                        upgrade.refuse("the switch died meanwhile, and is started again: try again")
                    }
                }
            }
            // The signal that has ended the switch may have been for the keeper, too.
            if has_come(&self.signals.end) {
                self.told_to_end.get_or_insert_with(Instant::now);
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

    /// Another switch: the one that waits for that, or one that is started now.
    fn next(&mut self, starts: u32, end: &str, died: Option<Instant>) -> io::Result<Serving> {
        let prepared = match &mut self.upgrade {
            Some(upgrade) => upgrade.take_prepared(),
            None => self.standby.take(),
        };
        // It has done what others would wait for: it starts no processes any more.
        let hurry = prepared.as_ref().and_then(|next| Hurry::begin(next.switch.process_number()));
        let next = prepared.map_or_else(|| self.start(Role::Switch), Ok)?;
        let begin = Message::Begin { starts, failed: self.pauses.failed(), end: end.to_owned() };
        Ok(Serving { starts, died, hurry, ..Serving::new(next, self.left(begin)) })
    }

    /// Goes on where another keeper was.
    fn resume(&mut self, resumed: Resumed) -> Serving {
        let Resumed { switch, opener, executable, starts, grants, requests, client, page, left } = resumed;
        let next = Next { switch, opening: Opening::of(upgrade::program(&executable), opener) };
        self.executable = Some(executable);
        self.store.use_page(page);
        for (message, files) in left {
            if let Message::Left { name, note } = message {
                self.store.keep(name, note, files, true);
            }
        }
        (self.grants, self.requests, self.was_ready) = (grants, Some(requests), true);
        self.standby.serves();
        answer(&client, &Answer::done("the keeper is replaced; \"ringway upgrade\" replaces the switch"));
        (self.notify)(Event::Replaced);
        let (now, death) = (Instant::now(), self.watch(&next.switch));
        let (ready, look_at) = (Some(now), Some(now + SUSPECT_AFTER));
        Serving { starts, ready, look_at, death, ..Serving::new(next, VecDeque::new()) }
    }

    /// Waits for the death of a switch.
    fn watch(&self, switch: &Switch) -> Option<Death> {
        Death::watch(self.store.page()?, switch.number(), &switch.process).ok()
    }

    /// Starts a switch.
    fn start(&mut self, role: Role) -> io::Result<Next> {
        let program = self.executable.as_ref().map_or_else(|| PathBuf::from("/proc/self/exe"), upgrade::program);
        let switch = Switch::start((self.options.command)(&program, role))?;
        Ok(Next { switch, opening: Opening::new(program) })
    }

    /// Has a switch wait for the death of the present one.
    fn stand_by(&mut self) {
        if self.told_to_end.is_some() || self.upgrade.is_some() {
            return;
        }
        if self.standby.is_due() {
            let started = self.start(Role::Next);
            self.standby.begin(started);
        }
        self.standby.go_on(&self.grants, |program| (self.options.command)(program, Role::NextOpener));
    }

    /// All that is kept, in messages.
    fn left(&self, begin: Message) -> VecDeque<Message> {
        std::iter::once(begin).chain(self.store.left()).chain([Message::All]).collect()
    }

    /// Returns how the keeper ends, or `None` if it starts another switch.
    fn end_after(&self, status: ExitStatus) -> Option<Ended> {
        let ended = |status| Some(Ended { status });
        match status.code() {
            Some(0) if self.told_to_end.is_some() => ended(0),
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
                // While nobody else has its number.
                serving.hurry = None;
                let Serving { switch, .. } = serving;
                let (status, socket) = match ends {
                    Some(status) => switch.leave(status),
                    None => switch.end(),
                };
                // A successor does not wait for it.
                if status.success() && !self.hands_over() {
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
            if !serving.switch.is_killed()
                && serving
                    .kill_at(self.told_to_end.map(|told| told + self.options.end_within), self.was_ready)
                    .is_some_and(|at| at <= Instant::now())
            {
                if self.told_to_end.is_none() {
                    tracing::error!("the switch does not serve after {SERVES_WITHIN:?}: it is killed");
                    serving.hung = Some(FIRST_SLOT);
                }
                serving.switch.signal(Signal::KILL);
            }
            if !self.is_loading() {
                self.hear(&mut serving);
                let Serving { switch, opening, .. } = &mut serving;
                opening.go_on(switch, &self.grants, |program| (self.options.command)(program, Role::Opener));
            }
            serving.hurry = serving.hurry.filter(|hurry| hurry.until > Instant::now());
            serving.send_at = serving.send_at.filter(|at| *at > Instant::now());
            if serving.send_at.is_none() && !self.send_left(&mut serving) {
                serving.send_at = Some(Instant::now() + SEND_AGAIN);
            }
            self.go_on_with_upgrade(&serving);
            self.stand_by();
            self.end_if_it_hangs(&mut serving);
        }
    }

    /// Returns how a switch ended that is dead already, if not for the kernel. A last one is waited for: nothing is left of it when the keeper ends.
    fn status_of_dying(&self, serving: &mut Serving) -> Option<ExitStatus> {
        // Without a status, the pidfd tells, and no signal cuts a core file.
        let status = serving.death.take_if(|death| has_ended(&death.told))?.status()?;
        serving.switch.signal(Signal::KILL);
        Some(status).filter(|_| self.told_to_end.is_none())
    }

    /// Returns true if the switch was told to leave everything to another version.
    fn hands_over(&self) -> bool {
        matches!(&self.upgrade, Some(Upgrade { phase: Phase::HandingOver(_), .. }))
    }

    /// Returns true while another keeper gets what this one has: nothing changes.
    fn is_loading(&self) -> bool {
        let carrier = self.upgrade.as_ref().and_then(|upgrade| upgrade.phase.carrier());
        carrier.is_some_and(Carrier::is_loading)
    }

    /// Looks whether a switch that should say that all is well hangs, if it is time for that, and ends it then.
    fn end_if_it_hangs(&mut self, serving: &mut Serving) {
        let now = Instant::now();
        // One that was told to end is given its time by `kill_at`.
        let is_watched = self.told_to_end.is_none() && !serving.switch.is_killed();
        serving.look_at = serving.look_at.filter(|_| is_watched);
        // Nobody hears while another keeper gets everything that all is well.
        if serving.look_at.is_none_or(|at| at > now) || self.is_loading() {
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
        let told_until = serving.kill_at(self.told_to_end.map(|told| told + self.options.end_within), self.was_ready);
        let upgrade_until = self.upgrade.as_ref().filter(|_| self.told_to_end.is_none()).map(|upgrade| upgrade.until);
        let request_until = self.requests.as_ref().and_then(Requests::wake_at);
        let next = self.upgrade.as_ref().and_then(|upgrade| upgrade.phase.preparing());
        let next_at = next.and_then(|next| next.opening.wake_at());
        let (opening_at, look_at) = (serving.opening.wake_at(), serving.look_at.filter(|_| !self.is_loading()));
        let standby_at = self.standby.wake_at().filter(|_| self.upgrade.is_none() && self.told_to_end.is_none());
        // Nothing tells when the last descriptor is closed, or when fewer are on their way.
        let carrier = self.upgrade.as_ref().and_then(|upgrade| upgrade.phase.carrier());
        let quiet_at = carrier.filter(|carrier| carrier.looks_again()).map(|_| Instant::now() + SEND_AGAIN);
        let opens_at = [opening_at, next_at, standby_at, quiet_at].into_iter().flatten().min();
        let hurry_until = serving.hurry.as_ref().map(|hurry| hurry.until);
        let wake_at = [serving.send_at, hurry_until, told_until, upgrade_until, request_until, opens_at, look_at];
        let wake_at = wake_at.into_iter().flatten().min();
        let wait = wake_at.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        let both = PollFlags::IN | PollFlags::OUT;
        let sends = (!serving.unsent.is_empty() && serving.send_at.is_none()) || serving.opening.sends();
        let reloads = if serving.switch.hears { PollFlags::IN } else { PollFlags::empty() };
        ends.push(PollFd::new(&self.signals.reload, reloads));
        if !self.is_loading() {
            ends.push(PollFd::new(&*serving.switch.socket, if sends { both } else { PollFlags::IN }));
        }
        if let Some(carrier) = carrier {
            let (socket, sends) = carrier.ends();
            ends.push(PollFd::new(socket, if sends { both } else { PollFlags::IN }));
        }
        let opener = serving.opening.process().filter(|_| !self.is_loading());
        ends.extend(opener.map(|process| PollFd::new(process, PollFlags::IN)));
        let waits = self.standby.ends().filter(|_| self.upgrade.is_none() && self.told_to_end.is_none());
        ends.extend(waits.map(|end| PollFd::new(end, PollFlags::IN)));
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
        if let Some(Next { switch, .. }) = next {
            ends.push(PollFd::new(&switch.process, PollFlags::IN));
            ends.push(PollFd::new(&*switch.socket, PollFlags::IN));
        }
        let _ = poll(&mut ends, wait.as_ref());
    }

    /// Begins an upgrade, and its next phase.
    fn go_on_with_upgrade(&mut self, serving: &Serving) {
        if self.told_to_end.is_some() {
            let before = |upgrade: &mut Upgrade| {
                matches!(upgrade.phase, Phase::Checking(_) | Phase::Preparing(_) | Phase::Replacing(_))
            };
            self.upgrade.take_if(before).into_iter().for_each(|upgrade| upgrade.refuse("the daemon ends"));
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
                let only = Some(self.options.checked);
                send_left(&self.store, &check.process, &mut check.unsent, only, 1);
                if !has_ended(&check.process.process) {
                    if is_late {
                        return self
                            .give_up(&upgrade, "the new version does not say whether it understands what is kept");
                    }
                    self.upgrade = Some(upgrade);
                    return;
                }
                match check.refusal() {
                    Some(why) => self.give_up(&upgrade, &why),
                    None => self.prepare(upgrade),
                }
            }
            Phase::Replacing(carrier) => {
                let done = self.give(serving, carrier, upgrade.request.client());
                match done {
                    Ok(false) if is_late && self.store.is_closing() => {
                        self.give_up(&upgrade, "clients keep descriptors from being closed: try again later");
                    }
                    Ok(false) if is_late => self.give_up(&upgrade, "the new keeper does not take what the old one has"),
                    Ok(false) => self.upgrade = Some(upgrade),
                    Ok(true) => {
                        let why = self.replace(&upgrade);
                        self.give_up(&upgrade, &why);
                    }
                    Err(why) => self.give_up(&upgrade, &why),
                }
            }
            Phase::Preparing(next) => {
                let command = |program: &Path| (self.options.command)(program, Role::NextOpener);
                next.opening.go_on(&next.switch, &self.grants, command);
                match next.is_prepared() {
                    Ok(false) if is_late => self.give_up(&upgrade, "the new version does not prepare itself in time"),
                    Ok(false) => self.upgrade = Some(upgrade),
                    Ok(true)
                        if send(&*serving.switch.socket, &Message::HandOver, &[], SendFlags::DONTWAIT).is_err() =>
                    {
                        self.give_up(&upgrade, "the switch does not hear the keeper");
                    }
                    Ok(true) => {
                        serving.death.iter().for_each(Death::is_in_order);
                        self.upgrade = Some(upgrade.hand_over());
                    }
                    Err(why) => self.give_up(&upgrade, &why),
                }
            }
            Phase::HandingOver(_) | Phase::Starting { .. } => {
                if is_late && !serving.switch.is_killed() {
                    serving.switch.signal(Signal::KILL);
                }
                self.upgrade = Some(upgrade);
            }
        }
    }

    /// Gives another keeper what this one has. Returns true once it has everything.
    fn give(&self, serving: &Serving, carrier: &mut Carrier, client: BorrowedFd<'_>) -> Result<bool, String> {
        let (Some(opener), Some(requests), Ok(grants)) = (serving.opening.known(), &self.requests, self.grants.file())
        else {
            return Err("the switch has just been started: try again".to_owned());
        };
        // What waits to be closed here would have to be closed by execve(2).
        let is_quiet = serving.unsent.is_empty() && serving.ready.is_some() && !self.store.is_closing();
        let executable = match &self.executable {
            Some(executable) => executable.try_clone(),
            None => std::fs::File::open("/proc/self/exe").map(OwnedFd::from),
        };
        let executable = executable.map_err(|why| format!("the switch's program cannot be had: {why}"))?;
        let (executable, grants) = (executable.as_fd(), grants.as_fd());
        let given = Given { switch: &serving.switch, opener, grants, requests, client, executable };
        let begin = Message::Begin { starts: serving.starts, failed: 0, end: String::new() };
        carrier.go_on(
            &given,
            is_quiet,
            || self.left(begin),
            |message| match message {
                Message::Begin { .. } => self.store.page().into_iter().map(AsFd::as_fd).collect(),
                Message::Left { name, .. } => self.store.files(name),
                _ => Vec::new(),
            },
        )
    }

    /// Becomes another keeper. Returns why not.
    fn replace(&mut self, upgrade: &Upgrade) -> String {
        let Phase::Replacing(carrier) = &upgrade.phase else { return String::new() };
        let socket = match carrier.process.socket.try_clone() {
            Ok(socket) => socket,
            Err(why) => return why.to_string(),
        };
        (self.notify)(Event::Replacing);
        // One that comes from now on waits for the new keeper.
        let come = [&self.signals.end, &self.signals.reload].map(|signal| PollFd::new(signal, PollFlags::IN));
        if poll(&mut { come }, Some(&Timespec::default())) != Ok(0) {
            return "a signal has come meanwhile: try again".to_owned();
        }
        let program = upgrade::program(&upgrade.request.executable);
        let why = (self.options.command)(&program, Role::Keeper).stdin(Stdio::from(socket)).exec();
        // It was the standard input already.
        let nothing = std::fs::File::open("/dev/null");
        nothing.into_iter().for_each(|nothing| _ = rustix::stdio::dup2_stdin(&nothing));
        self.standby.serves();
        format!("it cannot be executed: {why}")
    }

    fn begin_upgrade(&mut self, request: Request) {
        if request.is_for_keeper {
            // While the switch is heard.
            std::mem::take(&mut self.standby).end();
            let program = upgrade::program(&request.executable);
            match Switch::start((self.options.command)(&program, Role::Carrier)) {
                Ok(process) => self.upgrade = Some(Upgrade::replace(request, Carrier::new(process))),
                Err(why) => {
                    self.standby.serves();
                    let why = format!("it cannot be executed: {why}");
                    request.answer(&Answer::refused(&*why));
                    (self.notify)(Event::NotUpgraded(why));
                }
            }
            return;
        }
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

    /// Starts the new version, which waits for the end of the old one.
    fn prepare(&mut self, upgrade: Upgrade) {
        let program = upgrade::program(&upgrade.request.executable);
        match Switch::start((self.options.command)(&program, Role::Next)) {
            Ok(switch) => self.upgrade = Some(upgrade.prepare(Next { switch, opening: Opening::new(program) })),
            Err(why) => self.give_up(&upgrade, &format!("it cannot be executed: {why}")),
        }
    }

    fn give_up(&mut self, upgrade: &Upgrade, why: &str) {
        // One that waited was ended for the keeper's replacement.
        self.standby.serves();
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
                Message::Keep { name, note } => {
                    self.store.keep(name, note, files, whole);
                    if self.store.is_overrun() {
                        return serving.switch.end_for("it gives the keeper more descriptors than can be closed");
                    }
                }
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
                        let now = Instant::now();
                        (serving.ready, serving.look_at) = (Some(now), Some(now + SUSPECT_AFTER));
                        serving.death = self.watch(&serving.switch);
                        serving.hurry = None;
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
                // Its own word for it: another one is started, if nobody else wants it to end.
                Message::Is(State::Stopping) if self.told_to_end.is_none() => {}
                Message::Is(state) => (self.notify)(Event::Is(state)),
                _ => return serving.switch.end_for("it says what the keeper does not understand"),
            }
        }
    }

    /// Sends what was left to a switch that was started.
    fn send_left(&self, serving: &mut Serving) -> bool {
        // One of an older version, whose keeper was replaced, does not understand messages about several names. The one after it gets others.
        let names = if self.pauses.failed() == 0 { usize::MAX } else { 1 };
        send_left(&self.store, &serving.switch, &mut serving.unsent, None, names)
    }

    /// A switch serves, for the first time. `died`: the end of the one before.
    fn serves(&mut self, died: Option<Instant>) {
        self.was_ready = true;
        self.pauses.serves();
        self.standby.serves();
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
            Some(Upgrade { request, phase: Phase::Starting { ended, .. }, .. }) => {
                let pause = ended.elapsed();
                request
                    .answer(&Answer::done(format!("upgraded: the new switch serves after {} ms", pause.as_millis())));
                self.executable = Some(request.into_executable());
                // It is of the old version.
                drop(self.standby.take());
                self.standby.serves();
                (self.notify)(Event::Upgraded(pause));
            }
            other => {
                self.upgrade = other;
                died.into_iter().for_each(|died| (self.notify)(Event::Again(died.elapsed())));
            }
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 3600, tv_nsec: 0 })
}
