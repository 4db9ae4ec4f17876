//! The frames of a batch by destination (VALE §3.3.2).

use crate::frame::MAX_PORTS;

/// No frame.
const NONE: u16 = u16::MAX;

/// The frames for one destination, linked in the order in which they came.
#[derive(Clone, Copy, Debug)]
struct List {
    first: u16,
    last: u16,
    count: u16,
}

const EMPTY: List = List { first: NONE, last: NONE, count: 0 };

/// A list for each port and one for flooded frames. Kept between passes; only lists that were used are reset.
#[derive(Debug)]
pub(crate) struct Lists {
    /// The frame that follows each frame in its list.
    next: Vec<u16>,
    ports: Vec<List>,
    used: Vec<u16>,
    flood: List,
}

impl Lists {
    /// Empty lists for batches of up to `batch_limit` frames.
    pub(crate) fn new(batch_limit: usize) -> Lists {
        let (next, used) = (vec![NONE; batch_limit], Vec::with_capacity(batch_limit));
        Lists { next, ports: vec![EMPTY; MAX_PORTS], used, flood: EMPTY }
    }

    /// Appends the frames from `first` to before `end` to the list of a port.
    #[inline]
    pub(crate) fn link(&mut self, port: u16, first: usize, end: usize) {
        let list = &mut self.ports[usize::from(port)];
        if list.first == NONE {
            self.used.push(port);
        }
        link(&mut self.next, list, first, end);
    }

    /// Appends the frames from `first` to before `end` to the list of flooded frames.
    #[inline]
    pub(crate) fn link_flooded(&mut self, first: usize, end: usize) {
        link(&mut self.next, &mut self.flood, first, end);
    }

    /// The ports that have a list, in the order of their first frames.
    #[inline]
    pub(crate) fn used(&self) -> &[u16] {
        &self.used
    }

    /// Returns true if there are frames for a port.
    #[inline]
    pub(crate) fn has(&self, port: u16) -> bool {
        self.ports[usize::from(port)].first != NONE
    }

    /// Number of frames for a port.
    pub(crate) fn count(&self, port: u16) -> usize {
        self.ports[usize::from(port)].count.into()
    }

    /// Returns true if there are flooded frames.
    #[inline]
    pub(crate) fn has_flood(&self) -> bool {
        self.flood.first != NONE
    }

    /// The indices of the flooded frames.
    pub(crate) fn flooded(&self) -> impl Iterator<Item = usize> + '_ {
        let there = |index: u16| (index != NONE).then_some(index);
        std::iter::successors(there(self.flood.first), move |index| there(self.next[usize::from(*index)]))
            .map(usize::from)
    }

    /// Writes the indices of a port's frames to `order`, in the order of arrival. With `receives_flood` these include the
    /// flooded frames.
    #[inline]
    pub(crate) fn order(&self, order: &mut Vec<u16>, port: u16, receives_flood: bool) {
        let own = self.ports[usize::from(port)];
        let flood = if receives_flood { self.flood.first } else { NONE };
        order.clear();
        if flood == NONE && own.count == own.last.wrapping_sub(own.first).wrapping_add(1) {
            order.extend(own.first..=own.last);
            return;
        }
        // NONE is the largest number, so the smaller of the two heads is the frame that came first.
        let (mut own, mut flood) = (own.first, flood);
        while own != NONE || flood != NONE {
            let head = if own <= flood { &mut own } else { &mut flood };
            order.push(*head);
            *head = self.next[usize::from(*head)];
        }
    }

    /// Empties all lists.
    #[inline]
    pub(crate) fn clear(&mut self) {
        for &port in &self.used {
            self.ports[usize::from(port)] = EMPTY;
        }
        self.used.clear();
        self.flood = EMPTY;
    }
}

/// Appends the frames from `first` to before `end` to a list.
#[inline]
fn link(next: &mut [u16], list: &mut List, first: usize, end: usize) {
    for (index, link) in next[first..end].iter_mut().enumerate() {
        *link = (first + index + 1) as u16;
    }
    next[end - 1] = NONE;
    if list.first == NONE {
        list.first = first as u16;
    } else {
        next[usize::from(list.last)] = first as u16;
    }
    list.last = (end - 1) as u16;
    list.count += (end - first) as u16;
}
