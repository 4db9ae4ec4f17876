//! The effects of register accesses. No access looks at a descriptor: an access changes the registers (`chip`) and the settings
//! of the rings.

mod read;
mod ring;
mod write;
