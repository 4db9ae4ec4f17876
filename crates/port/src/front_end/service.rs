//! Serves the socket of a port: one peer at a time, on a thread of the port's own.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_keeper::Link;

use super::access::SocketAccess;
use super::answers::Answers;
use super::closer::{Owners, new_owner};
use super::connection::Connection;
use super::connector::Connector;
use super::end::{CALL_BLOCKED, End};
use super::files::is_peeked;
use super::kept::{Kept, Left, warn_closed};
use super::listener::Files;
use super::observer::Observer;
use super::pauses::Pauses;
use super::peer::{Outliving, Peer};
use super::role::Role;
use super::taking_over::TakingOver;
use super::thread::{Stop, Thread};

/// The pause while closes of a port wait for its peer.
const UNCLOSED_PAUSE: Duration = Duration::from_millis(100);

/// What a port kind does with connections. The methods run on the port's own thread, in the order in which they stand here,
/// from `open` on once for each connection.
pub trait Protocol: Send + 'static {
    /// Whether connections outlive the switch, where there is a keeper. [`Peer::kept`] and [`Peer::take_left`] are for that.
    const OUTLIVES: bool = false;

    /// The thread has started.
    fn start(&mut self) {}

    /// Prepares the port for a connection. `kept`: it outlives the switch; a predecessor may have had it, and then this runs before
    /// the port's own thread is there, so that frames can flow when the port is there. The observer is told of the connection afterwards.
    ///
    /// # Errors
    /// The kernel refuses, or the port cannot go on with the connection. It is closed.
    fn open(&mut self, socket: &Arc<Connection>, kept: Option<&Kept>) -> io::Result<()> {
        let _ = (socket, kept);
        Ok(())
    }

    /// Serves the connection to its end, which is returned.
    fn serve(&mut self, peer: &Peer<'_>) -> Result<Infallible, End>;

    /// Closes the connection and resets the port. Returns true if a call to the peer blocked the thread that made it.
    fn close(&mut self, socket: Arc<Connection>) -> bool;

    /// The observer was told of the end of the connection.
    fn closed(&mut self) {}
}

/// The socket of a port.
pub struct Socket<'a> {
    /// `SWITCH:PORT`, for the thread's name.
    pub label: &'a str,
    /// Its path.
    pub path: &'a Path,
    /// Who listens.
    pub role: Role,
    /// Who may connect to the socket of a server.
    pub access: &'a SocketAccess,
    /// What happens to files that peers send.
    pub files: Files,
    /// Holds what outlives the switch; `None`: nothing does.
    pub keeper: Option<&'a Link>,
}

/// A running service. Dropping it ends the thread and the connection, and removes the socket.
pub struct Service {
    _thread: Thread,
}

/// A socket that is open, and not served yet. What a predecessor left of connections is where it was.
pub struct OpenSocket<'a> {
    socket: &'a Socket<'a>,
    connector: Connector,
}

impl<'a> Socket<'a> {
    /// Listens, or is ready to connect.
    ///
    /// # Errors
    /// The socket cannot be opened, or the kernel has no descriptors left.
    pub fn open(&'a self) -> io::Result<OpenSocket<'a>> {
        let connector = Connector::open_kept(self.role, self.path, self.files, self.access, self.keeper)?;
        Ok(OpenSocket { socket: self, connector })
    }
}

impl Service {
    /// Listens, or begins to connect, and serves `protocol` to the peers.
    ///
    /// # Errors
    /// The socket cannot be opened, or the kernel has no descriptors or threads left.
    pub fn start<P: Protocol>(socket: &Socket<'_>, protocol: P, observer: Arc<dyn Observer>) -> io::Result<Service> {
        socket.open()?.serve(protocol, observer)
    }
}

impl OpenSocket<'_> {
    /// Serves `protocol` to the peers.
    ///
    /// # Errors
    /// The kernel has no threads left.
    pub fn serve<P: Protocol>(self, mut protocol: P, observer: Arc<dyn Observer>) -> io::Result<Service> {
        let Self { socket: &Socket { label, path, role, access: _, files, keeper }, connector } = self;
        let owners = (files == Files::Taken).then(Owners::default);
        let pauses = Pauses::new(role);
        let place = format!("{role:?} {files:?} {}", path.display());
        let keeping = keeper.filter(|keeper| P::OUTLIVES && keeper.is_kept());
        let keeping = keeping.map(|keeper| Keeping {
            link: keeper.clone(),
            label: label.to_owned(),
            path: path.to_owned(),
            place,
        });
        // Here, not on the thread: what no open port has asked for is let go.
        let left = keeping.as_ref().and_then(|keeping| keeping.take_over(files));
        let left = left.and_then(|left| left.open(label, &mut protocol));
        let thread = Thread::start(label, Arc::clone(&observer), move |stop| {
            let mut connections = Connections { connector, owners, keeping, left };
            serve(&mut connections, &mut protocol, pauses, &*observer, &stop);
            // Before the protocol: the front end's memory can take long to release.
            drop(connections);
        })?;
        Ok(Service { _thread: thread })
    }
}

