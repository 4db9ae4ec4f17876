//! NICs that stock guests have drivers for: the 82540EM and the 82574L.
//!
//! - `rings`: frames in and out of descriptor rings. Values and memory only: no registers, no sockets.

pub mod rings;
