//! Synthetic frames: their contents, written at a few nanoseconds a frame.

use std::hash::BuildHasher;

use crate::mac::Mac;
use crate::source::Source;
use crate::wire::{self, MAX_FRAME, MIN_FRAME};

/// Source port of the first flow. Packet analysers decode no protocol on these ports.
const FIRST_PORT: u16 = 40_000;
/// Most flows of one sender, over all its destinations.
pub const MAX_FLOWS: usize = 65_536;

/// The bytes after the test header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Payload {
    /// The same bytes in every frame of a length: reveals misplaced bytes, but not stale ones.
    Constant,
    /// Different bytes in each frame: reveals bytes left over from another frame.
    #[default]
    Varying,
}

/// Description of the frames of one sender.
///
/// Frames of 60 bytes and more are UDP in IPv4 (addresses from the benchmarking range of RFC 2544, UDP checksum 0) with
/// a test header after the UDP header. Shorter frames have the local experimental EtherType 0x88B5 and the test header
/// right after it, truncated at the end of the frame: below 32 bytes corruption is not detected, below 28 bytes also
/// loss, reordering and duplicates, and below 20 bytes senders and flows cannot be distinguished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameSpec {
    /// Bytes of a frame without FCS: 14 to 65,535.
    pub size: usize,
    /// Source address.
    pub source: Mac,
    /// Destination addresses, used in turn.
    pub destinations: Vec<Mac>,
    /// Number of flows to each destination, used in turn. Flows differ in the UDP source port, and each has its own
    /// sequence numbers.
    pub flows: usize,
    /// Contents of the payload.
    pub payload: Payload,
    /// Number that identifies this sender. `None`: a random number.
    pub stream: Option<u16>,
    /// An EtherType that replaces that of IPv4; the rest of the frame is unchanged. Receivers can only count such
    /// frames.
    pub ethernet_type: Option<[u8; 2]>,
}

impl Default for FrameSpec {
    fn default() -> FrameSpec {
        FrameSpec {
            size: 60,
            source: Mac::local(1),
            destinations: vec![Mac::local(2)],
            flows: 1,
            payload: Payload::default(),
            stream: None,
            ethernet_type: None,
        }
    }
}

/// Why a frame description is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameSpecError {
    /// The size is outside the limits of Ethernet and this program.
    #[error("frame size {0}: must be from {MIN_FRAME} to {MAX_FRAME} bytes, without FCS")]
    Size(usize),
    /// The source is a group address.
    #[error("source address {0} is a group address: the first byte of a source must be even")]
    Source(Mac),
    /// There is no destination.
    #[error("no destination address: give at least one")]
    NoDestination,
    /// Zero or too many flows.
    #[error("{flows} flows to each of {destinations} destinations: there must be 1 to {MAX_FLOWS} flows in all")]
    Flows {
        /// Flows to each destination.
        flows: usize,
        /// Number of destinations.
        destinations: usize,
    },
}

impl FrameSpec {
    fn validate(&self) -> Result<(), FrameSpecError> {
        if !(MIN_FRAME..=MAX_FRAME).contains(&self.size) {
            return Err(FrameSpecError::Size(self.size));
        }
        if self.source.is_group() {
            return Err(FrameSpecError::Source(self.source));
        }
        let (flows, destinations) = (self.flows, self.destinations.len());
        if destinations == 0 {
            return Err(FrameSpecError::NoDestination);
        }
        match flows.checked_mul(destinations) {
            Some(1..=MAX_FLOWS) => Ok(()),
            _ => Err(FrameSpecError::Flows { flows, destinations }),
        }
    }
}

/// One flow: its prepared headers, and what changes from frame to frame. Two cache lines.
#[repr(C, align(64))]
struct Template {
    headers: [u8; 64],
    sequence: u64,
    prefix_sum: u64,
}

/// Makes the frames that a [`FrameSpec`] describes, without end.
pub struct Frames {
    templates: Vec<Template>,
    turn: usize,
    size: usize,
    stream: u16,
    varying: bool,
    pattern: &'static [u8],
}

impl Frames {
    /// Prepares the headers of every flow.
    ///
    /// # Errors
    /// The description is invalid.
    pub fn new(spec: &FrameSpec) -> Result<Frames, FrameSpecError> {
        spec.validate()?;
        let stream = spec.stream.unwrap_or_else(random_stream);
        let templates =
            (0..spec.flows * spec.destinations.len()).map(|flow| template(spec, stream, flow as u16)).collect();
        let varying = spec.payload == Payload::Varying;
        Ok(Frames { templates, turn: 0, size: spec.size, stream, varying, pattern: wire::pattern() })
    }

    /// Returns the bytes of each frame.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the number that identifies this sender.
    #[must_use]
    pub fn stream(&self) -> u16 {
        self.stream
    }

