//! The server of `attach.sock`: one thread and any number of clients. A client can only end its own port.
//!
//! A client has two seconds for its request. The kernel refuses descriptors that a client sends, or another thread closes
//! them. The message with a client's memory stays in the socket, because reading it could close descriptors
//! (`front_end::peek`). The server answers a message that is not a request with the reason. After the dialogue the open
//! connection only means that the client lives: when the connection ends, however that happens, the port ends too.
//!
//! - `host`: what the server asks of the daemon. `send`: messages to clients.
//! - `netmap`: the netmap dialogue, on connections whose first message says so.

mod host;
mod netmap;
mod send;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ringway_abi::attach::{MEMORY, REQUEST_BYTES, Reply, Request};
use ringway_abi::netmap::tag_of;
use ringway_engine::{PanicCounter, contain, fatal, run_or_exit, warn_limited};
use ringway_switch::PanicLocation;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};

use super::external::{ExternalFiles, ExternalMemory};
use crate::front_end::{
    Files, accept_files, close_in_background, close_socket_in_background, peek, peer_process, receive, refuse_files,
};
pub use host::{Change, ClientId, Grant, Host, Listed, NetmapHost, Refusal};
use netmap::{Answer, Message, Open};
use send::{send_reason, send_with_descriptors};

/// Time limit for a client's request.
const REQUEST_WITHIN: Duration = Duration::from_secs(2);
/// Most clients without a request at a time. A further client replaces the one that has waited longest.
const MOST_ASKING: usize = 64;
const LISTENER: u64 = 0;
const COMMANDS: u64 = 1;
const FIRST_CLIENT: u64 = 2;

/// A message at which the server panics, in tests.
#[cfg(test)]
pub(super) const TRAP: &[u8] = b"panic";

enum Command {
    End(ClientId, String),
    Stop,
}

struct Queue {
    commands: Mutex<Vec<Command>>,
    wake: OwnedFd,
}

/// The running server. Dropping it ends the server and removes the ports of its clients.
pub struct AttachServer {
    queue: Arc<Queue>,
    thread: Option<JoinHandle<()>>,
    path: PathBuf,
}

impl AttachServer {
    /// Listens at `path`, which must not exist.
    ///
    /// # Errors
    /// The kernel refuses the socket, the path or the thread.
    pub fn start(path: &Path, host: Box<dyn Host>) -> io::Result<AttachServer> {
        Self::start_with(path, host, REQUEST_WITHIN)
    }

    /// Listens at `path`, which must not exist, with another time limit for a client's request.
    ///
    /// # Errors
    /// The kernel refuses the socket, the path or the thread.
    pub fn start_with(path: &Path, host: Box<dyn Host>, request_within: Duration) -> io::Result<AttachServer> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // Accepted sockets inherit this option.
        let files = if refuse_files(&listener) { Files::Refused } else { Files::Taken };
        // Before bind, so that the path has this mode from the start (see `front_end::Listener`).
        rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
        bind(&listener, &SocketAddrUnix::new(path)?)?;
        listen(&listener, 128)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let queue = Arc::new(Queue { commands: Mutex::new(Vec::new()), wake });
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &queue.wake, EventData::new_u64(COMMANDS), EventFlags::IN)?;
        let spare_fd = Some(listener.try_clone()?);
        let mut server = Server {
            host,
            spare_fd,
            listener,
            files,
            epoll,
            queue: Arc::clone(&queue),
            clients: HashMap::new(),
            external: ExternalFiles::default(),
            next: FIRST_CLIENT,
            asking: 0,
            request_within,
            pending: VecDeque::new(),
            at: None,
            at_host: false,
            strikes: PanicCounter::default(),
        };
        let thread = std::thread::Builder::new().name("attach".into()).spawn(move || {
            run_or_exit("attach", || {
                while let Err(place) = contain(|| server.run()) {
                    server.recover(place);
                }
            });
        })?;
        Ok(AttachServer { queue, thread: Some(thread), path: path.to_owned() })
    }

    /// Returns a handle that ends clients from other threads.
    #[must_use]
    pub fn disconnector(&self) -> Disconnector {
        Disconnector { queue: Arc::clone(&self.queue) }
    }
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

