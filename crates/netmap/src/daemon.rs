//! The daemon: the connection to it, which the program has as its `/dev/netmap`, and the requests on it.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int};
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use ringway_abi::netmap::{Family, Granted, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, fstat, open as open_file, readlinkat_raw};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, getpeername, socket_with};
use rustix::thread::nanosleep;

use crate::clock::Deadline;
use crate::dialogue::{self, Descriptors, Tags};

/// Where the daemon listens unless `RINGWAY_ATTACH_SOCKET` says otherwise.
const DEFAULT_SOCKET: &CStr = c"/run/ringway/attach.sock";
const SOCKET: &CStr = c"RINGWAY_ATTACH_SOCKET";
/// The family's number in hexadecimal digits: a program that this one executes belongs to the same family.
const FAMILY: &CStr = c"RINGWAY_FAMILY";
/// Time limit for what one call of the program asks the daemon, in seconds.
const ANSWER_WITHIN: i64 = 10;
/// Bytes of the longest path of a socket.
const PATH_BYTES: usize = 108;
/// Time between two attempts to connect to a daemon whose queue of connections is full.
const CONNECT_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Descriptors of a granted registration.
pub(crate) struct Given {
    pub(crate) memory: OwnedFd,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
}

/// A value that is found once and kept. Without memory from the program's allocator, which a signal handler may have interrupted, and
/// without a lock: the child of a fork would wait for a thread that it does not have.
struct Kept<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

const NONE: u8 = 0;
const BEING_WRITTEN: u8 = 1;
const KEPT: u8 = 2;

// SAFETY: one thread writes the value, before the state says that it is kept. Afterwards it is only read.
unsafe impl<T: Send + Sync> Sync for Kept<T> {}

impl<T: Clone> Kept<T> {
    const fn none() -> Self {
        Self { state: AtomicU8::new(NONE), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Returns the value. Threads may find it at the same time, each its own; the first one's is kept.
    fn get(&self, find: impl FnOnce() -> Option<T>) -> Option<T> {
        if self.state.load(Ordering::Acquire) == KEPT {
            // SAFETY: written before the state, and not changed afterwards.
            return Some(unsafe { (*self.value.get()).assume_init_ref().clone() });
        }
        let own = find()?;
        if self.state.compare_exchange(NONE, BEING_WRITTEN, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            // SAFETY: this thread alone has changed the state, and nobody reads before the next change.
            unsafe { (*self.value.get()).write(own.clone()) };
            self.state.store(KEPT, Ordering::Release);
        }
        Some(own)
    }
}

/// Returns the address of the daemon's socket.
fn address() -> Option<SocketAddrUnix> {
    static ADDRESS: Kept<SocketAddrUnix> = Kept::none();
    ADDRESS.get(|| {
        let path = variable(SOCKET).filter(|path| !path.is_empty()).unwrap_or(DEFAULT_SOCKET);
        SocketAddrUnix::new(path).ok()
    })
}

/// Returns a variable of the environment. Not by std, whose lock the child of a fork may find taken.
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: the name ends with a NUL byte. The value is read at once; as with every call of getenv, the program changes no variable meanwhile.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

/// Returns true if a program before this one in the process, or an ancestor, has opened `/dev/netmap`.
pub(crate) fn is_relative() -> bool {
    variable(FAMILY).is_some()
}

/// Returns the family's number. The first call makes it, unless the environment has one, and puts it there.
fn family() -> Family {
    // Threads may make it at the same time: for each half the first one's is taken. 0: there is none yet.
    static HALVES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    let inherited = || variable(FAMILY).and_then(|text| parse(text.to_str().ok()?));
    let Family(own) = inherited().unwrap_or_else(|| {
        let mut number = [0; 16];
        let _ = rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty());
        Family(number)
    });
    let mut is_new = false;
    let mut number = [0; 16];
    for (half, (own, agreed)) in HALVES.iter().zip(own.as_chunks().0.iter().zip(number.as_chunks_mut().0)) {
        let own = u64::from_ne_bytes(*own);
        let taken = half.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed);
        is_new |= taken.is_ok();
        *agreed = match taken {
            Ok(_) => own,
            Err(other) => other,
        }
        .to_ne_bytes();
    }
    let family = Family(number);
    if is_new && inherited() != Some(family) {
        let mut text = [0; 33];
        for (digit, at) in text.iter_mut().zip(0..32) {
            let half = family.0[at / 2] >> (4 - at % 2 * 4) & 15;
            *digit = b"0123456789abcdef"[usize::from(half)];
        }
        // SAFETY: two strings that end with a NUL byte, and are copied. As safe as the program's own use of setenv: libc's lock orders both.
        unsafe { libc::setenv(FAMILY.as_ptr(), text.as_ptr().cast(), 1) };
    }
    family
}

fn parse(text: &str) -> Option<Family> {
    let mut number = [0; 16];
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in number.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(Family(number))
}

