//! Frames on the wire are those that the manual describes, if checksums go into the fields of their headers. A slow
//! model of the manual, descriptor by descriptor, is compared with the device. Frames go through a switch to a port
//! that accepts no offloads, so that the switch does all work that is left undone.

use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_port::testing::Guest;
use ringway_switch::{
    Accepts, Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, FloodPolicy, Frames, Input, Learning,
    MacTable, Member, Output, OutputCapabilities, Owner, Port, PortFault, Switch, Time, WakeOn, Workspace, pass,
};
use ringway_testing::whole;

use super::testing::{DATA, EOP, IFCS, Ring, TX, VLE};
use super::{Bounce, Completed, Transmit, TransmitSettings};

const TSE: u64 = 1 << 26;
const IC: u64 = 1 << 26;
const CONTEXT: u64 = 1 << 29;
const IXSM: u64 = 1 << 40;
const TXSM: u64 = 1 << 41;

/// Returns a checksum over 16-bit words, in the format of a header field.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let sum = bytes.chunks(2).map(word).fold(0, |sum, word| (sum + word) % 0xffff);
    match !(sum as u16) {
        0 => [0xff; 2],
        sum => sum.to_be_bytes(),
    }
}

/// For the checksums of the IPv4 header and of its payload, returns the start of the summed bytes and the place of the
/// field. The frames here have no VLAN tags of their own.
fn own_fields(data: &[u8]) -> [Option<(usize, usize)>; 2] {
    let v4 = data.get(12..14) == Some(&[8, 0]) && data.len() >= 24 && data[14] >> 4 == 4 && data[14] & 15 >= 5;
    let v6 = data.get(12..14) == Some(&[0x86, 0xdd]) && data.len() >= 21 && data[14] >> 4 == 6;
    let (start, protocol) = match (v4, v6) {
        (true, _) if (data[20] & 0x3f, data[21]) != (0, 0) => (0, 0),
        (true, _) => (14 + usize::from(data[14] & 15) * 4, data[23]),
        (_, true) => (54, data[20]),
        _ => (0, 0),
    };
    let transport = match protocol {
        6 => Some((start, start + 16)),
        17 => Some((start, start + 6)),
        // GRE has a checksum if its flags say so.
        47 if data.get(start).is_some_and(|flags| flags & 0x80 != 0) => Some((start, start + 4)),
        _ => None,
    };
    [v4.then_some((14, 24)), transport]
}

/// A model of the device, after the manual.
#[derive(Default)]
struct Manual {
    contexts: [[u64; 2]; 2],
    first: Option<[u64; 2]>,
    data: Vec<u8>,
    wire: Vec<Vec<u8>>,
}

impl Manual {
    fn take(&mut self, guest: &Guest, [address, word]: [u64; 2], settings: &TransmitSettings) {
        let extended = word & 1 << 29 != 0;
        if extended && word >> 20 & 0xf == 0 {
            self.contexts[usize::from(word & TSE != 0)] = [address, word];
            return;
        }
        let len = if extended { word & 0xf_ffff } else { word & 0xffff };
        if address != 0 {
            self.data.extend(guest.read(address, len as usize));
        }
        let first = self.first.get_or_insert([address, word])[1];
        if word & EOP == 0 {
            return;
        }
        self.first = None;
        let mut data = std::mem::take(&mut self.data);
        if word & IFCS == 0 {
            data.truncate(data.len().saturating_sub(4));
        }
        let (cut, tagged) = if extended && first & TSE != 0 { (self.cut(&data), first) } else { (vec![], word) };
        // Segmented frames are padded later, segment by segment.
        let pad = settings.pad && cut.is_empty();
        let frames = match cut.is_empty() {
            true => self.summed(data, extended, first, word).into_iter().collect(),
            false => cut,
        };
        for mut frame in frames.into_iter().filter(|frame| frame.len() >= 14) {
            if let (Some(kind), true) = (settings.vlan, tagged & VLE != 0) {
                frame.splice(12..12, [kind.to_be_bytes(), ((tagged >> 48) as u16).to_be_bytes()].concat());
            }
            if pad && frame.len() < 60 {
                frame.resize(60, 0);
            }
            self.wire.push(frame);
        }
    }

