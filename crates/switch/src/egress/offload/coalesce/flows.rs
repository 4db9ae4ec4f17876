//! Which frames of a delivery are joined.

use std::ops::Range;

use super::segment::{Reading, Segment, read};
use crate::batch::{Frame, Frames};
use crate::frame::Accepts;
use crate::port::OutputCapabilities;

/// Flows that are followed at a time. When more are mixed, each new one takes the place of another, by turns.
const FLOWS: usize = 16;
/// Most views of a joined frame. Each segment behind the first has one or more.
const MAX_RESTS: usize = 240;
/// Longest joined frame, in bytes: its IP header can tell its length.
const LONGEST: usize = 0xffff;
const NONE: u16 = u16::MAX;

/// The frames of a delivery, by their position in it: which one is appended to which.
#[derive(Debug)]
pub(super) struct Plan {
    /// For each frame the one that is appended to it, or [`NONE`]. Between deliveries all are [`NONE`].
    next: Box<[u16]>,
    /// True for a frame that is appended to another. Between deliveries all are false.
    is_appended: Box<[bool]>,
    /// What the first frame of a joined one is, for those with a `next`.
    firsts: Box<[Segment]>,
    /// Longest joined frame, in bytes.
    longest: u32,
}

/// The beginning of a frame that further segments may be appended to.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    first: u16,
    last: u16,
    segment: Segment,
    /// Sequence number and IPv4 identification of the next segment.
    sequence: u32,
    identification: u16,
    /// Views of the frame so far, and its bytes.
    rests: u16,
    len: u32,
    /// The checksums of the first segment were checked, and were correct.
    is_sound: bool,
}

/// A segment in its place.
struct Next<'b, 'm> {
    position: u16,
    frame: Frame<'b, 'm>,
    segment: Segment,
    /// Others may be appended to it.
    followed: bool,
}

/// The flows that are followed.
#[derive(Default)]
struct Flows {
    keys: [u64; FLOWS],
    flows: [Flow; FLOWS],
    used: usize,
    /// The place that was taken last from a flow.
    replaced: usize,
}

impl Plan {
    pub(super) fn new(batch_limit: usize) -> Plan {
        Plan {
            next: vec![NONE; batch_limit].into(),
            is_appended: vec![false; batch_limit].into(),
            firsts: vec![Segment::default(); batch_limit].into(),
            longest: 0,
        }
    }

    /// Finds the frames that can be joined, from the start of `window` on. Ends with the window if none was found in it. Returns how many
    /// are appended to others.
    #[inline(never)]
    pub(super) fn find(&mut self, frames: &Frames<'_, '_>, client: &OutputCapabilities, window: Range<usize>) -> usize {
        let (v4, v6) = (client.accepts.contains(Accepts::TSO4), client.accepts.contains(Accepts::TSO6));
        self.longest = client.longest.min(LONGEST) as u32;
        if frames.len() > self.next.len() {
            return 0;
        }
        let (mut flows, mut appended) = (Flows::default(), 0);
        for (position, frame) in frames.clone().enumerate().skip(window.start) {
            if position >= window.end && appended == 0 {
                break;
            }
            match read(&frame) {
                Reading::Other => {}
                Reading::Unclear => flows.used = 0,
                Reading::Tcp(segment) => {
                    let followed = segment.is_data && !segment.is_last && if segment.v6 { v6 } else { v4 };
                    let next = Next { position: position as u16, frame, segment, followed };
                    appended += usize::from(self.place(&mut flows, &next, frames));
                }
            }
        }
        appended
    }

