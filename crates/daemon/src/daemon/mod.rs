//! The daemon: the running switches, ports and pollers, and their changes. From the bottom:
//!
//! - [`refused`]: reasons for which a request is refused.
//! - [`background`]: work whose length a client controls, without the daemon's lock.
//! - [`front_end`], [`events`]: the control side of ports whose peer connects, and the events of these ports.
//! - [`faults`], [`defects`]: faults of ports, and failures of Ringway itself. [`deaths`]: of predecessors. `backoff`: how long ports pause.
//! - [`programs`]: forwarding programs, loaded without the daemon's lock.
//! - [`devices`]: network devices ([`wanted_device`]), opened without the daemon's lock.
//! - `kept`: writes the state file, without the daemon's lock.
//! - [`outliving`], `counted`: what of the daemon itself outlives it.
//! - `captures`: running captures.
//! - [`limits`], [`live`]: switches and ports as pollers take them.
//! - [`running`]: the configuration, and the configuration that a request would make of it (pure).
//! - `open`: opens the devices and sockets of configured ports.
//! - [`state`]: [`Daemon`], the state, and the steps that several operations share.
//! - Operations, each an `impl` of [`Daemon`]: `requests` (of users), `change` (from one configuration to another, whole or not at
//!   all), `attach` (clients attach and detach), `netmap` (programs of the netmap API do), `pipes` (these programs
//!   open and close ends of pipes), `recovery` (faults and events of ports), `blame` (deaths of predecessors), `reopen` (devices and sockets that could
//!   not be opened), `left` (what predecessors left and no port has taken), `missing_programs` (which are loaded later), `config` (what commands changed of the file: shown, kept, dropped), `slow` (ports over their time budget), `report` (the status).
//! - [`settle`]: waits until a change is complete.
//!
//! The daemon owns the configuration, the live switches and ports, and the actions that turn one configuration into another
//! (`config/diff.rs`). Everything that changes ports goes through the daemon and ends in one `Engine::publish`: the configuration,
//! the API, clients that attach or detach, faults.
//!
//! One lock guards the [`Daemon`]. The control thread and the attach thread take the lock; pollers never do: pollers get
//! immutable topologies. Nothing whose length a client controls happens with the lock held (see [`background`]), and nothing that waits for
//! the kernel's lock of network devices (see [`devices`]). The two waits with
//! the lock are for a socket that a running port has to close first, and for the closer (see `change`).

pub mod attach;
pub mod background;
mod backoff;
mod blame;
mod captures;
mod change;
mod config;
mod counted;
pub mod deaths;
pub mod defects;
pub mod devices;
pub mod events;
pub mod faults;
pub mod front_end;
mod kept;
mod large_frames;
mod left;
pub mod limits;
pub mod live;
mod missing_programs;
mod namespaces;
mod netmap;
mod open;
pub mod outliving;
mod pipes;
pub mod programs;
mod recovery;
pub mod refused;
mod reopen;
mod report;
mod requests;
pub mod running;
pub mod settle;
mod slow;
pub mod state;
pub mod wanted_device;

pub use refused::Refused;
pub use settle::change;
pub use state::{Daemon, SharedDaemon, lock};
