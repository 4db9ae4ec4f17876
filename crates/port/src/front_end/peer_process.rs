//! The process at the other end of a socket, and its user.

use std::mem::size_of;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// `PID_FS_MAGIC` of uapi/linux/magic.h.
const PIDFS_MAGIC: u64 = 0x5049_4446;
/// Numbers of processes of other PID namespaces. Other processes have smaller ones (PID_MAX_LIMIT), and clients that are no processes larger ones.
const FOREIGN: u32 = 1 << 30;

/// Returns a number of the process that connected a Unix socket: its own in this process's PID namespace. Processes of other namespaces have none
/// there and get one of the kernel's numbers for processes of all namespaces, where there are such (Linux 6.9); otherwise `None`.
pub fn peer_process(socket: impl AsFd) -> Option<NonZeroU32> {
    let pid = u32::try_from(credentials(&socket)?.pid).ok()?;
    NonZeroU32::new(pid).or_else(|| NonZeroU32::new(FOREIGN | (number_of_all(&socket)? % u64::from(FOREIGN)) as u32))
}

/// Returns the number of the process among those of all PID namespaces: its inode in pidfs.
fn number_of_all(socket: impl AsFd) -> Option<u64> {
    let mut pidfd: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is a descriptor, and `pidfd` and `len` are writable and outlive the call.
    let got = unsafe {
        let into = (&raw mut pidfd).cast();
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERPIDFD, into, &raw mut len)
    };
    if got != 0 || pidfd < 0 {
        return None;
    }
    // SAFETY: the kernel has just made it for the caller.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    // Before pidfs all of them had one inode.
    let is_pidfs = rustix::fs::fstatfs(&pidfd).is_ok_and(|about| about.f_type as u64 == PIDFS_MAGIC);
    is_pidfs.then(|| rustix::fs::fstat(&pidfd).ok().map(|about| about.st_ino)).flatten()
}

/// Returns the user of that process, in this process's user namespace.
pub fn peer_user(socket: impl AsFd) -> Option<u32> {
    Some(credentials(socket)?.uid)
}

fn credentials(socket: impl AsFd) -> Option<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option is a ucred, and `peer` and `len` are writable and outlive the call.
    let got = unsafe {
        let into = (&raw mut peer).cast();
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, into, &raw mut len)
    };
    (got == 0).then_some(peer)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    use ringway_testing::{file::directory, skip, until_some};

    use super::*;

    /// Tells a child of the test what to do at a socket.
    const CONNECT_TO: &str = "RINGWAY_TEST_CONNECT_TO";
    const LISTEN_AT: &str = "RINGWAY_TEST_LISTEN_AT";

    fn child(way: &[&str], test: &str, variable: &str, path: &Path) -> Child {
        let program = std::env::current_exe().expect("this program");
        let mut words = way.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).args(["--exact", &format!("front_end::peer_process::tests::{test}")]);
        command.env(variable, path).stdout(Stdio::null()).spawn().expect("a child")
    }

    fn connect_twice(path: impl AsRef<Path>) {
        // The path is there before the socket listens.
        let connect = || until_some("the child listens", || UnixStream::connect(&path).ok());
        let mut streams = [(); 2].map(|()| connect());
        assert_eq!(streams[0].read(&mut [0; 1]).expect("an answer"), 1);
    }

    #[test]
    fn a_child_connects() {
        std::env::var_os(CONNECT_TO).into_iter().for_each(connect_twice);
    }

    #[test]
    fn a_child_listens() {
        let Some(path) = std::env::var_os(LISTEN_AT) else { return };
        let listener = UnixListener::bind(path).expect("a socket");
        let numbers = [(); 2].map(|()| {
            let both = [(); 2].map(|()| listener.accept().expect("a client").0);
            assert_eq!(credentials(&both[0]).map(|peer| peer.pid), Some(0), "it has no number here");
            let own = both.each_ref().map(|stream| peer_process(stream).map(NonZeroU32::get));
            assert_eq!(own[0], own[1], "one process");
            (&both[0]).write_all(&[1]).expect("the client waits");
            own[0]
        });
        if number_of_all(UnixStream::pair().expect("sockets").0).is_none() {
            skip!("needs pidfs (Linux 6.9)");
        }
        assert_ne!(numbers[0], numbers[1], "two processes");
        assert!(numbers.iter().flatten().all(|number| (FOREIGN..1 << 31).contains(number)), "{numbers:?}");
    }

    #[test]
    fn processes_of_other_pid_namespaces_are_told_apart() {
        if !rustix::process::geteuid().is_root() {
            skip!("needs root");
        }
        let folder = directory();
        let path = folder.path().join("socket");
        let mut server = child(&["unshare", "--pid", "--fork"], "a_child_listens", LISTEN_AT, &path);
        connect_twice(&path);
        assert!(child(&[], "a_child_connects", CONNECT_TO, &path).wait().expect("it ends").success());
        assert!(server.wait().expect("it ends").success(), "the child's checks");
    }
}
