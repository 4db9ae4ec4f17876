//! The server's loop: connections that have something to say, commands of other threads, and deadlines.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use ringway_port::front_end::{ClientFd, Files, peer_process};
use ringway_runtime::{fatal, warn_limited};
use ringway_switch::PanicLocation;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};

use super::super::kept_fd::Keeping;
use super::connection::{Connection, State, longest_asking};
use super::host::ClientId;
use super::queue::Command;
use super::thread::{COMMANDS, LISTENER, Server};

/// Most clients without a request at a time. A further client replaces one of the process that has the most of them: the one that
/// has waited longest.
const MOST_ASKING: usize = 64;

impl Server {
    pub(super) fn run(&mut self) {
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
                        self.serve(client, event.flags);
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
    pub(super) fn recover(&mut self, place: PanicLocation) {
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
                    if let State::Netmap(open) = &connection.state {
                        open.abandon();
                    }
                    let _ = epoll::delete(&self.epoll, &connection.socket);
                    connection.send_end(&what);
                    self.close(connection);
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
            let asking = self.clients.iter().filter_map(|(id, c)| Some((c.deadline()?, *id, c.process)));
            if let Some(longest) = longest_asking(&asking.collect::<Vec<_>>()) {
                self.refuse_silent(longest, "too many clients are in the attach dialogue at once; try again");
            }
        }
        let connection = self.connection(socket);
        let id = self.next;
        self.next += 1;
        let events = EventFlags::IN | EventFlags::RDHUP;
        match epoll::add(&self.epoll, &connection.socket, EventData::new_u64(id), events) {
            Ok(()) => {
                self.asking += 1;
                self.clients.insert(id, connection);
            }
            // The user's limit on what epoll watches (fs.epoll.max_user_watches), which counts watches of clients, too.
            Err(error) => {
                let reason = format!("the switch cannot watch another connection: {error}");
                warn_limited(&reason);
                connection.send_end(&reason);
                self.close(connection);
            }
        }
    }

    /// A client that has sent nothing yet.
    fn connection(&self, socket: OwnedFd) -> Connection {
        let socket = ClientFd::from(socket);
        let (process, state) = (peer_process(&socket), State::Asking(Instant::now() + self.limits.request_within));
        Connection { socket, state, takes_files: false, process, is_paused: false, kept: Keeping::default() }
    }

    /// No descriptor is left. Frees the spare one to accept and refuse the waiting connection, which would otherwise
    /// wake this thread again and again.
    #[cold]
    fn refuse_without_descriptor(&mut self) {
        self.spare_fd = None;
        if let Ok(socket) = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            let connection = self.connection(socket);
            connection.send_end("the switch has no file descriptors left for another client");
            self.close(connection);
        }
        self.spare_fd = self.listener.try_clone().ok();
    }

    /// Serves a connection that has one of these events.
    fn serve(&mut self, id: u64, events: EventFlags) {
        let Some(connection) = self.clients.get(&id) else { return };
        match connection.state {
            State::Ended if !connection.holds_descriptors() => self.forget(id, false),
            State::Ended => {}
            _ if !connection.is_paused => self.receive_message(id),
            _ if events.intersects(EventFlags::HUP | EventFlags::RDHUP) => self.forget(id, true),
            _ if !connection.has_to_read() => self.watch(id, false),
            _ => {}
        }
    }

    /// Leaves the next request of a client in its socket, or reads it again. A connection that is paused has an event each time
    /// that its client reads a message.
    pub(super) fn watch(&mut self, id: u64, is_paused: bool) {
        let Some(connection) = self.clients.get_mut(&id) else { return };
        connection.is_paused = is_paused;
        let events = if is_paused { EventFlags::OUT | EventFlags::ET } else { EventFlags::IN };
        let (events, data) = (events | EventFlags::RDHUP, EventData::new_u64(id));
        if epoll::modify(&self.epoll, &connection.socket, data, events).is_err() {
            self.forget(id, true);
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
                Command::Listen { listener, files, path } => self.listen_at(listener, files, &path),
                Command::Mapped(ClientId(id)) => {
                    self.at = Some(id);
                    self.mapped(id);
                    self.at = None;
                }
                Command::Registered(ClientId(id)) => {
                    self.at = Some(id);
                    self.registered(id);
                    self.at = None;
                }
                Command::Memory(ClientId(id), message, files) => {
                    self.at = Some(id);
                    self.use_memory(id, &message, files);
                    self.at = None;
                }
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

    /// Listens at another socket. The one before stays open: the last close of what waits in its backlog could take long.
    fn listen_at(&mut self, listener: OwnedFd, files: Files, path: &Path) {
        if let Err(error) = epoll::add(&self.epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN) {
            warn_limited(&format!("attach.sock: cannot listen again: {error}"));
            // It is made once more.
            let _ = std::fs::remove_file(path);
            return;
        }
        let _ = epoll::delete(&self.epoll, &self.listener);
        self.earlier_listeners.push(std::mem::replace(&mut self.listener, listener));
        self.files = files;
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
