//! A port's own thread: serves one peer at a time, and sends the rest of a frame that the socket took in part.
//!
//! While a peer is connected, the thread closes further connections at once. A peer that sends an impossible length loses its
//! connection, and the port waits for the next peer.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_switch::giving;
use rustix::event::{PollFd, PollFlags};

use super::Settings;
use super::framing::MOST_BYTES;
use super::line::{Ended, Line};
use crate::front_end::{Backoff, Connection, Files, Listener, Observer, Stop, Thread, wait};
use crate::vhost_user::Role;

/// Pause between two connections, so that peers that disconnect at once do not occupy a core.
const BETWEEN: Duration = Duration::from_millis(10);
/// Pauses after a fault: of a listening port, of a connecting port at first, and of a connecting port at most.
const AFTER_FAULT_SERVER: Duration = Duration::from_millis(100);
const AFTER_FAULT_CLIENT: Duration = Duration::from_secs(1);
const LONGEST_AFTER_FAULT: Duration = Duration::from_secs(10);

/// Starts the port's thread. Dropping it ends the thread, its connection and its socket.
///
/// # Errors
/// The socket cannot be opened, or the kernel has no descriptors or threads left.
pub fn start(settings: &Settings, line: Arc<Line>, observer: Arc<dyn Observer>) -> io::Result<Thread> {
    let way = match settings.role {
        Role::Server => Way::Listen(Listener::bind(&settings.socket, Files::Refused)?),
        Role::Client => Way::Connect(settings.socket.clone()),
    };
    let backoff = match way {
        Way::Listen(_) => Backoff::listening(AFTER_FAULT_SERVER),
        Way::Connect(_) => Backoff::connecting(AFTER_FAULT_CLIENT, LONGEST_AFTER_FAULT),
    };
    let told = Arc::clone(&observer);
    Thread::start(&settings.label, told, move |stop| PortThread { way, line, observer, stop, backoff }.run())
}

/// How connections are made.
enum Way {
    Listen(Listener),
    Connect(PathBuf),
}

struct PortThread {
    way: Way,
    line: Arc<Line>,
    observer: Arc<dyn Observer>,
    stop: Stop,
    backoff: Backoff,
}

impl PortThread {
    fn run(mut self) {
        while let Some(socket) = self.next_connection().map(Arc::new) {
            let since = Instant::now();
            let ended = match self.line.open(&socket) {
                // Reported only when frames can flow: a user that waits for this event may send at once.
                Ok(()) => {
                    self.observer.connected(true);
                    self.serve(&socket)
                }
                // The kernel has no memory for the epoll entry.
                Err(_) => Some(Ended::Gone),
            };
            self.line.close(&socket);
            drop(socket);
            let rest = match ended {
                None => return,
                Some(Ended::Gone) => BETWEEN,
                Some(Ended::NoLength(length)) => {
                    let text = format!("a frame of {length} bytes was announced; none has more than {MOST_BYTES}");
                    self.observer.fault("bad_length", text);
                    self.backoff.after_fault(since.elapsed())
                }
                Some(Ended::Files) => {
                    self.observer.fault("unexpected_descriptors", "files came with frames".into());
                    self.backoff.after_fault(since.elapsed())
                }
            };
            self.observer.connected(false);
            if self.stop.within(rest) {
                return;
            }
        }
    }

    /// Waits for the next peer. Returns `None` when the port is being removed.
    fn next_connection(&self) -> Option<Connection> {
        match &self.way {
            Way::Connect(path) => self.stop.or_connect(path, Files::Refused),
            Way::Listen(listener) => self.stop.or_accept(listener),
        }
    }

    /// Serves one connection to its end. Returns `None` when the port is being removed.
    fn serve(&self, socket: &Connection) -> Option<Ended> {
        let (mut has_rest, mut turn_away_from) = (false, Instant::now());
        loop {
            let listener = match &self.way {
                Way::Listen(listener) if Instant::now() >= turn_away_from => Some(listener),
                _ => None,
            };
            let later = matches!(self.way, Way::Listen(_)) && listener.is_none();
            let mut fds =
                vec![PollFd::new(&self.stop, PollFlags::IN), PollFd::from_borrowed_fd(self.line.news(), PollFlags::IN)];
            // Only while there is something to send. The input detects that the peer has disconnected, after the peer's
            // last frames.
            fds.extend(has_rest.then(|| PollFd::new(socket, PollFlags::OUT)));
            fds.extend(listener.map(|listener| PollFd::new(listener, PollFlags::IN)));
            wait(&mut fds, later.then_some(turn_away_from));
            let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            if ready(0) {
                return None;
            }
            if ready(1) {
                self.line.take_news();
                if let Some(ended) = self.line.ended() {
                    return Some(ended);
                }
            }
            if ready(1) || has_rest {
                // Other ports' clients chose the frames, so a panic here is not blamed on this port's client.
                match giving(|| self.line.sending.lock().send_on()) {
                    Ok(more) => has_rest = more,
                    Err(ended) => return Some(ended),
                }
            }
            if let Some(listener) = listener.filter(|_| ready(fds.len() - 1)) {
                drop(listener.accept());
                turn_away_from = Instant::now() + BETWEEN;
            }
        }
    }
}
