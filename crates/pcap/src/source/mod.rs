//! Where a handle's frames come from.

mod descriptors;
mod frame;
mod mirror;
mod port;

pub use descriptors::Descriptors;
pub use frame::{Frame, Way};
pub use mirror::Mirror;
pub use port::{Ring, descriptors};

/// A source of frames.
#[derive(Debug)]
pub enum Source {
    /// A process port, which this program has attached.
    Port(Box<Ring>),
    /// A capture of another port.
    Mirror(Box<Mirror>),
}

macro_rules! both {
    ($source:expr, $name:ident => $call:expr) => {
        match $source {
            Source::Port($name) => $call,
            Source::Mirror($name) => $call,
        }
    };
}

impl Source {
    /// Returns the next of the frames that were found by the last [`Source::look`], and releases the one before.
    #[inline]
    pub fn next(&mut self) -> Option<Frame> {
        both!(self, source => source.next())
    }

    /// Releases the last frame.
    #[inline]
    pub fn release(&mut self) {
        both!(self, source => source.release());
    }

    /// Looks for frames. To be called when `next` has returned none.
    #[inline]
    pub fn look(&mut self) -> bool {
        both!(self, source => source.look())
    }

    /// Most frames that one look, or several looks without a pause, can find.
    pub fn room(&self) -> usize {
        match self {
            Source::Port(ring) => ring.slots(),
            Source::Mirror(_) => 4096,
        }
    }

    /// Asks for a wake-up. Returns true if there are frames already. No frame is held.
    pub fn arm(&mut self) -> bool {
        both!(self, source => source.arm())
    }

    /// Withdraws [`Source::arm`].
    pub fn disarm(&mut self) {
        if let Source::Port(ring) = self {
            ring.disarm();
        }
    }

    /// The descriptors that tell of frames and of the source's end.
    pub fn descriptors(&self) -> Descriptors<'_> {
        both!(self, source => source.descriptors())
    }

    /// Why no more frames come, or `None`.
    pub fn ended(&mut self) -> Option<String> {
        both!(self, source => source.ended())
    }

    /// Why no more frames come, as far as the source knows without a system call.
    pub fn known_end(&self) -> Option<String> {
        match self {
            Source::Port(_) => None,
            Source::Mirror(mirror) => mirror.ended(),
        }
    }
}
