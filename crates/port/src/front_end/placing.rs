//! Sockets in the file system: binding, connecting and removing them. Where there is an opener, the switch has no access to the file system: it
//! makes the sockets, and the opener does this with them.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ringway_keeper::Link;
use ringway_keeper::opener::{
    Access, Answered, Ask, Identity, Opener, Refusal, Said, find_without_links, place_of, real,
};
use rustix::fs::{FileType, Mode, fstat};
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
        None => bind_here(socket, path, path, || access.set(path)),
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
        None => connect_here(socket, &real(path), None),
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

/// Does what the switch asks the opener about sockets. `never`: where the keeper listens to administrators, whom the listener sees in the opener.
///
/// # Errors
/// The kernel refuses, or the question is about something else.
pub fn answer_about_socket(ask: &Ask, socket: Option<OwnedFd>, never: &Path) -> Answered {
    let no_socket = || Refusal::from(&io::Error::from(ErrorKind::InvalidInput));
    // What is done with it would be done with a file, too.
    let socket = socket.filter(|socket| sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX));
    let done = match ask {
        Ask::Bind { path, access } => {
            let (access, socket) = (SocketAccess::from(access.clone()), socket.ok_or_else(no_socket)?);
            // The switch has looked at the folder, too, or says so.
            let folder = access.place(path).and_then(|_| folder_of(path));
            let bound = folder.and_then(|folder| {
                let held = place_in(&folder, path);
                bind_here(socket, path, &held, || access.set(&held))
            });
            bound.map(Said::Bound)
        }
        Ask::Connect { path } => {
            // No peer of a port has another type.
            let socket = socket.filter(|socket| sockopt::socket_type(socket) == Ok(SocketType::STREAM));
            connect_here(socket.ok_or_else(no_socket)?, path, Some(never)).map(|()| Said::Done)
        }
        Ask::Remove { path, identity } => {
            // A folder that is not there has no socket either.
            let _ = folder_of(path).map(|folder| remove_own(&place_in(&folder, path), Some(*identity)));
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

/// Finds the folder of a path, so that everything is done in the same one, whatever becomes of the path.
fn folder_of(path: &Path) -> io::Result<OwnedFd> {
    find_without_links(path.parent().ok_or(ErrorKind::InvalidInput)?)
}

/// The path of a file in a folder that is held.
fn place_in(folder: &OwnedFd, path: &Path) -> PathBuf {
    place_of(folder).join(path.file_name().unwrap_or_default())
}

/// Binds a socket to `path`, for this user alone until `open` has given the path to others. `held`: the same in a folder that is held. The address is the path, as
/// others see it.
fn bind_here(
    socket: impl AsFd,
    path: &Path,
    held: &Path,
    open: impl FnOnce() -> io::Result<()>,
) -> io::Result<Option<Identity>> {
    // The path gets the socket's mode when it is bound, so there is no moment at which other users may connect
    // (net/unix; unix(7) does not mention it).
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    let address = SocketAddrUnix::new(path)?;
    match bind(&socket, &address) {
        Err(Errno::ADDRINUSE) => {
            remove_dead(held).map_err(|why| named(path, held, why))?;
            bind(&socket, &address)?;
        }
        result => result?,
    }
    let own = identity(held);
    if own.is_none() || identity(path) != own {
        return Err(io::Error::other(format!(
            "somebody has put another folder in the place of that of {}",
            path.display()
        )));
    }
    open().inspect_err(|_| remove_own(held, own))?;
    Ok(own)
}

/// Connects a socket to the one at `path`: neither through a link, which who can write to the folder could place there, nor to the one at `never`, by whatever
/// name.
fn connect_here(socket: impl AsFd, path: &Path, never: Option<&Path>) -> io::Result<()> {
    let found = find_without_links(path)?;
    let about = fstat(&found)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::Socket {
        return Err(io::Error::new(ErrorKind::InvalidInput, format!("{} is not a socket", path.display())));
    }
    if never.is_some_and(|never| identity(never) == Some((about.st_dev, about.st_ino))) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    Ok(rustix::net::connect(socket, &SocketAddrUnix::new(place_of(&found))?)?)
}

/// Says the path as users know it.
fn named(path: &Path, held: &Path, why: io::Error) -> io::Error {
    let said = why.to_string().replace(&held.display().to_string(), &path.display().to_string());
    if why.raw_os_error().is_some() { why } else { io::Error::new(why.kind(), said) }
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
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::net::{listen, socket};

    use super::*;

    fn connected(path: &Path, kind: SocketType, never: &Path) -> Result<(), ErrorKind> {
        let socket = socket(AddressFamily::UNIX, kind, None).expect("a socket");
        let ask = Ask::Connect { path: path.to_owned() };
        let answered = answer_about_socket(&ask, Some(socket), never);
        answered.map(drop).map_err(|why| io::Error::from(why).kind())
    }

    #[test]
    fn a_link_in_the_place_of_a_peers_socket_leads_nowhere() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("a directory");
        let path = |name: &str| dir.join(name);
        let (own, other) = (path("own.sock"), path("other.sock"));
        let listener = UnixListener::bind(&other).expect("a listener");
        listener.set_nonblocking(true).expect("a flag");
        std::fs::create_dir(path("folder")).expect("a folder");
        symlink("folder", path("way")).expect("a link");
        symlink("../other.sock", path("folder/own.sock")).expect("a link");
        symlink(&other, &own).expect("a link");
        for place in [&own, &path("folder/own.sock"), &path("way/../../other.sock")] {
            assert!(connected(place, SocketType::STREAM, Path::new("/none")).is_err(), "{}", place.display());
            assert!(connect_at(&Opener::default(), new_stream(), &own).is_err());
        }
        assert_eq!(listener.accept().map_err(|why| why.kind()).map(drop), Err(ErrorKind::WouldBlock));
        assert_eq!(connected(&other, SocketType::STREAM, Path::new("/none")), Ok(()));
        // The administrator's own links to folders are resolved where nobody else chooses the path.
        connect_at(&Opener::default(), new_stream(), &path("way/../other.sock")).expect("it listens");
        assert!([listener.accept(), listener.accept()].iter().all(Result::is_ok));
    }

    fn new_stream() -> OwnedFd {
        socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket")
    }

    #[test]
    fn the_keepers_socket_is_no_peers_by_whatever_name_and_type() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("a directory");
        let (keeper, other) = (dir.join("keeper.sock"), dir.join("other.sock"));
        for kind in [SocketType::SEQPACKET, SocketType::STREAM] {
            let listener = socket(AddressFamily::UNIX, kind, None).expect("a socket");
            bind(&listener, &SocketAddrUnix::new(&keeper).expect("a path")).expect("it is bound");
            listen(&listener, 8).expect("it listens");
            std::fs::hard_link(&keeper, &other).expect("another name");
            for path in [&keeper, &other, &dir.join("../").join(dir.file_name().expect("a name")).join("other.sock")] {
                assert!(connected(path, kind, &keeper).is_err(), "{}", path.display());
            }
            // Of another socket, only the type is refused.
            assert_eq!(connected(&keeper, kind, Path::new("/none")).is_ok(), kind == SocketType::STREAM);
            for path in [&keeper, &other] {
                std::fs::remove_file(path).expect("it is there");
            }
        }
    }

    #[test]
    fn a_folder_that_somebody_replaces_gets_no_socket_and_loses_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("a directory");
        let (folder, moved, path) = (dir.join("folder"), dir.join("moved"), dir.join("folder/s"));
        std::fs::create_dir(&folder).expect("a folder");
        let held = folder_of(&path).expect("the folder");
        std::fs::rename(&folder, &moved).and_then(|()| std::fs::create_dir(&folder)).expect("another folder");
        let bound = bind_here(new_stream(), &path, &place_in(&held, &path), || panic!("it is not given away"));
        assert!(bound.expect_err("another folder").to_string().contains("another folder in the place of"));
        assert!(!moved.join("s").exists());
        // What is removed is what was bound, where it was.
        let stranger = identity(&path);
        remove_own(&place_in(&held, &path), stranger);
        assert_eq!(identity(&path), stranger);
        symlink(&folder, dir.join("link")).expect("a link");
        let ask = Ask::Remove { path: dir.join("link/s"), identity: stranger.expect("it is there") };
        answer_about_socket(&ask, None, Path::new("/none")).expect("an answer");
        assert_eq!(identity(&path), stranger, "a link on the way is not followed");
    }

    #[test]
    fn a_socket_is_given_away_by_the_opener_only_where_nobody_else_can_replace_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().canonicalize().expect("a directory");
        let access = SocketAccess { mode: Some(0o666), ..SocketAccess::default() };
        let ask = Ask::Bind { path: dir.join("s"), access: access.into() };
        for (mode, given) in [(0o777, false), (0o755, true)] {
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(mode)).expect("a mode");
            let answered = answer_about_socket(&ask, Some(new_stream()), Path::new("/none"));
            assert_eq!((answered.is_ok(), dir.join("s").exists()), (given, given), "{mode:o}");
        }
    }

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
                bind_here(&socket, &path, &path, open)?;
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
