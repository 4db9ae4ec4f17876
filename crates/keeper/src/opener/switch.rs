//! The switch's side.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::{RecvFlags, SendFlags, Shutdown, shutdown, sockopt};

use super::ask::{Ask, BYTES_MOST, Refusal, Reply, Said};
use crate::message::{receive_files, send_bytes};

/// Longest wait for the opener to take a question. It takes each at once, unless it was stopped.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// Longest wait for an answer while the opener owes one and gives none: a caller with many questions waits for one of them only.
const LATE_WITHIN: Duration = Duration::from_millis(20);

/// The opener, as the switch sees it. Clones are the same one. The default has none: this process opens for itself.
#[derive(Clone, Debug, Default)]
pub struct Opener(Option<Arc<Mutex<Asked>>>);

/// The present process, and the questions to it.
#[derive(Debug, Default)]
struct Asked {
    /// A thread hears answers.
    listens: bool,
    /// An answer did not come in time, and no other one has since.
    is_late: bool,
    socket: Option<Arc<OwnedFd>>,
    next: u64,
    waiting: HashMap<u64, Sender<Result<Reply, Refusal>>>,
}

impl Opener {
    /// An opener that is not there yet.
    #[must_use]
    pub fn absent() -> Self {
        Self(Some(Arc::default()))
    }

    /// Asks this process from now on. What the one before has not answered it never will.
    pub fn is_at(&self, socket: OwnedFd) {
        let Some(asked) = &self.0 else { return };
        // A stopped opener holds up its caller only so long.
        let _ = sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(TAKEN_WITHIN));
        let socket = Arc::new(socket);
        let (before, listens) = {
            let mut asked = asked.lock();
            asked.waiting.clear();
            asked.is_late = false;
            (asked.socket.replace(Arc::clone(&socket)), asked.listens)
        };
        // Its thread reads the end.
        before.map(|before| shutdown(&*before, Shutdown::Both));
        if listens {
            start(asked, socket);
        }
    }

    /// Starts to hear answers. Before, no thread is started, and nothing can be asked.
    pub(crate) fn listen(&self) {
        let Some(asked) = &self.0 else { return };
        let socket = {
            let mut asked = asked.lock();
            asked.listens = true;
            asked.socket.clone()
        };
        socket.into_iter().for_each(|socket| start(asked, socket));
    }

    /// Returns true if there is one, though it may have ended.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.is_some()
    }

    /// Asks, and waits for the answer at most so long. `None`: there is no opener, and this process opens for itself.
    pub fn ask(&self, ask: &Ask, files: &[BorrowedFd<'_>], within: Duration) -> Option<io::Result<Reply>> {
        let asked = self.0.as_ref()?;
        Some(ask_at(asked, ask, files, within))
    }

    /// The same for what has no answer but that it is done.
    pub fn ask_done(&self, ask: &Ask, files: &[BorrowedFd<'_>], within: Duration) -> Option<io::Result<Vec<OwnedFd>>> {
        Some(self.ask(ask, files, within)?.and_then(|reply| match reply.said {
            Said::Done => Ok(reply.files),
            other => Err(io::Error::other(format!("the opener says {other:?}"))),
        }))
    }
}

fn start(asked: &Arc<Mutex<Asked>>, socket: Arc<OwnedFd>) {
    let hears = Arc::clone(asked);
    let thread = std::thread::Builder::new().name("opener".to_owned()).spawn(move || listen(&hears, &socket));
    if let Err(why) = thread {
        tracing::error!("nothing can be opened: no thread: {why}");
        asked.lock().socket = None;
    }
}

fn ask_at(asked: &Mutex<Asked>, ask: &Ask, files: &[BorrowedFd<'_>], within: Duration) -> io::Result<Reply> {
    let gone = || io::Error::other("the process that opens devices and sockets has ended: another one is started");
    let (answered, answer) = channel();
    let (socket, token, is_late) = {
        let mut asked = asked.lock();
        asked.next += 1;
        let token = asked.next;
        let socket = asked.socket.clone().ok_or_else(gone)?;
        asked.waiting.insert(token, answered);
        (socket, token, asked.is_late)
    };
    let within = if is_late { within.min(LATE_WITHIN) } else { within };
    let mut bytes = token.to_ne_bytes().to_vec();
    let written = serde_json::to_writer(&mut bytes, ask).map_err(io::Error::from);
    let fits =
        written.and_then(|()| if bytes.len() <= BYTES_MOST { Ok(()) } else { Err(io::ErrorKind::FileTooLarge.into()) });
    let sent = fits.and_then(|()| {
        // One that is late may read nothing.
        let flags = if is_late { SendFlags::DONTWAIT } else { SendFlags::empty() };
        Ok(send_bytes(&*socket, &bytes, files, flags)?)
    });
    let answer = sent.and_then(|()| match answer.recv_timeout(within) {
        Ok(answer) => answer.map_err(io::Error::from),
        Err(RecvTimeoutError::Disconnected) => Err(gone()),
        Err(RecvTimeoutError::Timeout) => {
            asked.lock().is_late = true;
            Err(io::Error::new(io::ErrorKind::TimedOut, "the process that opens devices and sockets has not answered"))
        }
    });
    // An answer that comes later is closed.
    asked.lock().waiting.remove(&token);
    answer
}

/// Hands out answers until the opener has ended.
fn listen(asked: &Mutex<Asked>, socket: &Arc<OwnedFd>) {
    let mut bytes = vec![0; BYTES_MOST + 1];
    loop {
        let Ok((length @ 1.., files)) = receive_files(&**socket, &mut bytes, RecvFlags::empty()) else { break };
        let Some((token, said)) = bytes[..length].split_first_chunk::<8>() else { break };
        let said: Result<Result<Said, Refusal>, _> = serde_json::from_slice(said);
        let Ok(said) = said else { break };
        let waiting = {
            let mut asked = asked.lock();
            asked.is_late = false;
            asked.waiting.remove(&u64::from_ne_bytes(*token))
        };
        let reply = said.map(|said| Reply { said, files });
        let unwanted = match waiting {
            Some(waiting) => waiting.send(reply).err().map(|unsent| unsent.0),
            None => Some(reply),
        };
        // Who asked has given up. The kernel may let the last close of a device wait: this thread does not.
        if let Some(unwanted) = unwanted {
            let _ = std::thread::Builder::new().name("close-unwanted".to_owned()).spawn(move || drop(unwanted));
        }
    }
    let mut asked = asked.lock();
    if asked.socket.as_ref().is_some_and(|now| Arc::ptr_eq(now, socket)) {
        asked.socket = None;
        asked.waiting.clear();
    }
}
