//! Sockets in the file system: binding, connecting and removing them. Where there is an opener, the switch has no access to the file system: it
//! makes the sockets, and the opener does this with them.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use ringway_keeper::Link;
use ringway_keeper::opener::{Access, Answered, Ask, Identity, Opener, Refusal, Said};
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with, sockopt};
use rustix::pipe::fcntl_setpipe_size;

use super::access::SocketAccess;
use super::files::refuse_files;

/// Most bytes of a send buffer, and of a pipe.
const BUFFER_MOST: u32 = 4 << 20;
const PIPE_MOST: u32 = 128 << 10;
/// Longest wait for the opener. A path on a file system that does not answer costs its own port.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// Binds a socket to `path`, with access for those of `access`. Removes a socket that nobody listens on. Nothing is left at the path if this fails.
///
/// # Errors
/// Another process listens at `path`, something else than a socket exists there, or the kernel or the opener refuses.
pub(super) fn bind_at(
    opener: &Opener,
    socket: impl AsFd,
    path: &Path,
    access: &SocketAccess,
) -> io::Result<Option<Identity>> {
    let ask = Ask::Bind { path: path.to_owned(), access: access.clone().into() };
    match opener.ask(&ask, &[socket.as_fd()], ANSWERED_WITHIN) {
        None => bind_here(socket, path, || access.set(path)),
        Some(reply) => match reply?.said {
            Said::Bound(identity) => Ok(identity),
            other => Err(io::Error::other(format!("the opener says {other:?}"))),
        },
    }
}

/// Connects a socket to the listener at `path`.
///
/// # Errors
/// There is none, or the kernel or the opener refuses.
pub(super) fn connect_at(opener: &Opener, socket: impl AsFd, path: &Path) -> io::Result<()> {
    match opener.ask_done(&Ask::Connect { path: path.to_owned() }, &[socket.as_fd()], ANSWERED_WITHIN) {
        None => Ok(rustix::net::connect(socket, &SocketAddrUnix::new(path)?)?),
        Some(done) => done.map(drop),
    }
}

/// Removes a path if it still is what it was after it was bound.
pub(super) fn remove_at(opener: &Opener, path: &Path, own: Option<Identity>) {
    let Some(identity) = own else { return };
    // What cannot be removed is in the log of the next daemon, which removes it.
    if opener.ask_done(&Ask::Remove { path: path.to_owned(), identity }, &[], ANSWERED_WITHIN).is_none() {
        remove_own(path, own);
    }
}

/// Removes a socket of Ringway's own, whatever it is.
pub fn remove_socket(keeper: &Link, path: &Path) {
    remove_at(&keeper.opener(), path, identity(path));
}

/// Does what the switch asks the opener about sockets.
///
/// # Errors
/// The kernel refuses, or the question is about something else.
pub fn answer_about_socket(ask: &Ask, socket: Option<OwnedFd>) -> Answered {
    let no_socket = || Refusal::from(&io::Error::from(ErrorKind::InvalidInput));
    // What is done with it would be done with a file, too.
    let socket = socket.filter(|socket| sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX));
    let done = match ask {
        Ask::Bind { path, access } => {
            let access = SocketAccess::from(access.clone());
            bind_here(socket.ok_or_else(no_socket)?, path, || access.set(path)).map(Said::Bound)
        }
        Ask::Connect { path } => {
            let address = SocketAddrUnix::new(&**path);
            let connect = |address| rustix::net::connect(socket.ok_or(Errno::INVAL)?, &address);
            address.and_then(connect).map(|()| Said::Done).map_err(io::Error::from)
        }
        Ask::Remove { path, identity } => {
            remove_own(path, Some(*identity));
            Ok(Said::Done)
        }
        _ => Err(ErrorKind::InvalidInput.into()),
    };
    done.map(Into::into).map_err(|why| Refusal::from(&why))
}

