//! `select` and `pselect` with netmap descriptors among the descriptors.

use std::ffi::c_int;

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, fd_set, pollfd};

use super::mask::Mask;
use super::poll::poll;
use super::time::Limit;
use crate::table;

const BITS: usize = u64::BITS as usize;

/// The three sets of a call, each null or `number` bits long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sets {
    pub(crate) number: c_int,
    pub(crate) read: *mut fd_set,
    pub(crate) write: *mut fd_set,
    pub(crate) except: *mut fd_set,
}

impl Sets {
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
    let (read, write, except) = (sets.words(sets.read), sets.words(sets.write), sets.words(sets.except));
    let mut fds: Vec<pollfd> = Vec::new();
    for fd in 0..usize::try_from(sets.number).map_err(|_| libc::EINVAL)? {
        let mut events = 0;
        for (words, event) in [(&*read, POLLIN), (&*write, POLLOUT), (&*except, POLLPRI)] {
            events |= if Sets::has(words, fd) { event } else { 0 };
        }
        if events != 0 {
            fds.push(pollfd { fd: fd as c_int, events, revents: 0 });
        }
    }
    poll(&mut fds, limit, mask)?;
    if fds.iter().any(|entry| entry.revents & POLLNVAL != 0) {
        return Err(libc::EBADF);
    }
    let mut count = 0;
    let ready =
        [(read, POLLIN, POLLIN | POLLHUP | POLLERR), (write, POLLOUT, POLLOUT | POLLERR), (except, POLLPRI, POLLPRI)];
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