impl Queue {
    fn send(&self, command: Command) {
        self.commands.lock().push(command);
        // Only this process has the descriptor; a full counter is as good as a write.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
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

enum State {
    /// Waits for the request, until this time.
    Asking(Instant),
    /// Waits, until this time, for the memory that the request speaks of.
    Sending(Instant, Box<Request>),
    Attached,
    /// A connection of the netmap dialogue.
    Netmap(Open),
}

struct Connection {
    socket: OwnedFd,
    state: State,
    /// The client may send files. They stay in the socket, which this thread does not read then.
    takes_files: bool,
}

struct Server {
    host: Box<dyn Host>,
    listener: OwnedFd,
    /// Whether clients can send files.
    files: Files,
    epoll: OwnedFd,
    queue: Arc<Queue>,
    clients: HashMap<u64, Connection>,
    /// The memories that clients have brought.
    external: ExternalFiles,
    next: u64,
    asking: usize,
    request_within: Duration,
    /// A spare descriptor for [`Server::refuse_without_descriptor`].
    spare_fd: Option<OwnedFd>,
    /// Commands that are still to be executed.
    pending: VecDeque<Command>,
    /// The client that is being served. If the thread panics, this client is disconnected.
    at: Option<u64>,
    /// True while the host is being called. A panic in the host may leave state that the daemon shares with other
    /// threads half changed.
    at_host: bool,
    /// Counts panics that no client caused.
    strikes: PanicCounter,
}

impl Server {
    fn run(&mut self) {
        // Commands that a panic has left.
        if self.run_commands() {
            return self.end_all();
        }
        let mut events = [const { epoll::Event { flags: EventFlags::empty(), data: EventData::new_u64(0) } }; 64];
        loop {
            let timeout = self.until_next_deadline();
            let count = epoll::wait(&self.epoll, &mut events[..], timeout.as_ref()).unwrap_or(0);
            for event in &events[..count] {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    COMMANDS => {
                        if self.run_commands() {
                            return self.end_all();
                        }
                    }
                    client => {
                        self.at = Some(client);
                        self.receive_message(client);
                        self.at = None;
                    }
                }
            }
            self.refuse_late();
        }
    }

    /// Continues after a panic in [`Server::run`]: disconnects the client that was being served. A panic in the host
    /// ends the process.
    #[cold]
    fn recover(&mut self, place: PanicLocation) {
        let what = format!("a defect of Ringway, please report it: the thread \"attach\" failed at {place}");
        if self.at_host {
            fatal(&what);
        }
        let client = self.at.take();
        warn_limited(&format!("{what}, and goes on without {}", if client.is_some() { "the client" } else { "harm" }));
        match client {
            None if self.strikes.count_panic() => fatal(&what),
            None => {}
            Some(id) => {
                if let Some(connection) = self.clients.remove(&id) {
                    let _ = epoll::delete(&self.epoll, connection.socket.as_fd());
                    connection.send_end(&what);
                    self.close(connection.socket, connection.takes_files);
                }
                // The host may have made the client's port already.
                self.detach(id);
                self.unregister(id);
            }
        }
        self.asking = self.clients.values().filter(|c| c.deadline().is_some()).count();
    }

    fn until_next_deadline(&self) -> Option<Timespec> {
        if self.asking == 0 {
            return None;
        }
        let now = Instant::now();
        let first = self.clients.values().filter_map(Connection::deadline).min()?;
        let wait = first.saturating_duration_since(now) + Duration::from_millis(1);
        Some(Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() })
    }