/// Connects to the daemon, as an open `/dev/netmap` of this family.
///
/// # Errors
/// ENXIO: no daemon listens there, as for a device without its driver. EACCES: not allowed. Others: as the daemon or the kernel says.
pub(crate) fn open(cloexec: bool, nonblocking: bool) -> Result<OwnedFd, c_int> {
    let deadline = Deadline::after(ANSWER_WITHIN);
    let mut flags = SocketFlags::NONBLOCK;
    flags.set(SocketFlags::CLOEXEC, cloexec);
    let address = address().ok_or(libc::ENXIO)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(Errno::raw_os_error)?;
    loop {
        match connect(&socket, &address) {
            Ok(()) => break,
            // The daemon has not accepted earlier connections.
            Err(Errno::AGAIN) if deadline.left().is_some() => drop(nanosleep(&CONNECT_EVERY)),
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN | Errno::NOTDIR) => return Err(libc::ENXIO),
            Err(other) => return Err(other.raw_os_error()),
        }
    }
    if !nonblocking {
        rustix::io::ioctl_fionbio(&socket, false).map_err(Errno::raw_os_error)?;
    }
    match dialogue::ask(socket.as_fd(), &Tags::none(), &Request::Open(family()), deadline)? {
        (Reply::Done, _) => Ok(socket),
        _ => Err(libc::EPROTO),
    }
}

/// Returns true if the descriptor is a connection to the daemon that a netmap open made.
pub(crate) fn is_connection(fd: BorrowedFd<'_>) -> bool {
    if rustix::net::sockopt::socket_type(fd) != Ok(SocketType::SEQPACKET) {
        return false;
    }
    let peer = getpeername(fd).ok().flatten().and_then(|peer| SocketAddrUnix::try_from(peer).ok());
    let Some(peer) = peer.as_ref().and_then(SocketAddrUnix::path_bytes) else { return false };
    // Compared only: a peer that is not the daemon has chosen its path, and a look there could last as long as it likes.
    let is = |own: Option<SocketAddrUnix>| own.is_some_and(|own| own.path_bytes() == Some(peer));
    is(address()) || is(resolved())
}

/// Returns the address of the daemon's socket without symbolic links: the daemon has bound it by this one.
fn resolved() -> Option<SocketAddrUnix> {
    static RESOLVED: Kept<SocketAddrUnix> = Kept::none();
    // Kept only if it is there: the daemon may not have been up.
    RESOLVED.get(|| {
        let socket = open_file(address()?.path_bytes()?, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
        path_of(socket.as_fd())
    })
}

/// Returns the path of an open socket file. The kernel has none for a file that is no longer there: the daemon has made another one.
fn path_of(file: BorrowedFd<'_>) -> Option<SocketAddrUnix> {
    let (mut name, mut path) = ([0u8; 32], [MaybeUninit::uninit(); PATH_BYTES + 1]);
    write!(&mut name[..], "/proc/self/fd/{}", file.as_raw_fd()).ok()?;
    let (path, left) = readlinkat_raw(CWD, CStr::from_bytes_until_nul(&name).ok()?, &mut path).ok()?;
    let is_there = fstat(file).ok()?.st_nlink > 0;
    (is_there && !left.is_empty()).then(|| SocketAddrUnix::new(&*path).ok())?
}

/// A file's dialogue with the daemon. Only the holder of the file's request lock uses it.
#[derive(Clone, Copy)]
pub(crate) struct Dialogue<'a> {
    pub(crate) socket: BorrowedFd<'a>,
    pub(crate) tags: &'a Tags,
}

/// Returns the time until which one call of the program may ask the daemon.
pub(crate) fn deadline() -> Deadline {
    Deadline::after(ANSWER_WITHIN)
}

/// Sends a request and returns the answer.
///
/// # Errors
/// The daemon's refusal; ENXIO if the daemon has gone, or does not answer in time.
pub(crate) fn ask(with: Dialogue<'_>, request: &Request) -> Result<(Reply, Descriptors), c_int> {
    ask_until(with, request, deadline())
}

/// Sends one of several requests of a call, and returns the answer.
///
/// # Errors
/// See [`ask`].
pub(crate) fn ask_until(
    with: Dialogue<'_>,
    request: &Request,
    deadline: Deadline,
) -> Result<(Reply, Descriptors), c_int> {
    dialogue::ask(with.socket, with.tags, request, deadline)
}

/// Sends a request that is answered by a registration.
///
/// # Errors
/// See [`ask`]. EMFILE: the process can have no more descriptors.
pub(crate) fn ask_for_registration(with: Dialogue<'_>, request: &Request) -> Result<(Granted, Given), c_int> {
    let (Reply::Granted(granted), descriptors) = ask(with, request)? else { return Err(libc::EPROTO) };
    // The daemon sends all. The kernel leaves out those for which the process has no number.
    let [Some(memory), Some(kick), Some(call)] = descriptors else { return Err(libc::EMFILE) };
    Ok((granted, Given { memory, kick, call }))
}

/// Returns true if the daemon has ended the connection. What it says is left in the socket.
pub(crate) fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let end = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    let mut entry = [PollFd::new(&socket, PollFlags::RDHUP)];
    poll(&mut entry, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && entry[0].revents().intersects(end)
}