    /// Returns the offsets in a context: start, field and end of both checksums.
    fn places(&self, context: usize) -> [(usize, usize, usize); 2] {
        let places = self.contexts[context][0].to_le_bytes().map(usize::from);
        [0, 4].map(|at| (places[at], places[at + 1], places[at + 2] | places[at + 3] << 8))
    }

    /// Unlike in the manual, a checksum goes into the field of its own header, or the frame is dropped.
    fn summed(&self, mut data: Vec<u8>, extended: bool, first: u64, last: u64) -> Option<Vec<u8>> {
        let [ip, transport] = self.places(0);
        let mut asked = vec![];
        if extended {
            asked.extend((first & IXSM != 0).then_some((false, ip)));
            asked.extend((first & TXSM != 0).then_some((true, transport)));
        } else if last & IC != 0 {
            asked.push((true, ((first >> 40 & 0xff) as usize, (last >> 16 & 0xff) as usize, 0)));
        }
        let original = data.clone();
        let [own_ip, own_transport] = own_fields(&original);
        for (is_transport, (start, field, last)) in asked {
            let end = if last == 0 { data.len() } else { data.len().min(last + 1) };
            if start < end && field + 1 < data.len() {
                if Some((start, field)) != if is_transport { own_transport } else { own_ip } {
                    return None;
                }
                data[field..field + 2].copy_from_slice(&checksum(&original[start..end]));
            }
        }
        Some(data)
    }

    fn cut(&self, data: &[u8]) -> Vec<Vec<u8>> {
        let [_, word] = self.contexts[1];
        let [(ip, ..), (start, field, _)] = self.places(1);
        let (tcp, v4) = (word & 1 << 24 != 0, word & 1 << 25 != 0);
        let (header, mss) = ((word >> 40 & 0xff) as usize, (word >> 48) as usize);
        let (header, payload) = data.split_at(header);
        let parts: Vec<&[u8]> = payload.chunks(mss).collect();
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)) as usize;
        let put16 = |frame: &mut [u8], at: usize, value: usize| {
            frame[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
        };
        let segment = |(place, part): (usize, &&[u8])| {
            let mut frame = [header, part].concat();
            let len = frame.len();
            if v4 {
                put16(&mut frame, ip + 2, len - ip);
                put16(&mut frame, ip + 4, number(&header[ip + 4..ip + 6]) + place);
                frame[ip + 10..ip + 12].fill(0);
                let sum = checksum(&frame[ip..start]);
                frame[ip + 10..ip + 12].copy_from_slice(&sum);
            } else {
                put16(&mut frame, ip + 4, len - ip - 40);
            }
            if tcp {
                let sequence = number(&header[start + 4..start + 8]) + place * mss;
                frame[start + 4..start + 8].copy_from_slice(&(sequence as u32).to_be_bytes());
                frame[start + 13] &= if place + 1 < parts.len() { !9 } else { 0xff };
                frame[start + 13] &= if place > 0 { 0x7f } else { 0xff };
            } else {
                put16(&mut frame, start + 4, len - start);
            }
            let seed = number(&frame[field..field + 2]) + len - start;
            put16(&mut frame, field, seed % 0xffff);
            let sum = checksum(&frame[start..]);
            frame[field..field + 2].copy_from_slice(&sum);
            frame
        };
        parts.iter().enumerate().map(segment).collect()
    }
}

/// A frame that a driver sends, and how it is divided into descriptors.
#[derive(Clone, Debug)]
struct Sending {
    what: What,
    len: usize,
    cuts: Vec<usize>,
    tag: Option<u16>,
    fcs: bool,
}

#[derive(Clone, Debug)]
enum What {
    Legacy,
    LegacySum { start: u8, field: u8 },
    Data,
    Sums { places: u64, ip: bool, transport: bool },
    Cut { v4: bool, tcp: bool, words: [usize; 2], mss: usize, flags: u8 },
}

