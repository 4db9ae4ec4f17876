//! A batch of frames of one port, and the verdicts on them.

use core::cell::Cell;
use core::iter::Zip;
use core::slice;

use crate::host;
use crate::port::{Port, PortSet};
use crate::program::DropReason;

/// Where a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Verdict(u32);

impl Verdict {
    /// Where the learning bridge would send it; its source address is learned. Frames without a verdict have this one.
    pub const BUILT_IN: Verdict = Verdict(0);
    /// To all ports except its own.
    pub const FLOOD: Verdict = Verdict(0x20000);

    /// To one port.
    #[inline]
    pub const fn port(port: Port) -> Verdict {
        Verdict(0x10000 + port.number() as u32)
    }

    /// To the ports of a set, except the frame's own.
    #[inline]
    pub const fn ports(set: PortSet) -> Verdict {
        Verdict(0x30000 + set.number())
    }

    /// Nowhere; counted under this reason.
    #[inline]
    pub const fn drop(reason: DropReason) -> Verdict {
        Verdict(0x40000 + reason.number())
    }
}

/// What Ringway tells of a frame, in its own layout.
#[doc(hidden)]
#[repr(C, align(4))]
#[derive(Clone, Copy)]
pub struct Descriptor {
    length: u32,
    port: u16,
    vlan: u16,
    priority: u8,
    offload: u8,
    segment: u16,
    head_bytes: u8,
    reserved: [u8; 3],
}

impl Descriptor {
    #[doc(hidden)]
    pub const EMPTY: Descriptor = Descriptor {
        length: 0,
        port: 0,
        vlan: 0,
        priority: 0,
        offload: 0,
        segment: 0,
        head_bytes: 0,
        reserved: [0; 3],
    };
}

mod sealed {
    pub trait Sealed {}
    impl<const N: usize> Sealed for [u8; N] {}
}

/// The first bytes of a frame: `[u8; N]`, with N from 0 to 128. Ask for those that you read: 0 bytes cost nothing, and multiples of 16 cost
/// less than other lengths.
pub trait Head: sealed::Sealed + Copy + 'static {
    #[doc(hidden)]
    const EMPTY: Self;
    #[doc(hidden)]
    fn bytes(&self) -> &[u8];
}

impl<const N: usize> Head for [u8; N] {
    const EMPTY: [u8; N] = [0; N];

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Frames that came from one port, in order.
pub struct Batch<'a, H> {
    port: Port,
    descriptors: &'a [Descriptor],
    heads: &'a [H],
    verdicts: &'a [Cell<u32>],
}

impl<'a, H: Head> Batch<'a, H> {
    #[inline]
    pub(crate) fn new(port: Port, descriptors: &'a [Descriptor], heads: &'a [H], verdicts: &'a mut [u32]) -> Self {
        Batch { port, descriptors, heads, verdicts: Cell::from_mut(verdicts).as_slice_of_cells() }
    }

    /// The port that all frames of the batch came from.
    #[inline]
    #[must_use]
    pub fn port(&self) -> Port {
        self.port
    }

    /// Number of frames, at least 1.
    #[inline]
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.verdicts.len()
    }

    /// Gives each frame the verdict of `judge`, which is asked once for frames that follow one another and are alike. With few flows this costs
    /// less than a look at each frame. `is_alike` gets the frame that was judged, and a later one.
    #[inline]
    pub fn judge_runs(
        self,
        is_alike: impl Fn(&Frame<'a, H>, &Frame<'a, H>) -> bool,
        mut judge: impl FnMut(&Frame<'a, H>) -> Verdict,
    ) {
        let mut frames = self.into_iter();
        let mut next = frames.next();
        while let Some(first) = next {
            let verdict = judge(&first);
            first.set(verdict);
            next = loop {
                match frames.next() {
                    Some(frame) if is_alike(&first, &frame) => frame.set(verdict),
                    other => break other,
                }
            };
        }
    }
}

impl<'a, H: Head> IntoIterator for Batch<'a, H> {
    type Item = Frame<'a, H>;
    type IntoIter = Frames<'a, H>;

    #[inline]
    fn into_iter(self) -> Frames<'a, H> {
        Frames(self.descriptors.iter().zip(self.heads).zip(self.verdicts))
    }
}

/// Descriptor and head of each frame.
type Parts<'a, H> = Zip<slice::Iter<'a, Descriptor>, slice::Iter<'a, H>>;

/// The frames of a batch.
// All have the same length: a zip looks at one counter for a frame.
pub struct Frames<'a, H>(Zip<Parts<'a, H>, slice::Iter<'a, Cell<u32>>>);

impl<'a, H: Head> Iterator for Frames<'a, H> {
    type Item = Frame<'a, H>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a, H>> {
        self.0.next().map(|((descriptor, head), verdict)| Frame { descriptor, head, verdict })
    }
}

/// One frame of a batch.
pub struct Frame<'a, H> {
    descriptor: &'a Descriptor,
    /// The first bytes of the frame, with its VLAN tag if it has one. Bytes behind the end of the frame are 0.
    pub head: &'a H,
    verdict: &'a Cell<u32>,
}

impl<'a, H: Head> Frame<'a, H> {
    /// Sets where the frame goes. The last verdict on a frame counts.
    #[inline]
    pub fn set(&self, verdict: Verdict) {
        self.verdict.set(verdict.0);
    }

    /// The bytes of `head` that belong to the frame: fewer than asked for if the frame is shorter.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        let bytes = self.head.bytes();
        bytes.get(..usize::from(self.descriptor.head_bytes)).unwrap_or(bytes)
    }

    /// Learns that this address is behind the frame's port, in the frame's VLAN, as of now. Returns false if the switch's table does not
    /// have it there: a group address, bound to another port, no room, or held after a move.
    #[inline]
    #[allow(clippy::must_use_candidate)]
    pub fn learn(&self, address: &[u8; 6]) -> bool {
        // SAFETY: the switch reads 6 bytes.
        unsafe { host::mac_learn(address.as_ptr(), u32::from(self.descriptor.vlan)) == 1 }
    }

    /// Bytes of the whole frame, without frame check sequence.
    #[inline]
    #[must_use]
    pub fn length(&self) -> u32 {
        self.descriptor.length
    }

    /// The VLAN that the switch has put the frame in, 1 to 4094; 0: the switch has no VLANs.
    #[inline]
    #[must_use]
    pub fn vlan(&self) -> u16 {
        self.descriptor.vlan
    }

    /// Priority of the frame's VLAN tag, 0 to 7; 0 without a tag.
    #[inline]
    #[must_use]
    pub fn priority(&self) -> u8 {
        self.descriptor.priority
    }

    /// What the receiver still has to do: 0 nothing, 1 compute the checksum, and with that 2 segment TCP over IPv4, 4 segment TCP over IPv6,
    /// 8 segment UDP or 16 fragment UDP; with 32, the packet that the receiver segments is in a UDP tunnel.
    #[inline]
    #[must_use]
    pub fn offload(&self) -> u8 {
        self.descriptor.offload
    }

    /// Bytes of payload in each segment; 0 without segmentation.
    #[inline]
    #[must_use]
    pub fn segment(&self) -> u16 {
        self.descriptor.segment
    }
}
