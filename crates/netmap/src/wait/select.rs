//! `select` and `pselect` with netmap descriptors among the descriptors.

use std::ffi::c_int;
use std::mem::ManuallyDrop;

use libc::{FD_SETSIZE, POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, fd_set, pollfd};

use super::mask::Mask;
use super::poll::poll;
use super::time::Limit;
use crate::{table, user};

const BITS: usize = u64::BITS as usize;
const NONE: pollfd = pollfd { fd: -1, events: 0, revents: 0 };

/// Returns the size of the kernel's table of this process's descriptors.
#[cold]
fn table_size() -> c_int {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
    line.and_then(|size| size.trim().parse().ok()).unwrap_or(FD_SETSIZE as c_int)
}

/// The three sets of a call, each null or `number` bits long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sets {
    pub(crate) number: c_int,
    pub(crate) read: *mut fd_set,
    pub(crate) write: *mut fd_set,
    pub(crate) except: *mut fd_set,
}

impl Sets {
    /// Returns the sets with the number of bits that the kernel looks at: no more than its table of descriptors has. A program may give
    /// the highest number that it could have, with sets that are shorter.
    pub(crate) fn bounded(self) -> Self {
        let number = if self.number > FD_SETSIZE as c_int { self.number.min(table_size()) } else { self.number };
        Self { number, ..self }
    }

    /// Returns false for an address at which no memory can be: the kernel says EFAULT.
    pub(crate) fn are_addresses(&self) -> bool {
        [self.read, self.write, self.except].into_iter().all(|set| set.is_null() || user::is_address(set.cast()))
    }

    /// Returns the words of a set. A set of the program may be longer than libc's type.
    fn words<'a>(self, set: *mut fd_set) -> &'a mut [u64] {
        if set.is_null() {
            return &mut [];
        }
        let number = usize::try_from(self.number).unwrap_or(0);
        // SAFETY: the program says that the set has `number` bits; the kernel reads whole words, too. Sets do not overlap.
        unsafe { std::slice::from_raw_parts_mut(set.cast(), number.div_ceil(BITS)) }
    }

    fn has(words: &[u64], fd: usize) -> bool {
        words.get(fd / BITS).is_some_and(|word| word & 1 << (fd % BITS) != 0)
    }

    /// Returns true if a netmap descriptor is in one of the sets.
    pub(crate) fn concern_netmap(&self) -> bool {
        [self.read, self.write, self.except].into_iter().any(|set| {
            self.words(set).iter().enumerate().any(|(at, &word)| {
                let mut bits = word;
                std::iter::from_fn(|| {
                    let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                    bits &= bits - 1;
                    Some(at * BITS + bit as usize)
                })
                .any(|fd| table::entry(fd as c_int) != table::Entry::Other)
            })
        })
    }
}

/// Waits for the descriptors of the sets, and replaces the sets by what is ready. Returns the number of bits.
///
/// # Errors
/// As `pselect`.
pub(crate) fn select(sets: Sets, limit: Limit, mask: Mask) -> Result<c_int, c_int> {
    let number = usize::try_from(sets.number).map_err(|_| libc::EINVAL)?;
    // `pthread_cancel` may end the thread in the wait. It frees nothing then, so that memory is only made for long sets.
    let mut stack = [NONE; FD_SETSIZE];
    let mut heap = ManuallyDrop::new(if number > FD_SETSIZE { vec![NONE; number] } else { Vec::new() });
    let room = if number > FD_SETSIZE { &mut heap[..] } else { &mut stack[..] };
    let result = select_among(sets, room, limit, mask);
    drop(ManuallyDrop::into_inner(heap));
    result
}

/// As [`select`], with room for a descriptor for each bit.
fn select_among(sets: Sets, room: &mut [pollfd], mut limit: Limit, mask: Mask) -> Result<c_int, c_int> {
    let (read, write, except) = (sets.words(sets.read), sets.words(sets.write), sets.words(sets.except));
    let mut used = 0;
    for fd in 0..sets.number as usize {
        let mut events = 0;
        for (words, event) in [(&*read, POLLIN), (&*write, POLLOUT), (&*except, POLLPRI)] {
            events |= if Sets::has(words, fd) { event } else { 0 };
        }
        if events != 0 {
            room[used] = pollfd { fd: fd as c_int, events, revents: 0 };
            used += 1;
        }
    }
    let fds = &mut room[..used];
    let ready =
        [(read, POLLIN, POLLIN | POLLHUP | POLLERR), (write, POLLOUT, POLLOUT | POLLERR), (except, POLLPRI, POLLPRI)];
    let is_wanted =
        |entry: &pollfd| ready.iter().any(|(_, asked, ready)| entry.events & asked != 0 && entry.revents & ready != 0);
    limit.begin();
    while poll(fds, limit, mask)? > 0 {
        if fds.iter().any(|entry| entry.revents & POLLNVAL != 0) {
            return Err(libc::EBADF);
        }
        if limit == Limit::Now || fds.iter().any(is_wanted) {
            break;
        }
        // A hangup or an error that none of its sets is for lasts: it would end the wait again.
        fds.iter_mut().filter(|entry| entry.revents != 0).for_each(|entry| entry.fd = -1);
    }
    let mut count = 0;
    for (words, asked, ready) in ready {
        words.fill(0);
        for entry in fds.iter().filter(|entry| entry.events & asked != 0 && entry.revents & ready != 0) {
            let fd = entry.fd as usize;
            words[fd / BITS] |= 1 << (fd % BITS);
            count += 1;
        }
    }
    Ok(count)
}