/// How connections outlive the switch.
pub(super) struct Keeping {
    link: Link,
    label: String,
    path: PathBuf,
    /// How the port makes connections, in words that are compared only.
    place: String,
}

/// A connection that outlives the switch. The keeper lets it go before it is closed here.
pub(super) struct Outlives {
    socket: Arc<Connection>,
    kept: Kept,
    answers: Answers,
    /// If a predecessor had it.
    left: Option<(Left, TakingOver)>,
}

impl Keeping {
    /// Has the keeper hold a connection that was just made.
    fn keep(&self, socket: &Arc<Connection>) -> io::Result<Outlives> {
        let answers = Answers::new()?;
        let kept = Kept::new(&self.link, (&self.label, &self.path), &self.place, socket, &answers)?;
        Ok(Outlives { socket: Arc::clone(socket), kept, answers, left: None })
    }

    /// The connection that a predecessor left. One that does not fit is closed: its peer connects again.
    fn take_over(&self, files: Files) -> Option<Outlives> {
        let taken = Kept::take_over(&self.link, (&self.label, &self.path), &self.place)?;
        let taken = taken.map_err(|why| why.to_owned()).and_then(|taken| {
            let socket = Connection::from(taken.socket);
            if files == Files::Taken {
                socket.accept_files_of_left(new_owner()).map_err(|why| why.to_string())?;
            }
            let answers = Answers::of(taken.answers, !is_peeked(&*socket)).map_err(|why| why.to_string())?;
            Ok(Outlives {
                socket: Arc::new(socket),
                kept: taken.kept,
                answers,
                left: Some((taken.left, TakingOver::begin())),
            })
        });
        taken.inspect_err(|why| warn_closed(&self.label, why)).ok()
    }
}

impl Outlives {
    /// Prepares the port for a connection that a predecessor left. One that the port cannot go on with is closed: its peer connects again.
    fn open(self, label: &str, protocol: &mut impl Protocol) -> Option<Self> {
        let Err(why) = protocol.open(&self.socket, Some(&self.kept)) else { return Some(self) };
        warn_closed(label, &why.to_string());
        let Self { socket, kept, .. } = self;
        drop(kept);
        protocol.close(socket);
        None
    }
}

/// Where the connections of a port come from.
pub(super) struct Connections {
    pub(super) connector: Connector,
    /// Whose closes the files of peers count among; none: peers send no files.
    pub(super) owners: Option<Owners>,
    /// How connections outlive the switch, if they do.
    pub(super) keeping: Option<Keeping>,
    /// The connection that a predecessor left. The port is prepared for it.
    pub(super) left: Option<Outlives>,
}

/// Serves one connection after the other until the thread has to stop.
pub(super) fn serve(
    connections: &mut Connections,
    protocol: &mut impl Protocol,
    mut pauses: Pauses,
    observer: &dyn Observer,
    stop: &Stop,
) {
    let Connections { connector, owners, keeping, left } = connections;
    protocol.start();
    loop {
        // The port waits when several earlier peers keep their files from being closed.
        let mut is_told = false;
        while let Some(Err(text)) = owners.as_mut().map(Owners::check) {
            if !std::mem::replace(&mut is_told, true) {
                observer.fault("unclosed_descriptors", text);
            }
            if stop.wait_timeout(UNCLOSED_PAUSE) {
                return;
            }
        }
        let (socket, opened) = match left.take() {
            Some(left) => (Arc::clone(&left.socket), Ok(Some(left))),
            None => {
                let Some(socket) = connector.next(stop).map(Arc::new) else { return };
                let outlives = keeping.as_ref().map(|keeping| keeping.keep(&socket)).transpose();
                let opened = outlives.and_then(|outlives| {
                    protocol.open(&socket, outlives.as_ref().map(|outlives| &outlives.kept)).map(|()| outlives)
                });
                (socket, opened)
            }
        };
        let since = Instant::now();
        // The closes of earlier peers do not count against this one.
        if let (Some(owners), Some(owner)) = (owners.as_mut(), socket.owner()) {
            owners.note(owner);
        }
        let (end, kept) = match opened {
            Err(_) => (End::Disconnected, None),
            Ok(outlives) => {
                let (kept, rest) = outlives.map(|Outlives { kept, answers, left, .. }| (kept, (left, answers))).unzip();
                let outliving = kept.as_ref().zip(rest);
                let outliving = outliving.map(|(kept, (left, answers))| Outliving { kept, left, answers });
                // Reported only when frames can flow: a user that waits for this event may send at once.
                observer.connected(true);
                let Err(end) = protocol.serve(&Peer::new(&socket, stop, observer, connector.listener(), outliving));
                (end, kept)
            }
        };
        // Before this process and the closer close theirs: the keeper must not be the last one, as a client can have that wait.
        drop(kept);
        let blocked = protocol.close(socket);
        let fault = match end {
            End::Stop => return,
            End::Disconnected => blocked.then_some(CALL_BLOCKED),
            End::Fault(name, text) => {
                observer.fault(name, text);
                Some(name)
            }
        };
        let pause = pauses.after(fault, since.elapsed());
        observer.connected(false);
        protocol.closed();
        if stop.wait_timeout(pause) {
            return;
        }
    }
}
