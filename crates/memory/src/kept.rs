//! References into a mapping that are checked once and keep the mapping alive.

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::mapping::Mapping;
use crate::view::{Adjacent, Pieces, Stride, View};

/// A reference into a mapping, for example to words of it, that keeps the mapping alive.
///
/// Contract: that of [`crate::View`], while this lives.
pub struct Kept<T: ?Sized> {
    piece: NonNull<T>,
    mapping: Arc<Mapping>,
}

// SAFETY: this is a shared reference to a T, and the mapping that the reference points into, which is Send and Sync.
unsafe impl<T: ?Sized + Sync> Send for Kept<T> {}
// SAFETY: see Send.
unsafe impl<T: ?Sized + Sync> Sync for Kept<T> {}

impl<T: ?Sized + 'static> Kept<T> {
    /// Keeps what `find` returns for the mapping.
    pub fn new(mapping: &Arc<Mapping>, find: impl for<'m> FnOnce(&'m Mapping) -> Option<&'m T>) -> Option<Kept<T>> {
        let piece = NonNull::from(find(mapping)?);
        Some(Kept { piece, mapping: Arc::clone(mapping) })
    }

    /// Returns the mapping.
    #[inline]
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }
}

impl<T: ?Sized> Deref for Kept<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: `find` borrowed the piece for any lifetime of the mapping, and `self` keeps the mapping alive. While
        // the mapping is shared, no mutable reference to it exists.
        unsafe { self.piece.as_ref() }
    }
}

impl<T: ?Sized> fmt::Debug for Kept<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("at", &self.piece).finish_non_exhaustive()
    }
}

/// [`Pieces`] that keep their mapping alive.
#[derive(Debug)]
pub struct PinnedPieces<S = Adjacent> {
    pieces: Pieces<'static, S>,
    _mapping: Arc<Mapping>,
}

impl<S: Stride> PinnedPieces<S> {
    /// Divides the bytes of a mapping in this range into pieces, as [`View::pieces`] does. Returns `None` when the bytes
    /// are not all inside, or `size` or the distance is 0.
    #[must_use]
    pub fn new(mapping: &Arc<Mapping>, range: Range<usize>, size: usize, stride: S) -> Option<PinnedPieces<S>> {
        let len = range.end.checked_sub(range.start)?;
        let pieces = mapping.view(range.start, len)?.pieces(size, stride)?;
        // SAFETY: the mapping is kept next to the pieces, and `get` lends them only while `self` lives.
        let pieces = unsafe { pieces.outlive() };
        Some(PinnedPieces { pieces, _mapping: Arc::clone(mapping) })
    }

    /// Returns the pieces.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> Pieces<'_, S> {
        self.pieces
    }
}

/// Empties a vector of views, so that its memory can be reused for views of another lifetime.
#[inline(always)]
#[must_use]
pub fn recycle<'n>(mut views: Vec<View<'_>>) -> Vec<View<'n>> {
    views.clear();
    let mut views = ManuallyDrop::new(views);
    // SAFETY: pointer and capacity are those of the vector, and it has no elements whose lifetime could be wrong. The
    // two types differ only in that lifetime.
    unsafe { Vec::from_raw_parts(views.as_mut_ptr().cast(), 0, views.capacity()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Every;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn what_is_kept_outlasts_every_other_hold_of_the_mapping() {
        let mapping = Arc::new(Mapping::private(8192).expect("memory"));
        let words: Kept<[AtomicU32]> = Kept::new(&mapping, |m| m.view(4096, 64)?.words32()).expect("words");
        let pieces = PinnedPieces::new(&mapping, 4096..4096 + 64, 16, Adjacent).expect("pieces");
        assert!(mapping.view(4096 + 16, 4).expect("inside").write(&7u32.to_ne_bytes()));
        let weak = Arc::downgrade(&mapping);
        drop(mapping);
        assert_eq!((words.len(), words[4].load(Ordering::Relaxed)), (16, 7));
        let mut bytes = [0; 4];
        assert!(pieces.get().get(1).expect("a piece").read(&mut bytes) && bytes == 7u32.to_ne_bytes());
        assert!(pieces.get().get(4).is_none(), "there are four");
        drop(words);
        assert!(weak.upgrade().is_some(), "the pieces hold it");
        drop(pieces);
        assert!(weak.upgrade().is_none(), "nobody holds it any more");
    }

    #[test]
    fn a_vector_of_views_is_used_again() {
        let mut bytes = [1, 2, 3];
        let mut views = Vec::with_capacity(8);
        views.push(View::private(&mut bytes));
        let at = views.as_ptr().addr();
        let views: Vec<View<'static>> = recycle(views);
        assert_eq!((views.len(), views.capacity(), views.as_ptr().addr()), (0, 8, at));
    }

    #[test]
    fn what_is_not_all_inside_is_not_kept() {
        let mapping = Arc::new(Mapping::private(4096).expect("memory"));
        assert!(Kept::<[AtomicU32]>::new(&mapping, |m| m.view(4092, 8)?.words32()).is_none());
        assert!(Kept::<[AtomicU32]>::new(&mapping, |m| m.view(2, 8)?.words32()).is_none());
        assert!(PinnedPieces::new(&mapping, 4092..4100, 8, Adjacent).is_none());
        assert!(PinnedPieces::new(&mapping, 0..4096, 0, Adjacent).is_none());
        assert!(PinnedPieces::new(&mapping, 0..4096, 1, Every(0)).is_none());
        assert_eq!(Arc::strong_count(&mapping), 1);
    }
}
