//! The switch's side: what a predecessor left, and what a successor will find.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::MemfdFlags;
use rustix::net::{RecvFlags, SendFlags, sockopt};

use crate::child::{NotStarted, from_stdin};
use crate::message::{BYTES_MOST, Entry, FILES_MOST, Message, NAME_MOST, NOTE_MOST, Received, State, receive, send};
use crate::opener::Opener;

/// Longest wait for the keeper to take a message. It takes each at once, unless it was stopped.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// Most bytes that are kept as a file.
const BYTES_KEPT_MOST: u64 = 64 << 20;
/// The end of a switch that has handed over.
pub(crate) const HANDED_OVER: &str = "it has handed over";
/// Longest wait for what a predecessor left.
pub(crate) const LEFT_WITHIN: Duration = Duration::from_secs(10);

/// The end of the switch before this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// How many switches the keeper has started before.
    pub starts: NonZeroU32,
    /// How many of them, in a row, died before they served.
    pub failed: u32,
    /// How the last one ended, for users: `signal 9`.
    pub end: String,
}

impl Predecessor {
    /// Returns true if one of them has served.
    #[must_use]
    pub fn has_served(&self) -> bool {
        self.failed < self.starts.get()
    }

    /// Returns true if the last one has handed over: it did not die.
    #[must_use]
    pub fn handed_over(&self) -> bool {
        self.end == HANDED_OVER
    }
}

/// What a predecessor left under a name.
#[derive(Debug)]
pub struct Inherited {
    /// The whole name, for [`Guard::of`].
    pub name: String,
    /// The note, as it was written last.
    pub note: Vec<u8>,
    /// The files, in the same order.
    pub files: Vec<OwnedFd>,
}

/// The switch's end of the keeper. Clones are the same end. The default has no keeper: nothing was left, and nothing is kept.
#[derive(Clone, Debug, Default)]
pub struct Link(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    socket: OwnedFd,
    predecessor: Option<Predecessor>,
    page: Option<OwnedFd>,
    /// By their whole names: a successor of hundreds of ports asks for thousands of them.
    left: Mutex<BTreeMap<String, Inherited>>,
    /// Numbers guards, and messages that are answered. No predecessor had the same ones.
    next: AtomicU64,
    /// Readable once the switch is to hand over.
    hand_over: OwnedFd,
    /// Who waits for a name to be released.
    waiting: Mutex<HashMap<u64, Sender<()>>>,
    opener: Opener,
    /// The opener is not asked.
    opens_itself: AtomicBool,
}

impl Link {
    /// The link of a process that a keeper started, which gets this name: the keeper's socket is its standard input. Ends the process with the keeper. Returns when
    /// all that a predecessor left is here.
    ///
    /// # Errors
    /// There is no keeper, or it ended.
    pub fn from_keeper(name: &CStr) -> Result<Self, NotStarted> {
        Self::over(from_stdin(name)?)
    }

