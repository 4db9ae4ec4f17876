//! The death of the switch, told before the kernel has unmapped its memory: a successor need not wait for that.
//!
//! The control thread of the switch has a robust futex in the [page](crate::page). A thread of the keeper waits for its mark. The switch can
//! write anything there, so a mark only has the thread kill the switch and look: a successor is started once the kernel says of each thread that
//! it is ending. Such a thread executes nothing of the switch any more. Where anything is not as it should be, the keeper waits for the pidfd.
//! The keeper's main thread does not look: a thread that reads what the kernel says of an ending process may have to unmap that process's memory.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ringway_memory::{Kept, SharedMemory};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use rustix::thread::futex;

use crate::page::{BYTES, LIFE, has_noted_death};

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
    /// Readable when it is told, or cannot be.
    pub(super) told: Arc<OwnedFd>,
    watched: Arc<Watched>,
}

#[derive(Debug)]
struct Watched {
    word: Kept<AtomicU32>,
    is_over: AtomicBool,
    /// The switch may end with status 0.
    in_order: AtomicBool,
    status: OnceLock<ExitStatus>,
}

impl Death {
    /// Waits for the mark in the page of the switch with this number and pidfd, which has its futex there by now.
    pub(super) fn watch(page: &OwnedFd, number: u32, process: &OwnedFd) -> io::Result<Self> {
        let (memory, page) = (SharedMemory::open(page.try_clone()?, BYTES)?, page.try_clone()?);
        let word = Kept::new(memory.mapping(), |memory| memory.view(0, BYTES)?.words32()?.get(LIFE));
        let word = word.ok_or(io::ErrorKind::InvalidData)?;
        let told = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (is_over, in_order) = (AtomicBool::new(false), AtomicBool::new(false));
        let watched = Arc::new(Watched { word, is_over, in_order, status: OnceLock::new() });
        let (its, tell, process) = (Arc::clone(&watched), Arc::clone(&told), process.try_clone()?);
        let look = move || {
            if !is_marked(&its.word, &its.is_over) {
                return;
            }
            let in_order = || its.in_order.load(Ordering::Acquire) && !has_noted_death(&page);
            let status = status_of_ending(number, &process, in_order);
            status.map(|status| its.status.set(status));
            let _ = rustix::io::write(&*tell, &1_u64.to_ne_bytes());
        };
        std::thread::Builder::new().name("death".to_owned()).spawn(look)?;
        Ok(Self { told, watched })
    }

    /// The switch is about to end, as it was told to: with status 0.
    pub(super) fn is_in_order(&self) {
        self.watched.in_order.store(true, Ordering::Release);
    }

    /// How the switch ended. `None`: the pidfd tells.
    pub(super) fn status(&self) -> Option<ExitStatus> {
        self.watched.status.get().copied()
    }
}

impl Drop for Death {
    fn drop(&mut self) {
        self.watched.is_over.store(true, Ordering::Release);
        let _ = futex::wake(&self.watched.word, futex::Flags::empty(), 1);
    }
}

/// Waits until the kernel has marked the word. Returns false if nobody wants to know any more, or if something else was written there.
fn is_marked(word: &AtomicU32, is_over: &AtomicBool) -> bool {
    let alive = word.load(Ordering::Acquire);
    if alive & futex::WAITERS == 0 {
        return false;
    }
    loop {
        let now = word.load(Ordering::Acquire);
        if now & futex::OWNER_DIED != 0 {
            return true;
        }
        if now != alive || is_over.load(Ordering::Acquire) {
            return false;
        }
        let waited = futex::wait(word, futex::Flags::empty(), alive, Some(&WAIT));
        if !matches!(waited, Ok(()) | Err(Errno::TIMEDOUT | Errno::INTR | Errno::AGAIN)) {
            return false;
        }
    }
}

