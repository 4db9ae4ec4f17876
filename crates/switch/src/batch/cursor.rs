//! Places in a frame behind its head.

use ringway_memory::View;

/// A place in the rest of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    rest: usize,
    offset: usize,
}

impl Cursor {
    /// Goes on by `len` bytes, which come in one view after the other.
    #[inline]
    pub(crate) fn take<'m>(&mut self, rest: &[View<'m>], mut len: usize, mut use_view: impl FnMut(View<'m>)) {
        while len > 0 {
            let Some(view) = rest.get(self.rest) else { return };
            let part = len.min(view.len() - self.offset);
            if let Some(part) = view.sub(self.offset, part) {
                use_view(part);
            }
            (len, self.offset) = (len - part, self.offset + part);
            if self.offset == view.len() {
                *self = Self { rest: self.rest + 1, offset: 0 };
            }
        }
    }
}