    fn accept(&mut self) {
        let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::MFILE | Errno::NFILE) => return self.refuse_without_descriptor(),
            Err(_) => return,
        };
        if self.asking >= MOST_ASKING {
            let oldest = self.clients.iter().filter_map(|(id, c)| Some((c.deadline()?, *id)));
            if let Some((_, oldest)) = oldest.min() {
                self.refuse(oldest, "too many clients are in the attach dialogue at once; try again");
            }
        }
        let id = self.next;
        self.next += 1;
        let events = EventFlags::IN | EventFlags::RDHUP;
        if epoll::add(&self.epoll, &socket, EventData::new_u64(id), events).is_ok() {
            self.asking += 1;
            let state = State::Asking(Instant::now() + self.request_within);
            self.clients.insert(id, Connection { socket, state, takes_files: false });
        }
    }

    /// No descriptor is left. Frees the spare one to accept and refuse the waiting connection, which would otherwise
    /// wake this thread again and again.
    #[cold]
    fn refuse_without_descriptor(&mut self) {
        self.spare_fd = None;
        if let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            send_reason(&socket, "the switch has no file descriptors left for another client");
            self.close(socket, false);
        }
        self.spare_fd = self.listener.try_clone().ok();
    }

    /// Reads from a connection that has data or has ended.
    fn receive_message(&mut self, id: u64) {
        let Some(connection) = self.clients.get(&id) else { return };
        if connection.takes_files {
            return self.take_memory(id);
        }
        let (mut message, mut files) = ([0; REQUEST_BYTES + 1], Vec::new());
        // SAFETY: `message` is a local array, and nothing else refers to it.
        let received = unsafe { receive(&connection.socket, message.as_mut_ptr(), message.len(), &mut files) };
        close_in_background(files);
        let len = match received {
            Ok(0) => return self.forget(id, true),
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.forget(id, true),
        };
        if matches!(connection.state, State::Attached) {
            return self.refuse(id, "unexpected message: an attached client has nothing more to say");
        }
        #[cfg(test)]
        assert!(&message[..len] != TRAP, "injected");
        if matches!(connection.state, State::Netmap(_)) {
            return self.receive_netmap(id, &message[..len]);
        }
        if ringway_abi::netmap::is_netmap(&message[..len]) {
            return self.open_netmap(id, &message[..len]);
        }
        match Request::decode(&message[..len]) {
            Err(error) => self.refuse(id, &error.to_string()),
            Ok(request) if request.external.is_some() => self.ask_for_memory(id, request),
            Ok(request) => self.attach(id, request, None),
        }
    }

    fn attach(&mut self, id: u64, request: Request, memory: Option<Arc<ExternalMemory>>) {
        self.at_host = true;
        let granted = self.host.attach(ClientId(id), request, memory);
        self.at_host = false;
        match granted {
            Err(reason) => self.refuse(id, &reason),
            Ok(grant) => self.grant(id, grant),
        }
    }

    /// Lets a client send the memory that its request speaks of.
    fn ask_for_memory(&mut self, id: u64, request: Request) {
        self.at_host = true;
        let possible = self.host.check(&request);
        self.at_host = false;
        if let Err(reason) = possible {
            return self.refuse(id, &reason);
        }
        let Some(connection) = self.clients.get_mut(&id) else { return };
        connection.takes_files = true;
        accept_files(&connection.socket);
        connection.state = State::Sending(Instant::now() + self.request_within, Box::new(request));
        if !send_with_descriptors(&connection.socket, &Reply::SendMemory.encode(), &[]) {
            self.forget(id, true);
        }
    }

    /// Takes the memory that a client has sent. The message stays in the socket: reading it could close files.
    fn take_memory(&mut self, id: u64) {
        let Some(Connection { socket, state: State::Sending(_, request), .. }) = self.clients.get(&id) else {
            // Only the end of the connection of an attached client is waited for.
            return self.forget(id, true);
        };
        let (mut message, mut files) = ([0; MEMORY.len() + 1], Vec::new());
        let len = match peek(socket, &mut message, &mut files) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Ok(0) | Err(_) => return self.forget(id, true),
            Ok(len) => len,
        };
        let request = request.as_ref().clone();
        let bytes = request.external.map_or(0, |external| external.bytes);
        let memory = self.external.map(&message[..len], &files, bytes, peer_process(socket));
        refuse_files(socket);
        close_in_background(files);
        match memory {
            Err(error) => self.refuse(id, &error.to_string()),
            Ok(memory) => self.attach(id, request, Some(memory)),
        }
    }

    /// Handles the first message of a connection of the netmap dialogue.
    fn open_netmap(&mut self, id: u64, message: &[u8]) {
        let open = self.clients.values().filter(|c| matches!(c.state, State::Netmap(_))).count();
        match Open::begin(message, open) {
            Err(reason) => self.end_netmap(id, &reason),
            Ok(open) => {
                let Some(connection) = self.clients.get_mut(&id) else { return };
                connection.state = State::Netmap(open);
                self.asking -= 1;
                self.answer(id, &Answer::Message(ringway_abi::netmap::Reply::Done), tag_of(message));
            }
        }
    }

    /// Handles a further message of a connection of the netmap dialogue.
    fn receive_netmap(&mut self, id: u64, message: &[u8]) {
        let Some(State::Netmap(open)) = self.clients.get_mut(&id).map(|connection| &mut connection.state) else {
            return;
        };
        let answer = match Message::decode(message) {
            Err(reason) => return self.end_netmap(id, &reason),
            Ok(Message::Refused(refusal)) => Err(refusal),
            Ok(Message::Request(request)) => {
                self.at_host = true;
                let answer = open.carry_out(self.host.as_mut(), ClientId(id), request);
                self.at_host = false;
                answer
            }
        };
        self.answer(id, &answer.unwrap_or_else(|refusal| Answer::Message(refusal.reply())), tag_of(message));
    }

    /// Sends the answer to the request with this tag, of the netmap dialogue. A client that has let its answers pile up is disconnected.
    fn answer(&mut self, id: u64, answer: &Answer, tag: u64) {
        let Some(connection) = self.clients.get(&id) else { return };
        let State::Netmap(open) = &connection.state else { return };
        if !open.send(&connection.socket, answer, tag) {
            self.forget(id, true);
        }
    }

    fn end_netmap(&mut self, id: u64, reason: &Refusal) {
        if let Some(connection) = self.clients.get(&id) {
            netmap::send_end(&connection.socket, reason);
        }
        self.forget(id, true);
    }

    fn grant(&mut self, id: u64, grant: Grant) {
        let Some(connection) = self.clients.get_mut(&id) else { return };
        connection.state = State::Attached;
        self.asking -= 1;
        let data = EventData::new_u64(id);
        if connection.takes_files && epoll::modify(&self.epoll, &connection.socket, data, EventFlags::RDHUP).is_err() {
            return self.forget(id, true);
        }
        let bytes = grant.ends.layout.bytes as u64;
        let reply = Reply::Granted { colour: grant.colour, bytes, mac: grant.mac }.encode();
        if !send_with_descriptors(&connection.socket, &reply, &grant.ends.descriptors()) {
            self.forget(id, true);
        }
    }

    /// Sends the reason, then ends the connection and removes its port, if there is one.
    fn refuse(&mut self, id: u64, reason: &str) {
        if let Some(connection) = self.clients.get(&id) {
            connection.send_end(reason);
        }
        self.forget(id, true);
    }

    fn forget(&mut self, id: u64, detach: bool) {
        let Some(connection) = self.clients.remove(&id) else { return };
        let _ = epoll::delete(&self.epoll, connection.socket.as_fd());
        match connection.state {
            State::Asking(_) | State::Sending(..) => self.asking -= 1,
            State::Attached if detach => self.detach(id),
            State::Netmap(ref open) if open.has_registration() && detach => self.unregister(id),
            State::Attached | State::Netmap(_) => {}
        }
        self.close(connection.socket, connection.takes_files);
    }

    /// Closes a connection. Its unread messages may carry files, and closing them can block.
    fn close(&self, socket: OwnedFd, takes_files: bool) {
        if self.files == Files::Taken || takes_files {
            close_socket_in_background(socket);
        }
    }

    fn unregister(&mut self, id: u64) {
        self.at_host = true;
        self.host.unregister(ClientId(id));
        self.at_host = false;
    }

    fn detach(&mut self, id: u64) {
        self.at_host = true;
        self.host.detach(ClientId(id));
        self.at_host = false;
    }

    fn refuse_late(&mut self) {
        if self.asking == 0 {
            return;
        }
        let now = Instant::now();
        let is_late = |c: &Connection| c.deadline().is_some_and(|deadline| deadline <= now);
        let late: Vec<_> =
            self.clients.iter().filter(|(_, c)| is_late(c)).map(|(id, c)| (*id, c.takes_files)).collect();
        for (id, takes_files) in late {
            let missing = if takes_files { "memory" } else { "request" };
            self.at = Some(id);
            self.refuse(id, &format!("no {missing} came within {:?}", self.request_within));
            self.at = None;
        }
    }

    /// Executes the pending commands. Returns true when the server has to stop.
    fn run_commands(&mut self) -> bool {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.queue.wake, &mut count);
        self.pending.extend(self.queue.commands.lock().drain(..));
        while let Some(command) = self.pending.pop_front() {
            match command {
                Command::Stop => return true,
                Command::End(ClientId(id), reason) => {
                    self.at = Some(id);
                    if let Some(connection) = self.clients.get(&id) {
                        connection.send_end(&reason);
                    }
                    self.forget(id, false);
                    self.at = None;
                }
            }
        }
        false
    }

    fn end_all(&mut self) {
        // If the loop panics, `run` starts again with this command.
        self.pending.push_front(Command::Stop);
        let all: Vec<u64> = self.clients.keys().copied().collect();
        for id in all {
            self.at = Some(id);
            self.refuse(id, "the switch is shutting down");
            self.at = None;
        }
    }
}

impl Connection {
    /// Returns the time until which the client has to go on with the dialogue.
    fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Asking(deadline) | State::Sending(deadline, _) => Some(deadline),
            State::Attached | State::Netmap(_) => None,
        }
    }

    /// Sends the reason for which the connection ends.
    fn send_end(&self, reason: &str) {
        match self.state {
            State::Netmap(_) => netmap::send_end(&self.socket, &Refusal::new(Errno::NXIO, reason)),
            State::Asking(_) | State::Sending(..) | State::Attached => send_reason(&self.socket, reason),
        }
    }
}