/// Kills a process. Returns how it ended, once all of its threads are ending, though its memory may not be unmapped yet. `None`: they are not, or the
/// kernel does not say how, or it has ended anyway, or it writes a core file. `process`: its pidfd. `in_order`: it may have ended with status 0.
fn status_of_ending(number: u32, process: &OwnedFd, in_order: impl Fn() -> bool) -> Option<ExitStatus> {
    let text = |file: &str| fs::read_to_string(format!("/proc/{number}/{file}")).ok();
    // Before Linux 5.16 the mark comes before the core file, which a signal would cut.
    if text("status")?.lines().any(|line| line.strip_prefix("CoreDumping:").is_some_and(|is| is.trim() == "1")) {
        return None;
    }
    // It need not be dead: the switch may have written the mark itself.
    let _ = pidfd_send_signal(process, Signal::KILL);
    let until = Instant::now() + ENDING_WITHIN;
    loop {
        if all_end(number)? {
            let code = exit_code(&text("stat")?)?;
            // To others than root, the kernel says 0 as long as the process has its memory.
            if code != 0 || in_order() {
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
        match fs::read_to_string(thread.ok()?.path().join("stat")) {
            Ok(stat) if looked <= THREADS_MOST && field(&stat, 9)? & EXITING != 0 => {}
            // It has ended.
            Err(why)
                if why.kind() == io::ErrorKind::NotFound || why.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
            _ => return Some(false),
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

    use ringway_testing::{until, until_some};
    use rustix::process::{Pid, PidfdFlags, getpid, kill_process, pidfd_open};

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
        futex::wake(&death.watched.word, futex::Flags::empty(), 1).expect("a futex") == 1
    }

    #[test]
    fn the_mark_of_the_kernel_is_told_and_nothing_else() {
        let alive = 77 | futex::WAITERS;
        let dead = page(alive);
        let (mut child, number, process) = sleeps();
        let death = Death::watch(&dead, number, &process).expect("memory");
        assert!(!is_told(&death));
        mark(&dead, futex::OWNER_DIED | futex::WAITERS);
        until("the death is told", || {
            wake(&death);
            is_told(&death)
        });
        // It lived, and was killed for the mark.
        assert!(death.status().is_none_or(|status| status.signal() == Some(9)), "{:?}", death.status());
        assert_eq!(child.wait().expect("our own child").signal(), Some(9));
        let (mut child, number, process) = sleeps();
        let lied = page(alive);
        let death = Death::watch(&lied, number, &process).expect("memory");
        until("it waits", || wake(&death));
        mark(&lied, 78 | futex::WAITERS);
        until("nobody waits any more", || !wake(&death) && Arc::strong_count(&death.told) == 1);
        assert!(!is_told(&death));
        let without = Death::watch(&page(0), number, &process).expect("memory");
        until("nobody waits", || Arc::strong_count(&without.told) == 1);
        assert!(!is_told(&without));
        assert!(child.try_wait().expect("our own child").is_none(), "it lives");
        child.kill().expect("our own child");
        child.wait().expect("our own child");
    }

    #[test]
    fn who_does_not_want_to_know_any_more_has_no_thread() {
        let own = pidfd_open(getpid(), PidfdFlags::empty()).expect("a descriptor");
        let death = Death::watch(&page(77 | futex::WAITERS), std::process::id(), &own).expect("memory");
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
    fn a_process_that_ended_says_by_which_signal() {
        let (mut child, number, process) = sleeps();
        kill_process(Pid::from_child(&child), Signal::ABORT).expect("our own child");
        until("it is ending", || all_end(number) == Some(true));
        // The signal that comes now changes nothing.
        let status = until_some("it ends", || status_of_ending(number, &process, || false).map(Some));
        assert_eq!(status.and_then(|status| status.signal()), Some(6));
        child.wait().expect("our own child");
        assert_eq!(status_of_ending(number, &process, || true), None, "there is none");
    }

    #[test]
    fn a_process_lives_of_which_one_thread_does() {
        assert_eq!(all_end(std::process::id()), Some(false));
        let (mut child, number, _) = sleeps();
        child.kill().expect("our own child");
        until("it is ending", || all_end(number) == Some(true));
        child.wait().expect("our own child");
        assert_eq!(all_end(number), None);
    }

    #[test]
    fn fields_are_found_behind_any_name() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 4194308 7";
        assert_eq!([field(stat, 9), field(stat, 4), field(stat, 10)], [Some(4_194_308), Some(1), Some(7)]);
        assert_eq!([field(stat, 2), field(stat, 52), field("", 9)], [None, None, None]);
    }
}