fn whats() -> impl Strategy<Value = What> {
    let usual = prop_oneof![
        // TCP and UDP over IPv4 and IPv6, with the offsets that drivers use.
        Just(0x0000_3222_0021_180e_u64),
        Just(0x0000_2822_0021_180e),
        Just(0x0000_4636_0000_180e),
        // Offsets anywhere after the addresses, which the switch reads.
        any::<u64>().prop_map(|places| places | 0x1000_0000_1000),
        (any::<u64>(), any::<u64>()).prop_map(|(a, b)| a & b & 0x00ff_7f7f_00ff_7f7f | 0x1000_0000_1000),
    ];
    prop_oneof![
        Just(What::Legacy),
        (any::<u8>(), 12..=255u8).prop_map(|(start, field)| What::LegacySum { start, field }),
        Just(What::LegacySum { start: 34, field: 50 }),
        Just(What::LegacySum { start: 34, field: 40 }),
        Just(What::Data),
        (usual, any::<bool>(), any::<bool>()).prop_map(|(places, ip, transport)| What::Sums { places, ip, transport }),
        (any::<bool>(), any::<bool>(), [5..8usize, 5..9usize], 100..3000usize, any::<u8>())
            .prop_map(|(v4, tcp, words, mss, flags)| What::Cut { v4, tcp, words, mss, flags }),
    ]
}

fn sendings() -> impl Strategy<Value = Vec<Sending>> {
    let len = prop_oneof![0..70usize, 40..200usize, 14..1600usize, 1500..9000usize, Just(1514)];
    let cuts = prop_oneof![Just(vec![]), vec(0..300usize, 0..4), vec(0..40usize, 0..80), vec(1..4000usize, 0..3)];
    let tag = prop_oneof![Just(None), any::<u16>().prop_map(Some)];
    let sending = (whats(), len, cuts, tag, any::<u8>()).prop_map(|(what, len, cuts, tag, fcs)| {
        let fcs = fcs > 20 || matches!(what, What::Cut { .. });
        Sending { what, len, cuts, tag, fcs }
    });
    vec(sending, 1..30)
}

/// Puts a frame into the ring.
fn put(guest: &Guest, ring: &mut Ring, sending: &Sending, seed: usize) {
    let mut bytes: Vec<u8> =
        (0..sending.len).map(|at| (at.wrapping_mul(2_654_435_761) >> 7).wrapping_add(seed * 59) as u8).collect();
    let addresses = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1];
    let shown = bytes.len().min(12);
    bytes[..shown].copy_from_slice(&addresses[..shown]);
    // Most frames are TCP or UDP over IPv4 or IPv6.
    if bytes.len() > 24 && seed % 5 < 4 {
        let (kind, first): ([u8; 2], u8) = if seed % 5 < 3 { ([8, 0], 0x45) } else { ([0x86, 0xdd], 0x60) };
        bytes[12..14].copy_from_slice(&kind);
        bytes[14] = first;
        let protocol = if bytes[19] & 1 == 0 { 6 } else { 17 };
        bytes[if seed % 5 < 3 { 23 } else { 20 }] = protocol;
        if seed % 5 < 2 {
            bytes[20..22].fill(0);
        }
    }
    let mut flags = if sending.fcs { IFCS } else { 0 } | sending.tag.map_or(0, |tag| VLE | u64::from(tag) << 48);
    match sending.what {
        What::Legacy => {}
        What::LegacySum { start, field } => flags |= IC | u64::from(start) << 40 | u64::from(field) << 16,
        What::Data => flags |= DATA,
        What::Sums { places, ip, transport } => {
            ring.put(guest, places, CONTEXT);
            flags |= DATA | if ip { IXSM } else { 0 } | if transport { TXSM } else { 0 };
        }
        What::Cut { v4, tcp, words: [ip, transport], mss, flags: bits } => {
            let start = 14 + if v4 { ip * 4 } else { 40 };
            let end = start + if tcp { transport * 4 } else { 8 };
            let field = start + if tcp { 16 } else { 6 };
            bytes.resize(bytes.len() + 600 + end, seed as u8);
            bytes[..12].copy_from_slice(&addresses);
            let (kind, first): ([u8; 2], u8) = if v4 { ([8, 0], 0x40 | ip as u8) } else { ([0x86, 0xdd], 0x60) };
            bytes[12..14].copy_from_slice(&kind);
            bytes[14] = first;
            bytes[if v4 { 23 } else { 20 }] = if tcp { 6 } else { 17 };
            if v4 {
                bytes[20..22].fill(0);
            }
            if tcp {
                bytes[start + 12] = (transport << 4) as u8;
                bytes[start + 13] = bits;
            }
            let places = 14 | 24 << 8 | (start as u64 - 1) << 16 | (start as u64) << 32 | (field as u64) << 40;
            let sizes = (bytes.len() - end) as u64 | u64::from(tcp) << 24 | u64::from(v4) << 25;
            ring.put(guest, places, sizes | CONTEXT | TSE | (end as u64) << 40 | (mss as u64) << 48);
            flags |= DATA | TSE | TXSM | if v4 { IXSM } else { 0 };
        }
    }
    let mut at = 0;
    for &cut in &sending.cuts {
        let cut = cut.min(bytes.len() - at);
        ring.put(guest, guest.place(&bytes[at..at + cut]), cut as u64 | flags);
        at += cut;
    }
    ring.put(guest, guest.place(&bytes[at..]), (bytes.len() - at) as u64 | flags | EOP);
}

