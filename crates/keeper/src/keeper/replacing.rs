//! The keeper replaces itself by another version, in place: it executes that, and its children stay its children.
//!
//! Descriptors cannot be kept in order over execve(2) without trusting numbers. So a process of the new version, the carrier, gets all that the old
//! keeper has, as a successor of the switch does, and says that it understands it. Then the old keeper executes the new version, whose standard input
//! is the carrier's socket, and the carrier gives everything back. Meanwhile nobody hears the switch, which goes on: what it says waits in its socket.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, sockopt};
use rustix::process::{DumpableBehavior, Pid, set_dumpable_behavior};
use serde::{Deserialize, Serialize};

use super::grants::Grants;
use super::requests::Requests;
use super::switch::{Switch, has_ended};
use crate::child::{NotStarted, from_stdin, standard_input};
use crate::link::LEFT_WITHIN;
use crate::message::{BYTES_MOST, Message, Received, State, receive, send};

/// The name of what the keeper has for itself. It comes first: what has this name later is the switch's.
const OWN: &str = "keeper";
/// The version of what it says.
const VERSION: u32 = 1;

/// What the keeper has for itself. Beside it are the sockets of the switch and of the opener, the grants, the listener, the client that has asked, and what the
/// switch executes.
#[derive(Debug, Deserialize, Serialize)]
struct Own {
    version: u32,
    /// The number of the switch, and whether it handles signals.
    switch: i32,
    hears: bool,
    /// The numbers of the opener and of the carrier.
    opener: i32,
    carrier: i32,
    /// The path of the listener.
    path: Vec<u8>,
}

/// The carrier, as the old keeper sees it.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) process: Switch,
    /// What it is still to be told: the keeper's own first.
    own: Option<Message>,
    unsent: VecDeque<Message>,
    is_prepared: bool,
    is_loading: bool,
    /// Too many descriptors are on their way.
    waits: bool,
}

/// What the old keeper gives the carrier.
pub(super) struct Given<'k> {
    pub(super) switch: &'k Switch,
    pub(super) opener: &'k Switch,
    pub(super) grants: BorrowedFd<'k>,
    pub(super) requests: &'k Requests,
    pub(super) client: BorrowedFd<'k>,
    pub(super) executable: BorrowedFd<'k>,
}

impl Carrier {
    pub(super) fn new(process: Switch) -> Self {
        Self { process, own: None, unsent: VecDeque::new(), is_prepared: false, is_loading: false, waits: false }
    }

    /// Returns true if nobody hears the switch: what it has kept is on its way.
    pub(super) fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// What to wait for, and whether there is something to send.
    pub(super) fn ends(&self) -> (&OwnedFd, bool) {
        (&self.process.socket, self.has_more() && !self.waits)
    }

    /// Returns true if it has to be looked soon whether it can go on.
    pub(super) fn looks_again(&self) -> bool {
        !self.is_loading || self.waits
    }

    fn has_more(&self) -> bool {
        self.own.is_some() || !self.unsent.is_empty()
    }

    /// Gives the carrier what there is room for. Returns true once it has everything. `may_begin`: nothing keeps it from that. `left`: what to give, beside
    /// the keeper's own.
    ///
    /// # Errors
    /// It ends, or does not understand what it gets.
    pub(super) fn go_on<'k>(
        &mut self,
        given: &Given<'k>,
        may_begin: bool,
        left: impl FnOnce() -> VecDeque<Message>,
        files: impl Fn(&Message) -> Vec<BorrowedFd<'k>>,
    ) -> Result<bool, String> {
        if let Some(state) = self.hear()? {
            match (state, self.is_loading) {
                (State::Prepared, false) => self.is_prepared = true,
                (State::Fits, true) if !self.has_more() => return Ok(true),
                _ => return Err("the new keeper says what the old one does not understand".to_owned()),
            }
        }
        if self.is_prepared && !self.is_loading && may_begin {
            self.is_loading = true;
            let own = self.own(given).map_err(|why| format!("the keeper cannot say what it has: {why}"))?;
            (self.own, self.unsent) = (Some(own), left());
        }
        self.waits = false;
        while let Some(message) = self.own.as_ref().or(self.unsent.front()) {
            let Given { switch, opener, grants, requests, client, executable } = given;
            let its = if self.own.is_some() {
                vec![switch.socket.as_fd(), opener.socket.as_fd(), *grants, requests.listener(), *client, *executable]
            } else {
                files(message)
            };
            match send(&*self.process.socket, message, &its, SendFlags::DONTWAIT) {
                Ok(()) if self.own.take().is_some() => {}
                Ok(()) => _ = self.unsent.pop_front(),
                Err(Errno::AGAIN) => break,
                Err(Errno::TOOMANYREFS | Errno::NOMEM | Errno::NOBUFS) => {
                    self.waits = true;
                    break;
                }
                Err(why) => return Err(format!("the new keeper does not hear the old one: {why}")),
            }
        }
        Ok(false)
    }

    fn own(&self, given: &Given<'_>) -> io::Result<Message> {
        let number = |switch: &Switch| i32::try_from(switch.number()).unwrap_or(0);
        let own = Own {
            version: VERSION,
            switch: number(given.switch),
            hears: given.switch.hears,
            opener: number(given.opener),
            carrier: number(&self.process),
            path: given.requests.path_bytes(),
        };
        Ok(Message::Left { name: OWN.to_owned(), note: serde_json::to_vec(&own)? })
    }

    fn hear(&self) -> Result<Option<State>, String> {
        let mut heard = vec![0; BYTES_MOST + 1];
        match receive(&*self.process.socket, &mut heard, RecvFlags::DONTWAIT) {
            Ok(Received::Message { message: Message::Is(state), files, .. }) if files.is_empty() => Ok(Some(state)),
            Err(Errno::AGAIN | Errno::INTR) if !has_ended(&self.process.process) => Ok(None),
            _ => Err("the new keeper does not understand what the old one has".to_owned()),
        }
    }
}

