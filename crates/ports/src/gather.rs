//! Frames whose pieces are in several places of a guest's memory.
//!
//! A frame in more than 60 pieces is copied together into private memory first ([`Bounce`]). A frame in more than 2,048
//! pieces counts as too long.

use std::cell::Cell;
use std::io;

use ringway_memory::{Mapping, View};

/// Longest frame: an IPv6 header and 65,535 bytes, an Ethernet header and two VLAN tags.
pub(crate) const MAX_FRAME: usize = 40 + 65_535 + 22;
/// Shortest frame: an Ethernet header.
pub(crate) const SHORTEST_FRAME: usize = 14;
/// Most pieces of a frame that stay where they are; frames of more are copied together first.
const MAX_PIECES: usize = 60;
/// Most pieces of a frame at all: as many descriptors as a chain may have, and as many ends of regions in them. One of more counts as
/// too long.
const MOST_PIECES: usize = 2048;
const BOUNCE_BYTES: usize = 4 * (MAX_FRAME + 64);

/// Private memory for frames that lie in very many pieces, or that have to be changed beyond their first bytes.
#[derive(Debug)]
pub struct Bounce {
    mapping: Option<Mapping>,
    used: Cell<usize>,
}

impl Default for Bounce {
    fn default() -> Bounce {
        Bounce { mapping: None, used: Cell::new(0) }
    }
}

impl Bounce {
    /// Makes all of it free again, before a batch.
    ///
    /// # Errors
    /// A frame needed it, and there is no memory for it.
    #[inline]
    pub fn begin(&mut self) -> io::Result<()> {
        if self.used.replace(0) > 0 && self.mapping.is_none() {
            self.mapping = Some(Mapping::private(BOUNCE_BYTES)?);
        }
        Ok(())
    }

    /// Room for one frame; `None` when this batch has used it all, or at first need: the frame is left for the next.
    pub(crate) fn room(&self) -> Option<View<'_>> {
        let at = self.used.get();
        let room = self.mapping.as_ref().and_then(|mapping| mapping.view(at, MAX_FRAME + 1));
        self.used.set(if room.is_some() { at + (MAX_FRAME + 1).next_multiple_of(64) } else { at.max(1) });
        room
    }
}

/// Where a frame ends up.
#[derive(Debug)]
enum End<'m> {
    /// In its pieces.
    Pieces,
    /// Copied together.
    Together(View<'m>),
    /// It needs to be copied together, and there is no room now.
    Wait,
    /// It is longer than any frame, or in more pieces.
    TooLong,
}

/// What was gathered.
pub(crate) enum Pieces<'g, 'm> {
    /// A frame: its pieces in order.
    Are(&'g [View<'m>]),
    /// It needs to be copied together, and there is no room now.
    Wait,
    /// It is longer than any frame, or in more pieces.
    TooLong,
}

/// The pieces of a frame.
#[derive(Debug)]
pub(crate) struct Gather<'m> {
    pieces: [View<'m>; MAX_PIECES],
    count: usize,
    /// Pieces that were added, but for empty ones.
    added: usize,
    len: usize,
    end: End<'m>,
    bounce: &'m Bounce,
}

impl<'m> Gather<'m> {
    pub(crate) fn new(bounce: &'m Bounce) -> Gather<'m> {
        Gather { pieces: [View::private(&mut []); MAX_PIECES], count: 0, added: 0, len: 0, end: End::Pieces, bounce }
    }

    /// Bytes of the frame, as far as it is not too long.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds the next piece; false: the frame is too long, and no more of them are wanted.
    pub(crate) fn add(&mut self, view: View<'m>) -> bool {
        if view.len() == 0 {
            return true;
        }
        self.added += 1;
        if self.len.saturating_add(view.len()) > MAX_FRAME || self.added > MOST_PIECES {
            self.end = End::TooLong;
        }
        if matches!(self.end, End::Pieces) && self.count == MAX_PIECES {
            self.copy_together();
        }
        match &self.end {
            End::Pieces => {
                self.pieces[self.count] = view;
                self.count += 1;
                self.len += view.len();
            }
            End::Together(room) => {
                let _ = room.sub(self.len, view.len()).is_some_and(|room| room.copy_from(view));
                self.len += view.len();
            }
            End::Wait => {}
            End::TooLong => return false,
        }
        true
    }

    /// Copies what there is, and what follows, to private memory.
    pub(crate) fn copy_together(&mut self) {
        if !matches!(self.end, End::Pieces) {
            return;
        }
        let Some(room) = self.bounce.room() else {
            self.end = End::Wait;
            return;
        };
        let mut at = 0;
        for piece in &self.pieces[..self.count] {
            let _ = room.sub(at, piece.len()).is_some_and(|room| room.copy_from(*piece));
            at += piece.len();
        }
        self.end = End::Together(room);
    }

    /// What there is.
    pub(crate) fn pieces(&mut self) -> Pieces<'_, 'm> {
        match self.end {
            End::Wait => Pieces::Wait,
            End::TooLong => Pieces::TooLong,
            End::Pieces => Pieces::Are(&self.pieces[..self.count]),
            End::Together(room) => {
                self.pieces[0] = room.sub(0, self.len).unwrap_or(room);
                Pieces::Are(&self.pieces[..1])
            }
        }
    }
}

/// Whether a frame begins with these bytes, its addresses, and has an Ethernet type behind them.
#[inline(always)]
pub(crate) fn begins_with(frame: View<'_>, addresses: &[u8; 12]) -> bool {
    let word = |at: usize| u64::from_le_bytes(addresses[at..at + 8].try_into().unwrap_or_default());
    // Two words that overlap.
    frame.len() >= 14
        && frame.first_word().map(u64::to_le) == Some(word(0))
        && frame.sub(4, 8).and_then(|tail| tail.first_word()).map(u64::to_le) == Some(word(4))
}
