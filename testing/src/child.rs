//! Child processes, which end with what started them.

use std::io::{BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::process::{Child, ExitStatus, Output};
use std::sync::mpsc::{Receiver, Sender, channel};

use rustix::process::{Pid, Signal, kill_process};

use crate::wait::until_some;

/// A child process that is killed when this is dropped.
#[derive(Debug)]
pub struct Ended(pub Child);

impl Ended {
    /// Sends a signal to the process.
    ///
    /// # Panics
    /// The process has been waited for.
    pub fn signal(&self, signal: Signal) {
        self::signal(self.0.id(), signal);
    }

    /// Waits until the process has ended by itself.
    ///
    /// # Panics
    /// The process does not end within [`crate::PATIENCE`].
    #[track_caller]
    pub fn end(&mut self) -> ExitStatus {
        until_some("the process ends", || self.0.try_wait().expect("our own child"))
    }

    /// Waits until the process has ended by itself; returns its status and what it wrote. Both streams are pipes that hold all of it.
    ///
    /// # Panics
    /// The process does not end within [`crate::PATIENCE`].
    #[track_caller]
    pub fn output(mut self) -> Output {
        let status = self.end();
        let read = |pipe: Option<&mut dyn Read>| {
            let mut bytes = Vec::new();
            if let Some(pipe) = pipe {
                pipe.read_to_end(&mut bytes).expect("a pipe");
            }
            bytes
        };
        let stdout = read(self.0.stdout.as_mut().map(|pipe| pipe as _));
        let stderr = read(self.0.stderr.as_mut().map(|pipe| pipe as _));
        Output { status, stdout, stderr }
    }
}

impl Deref for Ended {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Ended {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a signal to a child process by its id.
///
/// # Panics
/// There is no such process.
pub fn signal(id: u32, signal: Signal) {
    kill_process(pid(id), signal).expect("our own child");
}

/// The number of a process.
///
/// # Panics
/// It is that of none.
#[must_use]
pub fn pid(id: u32) -> Pid {
    Pid::from_raw(i32::try_from(id).expect("a process id")).expect("not 0")
}

/// What is written to a pipe, line by line.
pub fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    forward_lines(pipe, send);
    lines
}

/// Sends what is written to a pipe, line by line, until its end.
pub fn forward_lines(pipe: impl Read + Send + 'static, send: Sender<String>) {
    std::thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).all(|line| send.send(line).is_ok()));
}

/// Processes of this name whose parent is this one, and which have not begun to end.
///
/// # Panics
/// There is no `/proc`.
#[must_use]
pub fn children(parent: u32, name: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("processes");
    let processes = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(|process| is_child(*process, parent, name)).collect()
}

/// Returns true if the process has this name and this parent, and has not begun to end.
#[must_use]
pub fn is_child(id: u32, parent: u32, name: &str) -> bool {
    let Some(stat) = stat(id) else { return false };
    let its_parent = stat.state.split(' ').nth(1).and_then(|parent| parent.parse().ok());
    !stat.has_ended() && !stat.is_ending() && stat.name == name && its_parent == Some(parent)
}

/// Returns true if there is such a process, and one of its threads has not ended, whether or not the process has been waited for. What it
/// has open is open until then.
#[must_use]
pub fn is_running(id: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{id}/task")).map_or(0, Iterator::count);
    threads > 1 || stat(id).is_some_and(|stat| !stat.has_ended())
}

/// A line of `/proc/PID/stat`: the name, and what follows it, from the state on.
struct Stat {
    name: String,
    state: String,
}

impl Stat {
    fn has_ended(&self) -> bool {
        self.state.starts_with(['Z', 'X'])
    }

    /// Its first thread executes nothing any more (`PF_EXITING` in the flags, the seventh field from the state on).
    fn is_ending(&self) -> bool {
        let flags = self.state.split(' ').nth(6).and_then(|flags| flags.parse::<u64>().ok());
        flags.is_some_and(|flags| flags & 4 != 0)
    }
}

fn stat(id: u32) -> Option<Stat> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let ((_, name), state) = stat.rsplit_once(") ").and_then(|(name, state)| Some((name.split_once(" (")?, state)))?;
    Some(Stat { name: name.to_owned(), state: state.to_owned() })
}

/// Threads of a process, by the states of `/proc/PID/task/TID/stat` (proc(5)): `R`, `S`, `D`, `T`, ... None, if there is no such process.
#[must_use]
pub fn thread_states(id: u32) -> Vec<char> {
    of_threads(id, |stat| stat.chars().next())
}

/// The priorities (nice(1)) of the process's threads; none, if there is no such process.
#[must_use]
pub fn thread_priorities(id: u32) -> Vec<i32> {
    // The 19th field of proc_pid_stat(5).
    of_threads(id, |stat| stat.split(' ').nth(16)?.parse().ok())
}

/// What `of` finds in the state of each thread and what follows it.
fn of_threads<T>(id: u32, of: impl Fn(&str) -> Option<T>) -> Vec<T> {
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
    let found = |task: std::fs::DirEntry| {
        // The name in parentheses may hold anything.
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        of(stat.rsplit_once(") ")?.1)
    };
    tasks.filter_map(found).collect()
}
