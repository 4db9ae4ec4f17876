//! Starts a closer: a process, or a thread of the switch.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use ringway_keeper::opener::{Answered, Ask, Opener, Refusal, Reply, Said, of_process};
use ringway_runtime::fatal;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, socketpair, sockopt};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, pidfd_send_signal};

use super::message::{ENDS_WITH_PARENT, Message, send};
use super::process::serve;

/// Bytes of the switch's messages that the closer has not taken.
const SEND_BUFFER: usize = 1 << 20;
/// Most closers that the opener has at a time: one, and one that it takes the place of.
const ALIVE_MOST: usize = 4;
/// Longest wait for the opener.
const STARTED_WITHIN: Duration = Duration::from_secs(1);

fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // Room for what a successor has to say of hundreds of ports. The kernel gives what it allows (net.core.wmem_max).
    sockopt::set_socket_send_buffer_size(&near, SEND_BUFFER)?;
    Ok((near, far))
}

/// Starts a process that calls [`run`](super::run), with the socket at the other end of the returned one as its standard input.
///
/// # Errors
/// The kernel has no descriptors or processes left, or the program cannot be executed.
pub(super) fn start_process(command: Command, is_first: bool) -> io::Result<(Arc<OwnedFd>, Closer)> {
    let (near, far) = pair()?;
    let switch = pidfd_open(getpid(), PidfdFlags::empty())?;
    // The keeper, if there is one. Another parent is of no interest.
    let parent = getppid().and_then(|parent| pidfd_open(parent, PidfdFlags::empty()).ok());
    let processes: Vec<_> = std::iter::once(&switch).chain(&parent).map(AsFd::as_fd).collect();
    // Before it is started: a failure leaves no process behind.
    send(&near, Message::Switch, &processes, SendFlags::DONTWAIT)?;
    // Later the switch may start no process.
    let opener = if is_first { Opener::default() } else { of_process() };
    let closer = match opener.ask_done(&Ask::Closer, &[far.as_fd()], STARTED_WITHIN) {
        None => Closer::Child(spawn(command, far)?),
        Some(files) => Closer::Other(files?.pop().ok_or(io::ErrorKind::InvalidData)?),
    };
    Ok((Arc::new(near), closer))
}

fn spawn(mut command: Command, socket: OwnedFd) -> io::Result<Child> {
    command.stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/").process_group(0);
    command.spawn()
}

/// Does what the switch asks the opener: starts a process that calls [`run`](super::run).
///
/// # Errors
/// It cannot be started.
pub fn start_for_switch(command: Command, socket: Option<OwnedFd>) -> Answered {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    let socket = socket.filter(|socket| {
        sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
            && sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET)
    });
    let start = move |mut command: Command, socket: OwnedFd| {
        // It ends with the thread that has started it, whatever the switch has told it.
        command.arg(ENDS_WITH_PARENT).arg(std::process::id().to_string());
        let child = spawn(command, socket)?;
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok::<_, io::Error>((child, process))
    };
    let begin = || {
        let socket = socket.ok_or(io::ErrorKind::InvalidInput)?;
        if ALIVE.fetch_add(1, Ordering::Relaxed) >= ALIVE_MOST {
            ALIVE.fetch_sub(1, Ordering::Relaxed);
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let (said, started) = channel();
        let run = move || {
            match start(command, socket) {
                Ok((mut child, process)) => {
                    let _ = said.send(Ok(process));
                    let _ = child.wait();
                }
                Err(why) => _ = said.send(Err(why)),
            }
            ALIVE.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().name("closer".to_owned()).spawn(run);
        thread.inspect_err(|_| _ = ALIVE.fetch_sub(1, Ordering::Relaxed))?;
        started.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))
    };
    let started = begin().map_err(|why: io::Error| Refusal::from(&why))?;
    Ok(Reply { said: Said::Done, files: vec![started] })
}

/// A process that closes.
pub(super) enum Closer {
    /// A child of the switch.
    Child(Child),
    /// Another one.
    Other(OwnedFd),
}

impl Closer {
    /// Kills it, and returns true, if this process may: another one ends when the switch has ended.
    pub(super) fn kill(&self) -> bool {
        // By no number: the switch may signal nobody by that.
        let opened = match self {
            Self::Child(child) => pidfd_open(Pid::from_child(child), PidfdFlags::empty()).ok(),
            Self::Other(process) => process.try_clone().ok(),
        };
        opened.is_some_and(|process| pidfd_send_signal(process, Signal::KILL).is_ok())
    }

    /// Returns true if it is known to have ended.
    pub(super) fn has_ended(&mut self) -> bool {
        match self {
            Self::Child(child) => matches!(child.try_wait(), Ok(Some(_))),
            Self::Other(process) => {
                let mut ends = [PollFd::new(process, PollFlags::IN)];
                poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
            }
        }
    }
}

/// Has a thread of this process do what the closer does.
pub(super) fn start_thread() -> Arc<OwnedFd> {
    let start = || {
        let (near, far) = pair()?;
        let far = Arc::new(far);
        std::thread::Builder::new().name("closer-inside".into()).spawn(move || serve(&far))?;
        Ok::<_, io::Error>(near)
    };
    match start() {
        Ok(near) => Arc::new(near),
        Err(error) => fatal(&format!("cannot start a thread that closes what clients have sent: {error}")),
    }
}
