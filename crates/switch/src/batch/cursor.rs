//! Positions in a frame behind its head.

use ringway_memory::View;

/// A position in the rest of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cursor {
    rest: usize,
    offset: usize,
}

impl Cursor {
    /// Advances by `len` bytes and passes the views of these bytes to `use_view`, in order.
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