    /// The same, of a process that was started before the switch that it follows has ended ([`Role::Next`](crate::Role::Next)). `prepare`: what it does before it
    /// is the switch. It has the name `ahead` until then.
    ///
    /// # Errors
    /// There is no keeper, it ended, or it has taken another process.
    pub fn from_keeper_ahead(ahead: &CStr, name: &CStr, prepare: impl FnOnce()) -> Result<Self, NotStarted> {
        let socket = from_stdin(ahead)?;
        prepare();
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(TAKEN_WITHIN))?;
        send(&socket, &Message::Is(State::Prepared), &[], SendFlags::empty())?;
        let link = Self::heard(socket)?;
        let _ = rustix::thread::set_name(name);
        Ok(link)
    }

    pub(crate) fn over(socket: OwnedFd) -> Result<Self, NotStarted> {
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LEFT_WITHIN))?;
        Self::heard(socket)
    }

    /// Hears what a predecessor left.
    fn heard(socket: OwnedFd) -> Result<Self, NotStarted> {
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(TAKEN_WITHIN))?;
        let mut bytes = vec![0; BYTES_MOST + 1];
        let (mut predecessor, mut left, mut first) = (None, BTreeMap::new(), 1);
        let (mut cut, mut page, opener) = (Vec::new(), None, Opener::absent());
        loop {
            match receive(&socket, &mut bytes, RecvFlags::empty())? {
                Received::Message { message: Message::Begin { starts, failed, end }, files, .. } => {
                    // The rest follows at once.
                    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LEFT_WITHIN))?;
                    page = files.into_iter().next();
                    first = u64::from(starts) << 40 | 1;
                    predecessor = NonZeroU32::new(starts).map(|starts| Predecessor { starts, failed, end });
                }
                Received::Message { message: Message::Left { name, note }, files, whole } => {
                    // What is not whole is lost, as if it had never been kept.
                    if !whole {
                        cut.push(name);
                    } else {
                        left.insert(name.clone(), Inherited { name, note, files });
                    }
                }
                Received::Message { message: Message::Several(entries), files, .. } => {
                    let mut files = files.into_iter();
                    for Entry { name, note, files: count } in entries {
                        let own: Vec<_> = files.by_ref().take(usize::from(count)).collect();
                        if own.len() == usize::from(count) {
                            left.insert(name.clone(), Inherited { name, note, files: own });
                        } else {
                            // No descriptor is left for the others.
                            cut.push(name);
                        }
                    }
                }
                Received::Message { message: Message::Opener, files, .. } => {
                    files.into_iter().for_each(|file| opener.is_at(file))
                }
                Received::Message { message: Message::All, .. } => break,
                Received::Message { .. } | Received::Nonsense(_) | Received::End => return Err(NotStarted::Keeper),
            }
        }
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, None)?;
        let inner = Inner {
            socket,
            predecessor,
            page,
            left: Mutex::new(left),
            next: AtomicU64::new(first),
            hand_over: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            waiting: Mutex::default(),
            opener,
            opens_itself: AtomicBool::new(false),
        };
        let inner = Arc::new(inner);
        for name in cut {
            inner.say(&Message::Release { token: 0, name }, &[]);
        }
        Ok(Self(Some(inner)))
    }

    /// Starts the threads that hear the keeper and the opener. Before, the process has one thread only, and waits for neither.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn listen(&self) -> Result<(), NotStarted> {
        let Some(inner) = &self.0 else { return Ok(()) };
        inner.opener.listen();
        let hears = Arc::clone(inner);
        let thread = std::thread::Builder::new().name("keeper".to_owned()).spawn(move || hears.listen());
        thread.map(drop).map_err(|_| NotStarted::Keeper)
    }

    /// Returns true if a keeper started this process.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// What opens for the switch what it may not open itself. Without a keeper there is none.
    #[must_use]
    pub fn opener(&self) -> Opener {
        let asked = self.0.as_ref().filter(|inner| !inner.opens_itself.load(Ordering::Relaxed));
        asked.map_or_else(Opener::default, |inner| inner.opener.clone())
    }

    /// Returns true if there is an opener, and it is asked.
    #[must_use]
    pub fn has_opener(&self) -> bool {
        self.0.as_ref().is_some_and(|inner| !inner.opens_itself.load(Ordering::Relaxed))
    }

    /// Opens for itself from now on: this process keeps its privileges.
    pub fn open_here(&self) {
        if let Some(inner) = &self.0 {
            inner.opens_itself.store(true, Ordering::Relaxed);
        }
    }

    /// The switch before this one, if there was one.
    #[must_use]
    pub fn predecessor(&self) -> Option<&Predecessor> {
        self.0.as_ref()?.predecessor.as_ref()
    }

    /// The [page](crate::page) in which the threads of the switch note whose port they serve. `None`: there is no keeper, or it has none.
    #[must_use]
    pub fn page(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_ref()?.page.as_ref()?.as_fd())
    }

    /// Takes what a predecessor left under this name, with [`keep`](Self::keep) or with a [`Guard`]: what was kept last, if a port was being
    /// replaced by another one.
    #[must_use]
    pub fn inherit(&self, name: &str) -> Option<Inherited> {
        self.inherit_rather(name, |_| true)
    }

    /// The same. Of several under this name, takes the newest one whose note is a `preferred` one, if there is one.
    #[must_use]
    pub fn inherit_rather(&self, name: &str, preferred: impl Fn(&[u8]) -> bool) -> Option<Inherited> {
        let mut left = self.0.as_ref()?.left.lock();
        let numbered = format!("{name}#");
        let with_number = left.range(numbered.clone()..).take_while(|(whole, _)| whole.starts_with(&numbered));
        let named = left.get_key_value(name).into_iter().chain(with_number);
        let named = named.filter(|(whole, _)| without_number(whole) == name);
        let best = named.max_by_key(|(whole, left)| (preferred(&left.note), number(whole)));
        let best = best.map(|(whole, _)| whole.clone())?;
        left.remove(&best)
    }

    /// Returns true if a predecessor left something, under a name without its number that is a `wanted` one, that nobody has taken.
    #[must_use]
    pub fn has_left(&self, wanted: impl Fn(&str) -> bool) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.left.lock().keys().any(|whole| wanted(without_number(whole))))
    }

    /// Returns the names, without numbers, of what a predecessor left and nobody has taken, that begin like this.
    #[must_use]
    pub fn left(&self, prefix: &str) -> Vec<String> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let left = inner.left.lock();
        let from_there = left.range(prefix.to_owned()..).map(|(name, _)| name);
        from_there.take_while(|name| name.starts_with(prefix)).map(|whole| without_number(whole).to_owned()).collect()
    }

    /// Takes what a predecessor left under names that begin like this, in the order in which it was kept.
    #[must_use]
    pub fn inherit_all(&self, prefix: &str) -> Vec<Inherited> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let mut left = inner.left.lock();
        let from_there = left.range(prefix.to_owned()..).map(|(name, _)| name);
        let names: Vec<_> = from_there.take_while(|name| name.starts_with(prefix)).cloned().collect();
        in_order(names.into_iter().filter_map(|name| left.remove(&name)))
    }

    /// Takes what a predecessor left under `wanted` names, with their numbers, in the order in which it was kept.
    #[must_use]
    pub fn inherit_where(&self, wanted: impl Fn(&str) -> bool) -> Vec<Inherited> {
        let Some(inner) = &self.0 else { return Vec::new() };
        in_order(inner.left.lock().extract_if(.., |name, _| wanted(name)).map(|(_, left)| left))
    }

    /// Has the keeper hold these files, with this note, for a successor. What it held under this name before is closed.
    ///
    /// # Errors
    /// The keeper does not take it, or the name, the note or the number of files is too large.
    pub fn keep(&self, name: &str, note: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Some(inner) = &self.0 else { return Ok(()) };
        if name.is_empty() || name.len() > NAME_MOST || note.len() > NOTE_MOST || files.len() > FILES_MOST {
            return Err(io::Error::other(format!("{name}: too much to be kept")));
        }
        let message = Message::Keep { name: name.to_owned(), note: note.to_owned() };
        Ok(send(&inner.socket, &message, files, SendFlags::empty())?)
    }

    /// Has the keeper hold these bytes under this name, as many as they are.
    ///
    /// # Errors
    /// See [`keep`](Self::keep), or the kernel has no memory left.
    pub fn keep_bytes(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if !self.is_kept() {
            return Ok(());
        }
        let file: OwnedFd = rustix::fs::memfd_create("ringway-kept", MemfdFlags::CLOEXEC)?;
        let mut file = File::from(file);
        file.write_all(bytes)?;
        self.keep(name, &[], &[file.as_fd()])
    }

    /// Takes the bytes that a predecessor left under this name.
    #[must_use]
    pub fn inherit_bytes(&self, name: &str) -> Option<Vec<u8>> {
        let file = File::from(self.inherit(name)?.files.into_iter().next()?);
        // Anything else might never end.
        let meta = file.metadata().ok().filter(|meta| meta.is_file() && meta.len() <= BYTES_KEPT_MOST)?;
        let mut bytes = vec![0; usize::try_from(meta.len()).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        Some(bytes)
    }

    /// Has the keeper close what predecessors left and nobody has taken, but for what `stays` by its name with its number. Returns the names.
    pub fn give_up(&self, stays: impl Fn(&str) -> bool) -> Vec<String> {
        let given_up = self.inherit_where(|name| !stays(name));
        // The files are closed here first: the keeper closes the last copies, on threads that may wait.
        let names: Vec<_> = given_up.into_iter().map(|Inherited { name, .. }| name).collect();
        names.iter().for_each(|name| self.release(name));
        names
    }

    /// Has the keeper close what it holds under this name, without waiting for that.
    pub fn release(&self, name: &str) {
        if let Some(inner) = &self.0 {
            inner.say(&Message::Release { token: 0, name: name.to_owned() }, &[]);
        }
    }

    /// The same, and waits until it is closed, or the time has passed.
    pub fn release_within(&self, name: &str, time: Duration) {
        self.begin_release(name).wait(time);
    }

    /// Waits until the keeper has heard everything that was said so far, or the time has passed.
    pub fn wait_until_heard(&self, time: Duration) {
        // Nothing has this name.
        self.release_within("", time);
    }

    /// Has the keeper close what it holds under this name. The caller can wait for the result.
    fn begin_release(&self, name: &str) -> Releasing {
        let Some(inner) = &self.0 else { return Releasing(None) };
        let (done, is_done) = channel();
        let token = inner.next.fetch_add(1, Ordering::Relaxed);
        inner.waiting.lock().insert(token, done);
        if inner.say(&Message::Release { token, name: name.to_owned() }, &[]) {
            return Releasing(Some(is_done));
        }
        inner.waiting.lock().remove(&token);
        Releasing(None)
    }

    /// A descriptor that is readable, as an eventfd is, once the switch is to end at the boundary of a batch and to leave everything to a
    /// successor. `None`: there is no keeper.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn hand_over_signal(&self) -> io::Result<Option<OwnedFd>> {
        self.0.as_ref().map(|inner| inner.hand_over.try_clone()).transpose()
    }

    /// Tells the keeper that the switch handles signals. It has kept them back until now.
    pub fn hears_signals(&self) {
        if let Some(inner) = &self.0 {
            inner.say(&Message::Hears, &[]);
        }
    }

    /// Tells the keeper what the switch is about.
    pub fn is(&self, state: State) {
        if let Some(inner) = &self.0 {
            inner.say(&Message::Is(state), &[]);
        }
    }
}

