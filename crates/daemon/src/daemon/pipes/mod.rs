//! Pipes of the netmap API: two programs exchange frames without a switch.
//!
//! - `live`: pipes that have an end in use, as pollers take them.
//! - `clients`: programs open and close ends. `faults`: ends that Ringway closes.

mod clients;
mod faults;
pub mod live;
