//! The server of `attach.sock`: one thread and any number of clients. A client can only end its own port.
//!
//! A client has two seconds for its request. Registrations, which touch memory of the client, are made on other threads
//! (`registering`), and so is memory mapped that a client brings (`mapping`). The kernel refuses descriptors that a client sends, or another thread closes
//! them. The message with a client's memory stays in the socket, because reading it could close descriptors
//! (`front_end::peek_bytes`). The server answers a message that is not a request with the reason. After the dialogue the open
//! connection only means that the client lives: when the connection ends, however that happens, the port ends too.
//!
//! - `host`: what the server asks of the daemon. `send`: messages to clients.
//! - `connection`: a connection, and how many of them a process may have.
//! - `lasting`: clients that outlive the switch.
//! - `thread`: what the server's thread has. `events`: its loop. `requests`: messages of clients, and the attach dialogue.
//!   `ends`: how connections end. `limits`: their time limits.
//! - `netmap`: the netmap dialogue, on connections whose first message says so. `netmap_requests`: their messages. `registering`: their
//!   registrations.

mod connection;
mod ends;
mod events;
mod host;
mod lasting;
mod limits;
mod mapping;
mod netmap;
mod netmap_requests;
mod queue;
mod registering;
mod requests;
mod send;
mod thread;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use queue::{Command, Queue};
use ringway_keeper::Link;
use ringway_memory::release_by;
use ringway_runtime::{PanicCounter, contain, run_or_exit};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::SocketType;

use super::external::ExternalFiles;
pub use host::{Asker, Change, ClientId, Grant, Host, Listed, NetmapHost, Refusal};
pub use limits::TimeLimits;
use ringway_port::front_end::{Files, SocketAccess, listen_at, return_in_background};

#[cfg(test)]
pub(super) use requests::TRAP;
use thread::{COMMANDS, FIRST_CLIENT, LISTENER, Server};

/// The running server. Dropping it ends the server and removes the ports of its clients.
pub struct AttachServer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
    keeper: Link,
}

impl AttachServer {
    /// Listens at `path`, with access for those of `access`.
    ///
    /// # Errors
    /// The kernel refuses the socket, the path or the thread.
    pub fn start(path: &Path, access: &SocketAccess, host: Box<dyn Host>, keeper: &Link) -> io::Result<AttachServer> {
        Self::start_with(path, access, host, TimeLimits::default(), keeper)
    }

    /// The same with other time limits.
    ///
    /// # Errors
    /// The kernel refuses the socket, the path or the thread.
    pub fn start_with(
        path: &Path,
        access: &SocketAccess,
        host: Box<dyn Host>,
        limits: TimeLimits,
        keeper: &Link,
    ) -> io::Result<AttachServer> {
        let (listener, files) = listener_at(path, access, keeper)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let queue = Arc::new(Queue { commands: Mutex::new(Vec::new()), wake });
        release_by(|process, work| return_in_background([process; 2], work));
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &queue.wake, EventData::new_u64(COMMANDS), EventFlags::IN)?;
        let spare_fd = Some(listener.try_clone()?);
        let mut server = Server {
            host,
            spare_fd,
            listener,
            earlier_listeners: Vec::new(),
            files,
            epoll,
            queue: Arc::clone(&queue),
            keeper: keeper.clone(),
            clients: HashMap::new(),
            external: ExternalFiles::default(),
            next: FIRST_CLIENT,
            asking: 0,
            limits,
            pending: VecDeque::new(),
            at: None,
            at_host: false,
            strikes: PanicCounter::default(),
        };
        server.take_over(keeper);
        let thread = std::thread::Builder::new().name("attach".into()).spawn(move || {
            run_or_exit("attach", || {
                while let Err(place) = contain(|| server.run()) {
                    server.recover(place);
                }
            });
        })?;
        Ok(AttachServer { queue, thread: Some(thread), path: path.to_owned(), keeper: keeper.clone() })
    }

    /// Listens at its path once more, which somebody has removed, with access for those of `access`. Its clients stay.
    ///
    /// # Errors
    /// The kernel refuses the socket or the path.
    pub fn listen_again(&self, access: &SocketAccess) -> io::Result<()> {
        let (listener, files) = listener_at(&self.path, access, &self.keeper)?;
        self.queue.send(Command::Listen { listener, files, path: self.path.clone() });
        Ok(())
    }

    /// Returns a handle that ends clients from other threads.
    #[must_use]
    pub fn disconnector(&self) -> Disconnector {
        Disconnector { queue: Arc::clone(&self.queue) }
    }
}

/// Makes a listening socket at `path`, with this access. Returns what happens to files that clients send.
fn listener_at(path: &Path, access: &SocketAccess, keeper: &Link) -> io::Result<(OwnedFd, Files)> {
    let (listener, refuses_files) = listen_at(path, SocketType::SEQPACKET, 128, access, keeper)?;
    Ok((listener, if refuses_files { Files::Refused } else { Files::Taken }))
}

/// Ends clients of an [`AttachServer`].
#[derive(Clone)]
pub struct Disconnector {
    queue: Arc<Queue>,
}

impl Disconnector {
    /// Sends the reason to the client and closes its connection. Does not call the host's `detach`: the caller removes
    /// the port.
    pub fn end(&self, client: ClientId, reason: String) {
        self.queue.send(Command::End(client, reason));
    }
}

impl Drop for AttachServer {
    fn drop(&mut self) {
        self.queue.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.path);
    }
}