/// In the order in which it was kept.
fn in_order(left: impl Iterator<Item = Inherited>) -> Vec<Inherited> {
    let mut all: Vec<_> = left.collect();
    all.sort_by_key(|left| number(&left.name));
    all
}

/// A name without the number of a guard.
fn without_number(whole: &str) -> &str {
    whole.rsplit_once('#').map_or(whole, |(name, _)| name)
}

/// The number at the end of a guard's name: the later it was made, the higher.
fn number(whole: &str) -> u64 {
    whole.rsplit_once('#').and_then(|(_, number)| number.parse().ok()).unwrap_or(0)
}

impl Inner {
    /// Returns false if the keeper does not take the message.
    fn say(&self, message: &Message, files: &[BorrowedFd<'_>]) -> bool {
        send(&self.socket, message, files, SendFlags::empty())
            .inspect_err(|why| tracing::error!("the keeper does not answer: {why}"))
            .is_ok()
    }

    /// Hears what the keeper says, until it ends.
    fn listen(&self) {
        let mut bytes = vec![0; BYTES_MOST + 1];
        while let Ok(Received::Message { message, files, .. }) = receive(&self.socket, &mut bytes, RecvFlags::empty()) {
            match message {
                Message::Released { token } => {
                    let waiting = self.waiting.lock().remove(&token);
                    // Who waited may have given up.
                    waiting.map(|waiting| waiting.send(()));
                }
                Message::Opener => files.into_iter().for_each(|file| self.opener.is_at(file)),
                Message::HandOver => _ = rustix::io::write(&self.hand_over, &1_u64.to_ne_bytes()),
                _ => {}
            }
        }
    }
}

/// A name of its own under which the keeper holds something, released when this is dropped. Drop it after the files of its own.
#[derive(Debug)]
pub struct Guard {
    link: Link,
    name: String,
    wait: Option<Duration>,
}

impl Guard {
    /// Keeps files under this name, with a number behind it, until the guard is dropped. `wait`: dropping it waits so long for the files to be
    /// closed. Without a keeper, nothing is kept.
    ///
    /// # Errors
    /// See [`Link::keep`].
    pub fn new(
        link: &Link,
        name: &str,
        note: &[u8],
        files: &[BorrowedFd<'_>],
        wait: Option<Duration>,
    ) -> io::Result<Self> {
        let number = link.0.as_ref().map_or(0, |inner| inner.next.fetch_add(1, Ordering::Relaxed));
        let name = format!("{name}#{number}");
        link.keep(&name, note, files)?;
        Ok(Self { link: link.clone(), name, wait })
    }

    /// Keeps these instead, under the same name.
    ///
    /// # Errors
    /// See [`Link::keep`].
    pub fn replace(&self, note: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.link.keep(&self.name, note, files)
    }

    /// The guard of what a predecessor left under this name.
    #[must_use]
    pub fn of(link: &Link, name: String, wait: Option<Duration>) -> Self {
        Self { link: link.clone(), name, wait }
    }
}

/// A name that the keeper is about to release.
#[derive(Debug)]
pub struct Releasing(Option<Receiver<()>>);

impl Releasing {
    /// Waits until what it held is closed, or the time has passed.
    pub fn wait(self, time: Duration) {
        // A failure: the time has passed, or the keeper has ended.
        let _ = self.0.map(|is_done| is_done.recv_timeout(time));
    }
}

impl Guard {
    /// Has the keeper close what it holds. The caller can wait for the result.
    #[must_use]
    pub fn begin_release(self) -> Releasing {
        let releasing = self.link.begin_release(&self.name);
        let Self { link, name, .. } = &mut *std::mem::ManuallyDrop::new(self);
        drop((std::mem::take(link), std::mem::take(name)));
        releasing
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        match self.wait {
            Some(time) => self.link.release_within(&self.name, time),
            None => self.link.release(&self.name),
        }
    }
}