    /// Appends a segment to what its flow has, if that is possible. Returns true if it is appended.
    #[inline(always)]
    fn place(&mut self, flows: &mut Flows, next: &Next<'_, '_>, frames: &Frames<'_, '_>) -> bool {
        let Some(place) = flows.find(next.segment.flow) else {
            if next.followed {
                flows.follow(Flow::new(next));
            }
            return false;
        };
        let flow = &mut flows.flows[place];
        let appended = flow.takes(next, frames, self.longest);
        if appended {
            self.next[usize::from(flow.last)] = next.position;
            self.is_appended[usize::from(next.position)] = true;
            self.firsts[usize::from(flow.first)] = flow.segment;
            flow.append(next);
        }
        match (appended, next.followed) {
            (true, true) if next.segment.payload == flow.segment.payload => {}
            (false, true) => *flow = Flow::new(next),
            _ => flows.leave(place),
        }
        appended
    }

    /// Forgets what was found for a number of frames.
    pub(super) fn clear(&mut self, frames: usize) {
        self.next[..frames].fill(NONE);
        self.is_appended[..frames].fill(false);
    }

    /// Returns true if the frame at this position is appended to another.
    #[inline]
    pub(super) fn is_appended(&self, position: usize) -> bool {
        self.is_appended[position]
    }

    /// The headers of the frame at this position, if others are appended to it.
    #[inline]
    pub(super) fn first(&self, position: usize) -> Option<&Segment> {
        (self.next[position] != NONE).then(|| &self.firsts[position])
    }

    /// The position of the frame that is appended to the one at this position.
    #[inline]
    pub(super) fn next(&self, position: usize) -> Option<usize> {
        Some(self.next[position]).filter(|&next| next != NONE).map(usize::from)
    }
}

impl Flow {
    #[inline]
    fn new(next: &Next<'_, '_>) -> Flow {
        let Next { position, frame, segment, .. } = next;
        Flow {
            first: *position,
            last: *position,
            segment: *segment,
            sequence: segment.sequence(frame).wrapping_add(segment.payload.into()),
            identification: segment.identification(frame).wrapping_add(segment.identification_step()),
            rests: frame.rest().len() as u16,
            len: frame.len() as u32,
            is_sound: false,
        }
    }

    /// Returns true if cutting the frame with this segment appended gives the same frames again.
    #[inline]
    fn takes(&self, next: &Next<'_, '_>, frames: &Frames<'_, '_>, longest: u32) -> bool {
        let Next { frame, segment, .. } = next;
        let Some(first) = frames.clone().nth(self.first.into()) else { return false };
        segment.is_data
            && segment.sequence(frame) == self.sequence
            && segment.payload <= self.segment.payload
            && segment.identification(frame) == self.identification
            && segment.has_headers_of(frame, &self.segment, &first)
            && self.len + u32::from(segment.payload) <= longest
            && usize::from(self.rests) + frame.rest().len() < MAX_RESTS
            && (self.is_sound || self.segment.is_sound(&first))
            && segment.is_sound(frame)
    }

    #[inline]
    fn append(&mut self, next: &Next<'_, '_>) {
        let Next { position, frame, segment, .. } = next;
        self.last = *position;
        self.is_sound = true;
        self.sequence = self.sequence.wrapping_add(segment.payload.into());
        self.identification = self.identification.wrapping_add(segment.identification_step());
        self.len += u32::from(segment.payload);
        self.rests += frame.rest().len() as u16 + 1;
    }
}

impl Flows {
    #[inline]
    fn find(&self, key: u64) -> Option<usize> {
        self.keys[..self.used].iter().position(|&other| other == key)
    }

    /// Follows a flow.
    #[inline]
    fn follow(&mut self, flow: Flow) {
        let place = if self.used < FLOWS {
            self.used += 1;
            self.used - 1
        } else {
            self.replaced = (self.replaced + 1) % FLOWS;
            self.replaced
        };
        (self.keys[place], self.flows[place]) = (flow.segment.flow, flow);
    }

    /// Leaves a flow.
    #[inline]
    fn leave(&mut self, place: usize) {
        self.used -= 1;
        self.keys.swap(place, self.used);
        self.flows.swap(place, self.used);
    }
}
