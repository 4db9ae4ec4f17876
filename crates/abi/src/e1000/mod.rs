//! What a driver of an 82540EM (e1000) or an 82574L (e1000e) needs to know of the device: registers and descriptors.

mod descriptor;
pub mod register;

pub use descriptor::{ReceiveFormat, ReceiveStatus, receive_size, transmit};
