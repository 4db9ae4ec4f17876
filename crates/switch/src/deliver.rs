//! Delivery: a list of frames per destination, each destination served once (VALE §3.3.2).

use crate::batch::{Batch, Destination, Frame};
use crate::counters::DropReason;
use crate::switch::{MAX_PORTS, Member, Switch};

const NONE: u16 = u16::MAX;

/// The frames for one destination, in the order in which they came.
#[derive(Debug)]
pub struct Frames<'b, 'm> {
    batch: &'b Batch<'m>,
    next: &'b [u16],
    own: u16,
    flood: u16,
}

impl<'b, 'm> Iterator for Frames<'b, 'm> {
    type Item = Frame<'b, 'm>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'b, 'm>> {
        // NONE is the largest number, so the smaller of the two heads is the frame that came first.
        let index = if self.own <= self.flood {
            let index = self.own;
            if index == NONE {
                return None;
            }
            self.own = self.next[usize::from(index)];
            index
        } else {
            let index = self.flood;
            self.flood = self.next[usize::from(index)];
            index
        };
        Some(self.batch.frame(usize::from(index)))
    }
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u16,
    last: u16,
}

const EMPTY: List = List { first: NONE, last: NONE };

/// Lists by destination, kept between passes; only those that were used are reset.
#[derive(Debug)]
pub(crate) struct Lists {
    next: Vec<u16>,
    ports: Vec<List>,
    used: Vec<u16>,
    flood: List,
    /// Ports that were given frames in this pass.
    pub(crate) served: Vec<u16>,
}

impl Lists {
    pub(crate) fn new(batch_limit: usize) -> Lists {
        Lists {
            next: vec![NONE; batch_limit],
            ports: vec![EMPTY; MAX_PORTS],
            used: Vec::with_capacity(batch_limit),
            flood: EMPTY,
            served: Vec::with_capacity(MAX_PORTS),
        }
    }

    #[inline]
    fn link(next: &mut [u16], list: &mut List, index: u16) {
        next[usize::from(index)] = NONE;
        if list.first == NONE {
            list.first = index;
        } else {
            next[usize::from(list.last)] = index;
        }
        list.last = index;
    }

    /// Links every frame to its destination; counts the ones that have none at the source.
    #[inline]
    fn sort(&mut self, batch: &Batch<'_>, from: &Member, switch: &Switch) {
        let own = from.owner.index();
        let mut last = (NONE, false);
        for index in 0..batch.len() {
            match batch.destination(index) {
                Destination::Port(port) => {
                    if port != last.0 {
                        last = (port, self.admits(port, own, from, switch));
                    }
                    if last.1 {
                        Self::link(&mut self.next, &mut self.ports[usize::from(port)], index as u16);
                    }
                }
                Destination::Flood => Self::link(&mut self.next, &mut self.flood, index as u16),
                Destination::Drop(reason) => from.port.counters().drop_in(reason, 1),
            }
            if let (Destination::Port(port), false) = (batch.destination(index), last.1) {
                from.port.counters().drop_in(refusal(port, own, switch), 1);
            }
        }
    }

    /// Whether frames from `from` may go to `port`; notes the port as used when they may.
    #[inline]
    fn admits(&mut self, port: u16, own: u16, from: &Member, switch: &Switch) -> bool {
        let Some(member) = switch.member(port) else { return false };
        if port == own || (from.isolated && member.isolated) {
            return false;
        }
        if self.ports[usize::from(port)].first == NONE {
            self.used.push(port);
        }
        true
    }

    /// Stage "deliver": sorts the batch and serves every destination once. True when some receiver broke the rules.
    pub(crate) fn deliver(&mut self, batch: &Batch<'_>, from: &Member, switch: &Switch) -> bool {
        self.served.clear();
        self.sort(batch, from, switch);
        let mut fault = false;
        let mut heard = false;
        let flood = self.flood.first;
        for place in 0..self.used.len() {
            let port = self.used[place];
            let flood_too = if flood != NONE && may_flood(switch.member(port), from) { flood } else { NONE };
            heard |= flood_too != NONE;
            fault |= self.serve(batch, switch, port, flood_too);
        }
        if flood != NONE {
            for &port in switch.present() {
                if self.ports[usize::from(port)].first == NONE && may_flood(switch.member(port), from) {
                    fault |= self.serve(batch, switch, port, flood);
                    heard = true;
                }
            }
            if !heard {
                self.count_unheard(from);
            }
            self.flood = EMPTY;
        }
        for &port in &self.used {
            self.ports[usize::from(port)] = EMPTY;
        }
        self.used.clear();
        fault
    }

    #[inline]
    fn serve(&mut self, batch: &Batch<'_>, switch: &Switch, port: u16, flood: u16) -> bool {
        let Some(member) = switch.member(port) else { return false };
        let frames = Frames { batch, next: &self.next, own: self.ports[usize::from(port)].first, flood };
        self.served.push(port);
        match member.port.output().deliver(frames, member.port.counters()) {
            Ok(()) => false,
            Err(fault) => {
                member.port.fail(fault);
                true
            }
        }
    }

    /// Flooded frames that no port could hear.
    #[cold]
    fn count_unheard(&self, from: &Member) {
        let mut index = self.flood.first;
        let mut frames = 0;
        while index != NONE {
            frames += 1;
            index = self.next[usize::from(index)];
        }
        from.port.counters().drop_in(DropReason::NoDestination, frames);
    }
}

#[inline]
fn may_flood(to: Option<&Member>, from: &Member) -> bool {
    to.is_some_and(|to| to.owner != from.owner && !(from.isolated && to.isolated))
}

#[cold]
fn refusal(port: u16, own: u16, switch: &Switch) -> DropReason {
    if port == own {
        DropReason::SamePort
    } else if switch.member(port).is_none() {
        DropReason::NoDestination
    } else {
        DropReason::Isolated
    }
}
