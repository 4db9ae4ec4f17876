//! The opener: a process of this program that opens for the switch what the switch itself may not: devices, sockets in the file system, files,
//! and the compiler. The keeper starts one beside each switch.
//!
//! - [`Ask`] and [`Reply`]: what the switch asks, and the answer, as JSON after a number. Files are beside both.
//! - [`Opener`]: the switch's side. The default has no opener: this process opens for itself.
//! - [`open_to_read`]: files of the configuration, which parts of the program read that know of no switch.
//! - [`find_without_links`], [`open_named`]: what the opener finds at a path whose folder somebody else can write to.
//! - [`run`]: the opener's side: a thread for each question, because the kernel may take long to answer.
//!
//! Whatever the switch asks may be forged. The opener looks up what it may have ([`run`] leaves that to its caller).

mod ask;
mod files;
mod server;
mod switch;

pub use ask::{Access, Ask, Identity, Kind, Place, Refusal, Reply, Said};
pub use files::{find_without_links, of_process, open_here, open_named, open_to_read, place_of, real, use_in_process};
pub use server::{Answered, run};
pub use switch::Opener;
