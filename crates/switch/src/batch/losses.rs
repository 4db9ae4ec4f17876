//! Which frames of a batch their receiver lost, and why.

use std::cell::{Cell, RefCell};

use ringway_memory::Head;

use crate::frame::DropReason;

/// Noted while somebody wants to know, of one receiver at a time.
#[derive(Debug)]
pub(super) struct Losses {
    wanted: Cell<bool>,
    /// Each by the address of its head.
    noted: RefCell<Vec<(usize, DropReason)>>,
}

impl Losses {
    pub(super) fn new(limit: usize) -> Losses {
        Losses { wanted: Cell::new(false), noted: RefCell::new(Vec::with_capacity(limit)) }
    }

    /// None so far.
    pub(super) fn begin(&self) {
        self.wanted.set(true);
        self.noted.borrow_mut().clear();
    }

    /// Nobody wants to know any more.
    pub(super) fn end(&self) {
        self.wanted.set(false);
    }

    #[cold]
    pub(super) fn note(&self, head: &Head, reason: DropReason) {
        if self.wanted.get() {
            self.noted.borrow_mut().push((address(head), reason));
        }
    }

    #[inline]
    pub(super) fn of(&self, head: &Head) -> Option<DropReason> {
        let noted = self.noted.borrow();
        if noted.is_empty() {
            return None;
        }
        noted.iter().find(|(at, _)| *at == address(head)).map(|(_, reason)| *reason)
    }
}

fn address(head: &Head) -> usize {
    std::ptr::from_ref(head).addr()
}
