//! `libringway_pcap.so`: libpcap's interface to Ringway's ports.
//!
//! The library has libpcap's soname. A program that finds it first (`ringway exec` sees to that) calls it instead of libpcap:
//!
//! | device | served by |
//! |---|---|
//! | `SWITCH:PORT` | a process port that this program attaches (`source`) |
//! | `mirror:PORT`, `mirror:SWITCH:PORT` | the daemon's capture of a port, read-only |
//! | any other | libpcap itself, which `find` finds and `real` calls |
//!
//! A handle of ours begins with a mark (`handle`): each exported function looks at it, and hands handles of libpcap's on. Filters
//! are compiled and run by libpcap (`filter`), and dump files are libpcap's.
//!
//! One thread receives by a handle (`receiver`) while others send (`sender`, below a lock: `lock`) and ask for counters (`shared`).
//!
//! Frames stay in the ring while a callback has them, and while the program has the frame of `pcap_next_ex`. Time stamps are taken
//! when the library looks at the ring, one for the frames of a look (64 at most); those of mirrors are the capture's.
//!
//! All functions have the ABI `C-unwind`: exceptions of C++ callbacks pass through, and so does the end of a thread that
//! `pthread_cancel` ends while it waits (`wait`).
//!
//! Sources: the manual pages of libpcap 1.10, and the behaviour of Debian's programs.

mod abi;
mod breaker;
mod daemon;
mod device;
mod devices;
mod exports_open;
mod exports_use;
mod filter;
mod find;
mod forward;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handle;
mod lock;
mod pcapng;
mod real;
mod receiver;
mod selectable;
mod sender;
mod settings;
mod shared;
mod sockets;
mod source;
mod text;
mod wait;

/// Marks this library: libpcap has no such function.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn ringway_pcap_library() {}

/// libpcap's version, for programs of long ago that read it as a variable.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static pcap_version: [u8; 7] = *b"1.10.3\0";
