//! Why a region cannot serve a port or a registration.

use std::io;

use ringway_abi::LayoutError;

/// Why a region has no room for a port or a registration, or cannot be made.
#[derive(Debug)]
pub enum RegionError {
    /// The region would be larger than allowed.
    TooLarge {
        /// Bytes that the port needs.
        needed: u64,
        /// Bytes that are allowed.
        allowed: u64,
    },
    /// The region has no room.
    NoRoom(&'static str),
    /// The pool has too few free buffers.
    NoBuffers {
        /// Buffers that are needed.
        needed: u32,
        /// Buffers that are free.
        left: u32,
    },
    /// The buffers of the region have another size.
    BufferSize {
        /// The size that was asked for.
        asked: u32,
        /// The size of the region's buffers.
        has: u32,
    },
    /// The port does not have these rings.
    NoRings,
    /// Another registration has one of the rings, and one of the two is exclusive.
    Busy,
    /// The end of a pipe was closed, and its last frames are still moved.
    Closing,
    /// Free buffers are in lists that registrations have left, and that are read in steps.
    Returning,
    /// The port has the most registrations that it can have: this number.
    Registrations(usize),
    /// A number is out of range.
    Shape(LayoutError),
    /// The kernel refuses.
    Kernel(io::Error),
}

impl std::fmt::Display for RegionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLarge { needed, allowed } => {
                write!(f, "the port needs a region of {needed} bytes: {allowed} are allowed")
            }
            Self::NoRoom(what) => write!(f, "the memory that the program's ports share has no room left for {what}"),
            Self::NoBuffers { needed, left } => {
                write!(f, "{needed} buffers are needed, and the memory that the program's ports share has {left} left")
            }
            Self::BufferSize { asked, has } => write!(f, "buffers of {asked} bytes: the program's ports have {has}"),
            Self::NoRings => f.write_str("the port does not have these rings"),
            Self::Busy => f.write_str("another registration has one of these rings, and one of the two is exclusive"),
            Self::Closing => f.write_str("the last frames of the program before are still moved: try again"),
            Self::Returning => f.write_str("buffers of registrations that have ended are still taken back: try again"),
            Self::Registrations(most) => write!(f, "the port has {most} registrations: it can have no more"),
            Self::Shape(error) => error.fmt(f),
            Self::Kernel(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RegionError {}

impl RegionError {
    /// Returns true if the same may succeed a moment later. `is_leaving`: see [`Region::is_leaving`](super::Region::is_leaving).
    #[must_use]
    pub fn is_transient(&self, is_leaving: bool) -> bool {
        match self {
            Self::Closing | Self::Returning => true,
            Self::NoRoom(_) | Self::NoBuffers { .. } => is_leaving,
            _ => false,
        }
    }
}

impl From<io::Error> for RegionError {
    fn from(error: io::Error) -> Self {
        Self::Kernel(error)
    }
}