/// Does what the switch asks the opener about the buffer of a socket or a pipe.
///
/// # Errors
/// The kernel refuses, or it is another file, or too much.
pub fn answer_about_buffer(bytes: u32, file: Option<OwnedFd>) -> Answered {
    let widen = || {
        let file = file.ok_or(Errno::INVAL)?;
        let is_socket = || sockopt::socket_domain(&file) == Ok(AddressFamily::UNIX);
        match FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) {
            FileType::Fifo if bytes <= PIPE_MOST => fcntl_setpipe_size(&file, bytes as usize).map(drop),
            FileType::Socket if bytes <= BUFFER_MOST && is_socket() => {
                sockopt::set_socket_send_buffer_size_force(&file, bytes as usize)
            }
            _ => Err(Errno::INVAL),
        }
    };
    widen().map(|()| Said::Done.into()).map_err(|why| Refusal::from(&why.into()))
}

/// Binds a socket to `path`, for this user alone until `open` has given the path to others.
fn bind_here(socket: impl AsFd, path: &Path, open: impl FnOnce() -> io::Result<()>) -> io::Result<Option<Identity>> {
    // The path gets the socket's mode when it is bound, so there is no moment at which other users may connect
    // (net/unix; unix(7) does not mention it).
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let address = SocketAddrUnix::new(path)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_dead(path)?;
            bind(&socket, &address)?;
        }
        result => result?,
    }
    let own = identity(path);
    open().inspect_err(|_| remove_own(path, own))?;
    Ok(own)
}

/// Returns device and inode of a path.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    std::fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Removes a socket's path if it still is what it was after it was bound.
fn remove_own(path: &Path, own: Option<Identity>) {
    let is_own = |meta: std::fs::Metadata| meta.file_type().is_socket() && own == Some((meta.dev(), meta.ino()));
    if std::fs::symlink_metadata(path).is_ok_and(is_own) {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes a socket that no process listens on.
fn remove_dead(path: &Path) -> io::Result<()> {
    let here = path.display();
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{here} exists and is not a socket")));
    }
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    // Whoever listens may send files at once.
    refuse_files(&socket);
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path),
        _ => Err(io::Error::new(ErrorKind::AddrInUse, format!("somebody listens at {here} already"))),
    }
}

impl From<SocketAccess> for Access {
    fn from(SocketAccess { owner, group, mode }: SocketAccess) -> Self {
        Self { owner, group, mode }
    }
}

impl From<Access> for SocketAccess {
    fn from(Access { owner, group, mode }: Access) -> Self {
        Self { owner, group, mode }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{listen, socket};

    use super::*;

    #[test]
    fn the_opener_widens_pipes_within_bounds_and_no_other_files() {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        let ask = |bytes, file: &OwnedFd| answer_about_buffer(bytes, Some(file.try_clone().expect("a descriptor")));
        assert!(ask(PIPE_MOST, &write).is_ok());
        assert_eq!(rustix::pipe::fcntl_getpipe_size(&read), Ok(PIPE_MOST as usize));
        assert!(ask(2 * PIPE_MOST, &write).is_err());
        assert!(ask(4096, &std::fs::File::open("/dev/null").expect("a file").into()).is_err());
    }

    #[test]
    fn a_socket_that_was_half_made_can_be_made_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("s");
        for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
            let bind = |open: &dyn Fn() -> io::Result<()>| {
                let socket = socket(AddressFamily::UNIX, kind, None).expect("a socket");
                bind_here(&socket, &path, open)?;
                listen(&socket, 1)?;
                Ok::<_, io::Error>(socket)
            };
            let made = bind(&|| Err(ErrorKind::OutOfMemory.into()));
            assert_eq!(made.map_err(|why| why.kind()).map(drop), Err(ErrorKind::OutOfMemory));
            let foreign = bind(&|| {
                std::fs::remove_file(&path).and_then(|()| std::fs::write(&path, "another's"))?;
                Err(ErrorKind::OutOfMemory.into())
            });
            assert!(foreign.is_err() && std::fs::read(&path).is_ok_and(|text| text == b"another's"));
            assert_eq!(bind(&|| Ok(())).map_err(|why| why.kind()).map(drop), Err(ErrorKind::AlreadyExists));
            assert!(path.exists(), "what is another's stays");
            std::fs::remove_file(&path).expect("it is there");
            let _socket = bind(&|| Ok(())).expect("the second time");
            assert_eq!(bind(&|| Ok(())).map_err(|why| why.kind()).map(drop), Err(ErrorKind::AddrInUse));
            std::fs::remove_file(&path).expect("it is there");
        }
    }
}