    /// Writes the next frame. `frame` must be [`size`](Frames::size) bytes long, and is overwritten completely.
    ///
    /// # Panics
    /// `frame` has another length.
    #[inline]
    pub fn write(&mut self, frame: &mut [u8]) {
        assert_eq!(frame.len(), self.size, "the place for a frame has the frame's size");
        let turn = self.turn;
        self.turn = if turn + 1 == self.templates.len() { 0 } else { turn + 1 };
        let template = &mut self.templates[turn];
        let sequence = template.sequence;
        template.sequence += 1;
        let check = wire::check(template.prefix_sum, sequence, frame.len());
        let Some((head, payload)) = frame.split_first_chunk_mut::<{ wire::UDP_FRAME }>() else {
            return write_short(frame, template, sequence, check, self.pattern);
        };
        head.copy_from_slice(&template.headers[..wire::UDP_FRAME]);
        head[wire::PREFIX..][..8].copy_from_slice(&sequence.to_be_bytes());
        head[wire::UDP_TEST + wire::CHECK..].copy_from_slice(&check.to_be_bytes());
        if !payload.is_empty() {
            let flow = u16::from_be_bytes([head[46], head[47]]);
            let start = if self.varying { wire::pattern_start(self.stream, flow, sequence) } else { 0 };
            payload.copy_from_slice(&self.pattern[start..start + payload.len()]);
        }
    }

    /// Returns the next frame in a new vector, for callers that need a template.
    #[must_use]
    pub fn next_frame(&mut self) -> Vec<u8> {
        let mut frame = vec![0; self.size];
        self.write(&mut frame);
        frame
    }
}

impl Source for Frames {
    #[inline]
    fn next_len(&self) -> Option<usize> {
        Some(self.size)
    }

    #[inline]
    fn fill(&mut self, frame: &mut [u8]) {
        self.write(frame);
    }
}

/// Writes frames below 60 bytes: rarely used, so kept simple. The payload after a complete test header is always
/// constant.
#[cold]
fn write_short(frame: &mut [u8], template: &Template, sequence: u64, check: u32, pattern: &[u8]) {
    let mut whole = template.headers;
    let test = wire::ETHERNET;
    whole[test + wire::SEQUENCE..][..8].copy_from_slice(&sequence.to_be_bytes());
    whole[test + wire::CHECK..][..4].copy_from_slice(&check.to_be_bytes());
    let payload = &mut whole[test + wire::TEST..];
    payload.copy_from_slice(&pattern[..payload.len()]);
    frame.copy_from_slice(&whole[..frame.len()]);
}

fn template(spec: &FrameSpec, stream: u16, flow: u16) -> Template {
    // Consecutive flows go to different destinations.
    let destination = usize::from(flow) % spec.destinations.len();
    let udp = spec.size >= wire::UDP_FRAME;
    let mut headers = [0; 64];
    headers[..6].copy_from_slice(&spec.destinations[destination].0);
    headers[6..12].copy_from_slice(&spec.source.0);
    let test = if udp {
        headers[12..14].copy_from_slice(&wire::TYPE_IPV4);
        headers[14..42].copy_from_slice(&ip_and_udp(spec.size, destination as u16, flow));
        wire::UDP_TEST
    } else {
        headers[12..14].copy_from_slice(&wire::TYPE_LOCAL);
        wire::ETHERNET
    };
    if let Some(ethernet_type) = spec.ethernet_type {
        headers[12..14].copy_from_slice(&ethernet_type);
    }
    let varying = udp && spec.payload == Payload::Varying;
    let magic = if varying { wire::MAGIC_VARYING } else { wire::MAGIC_CONSTANT };
    headers[test..test + 2].copy_from_slice(&magic);
    headers[test + 2..test + 4].copy_from_slice(&stream.to_be_bytes());
    headers[test + 4..test + 6].copy_from_slice(&flow.to_be_bytes());
    let mut prefix = [0; wire::PREFIX];
    prefix.copy_from_slice(&headers[..wire::PREFIX]);
    Template { headers, sequence: 0, prefix_sum: wire::prefix_sum(&prefix) }
}

/// Returns the IPv4 (RFC 791) and UDP (RFC 768) headers of a frame of `size` bytes.
fn ip_and_udp(size: usize, destination: u16, flow: u16) -> [u8; 28] {
    let mut bytes = [0; 28];
    bytes[0] = 0x45;
    bytes[2..4].copy_from_slice(&((size - wire::ETHERNET) as u16).to_be_bytes());
    bytes[6] = 0x40; // don't fragment
    bytes[8] = 64; // time to live
    bytes[9] = 17; // UDP
    bytes[12..16].copy_from_slice(&[198, 18, 0, 1]);
    let [high, low] = destination.to_be_bytes();
    bytes[16..20].copy_from_slice(&[198, 19, high, low]);
    let checksum = wire::internet_checksum(&bytes[..20]);
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes[20..22].copy_from_slice(&flow.wrapping_add(FIRST_PORT).to_be_bytes());
    bytes[22..24].copy_from_slice(&wire::UDP_PORT);
    bytes[24..26].copy_from_slice(&((size - wire::ETHERNET - 20) as u16).to_be_bytes());
    bytes
}

fn random_stream() -> u16 {
    // The standard library's hash keys come from the system's random source.
    std::collections::hash_map::RandomState::new().hash_one(std::process::id()) as u16
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
