//! A program under test: started, stopped while others are measured, ended on drop.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::patience::PATIENCE;

/// Time to end after SIGTERM. A program that needs more is killed.
const PARTING: Duration = Duration::from_secs(30);

/// A child process. Dropping it ends the process in any state and waits for its end. If the thread that started it ends without
/// dropping it, the kernel kills the process.
pub struct Program {
    child: Child,
    name: String,
    held: bool,
}

impl Program {
    /// Starts `command` in its own process group, so that Ctrl-C reaches this process alone.
    ///
    /// # Errors
    /// The program cannot be started. The message names it.
    pub fn start(command: &mut Command) -> io::Result<Program> {
        let name = command.get_program().to_string_lossy().into_owned();
        // SAFETY: one system call, which allocates nothing and takes no lock: it may be made between fork and exec.
        unsafe { command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::KILL))?)) };
        let child = command
            .process_group(0)
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("cannot start {name}: {error}")))?;
        Ok(Program { child, name, held: false })
    }

    /// Starts `command` on `cores`. A child inherits the cores of the starting thread, which here is pinned to one core.
    ///
    /// # Errors
    /// The program cannot be started, or a core does not exist.
    pub fn start_on(cores: &[usize], command: &mut Command) -> io::Result<Program> {
        let here = sched_getaffinity(None)?;
        let mut there = CpuSet::new();
        cores.iter().for_each(|&core| there.set(core));
        sched_setaffinity(None, &there)?;
        let program = Program::start(command);
        sched_setaffinity(None, &here)?;
        program
    }

    /// The process, for pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Stops the program (SIGSTOP), and returns once it has stopped.
    ///
    /// # Errors
    /// It ended, or did not stop.
    pub fn hold(&mut self) -> io::Result<()> {
        if self.held {
            return Ok(());
        }
        kill_process(self.pid(), Signal::STOP)?;
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            match waitpid(Some(self.pid()), WaitOptions::UNTRACED | WaitOptions::NOHANG)? {
                Some((_, status)) if status.stopped() => {
                    self.held = true;
                    return Ok(());
                }
                Some((_, status)) => return Err(io::Error::other(format!("{} ended: {status:?}", self.name))),
                None => std::hint::spin_loop(),
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} does not stop", self.name)))
    }

    /// Lets the program go on.
    ///
    /// # Errors
    /// It ended.
    pub fn resume(&mut self) -> io::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            return Err(io::Error::other(format!("{} ended: {status}", self.name)));
        }
        kill_process(self.pid(), Signal::CONT)?;
        self.held = false;
        Ok(())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SIGTERM first, so that the program removes its sockets. A stopped process would not handle the signal.
        let _ = kill_process(self.pid(), Signal::CONT);
        let _ = kill_process(self.pid(), Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < PARTING {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(pid: Pid) -> String {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit(") ").next().unwrap_or_default().chars().take(1).collect()
    }

    #[test]
    fn a_held_program_stands_still_and_goes_on() {
        let mut program = Program::start(Command::new("sleep").arg("100")).unwrap();
        program.hold().unwrap();
        program.hold().unwrap();
        assert_eq!(state(program.pid()), "T");
        program.resume().unwrap();
        assert_ne!(state(program.pid()), "T");
    }

    #[test]
    fn a_held_program_ends_with_its_guard() {
        let mut program = Program::start(Command::new("sleep").arg("100")).unwrap();
        program.hold().unwrap();
        let pid = program.pid();
        drop(program);
        assert_eq!(state(pid), "");
    }

    #[test]
    fn a_program_ends_with_the_thread_that_started_it() {
        let start = || std::mem::ManuallyDrop::new(Program::start(Command::new("sleep").arg("100")).unwrap());
        let mut program = std::thread::spawn(start).join().unwrap();
        ringway_testing::until("it ends", || program.child().try_wait().unwrap().is_some());
        drop(std::mem::ManuallyDrop::into_inner(program));
    }

    #[test]
    fn a_program_that_ended_is_named() {
        let mut program = Program::start(&mut Command::new("true")).unwrap();
        program.child().wait().unwrap();
        let error = program.resume().unwrap_err().to_string();
        assert!(error.contains("true ended"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_exist_is_named() {
        let error = Program::start(&mut Command::new("/no/such/program")).err().unwrap().to_string();
        assert!(error.contains("/no/such/program"), "{error}");
    }
}
