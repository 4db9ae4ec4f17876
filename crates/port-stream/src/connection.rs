//! The connection of a port, shared by the data path and the port's own thread, which sets and removes the connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use ringway_keeper::opener::{Ask, of_process};
use ringway_port::front_end::Connection;
use ringway_runtime::Watch;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::Shutdown;

use super::ended::Ended;
use super::lasting::{Lasting, WIDENED_WITHIN};
use super::sending::Sending;

/// The receiving side of a connection.
#[derive(Debug, Default)]
pub struct Reading {
    pub socket: Option<Arc<Connection>>,
    /// Number of the connection, counted from 1.
    pub number: u64,
    /// The number under which it outlives the switch. Others of the port have others.
    pub kept_number: u64,
    /// Files that came with frames. The port's own thread closes them, because closing can block and a poller must not.
    pub files: Vec<OwnedFd>,
}

/// The connection of a port: see the description of the module.
#[derive(Debug)]
pub struct SharedConnection {
    pub lasting: Arc<Lasting>,
    pub reading: Mutex<Reading>,
    pub sending: Mutex<Sending>,
    /// The socket of the current connection, which pollers wait for.
    watch: Watch,
    /// Wakes the port's thread.
    wake_fd: OwnedFd,
    /// The poller has to count late frames. `news_fd` wakes it.
    news: AtomicBool,
    news_fd: Arc<OwnedFd>,
    ended: Mutex<Option<Ended>>,
    connected: AtomicBool,
    /// The number of `reading`, without its lock.
    number: AtomicU64,
}

/// Bytes of frames, as the kernel counts them, that a connection is to hold. passt's TCP stores nothing behind a gap, so that each lost frame
/// costs its sender a timeout: a window of TCP has to find room. The kernel doubles the number.
const SEND_BUFFER: libc::c_int = 2 << 20;

/// Has a connection hold more frames than the kernel's default of 208 KiB: as many as [`SEND_BUFFER`] says, or without CAP_NET_ADMIN as
/// many as `net.core.wmem_max` allows.
fn widen(socket: &Connection) {
    let ask = Ask::SendBuffer { bytes: SEND_BUFFER.unsigned_abs() };
    if of_process().ask_done(&ask, &[socket.as_fd()], WIDENED_WITHIN).is_some_and(|done| done.is_ok()) {
        return;
    }
    let (bytes, len) = (SEND_BUFFER, size_of::<libc::c_int>() as libc::socklen_t);
    for option in [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF] {
        let value = (&raw const bytes).cast();
        // SAFETY: the kernel reads one int, and `bytes` outlives the call.
        if unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, option, value, len) } == 0 {
            return;
        }
    }
}

impl SharedConnection {
    pub fn new(lasting: Lasting) -> io::Result<SharedConnection> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let lasting = Arc::new(lasting);
        let (watch, news_fd) = (Watch::new(), Arc::new(eventfd(0, flags)?));
        watch.add(news_fd.clone())?;
        Ok(SharedConnection {
            reading: Mutex::default(),
            sending: Mutex::new(Sending::new(Arc::clone(&lasting))),
            lasting,
            watch,
            wake_fd: eventfd(0, flags)?,
            news: AtomicBool::new(false),
            news_fd,
            ended: Mutex::default(),
            connected: AtomicBool::new(false),
            number: AtomicU64::new(0),
        })
    }

    /// Returns what a poller waits for.
    pub fn watch(&self) -> Watch {
        self.watch.clone()
    }

    pub fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Number of the last connection, counted from 1.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Hands a connection to the input and the output. `kept`: its number, if it outlives the switch; if a predecessor had it, both go on.
    ///
    /// # Errors
    /// How far the predecessor was is not known, or the kernel refuses.
    pub fn open(&self, socket: &Arc<Connection>, kept: Option<u64>) -> io::Result<()> {
        self.clear_wake();
        *self.ended.lock() = None;
        widen(socket);
        let mut reading = self.reading.lock();
        let number = reading.number + 1;
        let goes_on = self.lasting.begin(kept.unwrap_or(number), socket)?;
        self.sending.lock().begin(Arc::clone(socket), goes_on)?;
        (reading.number, reading.kept_number) = (number, kept.unwrap_or(number));
        reading.socket = Some(Arc::clone(socket));
        self.number.store(number, Ordering::Release);
        drop(reading);
        self.connected.store(true, Ordering::Relaxed);
        if goes_on {
            // There may be the rest of a frame, and frames that were received.
            self.wake_thread();
            self.tell_poller();
        }
        // Data that has arrived before is an edge, too.
        self.watch.add(socket.clone())
    }

    /// Takes the connection back from the input and the output.
    pub fn close(&self, socket: &Arc<Connection>) {
        self.connected.store(false, Ordering::Relaxed);
        let (read, files) = {
            let mut reading = self.reading.lock();
            (reading.socket.take(), std::mem::take(&mut reading.files))
        };
        self.sending.lock().end();
        self.tell_of_late_frames();
        let watched = self.watch.remove(&**socket);
        let _ = rustix::net::shutdown(socket, Shutdown::Both);
        // Closed here, without a lock.
        drop((read, files, watched));
    }

    /// Called by the input at the end of connection `number`.
    #[cold]
    pub fn stop_reading(&self, number: u64, reason: Ended) {
        let mut reading = self.reading.lock();
        if reading.number == number
            && let Some(socket) = reading.socket.take()
        {
            // Dropped under the lock: the port's own thread holds the connection until it has had the lock, so this
            // does not close it. Closing can block, which a poller must not.
            drop(socket);
            // Before the lock is released: the reason must not be taken for that of a later connection.
            self.end(reason);
        }
    }

    /// Called by the input or the output at the end of the connection. Keeps the first reason.
    #[cold]
    pub fn end(&self, reason: Ended) {
        self.ended.lock().get_or_insert(reason);
        self.wake_thread();
    }

    /// Returns why the connection ended, if it did, and resets the reason.
    pub fn ended(&self) -> Option<Ended> {
        self.ended.lock().take()
    }

    /// Sends the rest of a frame, on the port's thread. Returns true if the thread has to call again when the socket has room.
    pub fn send_on(&self) -> Result<bool, Ended> {
        let result = self.sending.lock().send_on();
        self.tell_of_late_frames();
        result
    }

    /// Has a poller count the frames whose fate was decided on this thread.
    fn tell_of_late_frames(&self) {
        if self.sending.lock().has_late() {
            self.tell_poller();
        }
    }

    fn tell_poller(&self) {
        self.news.store(true, Ordering::Release);
        // The eventfd belongs to this process alone. If its counter is full, it is readable already.
        let _ = rustix::io::write(&*self.news_fd, &1u64.to_ne_bytes());
    }

    /// Returns true if there are late frames to count.
    pub fn has_news(&self) -> bool {
        self.news.load(Ordering::Relaxed)
    }

    /// The same, and forgets it.
    pub fn take_news(&self) -> bool {
        let has_news = self.has_news() && self.news.swap(false, Ordering::Acquire);
        if has_news {
            let _ = rustix::io::read(&*self.news_fd, &mut [0; 8]);
        }
        has_news
    }

    /// Wakes the port's thread.
    pub fn wake_thread(&self) {
        // The eventfd belongs to this process alone. If its counter is full, it is readable already.
        let _ = rustix::io::write(&self.wake_fd, &1u64.to_ne_bytes());
    }

    /// Returns the eventfd that wakes the port's thread.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake_fd.as_fd()
    }

    pub fn clear_wake(&self) {
        let _ = rustix::io::read(&self.wake_fd, &mut [0; 8]);
    }
}
