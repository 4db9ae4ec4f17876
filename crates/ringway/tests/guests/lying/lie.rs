//! What a NIC lies about.

use super::rings::{Complete, Shared};

/// Returns what a register reads as, given its offset and its honest value.
pub type Read = dyn FnMut(u32, u32) -> u32 + Send;
/// Writes to the memory that guest and device share.
pub type Scribble = dyn FnMut(&Shared<'_>) + Send;

/// When the NIC interrupts the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupting {
    /// When there is a cause.
    #[default]
    Honest,
    Never,
    /// All the time, this many times at most: a kernel gives up a line after 100,000 interrupts without a cause.
    Storm(u32),
}

/// A lie. The default is none.
#[derive(Default)]
pub struct Lie {
    pub read: Option<Box<Read>>,
    pub complete: Option<Box<Complete>>,
    pub scribble: Option<Box<Scribble>>,
    pub interrupting: Interrupting,
    /// True if the NIC sends nothing.
    pub is_deaf: bool,
    /// Frames that arrive at each pass.
    pub flood: usize,
    /// Interrupt causes that are raised at each pass.
    pub causes: u32,
}

impl Lie {
    /// Lies about registers.
    pub fn read(read: impl FnMut(u32, u32) -> u32 + Send + 'static) -> Lie {
        Lie { read: Some(Box::new(read)), ..Lie::default() }
    }

    /// Lies about a flood of received frames.
    pub fn complete(complete: impl FnMut(&mut [u32; 4]) + Send + 'static) -> Lie {
        Lie { complete: Some(Box::new(complete)), flood: 4, ..Lie::default() }
    }

    /// Writes what is not true to rings or the status block.
    pub fn scribble(scribble: impl FnMut(&Shared<'_>) + Send + 'static) -> Lie {
        Lie { scribble: Some(Box::new(scribble)), ..Lie::default() }
    }

    pub fn interrupting(how: Interrupting) -> Lie {
        Lie { interrupting: how, ..Lie::default() }
    }

    /// Sends nothing, either.
    pub fn and_deaf(self) -> Lie {
        Lie { is_deaf: true, ..self }
    }

    /// Frames arrive, too.
    pub fn and_flood(self) -> Lie {
        Lie { flood: 4, ..self }
    }

    /// Raises these interrupt causes again and again, too.
    pub fn and_causes(self, causes: u32) -> Lie {
        Lie { causes, ..self }
    }
}