struct Sender {
    guest: Arc<Guest>,
    transmit: Transmit,
    bounce: Bounce,
    tail: u32,
    settings: TransmitSettings,
    completed: Arc<Mutex<Vec<Completed>>>,
}

impl Input for Sender {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.bounce.begin().expect("memory");
        let collected = self.transmit.collect(&self.guest.memory, &self.bounce, self.tail, &self.settings, batch);
        collected.expect("no fault");
        Ok(())
    }
    fn release(&mut self) {
        let completed = self.transmit.release(&self.guest.memory).expect("no fault");
        self.completed.lock().expect("a lock").push(completed);
    }
    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        unreachable!("there are no limits")
    }
    fn pending(&mut self) -> bool {
        self.transmit.pending(self.tail)
    }
    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::Kick
    }
    fn disarm(&mut self) {}
}

struct Receiver(Arc<Mutex<Vec<Vec<u8>>>>, Accepts);

impl Output for Receiver {
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities { accepts: self.1, ..OutputCapabilities::default() }
    }
    fn deliver(&mut self, frames: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        for frame in frames {
            assert!(frame.offload().is_none_or(|offload| self.1.covers(offload)));
            let mut bytes = frame.head().0[..frame.head_len()].to_vec();
            for rest in frame.rest() {
                let mut part = vec![0; rest.len()];
                assert!(rest.read(&mut part));
                bytes.extend(part);
            }
            self.0.lock().expect("a lock").push(bytes);
        }
        Ok(())
    }
}

struct Silent;

