//! Finds libpcap itself: a file of one of its sonames that is not this library.
//!
//! The dynamic linker gives a program this library for libpcap's soname. It opens a full path as another library, even if that
//! has the same soname.

use std::ffi::{CStr, CString, OsStr, c_void};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The sonames of libpcap: Debian's and Ubuntu's, and everyone else's.
const SONAMES: [&str; 2] = ["libpcap.so.0.8", "libpcap.so.1"];
/// The variable with the path of libpcap itself, for a libpcap at an unusual place.
pub const VARIABLE: &str = "RINGWAY_LIBPCAP";
/// The dynamic linker's list of libraries, which `ldconfig` writes.
const CACHE: &str = "/etc/ld.so.cache";
/// Directories that the dynamic linker knows without the list.
const DIRECTORIES: [&str; 7] =
    ["/usr/local/lib", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib64", "/lib"];
/// A symbol of this library, and of no libpcap.
const MARK: &CStr = c"ringway_pcap_library";

/// Opens libpcap. Returns its handle, or why there is none.
pub fn open() -> Result<*mut c_void, String> {
    let own = own_file();
    let mut looked = Vec::new();
    for path in candidates() {
        let Ok(meta) = fs::metadata(&path) else { continue };
        if own == Some((meta.dev(), meta.ino())) {
            continue;
        }
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { continue };
        // SAFETY: the name ends with a zero. libpcap's initialisers are those of any program that uses libpcap.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            looked.push(format!("{} cannot be loaded", path.display()));
            continue;
        }
        // SAFETY: the handle was opened above.
        let is_ours = unsafe { !libc::dlsym(handle, MARK.as_ptr()).is_null() };
        // SAFETY: as above.
        let is_libpcap = unsafe { !libc::dlsym(handle, c"pcap_open_live".as_ptr()).is_null() };
        if is_libpcap && !is_ours {
            return Ok(handle);
        }
        // SAFETY: as above; nothing of the library is in use.
        unsafe { libc::dlclose(handle) };
    }
    let looked = if looked.is_empty() { String::new() } else { format!(" ({})", looked.join(", ")) };
    Err(format!("libpcap itself is not installed: no {} in {CACHE}, LD_LIBRARY_PATH, {VARIABLE}{looked}", SONAMES[0]))
}

/// The file that this library is loaded from.
fn own_file() -> Option<(u64, u64)> {
    // SAFETY: all zeroes is a value of the structure.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is in this library, and `info` is writable.
    if unsafe { libc::dladdr(own_file as *const c_void, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker's name of a loaded library ends with a zero and stays.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let meta = fs::metadata(OsStr::from_bytes(name.to_bytes())).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Where libpcap may be, in the dynamic linker's order.
fn candidates() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::env::var_os(VARIABLE).map(PathBuf::from).into_iter().collect();
    let listed = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let listed = listed.as_bytes().split(|byte| b":;".contains(byte)).filter(|dir| !dir.is_empty());
    for directory in listed {
        paths.extend(SONAMES.map(|name| Path::new(OsStr::from_bytes(directory)).join(name)));
    }
    paths.extend(fs::read(CACHE).map(|cache| in_cache(&cache)).unwrap_or_default());
    for directory in DIRECTORIES {
        paths.extend(SONAMES.map(|name| Path::new(directory).join(name)));
    }
    paths
}

/// Returns the paths of libpcap in the dynamic linker's list. The list begins with a magic text, the number of entries at byte 20,
/// and entries of 24 bytes from byte 48: flags, name, path and others; name and path are offsets from the magic text.
fn in_cache(cache: &[u8]) -> Vec<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    // An old list may stand before it.
    let Some(start) = cache.windows(MAGIC.len()).position(|bytes| bytes == MAGIC) else { return Vec::new() };
    let cache = &cache[start..];
    let word = |at: usize| Some(u32::from_ne_bytes(*cache.get(at..)?.first_chunk()?) as usize);
    let text = |at: usize| CStr::from_bytes_until_nul(cache.get(at..)?).ok();
    let entries = word(20).unwrap_or(0).min(cache.len() / 24);
    let path = |entry: usize| {
        let at = 48 + entry * 24;
        let name = text(word(at + 4)?)?;
        let found = SONAMES.iter().any(|soname| name.to_bytes() == soname.as_bytes());
        found.then_some(PathBuf::from(OsStr::from_bytes(text(word(at + 8)?)?.to_bytes())))
    };
    (0..entries).filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut strings = Vec::new();
        let mut table = Vec::new();
        let base = 48 + entries.len() * 24;
        for (name, path) in entries {
            let mut put = |text: &str| {
                let at = (base + strings.len()) as u32;
                strings.extend(text.as_bytes());
                strings.push(0);
                at.to_ne_bytes()
            };
            let (name, path) = (put(name), put(path));
            table.extend([&[3, 3, 0, 0][..], &name, &path, &[0; 12]].concat());
        }
        let head = [b"glibc-ld.so.cache1.1", &(entries.len() as u32).to_ne_bytes()[..], &[0; 24]].concat();
        [head, table, strings].concat()
    }

    #[test]
    fn libpcap_is_found_in_the_linkers_list_whatever_stands_before() {
        let list = cache(&[("libm.so.6", "/lib/libm.so.6"), ("libpcap.so.0.8", "/lib/x/libpcap.so.0.8")]);
        assert_eq!(in_cache(&list), [PathBuf::from("/lib/x/libpcap.so.0.8")]);
        assert_eq!(in_cache(&[b"ld.so-1.7.0\0....", &list[..]].concat()), [PathBuf::from("/lib/x/libpcap.so.0.8")]);
    }

    #[test]
    fn a_damaged_list_holds_nothing() {
        let list = cache(&[("libpcap.so.0.8", "/lib/x/libpcap.so.0.8")]);
        for len in 0..list.len() {
            assert!(in_cache(&list[..len]).is_empty(), "{len} bytes");
        }
        for at in 20..list.len() {
            let mut list = list.clone();
            list[at] = 0xff;
            let _ = in_cache(&list);
        }
    }
}
