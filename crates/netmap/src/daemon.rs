//! The dialogue with the daemon, on the descriptor that the program has as its `/dev/netmap`.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use ringway_abi::attach::{REPLY_BYTES, REPLY_FDS};
use ringway_abi::netmap::{Family, Granted, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, getpeername, recvmsg, send, socket_with,
};

/// Where the daemon listens unless `RINGWAY_ATTACH_SOCKET` says otherwise.
const DEFAULT_SOCKET: &str = "/run/ringway/attach.sock";
const SOCKET: &str = "RINGWAY_ATTACH_SOCKET";
/// The family's number in hexadecimal digits: a program that this one executes belongs to the same family.
const FAMILY: &str = "RINGWAY_FAMILY";
/// Time limit for an answer.
const ANSWER_WITHIN: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Descriptors of a granted registration.
pub(crate) struct Given {
    pub(crate) memory: OwnedFd,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
}

/// Returns the address of the daemon's socket.
fn address() -> Option<&'static SocketAddrUnix> {
    static ADDRESS: OnceLock<Option<SocketAddrUnix>> = OnceLock::new();
    let find = || {
        let path = std::env::var_os(SOCKET).unwrap_or_else(|| DEFAULT_SOCKET.into());
        SocketAddrUnix::new(path.as_os_str()).ok()
    };
    ADDRESS.get_or_init(find).as_ref()
}

/// Returns true if a program before this one in the process, or an ancestor, has opened `/dev/netmap`.
pub(crate) fn is_relative() -> bool {
    // Not by std, which allocates: this is asked at load.
    // SAFETY: the name ends with a NUL byte; no pointer is kept.
    unsafe { !libc::getenv(c"RINGWAY_FAMILY".as_ptr()).is_null() }
}

/// Returns the family's number. The first call makes it, unless the environment has one, and puts it there.
fn family() -> Family {
    static NUMBER: OnceLock<Family> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        if let Some(family) = std::env::var(FAMILY).ok().and_then(|text| parse(&text)) {
            return family;
        }
        let mut number = [0; 16];
        let _ = rustix::rand::getrandom(&mut number, rustix::rand::GetRandomFlags::empty());
        let text: String = number.iter().map(|byte| format!("{byte:02x}")).collect();
        // SAFETY: as safe as the program's own use of setenv: libc's lock orders both.
        unsafe { std::env::set_var(FAMILY, text) };
        Family(number)
    })
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
    let mut flags = SocketFlags::empty();
    flags.set(SocketFlags::CLOEXEC, cloexec);
    flags.set(SocketFlags::NONBLOCK, nonblocking);
    let address = address().ok_or(libc::ENXIO)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(Errno::raw_os_error)?;
    connect(&socket, address).map_err(|error| match error {
        Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN | Errno::NOTDIR => libc::ENXIO,
        other => other.raw_os_error(),
    })?;
    match ask(socket.as_fd(), &Request::Open(family()))? {
        (Reply::Done, _) => Ok(socket),
        _ => Err(libc::EPROTO),
    }
}

/// Returns true if the descriptor is a connection to the daemon that a netmap open made.
pub(crate) fn is_connection(fd: BorrowedFd<'_>) -> bool {
    let Some(address) = address() else { return false };
    let peer = getpeername(fd).ok().flatten().and_then(|peer| SocketAddrUnix::try_from(peer).ok());
    peer.is_some_and(|peer| peer.path() == address.path())
        && rustix::net::sockopt::socket_type(fd) == Ok(SocketType::SEQPACKET)
}

/// Sends a request and returns the answer.
///
/// # Errors
/// The daemon's refusal; ENXIO if the daemon has gone.
pub(crate) fn ask(socket: BorrowedFd<'_>, request: &Request) -> Result<(Reply, Vec<OwnedFd>), c_int> {
    send(socket, &request.encode(), SendFlags::NOSIGNAL).map_err(|_| libc::ENXIO)?;
    loop {
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], Some(&ANSWER_WITHIN)) {
            Ok(0) => return Err(libc::ENXIO),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(_) => return Err(libc::ENXIO),
        }
    }
    let mut message = [0; REPLY_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPLY_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut into = [std::io::IoSliceMut::new(&mut message)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut into, &mut ancillary, flags).map_err(|_| libc::ENXIO)?;
    let mut descriptors = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    match Reply::decode(message.get(..received.bytes).ok_or(libc::EPROTO)?) {
        Ok(Reply::Refused { errno, .. }) => Err(c_int::from(errno)),
        Ok(reply) => Ok((reply, descriptors)),
        Err(_) => Err(libc::ENXIO),
    }
}

/// Sends a request that is answered by a registration.
///
/// # Errors
/// See [`ask`].
pub(crate) fn ask_for_registration(socket: BorrowedFd<'_>, request: &Request) -> Result<(Granted, Given), c_int> {
    let (Reply::Granted(granted), descriptors) = ask(socket, request)? else { return Err(libc::EPROTO) };
    let [memory, kick, call] = <[OwnedFd; REPLY_FDS]>::try_from(descriptors).map_err(|_| libc::EPROTO)?;
    Ok((granted, Given { memory, kick, call }))
}

/// Returns true if the daemon has ended the connection. What it says is left in the socket.
pub(crate) fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let mut message = [0; REPLY_BYTES];
    match rustix::net::recv(socket, &mut message, RecvFlags::DONTWAIT | RecvFlags::PEEK) {
        Ok((_, 0)) => true,
        Ok((_, bytes)) => matches!(Reply::decode(&message[..bytes.min(REPLY_BYTES)]), Ok(Reply::Refused { .. })),
        Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
    }
}
