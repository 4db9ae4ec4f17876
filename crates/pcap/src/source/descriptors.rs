//! What a thread that waits for frames waits for.

use std::os::fd::BorrowedFd;

/// What a thread that waits for a source waits for.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors<'a> {
    /// An eventfd that is written when frames come or room to send. Several wait for its edges: it is never read.
    pub calls: Option<BorrowedFd<'a>>,
    /// Readable when the source has ended, and when a source without `calls` has frames.
    pub end: BorrowedFd<'a>,
}
