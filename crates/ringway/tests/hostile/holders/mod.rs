//! Programs that hold locks of the kernel, as any user of the machine can: they run as the user nobody. `page.h` says how, and what that
//! needs. [`Holder`] starts them.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, TryRecvError};

use ringway_testing::child::{Ended, lines};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// A program that was compiled into a folder of its own.
pub struct Program(PathBuf, #[expect(dead_code, reason = "the folder goes with it")] tempfile::TempDir);

impl Program {
    /// Compiles a program of this folder.
    pub fn compile(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/holders").join(name).with_extension("c");
        let mut compiler = Command::new("cc");
        let output = compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&program).arg(source);
        let output = output.output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(program, folder)
    }
}

/// Returns true if the user nobody can do that on this machine.
pub fn can_hold() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| Command::new(&Program::compile("probe").0).status().expect("it starts").success())
}

/// What a test needs that skips without it.
pub const NEEDS: &str = "needs /dev/fuse and user namespaces for every user";

/// A process that holds its lock. Lets go when it is dropped.
pub struct Holder {
    said: Receiver<String>,
    child: Ended,
    // Its end ends the process.
    stdin: UnixStream,
}

impl Holder {
    /// Starts a program, which gets these files, and waits until it holds its lock.
    pub fn start(program: &Program, files: &[BorrowedFd<'_>]) -> Self {
        let (stdin, its) = UnixStream::pair().expect("sockets");
        if !files.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            assert!(beside.push(SendAncillaryMessage::ScmRights(files)));
            assert_eq!(sendmsg(&stdin, &[IoSlice::new(b"f")], &mut beside, SendFlags::NOSIGNAL), Ok(1));
        }
        let mut command = Command::new(&program.0);
        let mut child = command.stdin(OwnedFd::from(its)).stdout(Stdio::piped()).spawn().expect("it starts");
        let said = lines(child.stdout.take().expect("a pipe"));
        let child = Ended(child);
        assert_eq!(said.recv().expect(NEEDS), "held");
        Self { said, child, stdin }
    }

    /// Returns true if it has held the lock until now.
    #[allow(dead_code, reason = "not all tests ask")]
    pub fn holds(&self) -> bool {
        self.said.try_recv() == Err(TryRecvError::Empty)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It takes its own child with it.
        let _ = self.stdin.shutdown(Shutdown::Both);
        let _ = self.child.wait();
    }
}
