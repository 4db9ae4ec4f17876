//! Header lengths of ports that this process is going to register.

use std::ffi::c_int;

use ringway_abi::netmap::PortName;

use crate::lock::Guarded;

/// Header lengths that this process has set for ports that it is going to register.
static HEADERS: Guarded<Headers> = Guarded::new(Headers { used: 0, all: [NO_HEADER; MOST_HEADERS] });
/// Most ports whose header length is remembered.
const MOST_HEADERS: usize = 1024;
const NO_HEADER: ([u8; 64], u8) = ([0; 64], 0);

/// Header lengths and their ports. They take no memory from the program: the lock is never held over another one.
struct Headers {
    used: usize,
    all: [([u8; 64], u8); MOST_HEADERS],
}

impl Headers {
    fn of(&self, key: &[u8; 64]) -> u8 {
        self.all[..self.used].iter().find(|(of, _)| of == key).map_or(0, |&(_, len)| len)
    }

    /// Remembers a length, unless there is no room for it.
    fn set(&mut self, key: [u8; 64], len: u8) -> Result<(), c_int> {
        if let Some((_, known)) = self.all[..self.used].iter_mut().find(|(of, _)| *of == key) {
            *known = len;
            return Ok(());
        }
        *self.all.get_mut(self.used).ok_or(libc::ENOMEM)? = (key, len);
        self.used += 1;
        Ok(())
    }
}

/// Returns a port's name as [`Headers`] have it. A name in a header of netmap is no longer.
fn key(name: &PortName) -> [u8; 64] {
    let mut key = [0; 64];
    key.iter_mut().zip(name.to_string().bytes()).for_each(|(into, byte)| *into = byte);
    key
}

/// Frees the lock in the child of a fork.
pub(crate) fn reset_lock() {
    HEADERS.reset();
}

/// Returns the header length that was set for a port.
///
/// # Errors
/// EBUSY: a signal handler has interrupted a request of its own thread about lengths.
pub(crate) fn wanted(name: &PortName) -> Result<u8, c_int> {
    let key = key(name);
    HEADERS.with(|headers| headers.of(&key)).ok_or(libc::EBUSY)
}

/// Remembers the header length of a port.
///
/// # Errors
/// See [`wanted`]. ENOMEM: there is no room for another port.
pub(crate) fn set(name: &PortName, len: u8) -> Result<(), c_int> {
    let key = key(name);
    HEADERS.with(|headers| headers.set(key, len)).unwrap_or(Err(libc::EBUSY))
}