/// A message with files, as it was given.
type Carried = (Message, Vec<OwnedFd>);

/// Is the carrier: takes what the old keeper has, and gives it to the new one.
///
/// # Errors
/// There is no keeper, or it has what this version does not understand.
pub fn carry() -> Result<(), NotStarted> {
    let socket = from_stdin(c"ringway-carrier")?;
    // Its memory has what the descriptors of all clients are for.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let say = |state| send(&socket, &Message::Is(state), &[], SendFlags::empty());
    say(State::Prepared)?;
    let all = receive_all(&socket)?;
    own(&all)?;
    say(State::Fits)?;
    // The old keeper is the new one then.
    let mut heard = vec![0; BYTES_MOST + 1];
    match receive(&socket, &mut heard, RecvFlags::empty())? {
        Received::Message { message: Message::Is(State::Prepared), .. } => {}
        _ => return Err(NotStarted::Keeper),
    }
    for (message, files) in &all {
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        loop {
            match send(&socket, message, &files, SendFlags::empty()) {
                Err(Errno::TOOMANYREFS | Errno::NOMEM | Errno::NOBUFS | Errno::INTR) => {
                    std::thread::sleep(super::switch::SEND_AGAIN);
                }
                sent => break sent?,
            }
        }
    }
    Ok(())
}

/// Receives what the keeper gives, or the carrier, up to the last message.
fn receive_all(socket: &OwnedFd) -> Result<Vec<Carried>, NotStarted> {
    let (mut all, mut bytes) = (Vec::new(), vec![0; BYTES_MOST + 1]);
    loop {
        let Received::Message { message, files, whole: true } = receive(socket, &mut bytes, RecvFlags::empty())? else {
            return Err(NotStarted::Keeper);
        };
        let is_last = message == Message::All;
        all.push((message, files));
        if is_last {
            return Ok(all);
        }
    }
}

fn own(all: &[Carried]) -> Result<Own, NotStarted> {
    let Some((Message::Left { name, note }, files)) = all.first() else { return Err(NotStarted::Keeper) };
    let own: Own = serde_json::from_slice(note).map_err(|_| NotStarted::Keeper)?;
    let is_understood = name == OWN && own.version == VERSION && files.len() == 6;
    is_understood.then_some(own).ok_or(NotStarted::Keeper)
}

/// What a keeper has that has taken the place of another one.
pub(super) struct Resumed {
    pub(super) switch: Switch,
    pub(super) opener: Switch,
    /// What both execute.
    pub(super) executable: OwnedFd,
    pub(super) starts: u32,
    pub(super) grants: Grants,
    pub(super) requests: Requests,
    pub(super) client: OwnedFd,
    /// The [page](crate::page).
    pub(super) page: Option<OwnedFd>,
    /// What the switch has kept.
    pub(super) left: Vec<Carried>,
}

/// Takes what the old keeper had from the carrier, which is the standard input.
///
/// # Errors
/// The carrier ended, or a process has.
pub(super) fn resume() -> Result<Resumed, NotStarted> {
    let socket = standard_input()?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LEFT_WITHIN))?;
    send(&socket, &Message::Is(State::Prepared), &[], SendFlags::empty())?;
    let mut all = receive_all(&socket)?;
    let own = own(&all)?;
    let mut left = all.split_off(1);
    let files: Result<[OwnedFd; 6], _> = all.remove(0).1.try_into();
    let [switch, opener, grants, listener, client, executable] = files.map_err(|_| NotStarted::Keeper)?;
    let number = |raw| Pid::from_raw(raw).ok_or(NotStarted::Keeper);
    let lost = |_: io::Error| NotStarted::Keeper;
    let mut switch = Switch::of(number(own.switch)?, switch).map_err(lost)?;
    switch.hears = own.hears;
    let opener = Switch::of(number(own.opener)?, opener).map_err(lost)?;
    // It ends now. Dropping this waits for it.
    drop(Switch::of(number(own.carrier)?, socket));
    let Some((Message::Begin { starts, .. }, page)) = (!left.is_empty()).then(|| left.remove(0)) else {
        return Err(NotStarted::Keeper);
    };
    left.pop();
    Ok(Resumed {
        switch,
        opener,
        executable,
        starts,
        grants: Grants::of(grants).map_err(lost)?,
        requests: Requests::of(own.path, listener),
        client,
        page: page.into_iter().next(),
        left,
    })
}
