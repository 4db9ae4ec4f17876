//! The death of the switch, told before the kernel has unmapped its memory: a successor need not wait for that.
//!
//! The control thread of the switch has a robust futex in the [page](crate::page). A thread of the keeper waits for its mark. The switch can
//! write anything there, so a mark only has the keeper kill the switch and look: a successor is started once the kernel says of each thread that
//! it is ending. Such a thread executes nothing of the switch any more. Where anything is not as it should be, the keeper waits for the pidfd.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ringway_memory::{Kept, SharedMemory};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::thread::futex;

use crate::page::{BYTES, LIFE};

/// Longest time for all threads of a dead switch to be ending. The kernel may keep one for longer.
const ENDING_WITHIN: Duration = Duration::from_millis(50);
/// Time between two looks at them.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };
/// Most threads that are looked at.
const THREADS_MOST: usize = 4096;
/// The flag of a thread that is ending (`PF_EXITING` of the kernel's linux/sched.h).
const EXITING: u64 = 4;
/// The thread looks so often whether anybody still wants to know.
const WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Waits for the death of one switch. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Death {
    /// Readable when it is told.
    pub(super) told: Arc<OwnedFd>,
    is_over: Arc<AtomicBool>,
    word: Arc<Kept<AtomicU32>>,
}

impl Death {
    /// Waits for the mark in the page of a switch, which has its futex there by now.
    pub(super) fn watch(page: &OwnedFd) -> io::Result<Self> {
        let memory = SharedMemory::open(page.try_clone()?, BYTES)?;
        let word = Kept::new(memory.mapping(), |memory| memory.view(0, BYTES)?.words32()?.get(LIFE));
        let word = Arc::new(word.ok_or(io::ErrorKind::InvalidData)?);
        let told = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let is_over = Arc::new(AtomicBool::new(false));
        let (its, tell, over) = (Arc::clone(&word), Arc::clone(&told), Arc::clone(&is_over));
        let thread = std::thread::Builder::new().name("death".to_owned());
        thread.spawn(move || {
            if is_marked(&its, &over) {
                let _ = rustix::io::write(&*tell, &1_u64.to_ne_bytes());
            }
        })?;
        Ok(Self { told, is_over, word })
    }
}

impl Drop for Death {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let _ = futex::wake(&self.word, futex::Flags::empty(), 1);
    }
}

/// Waits until the kernel has marked the word. Returns false if nobody wants to know any more, or if something else was written there.
fn is_marked(word: &AtomicU32, is_over: &AtomicBool) -> bool {
    let alive = word.load(Ordering::Acquire);
    if alive & futex::WAITERS == 0 {
        return false;
    }
    while !is_over.load(Ordering::Acquire) {
        let waited = futex::wait(word, futex::Flags::empty(), alive, Some(&WAIT));
        let now = word.load(Ordering::Acquire);
        if now & futex::OWNER_DIED != 0 {
            return true;
        }
        if now != alive || !matches!(waited, Ok(()) | Err(Errno::TIMEDOUT | Errno::INTR | Errno::AGAIN)) {
            return false;
        }
    }
    false
}

/// Returns how a process ended that was killed and all of whose threads are ending, though its memory may not be unmapped yet. `None`: it is not
/// so, or the kernel does not say how, or it has ended anyway. `process`: its pidfd. `in_order`: it may have ended with status 0.
pub(super) fn status_of_ending(number: u32, process: &OwnedFd, in_order: bool) -> Option<ExitStatus> {
    let until = Instant::now() + ENDING_WITHIN;
    loop {
        if all_end(number)? {
            let code = exit_code(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)?;
            // To others than root, the kernel says 0 as long as the process has its memory.
            if code != 0 || in_order {
                return Some(ExitStatus::from_raw(code));
            }
        }
        let mut ends = [PollFd::new(process, PollFlags::IN)];
        let has_ended = poll(&mut ends, Some(&LOOK_EVERY)).is_ok_and(|ready| ready > 0);
        if has_ended || Instant::now() >= until {
            return None;
        }
    }
}

