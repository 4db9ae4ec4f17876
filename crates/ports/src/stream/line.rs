//! The connection of a port, shared by the data path and the port's own thread, which sets and removes the connection.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::Shutdown;

use super::sending::Sending;
use crate::front_end::Connection;

/// Why a connection is of no use any more.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer went.
    Gone,
    /// It sent what cannot be a length.
    NoLength(u32),
    /// It sent files.
    Files,
}

/// What the input reads.
#[derive(Debug, Default)]
pub struct Reading {
    pub socket: Option<Arc<Connection>>,
    /// Which connection this is, counted.
    pub number: u64,
    /// Files that came with frames, which the port's own thread closes: a poller could have to wait.
    pub files: Vec<OwnedFd>,
}

/// See the module's description.
#[derive(Debug)]
pub struct Line {
    pub reading: Mutex<Reading>,
    pub sending: Mutex<Sending>,
    /// Readable when the socket is, whichever that is at the time (epoll instances may be nested, epoll(7)).
    epoll: OwnedFd,
    /// Tells the thread that there is something to do.
    news: OwnedFd,
    ended: Mutex<Option<Ended>>,
    connected: AtomicBool,
}

impl Line {
    pub fn new() -> io::Result<Line> {
        Ok(Line {
            reading: Mutex::default(),
            sending: Mutex::new(Sending::new()),
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            ended: Mutex::default(),
            connected: AtomicBool::new(false),
        })
    }

    /// What a poller waits for.
    pub fn signal(&self) -> io::Result<OwnedFd> {
        self.epoll.as_fd().try_clone_to_owned()
    }

    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Gives the data path a connection.
    pub fn open(&self, socket: &Arc<Connection>) -> io::Result<()> {
        self.take_news();
        *self.ended.lock() = None;
        self.sending.lock().begin(Arc::clone(socket));
        {
            let mut reading = self.reading.lock();
            reading.number += 1;
            reading.socket = Some(Arc::clone(socket));
        }
        self.connected.store(true, Ordering::Relaxed);
        // What is there already is an edge, too.
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(0), EventFlags::IN | EventFlags::RDHUP | EventFlags::ET)?)
    }

    /// Takes it away, whoever ended it.
    pub fn close(&self, socket: &Arc<Connection>) {
        self.connected.store(false, Ordering::Relaxed);
        let (read, files) = {
            let mut reading = self.reading.lock();
            (reading.socket.take(), std::mem::take(&mut reading.files))
        };
        self.sending.lock().end();
        let _ = epoll::delete(&self.epoll, socket);
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
        // Closed without holding a lock.
        drop((read, files));
    }

    /// The input has seen the end of connection `number`.
    #[cold]
    pub fn stop_reading(&self, number: u64, reason: Ended) {
        let mut reading = self.reading.lock();
        if reading.number == number
            && let Some(socket) = reading.socket.take()
        {
            // With the lock: the port's own thread has the connection until it has had the lock, so that this closes nothing. A poller
            // that closes a connection could have to wait.
            drop(socket);
            // Before another connection may begin, which this is not the end of.
            self.end(reason);
        }
    }

    /// The data path has seen the end of the connection. The first reason stays.
    #[cold]
    pub fn end(&self, reason: Ended) {
        self.ended.lock().get_or_insert(reason);
        self.tell();
    }

    /// Why the connection ended, if it did.
    pub fn ended(&self) -> Option<Ended> {
        self.ended.lock().take()
    }

    /// Has the thread look.
    pub fn tell(&self) {
        // Only this process has the descriptor; a full counter is as good as a write.
        let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
    }

    /// Readable when there is something for the thread to do.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    pub fn take_news(&self) {
        let _ = rustix::io::read(&self.news, &mut [0; 8]);
    }
}