impl Bell for Silent {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

/// Sends all frames of the ring through a switch. Returns the frames on the wire, the reported completions, and the
/// number of lost frames.
fn send(
    guest: &Arc<Guest>,
    ring: &Ring,
    settings: &TransmitSettings,
    limit: usize,
) -> (Vec<Vec<u8>>, Vec<Completed>, u64) {
    let (got, completed) = (Arc::default(), Arc::default());
    let member = |index, output: Box<dyn Output>| {
        Member::new(Owner::new(index, 0), Arc::new(Port::new("p", output, Box::new(Silent))))
    };
    let members = vec![
        member(0, Box::new(Receiver(Arc::default(), Accepts::NOTHING))),
        member(1, Box::new(Receiver(Arc::clone(&got), Accepts::NOTHING))),
    ];
    let table = Arc::new(MacTable::new(1024, 64, [1, 2]));
    let switch = Switch::new("lan0", members, table, Box::new(Learning), FloodPolicy::default());
    let transmit = Transmit::start(ring.base, ring.count, 0).expect("a ring");
    let mut sender = Sender {
        guest: Arc::clone(guest),
        transmit,
        bounce: Bounce::default(),
        tail: ring.tail,
        settings: *settings,
        completed: Arc::clone(&completed),
    };
    let mut work = Workspace::new(limit);
    while sender.transmit.head() != ring.tail {
        pass(&switch, switch.member(0).expect("a port"), &mut sender, &mut work, &Time::at_second(1));
    }
    let (got, completed) =
        (std::mem::take(&mut *got.lock().expect("a lock")), completed.lock().expect("a lock").clone());
    let lost = switch.members().flat_map(|member| member.port.counters().read().drops().collect::<Vec<_>>());
    (got, completed, lost.map(|(_, frames)| frames).sum())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(600) })]

    #[test]
    fn the_wire_has_what_the_manual_says(
        sendings in sendings(), limit in 1..64usize, vme in any::<bool>(), pad in any::<bool>()
    ) {
        let guest = Arc::new(Guest::new());
        let mut ring = Ring::new(&guest, 4096);
        let settings = TransmitSettings { vlan: vme.then_some(0x8100), pad, ..TX };
        for (seed, sending) in sendings.iter().enumerate() {
            put(&guest, &mut ring, sending, seed);
        }
        let mut manual = Manual::default();
        (0..ring.tail).for_each(|at| manual.take(&guest, ring.get(&guest, at), &settings));
        let (got, completed, _) = send(&guest, &ring, &settings, limit);
        for (place, (got, expected)) in got.iter().zip(&manual.wire).enumerate() {
            let differ = got.iter().zip(expected).position(|(a, b)| a != b);
            prop_assert!(got == expected, "frame {place}: {} and {} bytes, {differ:?}", got.len(), expected.len());
        }
        prop_assert_eq!(got.len(), manual.wire.len());
        let frames: u64 = completed.iter().map(|completed| completed.traffic.frames).sum();
        let bytes: u64 = completed.iter().map(|completed| completed.traffic.bytes).sum();
        prop_assert_eq!(frames, manual.wire.len() as u64);
        prop_assert_eq!(bytes, manual.wire.iter().map(|frame| frame.len() as u64).sum::<u64>());
        let cut = sendings.iter().filter(|sending| matches!(sending.what, What::Cut { .. })).count();
        prop_assert_eq!(completed.iter().map(|completed| completed.segmented).sum::<u64>(), cut as u64);
        prop_assert_eq!(completed.iter().map(|completed| completed.failed).sum::<u64>(), 0);
    }
}

/// A frame and a context that need not match.
#[derive(Clone, Debug)]
struct Strange {
    places: u64,
    sizes: u64,
    flags: u64,
    /// The EtherType, and the byte after it.
    kind: (u16, u8),
    protocol: u8,
    len: usize,
    tag: bool,
}

