//! `libringway_netmap.so`: a preload library that serves `/dev/netmap` to unmodified netmap programs.
//!
//! ```text
//! program --- open("/dev/netmap") ---> interpose/ ---> process, daemon: a connection to attach.sock
//!         --- ioctl(NIOCCTRL)     ---> interpose/ ---> control/, dialogue: requests on it
//!         --- mmap                ---> interpose/ ---> the region's memory, passed by the daemon
//!         --- ioctl(NIOC?XSYNC)   ---> interpose/ ---> sync, ring: head and tail through the doorbell, no system call
//!         --- poll, select, epoll ---> interpose/ ---> wait/: sync, and sleep for the registration's eventfd
//!         --- close, dup, recvmsg ---> interpose/ ---> descriptors, table
//! ```
//!
//! The descriptor that the program has *is* the connection to the daemon, and the daemon keeps the registration with the connection, as the
//! kernel keeps it with the open file. `dup`, `fork`, `exec` and `SCM_RIGHTS` share it, and the last close ends it, however it happens.
//!
//! A call that does not concern a netmap descriptor costs one load (`table`) and goes on to libc's function with the caller's `errno`.
//! Nothing is allocated before the first open of `/dev/netmap`.

mod clock;
mod control;
mod daemon;
mod descriptors;
mod dialogue;
mod errno;
mod file;
mod interpose;
mod lock;
mod private;
mod process;
mod real;
mod region;
mod ring;
mod sync;
mod table;
mod user;
mod wait;
mod waiters;
