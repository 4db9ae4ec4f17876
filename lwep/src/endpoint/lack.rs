//! What is known of a lack of buffers and of slow peers. [`reclaim`](super::reclaim) decides by it.

use crate::connection::Nanos;

/// What a station was refused since connections were last looked at.
#[derive(Debug)]
pub struct Lack {
    /// The fewest buffers that a station had that was refused one, by [`Use`](super::stations::Use).
    pub least: [usize; 2],
    /// When connections are looked at next, and when they were last.
    pub look: Option<Nanos>,
    pub looked: Nanos,
    /// When a look for slow long messages is worth while again: for stations that have their part, and for those that have less. What the
    /// first ones look at is less, and takes nothing from the others.
    pub look_for_long: [Nanos; 2],
}

impl Default for Lack {
    fn default() -> Self {
        Self { least: [usize::MAX; 2], look: None, looked: 0, look_for_long: [0; 2] }
    }
}

impl Lack {
    /// Returns when the endpoint looks at its connections next.
    #[inline]
    pub fn deadline(&self) -> Option<Nanos> {
        self.look
    }
}

/// Numbers that a peer has to reach, and since when: of messages to it, and of messages that it sends.
#[derive(Debug, Default)]
pub struct Marks {
    pub sent: Option<(u32, Nanos)>,
    pub kept: Option<(u32, Nanos)>,
}