/// Returns true if each thread is ending.
fn all_end(process: u32) -> Option<bool> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let mut looked = 0;
    for thread in threads {
        looked += 1;
        // One that has ended is not there any more.
        let Ok(stat) = fs::read_to_string(thread.ok()?.path().join("stat")) else { continue };
        if looked > THREADS_MOST || field(&stat, 9)? & EXITING == 0 {
            return Some(false);
        }
    }
    Some(true)
}

/// The code with which a process ends, as in wait(2), in the text of proc_pid_stat(5).
fn exit_code(stat: &str) -> Option<i32> {
    i32::try_from(field(stat, 52)?).ok()
}

/// A field, counted from 1 as in proc_pid_stat(5), behind the name. The name may hold anything.
fn field(stat: &str, number: usize) -> Option<u64> {
    stat.rsplit_once(") ")?.1.trim_end().split(' ').nth(number.checked_sub(3)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use ringway_testing::until;
    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

    use super::*;
    use crate::page::create;

    fn is_told(death: &Death) -> bool {
        let mut ends = [PollFd::new(&*death.told, PollFlags::IN)];
        poll(&mut ends, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
    }

    /// A page in whose word of life this is.
    fn page(word: u32) -> OwnedFd {
        let page = create().expect("a page");
        rustix::io::pwrite(&page, &word.to_ne_bytes(), 4 * LIFE as u64).expect("written");
        page
    }

    fn mark(page: &OwnedFd, word: u32) {
        rustix::io::pwrite(page, &word.to_ne_bytes(), 4 * LIFE as u64).expect("written");
    }

    /// As the kernel does when the thread ends.
    fn wake(death: &Death) -> bool {
        futex::wake(&death.word, futex::Flags::empty(), 1).expect("a futex") == 1
    }

    #[test]
    fn the_mark_of_the_kernel_is_told_and_nothing_else() {
        let alive = 77 | futex::WAITERS;
        let dead = page(alive);
        let death = Death::watch(&dead).expect("memory");
        assert!(!is_told(&death));
        mark(&dead, futex::OWNER_DIED | futex::WAITERS);
        until("the death is told", || {
            wake(&death);
            is_told(&death)
        });
        let lied = page(alive);
        let death = Death::watch(&lied).expect("memory");
        until("it waits", || wake(&death));
        mark(&lied, 78 | futex::WAITERS);
        until("nobody waits any more", || !wake(&death) && Arc::strong_count(&death.told) == 1);
        assert!(!is_told(&death));
        let without = Death::watch(&page(0)).expect("memory");
        until("nobody waits", || Arc::strong_count(&without.told) == 1);
        assert!(!is_told(&without));
    }

    #[test]
    fn who_does_not_want_to_know_any_more_has_no_thread() {
        let death = Death::watch(&page(77 | futex::WAITERS)).expect("memory");
        let told = Arc::clone(&death.told);
        drop(death);
        until("the thread ends", || Arc::strong_count(&told) == 1);
    }

    fn sleeps() -> (Child, u32, OwnedFd) {
        let child = Command::new("sleep").arg("1000").spawn().expect("a process");
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a descriptor");
        let number = child.id();
        (child, number, process)
    }

    #[test]
    fn a_process_that_was_killed_says_by_which_signal_and_one_that_lives_nothing() {
        let (mut child, number, process) = sleeps();
        assert_eq!(status_of_ending(number, &process, false), None, "it lives");
        kill_process(Pid::from_child(&child), Signal::ABORT).expect("our own child");
        let status = until_ends(number, &process);
        assert_eq!(status.map(|status| status.signal()), Some(Some(6)));
        child.wait().expect("our own child");
        assert_eq!(status_of_ending(number, &process, true), None, "there is none");
    }

    /// Looks as long as it takes a signal to come.
    fn until_ends(number: u32, process: &OwnedFd) -> Option<ExitStatus> {
        ringway_testing::until_some("it ends", || status_of_ending(number, process, false).map(Some))
    }

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 4194308 7";
        assert_eq!([field(stat, 9), field(stat, 4), field(stat, 10)], [Some(4_194_308), Some(1), Some(7)]);
        assert_eq!([field(stat, 2), field(stat, 52), field("", 9)], [None, None, None]);
    }
}
