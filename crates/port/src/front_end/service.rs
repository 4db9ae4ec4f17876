//! Serves the socket of a port: one peer at a time, on a thread of the port's own.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::access::SocketAccess;
use super::closer::Owners;
use super::connection::Connection;
use super::connector::Connector;
use super::end::{CALL_BLOCKED, End};
use super::listener::Files;
use super::observer::Observer;
use super::pauses::Pauses;
use super::peer::Peer;
use super::role::Role;
use super::thread::{Stop, Thread};

/// The pause while closes of a port wait for its peer.
const UNCLOSED_PAUSE: Duration = Duration::from_millis(100);

/// What a port kind does with connections. The methods run on the port's own thread, in the order in which they stand here,
/// from `open` on once for each connection.
pub trait Protocol: Send + 'static {
    /// The thread has started.
    fn start(&mut self) {}

    /// Prepares the port for a new connection. The observer is told of the connection afterwards.
    ///
    /// # Errors
    /// The kernel refuses. The connection is closed.
    fn open(&mut self, socket: &Arc<Connection>) -> io::Result<()> {
        let _ = socket;
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
}

/// A running service. Dropping it ends the thread and the connection, and removes the socket.
pub struct Service {
    _thread: Thread,
}

impl Service {
    /// Listens, or begins to connect, and serves `protocol` to the peers.
    ///
    /// # Errors
    /// The socket cannot be opened, or the kernel has no descriptors or threads left.
    pub fn start(socket: &Socket<'_>, mut protocol: impl Protocol, observer: Arc<dyn Observer>) -> io::Result<Service> {
        let connector = Connector::open(socket.role, socket.path, socket.files, socket.access)?;
        let owners = (socket.files == Files::Taken).then(Owners::default);
        let pauses = Pauses::new(socket.role);
        let thread = Thread::start(socket.label, Arc::clone(&observer), move |stop| {
            serve(&connector, owners, &mut protocol, pauses, &*observer, &stop);
            // Before the protocol: the front end's memory can take long to release.
            drop(connector);
        })?;
        Ok(Service { _thread: thread })
    }
}

/// Serves one connection after the other until the thread has to stop. `owners`: whose closes the files of peers count among; none:
/// peers send no files.
pub(super) fn serve(
    connector: &Connector,
    mut owners: Option<Owners>,
    protocol: &mut impl Protocol,
    mut pauses: Pauses,
    observer: &dyn Observer,
    stop: &Stop,
) {
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
        let Some(socket) = connector.next(stop).map(Arc::new) else { return };
        let since = Instant::now();
        // The closes of earlier peers do not count against this one.
        if let (Some(owners), Some(owner)) = (owners.as_mut(), socket.owner()) {
            owners.note(owner);
        }
        let opened = protocol.open(&socket);
        let opened = opened.map_err(|_| End::Disconnected);
        let Err(end) = opened.and_then(|()| {
            // Reported only when frames can flow: a user that waits for this event may send at once.
            observer.connected(true);
            protocol.serve(&Peer::new(&socket, stop, observer, connector.listener()))
        });
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
