//! How connections end.

use std::time::Instant;

use ringway_port::front_end::{Files, close_socket_in_background};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{Shutdown, shutdown};

use super::connection::{Connection, State};
use super::host::ClientId;
use super::thread::Server;

impl Server {
    /// Refuses a client that has sent nothing. What it has sent and this thread has not read is read first.
    pub(super) fn refuse_silent(&mut self, id: u64, reason: &str) {
        let deadline = |server: &Self| server.clients.get(&id).and_then(Connection::deadline);
        let before = deadline(self);
        self.receive_message(id);
        if before.is_some() && deadline(self) == before {
            self.refuse(id, reason);
        }
    }

    /// Sends the reason, then ends the connection and removes its port, if there is one.
    pub(super) fn refuse(&mut self, id: u64, reason: &str) {
        if let Some(connection) = self.clients.get(&id) {
            connection.send_end(reason);
        }
        self.forget(id, true);
    }

    pub(super) fn refuse_late(&mut self) {
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
            self.refuse_silent(id, &format!("no {missing} came within {:?}", self.limits.request_within));
            self.at = None;
        }
    }

    pub(super) fn forget(&mut self, id: u64, detach: bool) {
        let Some(connection) = self.clients.remove(&id) else { return };
        // Before this process and the closer close theirs: the keeper should not be the last one, as a client can have that wait.
        connection.kept.release();
        let stays = connection.holds_descriptors();
        match connection.state {
            State::Asking(_) | State::Sending(..) | State::Taking(..) => self.asking -= 1,
            State::Attached if detach => self.detach(id),
            State::Netmap(ref open) if detach => {
                open.abandon();
                self.unregister(id);
            }
            State::Netmap(ref open) => open.abandon(),
            State::Attached | State::Ended => {}
        }
        if stays {
            let _ = shutdown(&connection.socket, Shutdown::Both);
            let (events, data) = (EventFlags::OUT | EventFlags::ET, EventData::new_u64(id));
            if epoll::modify(&self.epoll, &connection.socket, data, events).is_ok() {
                self.clients.insert(id, Connection { state: State::Ended, ..connection });
                return;
            }
        }
        let _ = epoll::delete(&self.epoll, &connection.socket);
        self.close(connection);
    }

    /// Closes a connection. Messages that are left in it may carry files, and closing them can block. The client would lose what
    /// was sent to it.
    pub(super) fn close(&self, connection: Connection) {
        if connection.socket.is_held() {
            // The closer reads to the end. From now on the client can send no more.
            let _ = shutdown(&*connection.socket, Shutdown::Both);
        } else if self.files == Files::Taken || connection.may_be_unread() {
            close_socket_in_background(connection.process, connection.socket);
        }
    }

    pub(super) fn unregister(&mut self, id: u64) {
        self.at_host = true;
        self.host.unregister(ClientId(id));
        self.at_host = false;
    }

    pub(super) fn detach(&mut self, id: u64) {
        self.at_host = true;
        self.host.detach(ClientId(id));
        self.at_host = false;
    }
}
