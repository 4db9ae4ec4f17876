//! LWEP for C: [`ringway_lwep`] at a link of any kind.
//!
//! | module | has |
//! |---|---|
//! | `endpoint` | attaching, services, connections, what was counted |
//! | `event` | what has arrived, in its place or kept |
//! | `send` | messages, copied or written in place |
//! | `sleep` | waiting, alone or in the caller's event loop |
//! | `handles`, `held` | things of the library that C names by a number |

mod endpoint;
mod event;
mod handles;
mod held;
mod send;
mod sleep;

pub use endpoint::*;
pub use event::*;
pub use send::*;
pub use sleep::*;
