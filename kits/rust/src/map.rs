//! The map that all instances of a program share: keys of 1 to 64 bytes, values of 0 to 256 bytes, at most 65,536 entries. A call takes a
//! lock: use it for the begin of a connection, not for its frames.

use crate::host;

/// The value of a key, in `to`; `None` if there is none, or if it does not fit.
pub fn get<'a>(key: &[u8], to: &'a mut [u8]) -> Option<&'a [u8]> {
    // SAFETY: the switch reads the key and writes at most as many bytes as `to` has.
    let length = unsafe { host::map_get(key.as_ptr(), key.len(), to.as_mut_ptr(), to.len()) };
    if length < 0 {
        None
    } else {
        to.get(..length as usize)
    }
}

/// Sets the value of a key. Returns false if the map is full.
#[must_use]
pub fn set(key: &[u8], value: &[u8]) -> bool {
    // SAFETY: the switch reads key and value.
    unsafe { host::map_set(key.as_ptr(), key.len(), value.as_ptr(), value.len()) == 1 }
}

/// Removes a key. Returns false if there was none.
#[allow(clippy::must_use_candidate)]
pub fn remove(key: &[u8]) -> bool {
    // SAFETY: the switch reads the key.
    unsafe { host::map_remove(key.as_ptr(), key.len()) == 1 }
}
