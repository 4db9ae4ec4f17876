//! Frames whose pieces are in several places of a guest's memory.
//!
//! A frame in more than 60 pieces is copied together into private memory first ([`Bounce`]). A frame in more than 2,048
//! pieces counts as too long.

use std::cell::Cell;
use std::io;

use ringway_memory::{Mapping, View};

/// Longest frame in bytes: an Ethernet header, two VLAN tags, an IPv6 header and 65,535 bytes.
pub const MAX_FRAME: usize = 40 + 65_535 + 22;
/// Shortest frame in bytes: an Ethernet header.
pub const SHORTEST_FRAME: usize = 14;
/// Most pieces of a frame that is forwarded from where its pieces are. A frame of more pieces is first copied to
/// private memory.
const MAX_PIECES: usize = 60;
/// Most pieces of any frame: a chain may have half as many descriptors, and a region may end inside each. A frame of
/// more pieces counts as too long.
const MOST_PIECES: usize = 2048;
const BOUNCE_BYTES: usize = 4 * (MAX_FRAME + 64);

/// Private memory (bounce buffers) for frames in more than `MAX_PIECES` pieces and for frames that need changes beyond
/// their first bytes.
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
    /// Frees all bounce buffers, before a batch. Allocates them if the batch before needed them for the first time.
    ///
    /// # Errors
    /// A frame needs a bounce buffer, and the kernel has no memory for it.
    #[inline]
    pub fn begin(&mut self) -> io::Result<()> {
        if self.used.replace(0) > 0 && self.mapping.is_none() {
            self.mapping = Some(Mapping::private(BOUNCE_BYTES)?);
        }
        Ok(())
    }

    /// Returns a bounce buffer for one frame. Returns `None` when this batch has used all buffers, or when none are
    /// allocated yet ([`Bounce::begin`] allocates them): the caller leaves the frame to the next batch.
    pub fn room(&self) -> Option<View<'_>> {
        let at = self.used.get();
        let room = self.mapping.as_ref().and_then(|mapping| mapping.view(at, MAX_FRAME + 1));
        self.used.set(if room.is_some() { at + (MAX_FRAME + 1).next_multiple_of(64) } else { at.max(1) });
        room
    }
}

/// Where the bytes of a gathered frame are.
#[derive(Debug)]
enum End<'m> {
    /// In the views that were added.
    Pieces,
    /// In this bounce buffer.
    Together(View<'m>),
    /// The frame needs a bounce buffer, and none is free now.
    Wait,
    /// The frame is longer than [`MAX_FRAME`], or in more pieces than [`MOST_PIECES`].
    TooLong,
}

/// The result of [`Gather::pieces`].
pub enum Pieces<'g, 'm> {
    /// The pieces of a frame, in order.
    Are(&'g [View<'m>]),
    /// The frame needs a bounce buffer, and none is free now.
    Wait,
    /// The frame is longer than [`MAX_FRAME`], or in more pieces than `MOST_PIECES`.
    TooLong,
}

/// Collects the pieces of one frame.
#[derive(Debug)]
pub struct Gather<'m> {
    pieces: [View<'m>; MAX_PIECES],
    count: usize,
    /// Pieces added so far, without empty ones.
    added: usize,
    len: usize,
    end: End<'m>,
    bounce: &'m Bounce,
}

impl<'m> Gather<'m> {
    /// Frames whose joined bytes are in `bounce`.
    pub fn new(bounce: &'m Bounce) -> Gather<'m> {
        Gather { pieces: [View::private(&mut []); MAX_PIECES], count: 0, added: 0, len: 0, end: End::Pieces, bounce }
    }

    /// Bytes of the frame, up to the piece that made it too long.
    #[allow(clippy::len_without_is_empty, reason = "a frame has a byte")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Adds the next piece. Returns false when the frame is too long: the caller need not add the others.
    pub fn add(&mut self, view: View<'m>) -> bool {
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

    /// Moves the frame to a bounce buffer: copies the pieces added so far, and has [`Gather::add`] copy those that
    /// follow.
    pub fn copy_together(&mut self) {
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

    /// Returns the pieces of the frame.
    pub fn pieces(&mut self) -> Pieces<'_, 'm> {
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

/// Returns true if `frame` starts with these two addresses and is long enough for an Ethernet type after them.
#[inline(always)]
pub fn begins_with(frame: View<'_>, addresses: &[u8; 12]) -> bool {
    let word = |at: usize| u64::from_le_bytes(addresses[at..at + 8].try_into().unwrap_or_default());
    // Two words of eight bytes that overlap by four.
    frame.len() >= 14
        && frame.first_word().map(u64::to_le) == Some(word(0))
        && frame.sub(4, 8).and_then(|tail| tail.first_word()).map(u64::to_le) == Some(word(4))
}
