//! Which frames of a batch their receiver lost, and why.

use std::cell::{Cell, RefCell};

use ringway_memory::Head;

use crate::frame::DropReason;

/// Frames lost by one receiver at a time, recorded only while a capture asks for them.
#[derive(Debug)]
pub(super) struct LostFrames {
    wanted: Cell<bool>,
    /// Address of each lost frame's head, and the reason.
    lost: RefCell<Vec<(usize, DropReason)>>,
}

impl LostFrames {
    pub(super) fn new(limit: usize) -> LostFrames {
        LostFrames { wanted: Cell::new(false), lost: RefCell::new(Vec::with_capacity(limit)) }
    }

    /// Starts recording, with an empty list.
    pub(super) fn begin(&self) {
        self.wanted.set(true);
        self.lost.borrow_mut().clear();
    }

    /// Stops recording.
    pub(super) fn end(&self) {
        self.wanted.set(false);
    }

    #[cold]
    pub(super) fn note(&self, head: &Head, reason: DropReason) {
        if self.wanted.get() {
            self.lost.borrow_mut().push((address(head), reason));
        }
    }

    #[inline]
    pub(super) fn of(&self, head: &Head) -> Option<DropReason> {
        let lost = self.lost.borrow();
        if lost.is_empty() {
            return None;
        }
        lost.iter().find(|(at, _)| *at == address(head)).map(|(_, reason)| *reason)
    }
}

fn address(head: &Head) -> usize {
    std::ptr::from_ref(head).addr()
}