fn stranges() -> impl Strategy<Value = Strange> {
    let place = || prop_oneof![3 => Just(14u64), 3 => Just(24), 3 => Just(34), 3 => Just(54), 2 => 0..80u64, 1 => any::<u8>().prop_map(u64::from)];
    let end = || prop_oneof![2 => Just(0u64), 1 => Just(33), 1 => 0..200u64, 1 => Just(0xffff)];
    let places = (place(), place(), end(), place(), prop_oneof![Just(30u64), Just(50), Just(40), 0..90u64], end())
        .prop_map(|(ip, ip_field, ip_end, start, field, end)| {
            ip | ip_field << 8 | ip_end << 16 | start << 32 | field << 40 | end << 48
        });
    let header = prop_oneof![Just(42u64), Just(54), Just(62), Just(74), 0..140u64, Just(255)];
    let sizes = (prop_oneof![0..3000u64, Just(0xf_ffffu64)], 0..8u64, header, prop_oneof![0..3u64, 100..2000u64])
        .prop_map(|(payload, command, header, segment)| {
            payload | command << 24 & 3 << 24 | header << 40 | segment << 48
        });
    // A legacy descriptor with a checksum, or a data descriptor with checksums, perhaps with segmentation.
    let flags = prop_oneof![Just(IC), (0..4u64).prop_map(|sums| DATA | sums << 40), Just(DATA | TSE | IXSM | TXSM)];
    let kind = prop_oneof![
        3 => Just((0x0800u16, 0x45u8)), 1 => Just((0x0800, 0x4a)), 3 => Just((0x86dd, 0x60)), 2 => Just((0x0806, 0)), 1 => any::<(u16, u8)>()
    ];
    let protocol = prop_oneof![Just(6u8), Just(17), Just(58), Just(47), any::<u8>()];
    (places, sizes, flags, kind, protocol, prop_oneof![14..160usize, 14..3000usize], any::<bool>()).prop_map(
        |(places, sizes, flags, kind, protocol, len, tag)| Strange { places, sizes, flags, kind, protocol, len, tag },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(whole(600, 3000)) })]

    /// The frame is sent with the checksums of its own headers, or not at all. Otherwise policies would have checked a
    /// frame that differs from the sent one.
    #[test]
    fn a_context_that_fits_no_header_changes_no_frame(stranges in vec(stranges(), 1..12), limit in 1..16usize) {
        let guest = Arc::new(Guest::new());
        let mut ring = Ring::new(&guest, 4096);
        let settings = TransmitSettings { vlan: Some(0x8100), pad: false, ..TX };
        let mut sent: Vec<(bool, Vec<u8>)> = Vec::new();
        for (seed, strange) in stranges.iter().enumerate() {
            let mut bytes: Vec<u8> = (0..strange.len).map(|at| (at * 7 + seed) as u8 & 0x0f).collect();
            bytes[..12].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1]);
            bytes[12..14].copy_from_slice(&strange.kind.0.to_be_bytes());
            let mut set = |at: usize, byte: u8| bytes.get_mut(at).map_or((), |place| *place = byte);
            set(14, strange.kind.1);
            set(if strange.kind.0 == 0x86dd { 20 } else { 23 }, strange.protocol);
            if strange.kind.0 == 0x0800 { [20, 21].into_iter().for_each(|at| set(at, 0)); }
            ring.put(&guest, strange.places, strange.sizes | CONTEXT | strange.flags & TSE);
            let tag = if strange.tag { VLE | 7 << 48 } else { 0 };
            let legacy = strange.flags & DATA == 0;
            let places = if legacy { (strange.places >> 32 & 0xff) << 40 | (strange.places >> 40 & 0xff) << 16 } else { 0 };
            ring.put(&guest, guest.place(&bytes), bytes.len() as u64 | strange.flags | places | tag | IFCS | EOP);
            if strange.tag { bytes.splice(12..12, [0x81, 0, 0, 7]); }
            sent.push((strange.flags & TSE != 0 && !legacy, bytes));
        }
        let (got, completed, lost) = send(&guest, &ring, &settings, limit);
        let cut = completed.iter().map(|completed| completed.segmented).sum::<u64>();
        prop_assert_eq!(cut, sent.iter().filter(|(cut, _)| *cut).count() as u64);
        prop_assert!(got.len() as u64 + lost >= sent.len() as u64);
        let others = sent.iter().filter(|(cut, _)| !cut).map(|(_, bytes)| bytes);
        for frame in &got {
            let is_it = |bytes: &&Vec<u8>| bytes.len() == frame.len() && {
                let tag = if bytes[12..14] == [0x81, 0] { 4 } else { 0 };
                let plain = [&bytes[..12], &bytes[12 + tag..]].concat();
                let fields = own_fields(&plain).map(|own| own.map_or(0, |(_, field)| field + tag));
                let own = |at: usize| fields.iter().any(|&field| field > 0 && (field..field + 2).contains(&at));
                (0..bytes.len()).all(|at| bytes[at] == frame[at] || own(at))
            };
            let is_piece = sent.iter().any(|(cut, bytes)| *cut && bytes[..14] == frame[..14]);
            prop_assert!(others.clone().any(|bytes| is_it(&bytes)) || is_piece, "{frame:?}");
        }
    }
}
