//! The closer: a process that closes for the last time what a client can have, too.
//!
//! The last close of a file lasts as long as a client likes. The kernel takes the mutex of each epoll instance that watches the
//! file (`eventpoll_release_file`), and a client holds that mutex for as long as a page fault of its own lasts. A thread that waits
//! for it is in state D: no signal ends it, and a process with such a thread does not end.
//!
//! So the last close happens in a process that nobody waits for. Before a client gets a descriptor, and before the switch uses a
//! descriptor of a client, the closer has said that it has a copy ([`ClientFd::hold`]). The switch closes its own descriptor, which is then not the
//! last one, and says so. The closer closes its copy, on one of many threads, a few of them for each client.
//!
//! Some files wait at each close (FUSE). They never come into the switch: messages with files are received by the closer
//! ([`Connection::take`](super::Connection::take)), which passes eventfds and files in memory on and keeps all others.
//!
//! ```text
//!  client           switch                                   closer
//!    | --- message ---> | peeks: files came with it             |
//!    |                  | ---- Take(connection, numbers) -----> | receives from the same socket, keeps all files
//!    |                  | <--- Taken + eventfds, memory ------- |
//!    |                  | uses, closes                          |
//!    |                  | ---- Close(number) -----------------> | closes on a thread, for as long as it lasts
//!    |                  | <--- Closed(number) ----------------- |
//! ```
//!
//! When the switch has ended, also by SIGKILL, the closer closes everything and ends. It has no socket, lock or standard stream of the
//! switch. If the closer ends, the switch starts another one and gives it copies of all that the switch has. Without a program to
//! start, the closer is a thread of the switch, which then waits for clients when it ends.
//!
//! - `client_fd`: a descriptor with a copy. `keeper`: the switch's side, with `starting`. `process`: the closer's side. `message`: what they say.
//! - `owners`: who owns the descriptors of a port's connections.

mod client_fd;
mod keeper;
mod message;
mod owners;
mod process;
mod starting;
#[cfg(test)]
mod tests;

pub use client_fd::ClientFd;
pub(super) use client_fd::take_files_as;
pub use client_fd::{take_files, wait_for_closes};
pub use keeper::new_owner;
pub use keeper::{check_unclosed, check_unclosed_ports};
pub use keeper::{end, start};
pub(super) use message::{ANY_FILES, Taking};
pub use owners::Owners;
pub use process::run;
pub use starting::start_for_switch;
