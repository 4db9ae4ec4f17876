//! A driver reads the sent frames in its ring, whatever the format, the buffers and the settings.

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_port::testing::{Guest, HIGH, LOW, LOW_BYTES};
use ringway_switch::Offload;
use ringway_testing::whole;

use super::testing::{OffloadedFrame, Ring, deliver, fcs, open};
use super::{Format, Receive, ReceiveSettings};

/// A frame that a driver receives.
#[derive(Debug, Default, PartialEq, Eq)]
struct Got {
    bytes: Vec<u8>,
    /// The status bits IXSM, UDPCS, TCPCS and IPCS.
    sums: u64,
    tag: Option<u16>,
}

/// Reads the ring from `at` to `head` as a driver does.
fn read(guest: &Guest, ring: &Ring, format: Format, addresses: &[[u64; 4]], mut at: u32, head: u32) -> Vec<Got> {
    let (mut all, mut now) = (vec![], Got::default());
    while at != head {
        let [first, word] = ring.get(guest, at);
        let (status, lengths, step) = match format {
            Format::Legacy { .. } => (word >> 32 & 0xff, [word & 0xffff, 0, 0, 0], 1),
            Format::Extended { .. } => (word & 0xf_ffff, [word >> 32 & 0xffff, 0, 0, 0], 1),
            Format::Split { .. } => {
                let [others, reserved] = ring.get(guest, at + 1);
                assert_eq!((others & 0xffff, reserved), (0, 0), "no header split");
                let lengths = [word >> 32 & 0xffff, others >> 16 & 0xffff, others >> 32 & 0xffff, others >> 48];
                (word & 0xf_ffff, lengths, 2)
            }
        };
        let errors = if matches!(format, Format::Legacy { .. }) { word >> 40 & 0xff } else { word >> 20 & 0xfff };
        assert_eq!((status & 1, errors), (1, 0));
        assert!(matches!(format, Format::Legacy { .. }) || first == 0, "no hash");
        for (address, len) in addresses[at as usize].into_iter().zip(lengths) {
            now.bytes.extend(guest.read(address, len as usize));
        }
        if status & 2 != 0 {
            now.sums = status & 0x74;
            now.tag = (status & 8 != 0).then_some((word >> 48) as u16);
            all.push(std::mem::take(&mut now));
        }
        at = (at + step) % ring.count;
    }
    assert_eq!(now, Got::default(), "a frame without its end");
    all
}

#[derive(Clone, Debug)]
struct Sending {
    len: usize,
    tag: bool,
    /// IPv4 or IPv6, and TCP or UDP, without its checksum. `None`: any bytes.
    protocol: Option<(bool, bool)>,
    header: bool,
}

fn checksum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    !(bytes.chunks(2).map(word).fold(0, |sum, word| (sum + word) % 0xffff) as u16)
}

fn frame(sending: &Sending, seed: usize) -> OffloadedFrame {
    let minimum = if sending.protocol.is_some() { 14 + 40 + 20 + 4 } else { 18 };
    let mut bytes: Vec<u8> = (0..sending.len.max(minimum)).map(|at| (at * 7 + seed * 31 + (at >> 8)) as u8).collect();
    bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1]);
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    if sending.tag {
        bytes[12..18].copy_from_slice(&[0x81, 0, 0x60, 7, 0x88, 0xb5]);
    }
    let ip = if sending.tag { 18 } else { 14 };
    let Some((v4, tcp)) = sending.protocol else { return (bytes, None) };
    let start = ip + if v4 { 20 } else { 40 };
    let protocol = if tcp { 6 } else { 17 };
    bytes[ip - 2..ip].copy_from_slice(if v4 { &[8, 0] } else { &[0x86, 0xdd] });
    bytes[ip] = if v4 { 0x45 } else { 0x60 };
    if v4 {
        bytes[ip + 6..ip + 8].fill(0);
        bytes[ip + 9] = protocol;
        bytes[ip + 10..ip + 12].fill(0);
        let sum = checksum(&bytes[ip..start]).wrapping_add(u16::from(!sending.header));
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
    } else {
        bytes[ip + 6] = protocol;
    }
    let csum_offset = if tcp { 16 } else { 6 };
    (bytes, Some(Offload { needs_csum: true, csum_start: start as u16, csum_offset, ..Offload::default() }))
}

/// Returns what the driver receives according to the manual.
fn expected(sending: &Sending, (bytes, offload): &OffloadedFrame, settings: &ReceiveSettings, format: Format) -> Got {
    let mut got = Got { bytes: bytes.clone(), sums: 4, tag: None };
    if let Some(offload) = offload {
        let start = usize::from(offload.csum_start);
        let field = start + usize::from(offload.csum_offset);
        let sum = match checksum(&bytes[start..]) {
            0 => 0xffff,
            sum => sum,
        };
        got.bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
        let (v4, tcp) = sending.protocol.expect("a protocol with a checksum");
        let udp = !tcp && !matches!(format, Format::Legacy { .. });
        let ip = if settings.ip_sums && v4 && sending.header { 0x40 } else { 0 };
        let transport = if settings.transport_sums { 0x20 | if udp { 0x10 } else { 0 } } else { 0 };
        got.sums = if ip | transport == 0 { 4 } else { ip | transport };
    }
    got.bytes.resize(bytes.len().max(60), 0);
    let fcs = fcs(&got.bytes);
    if settings.strip_tag && sending.tag {
        got.tag = Some(0x6007);
        got.bytes.drain(12..16);
    }
    if !settings.strip_fcs {
        got.bytes.extend(fcs);
    }
    got
}

fn formats() -> impl Strategy<Value = Format> {
    let buffer = prop_oneof![Just(256), Just(512), Just(2048), Just(2048), Just(4096), Just(16_384)];
    let split = vec(0..5u32, 4..5).prop_map(|sizes| Format::Split {
        buffers: [128 * (1 + sizes[0]), sizes[1] << 10, sizes[2] << 10, sizes[3] << 10],
    });
    prop_oneof![
        buffer.clone().prop_map(|buffer| Format::Legacy { buffer }),
        buffer.prop_map(|buffer| Format::Extended { buffer }),
        split,
        Just(Format::Split { buffers: [128, 4096, 4096, 4096] }),
    ]
}

fn sendings() -> impl Strategy<Value = Vec<Sending>> {
    let len = prop_oneof![18..70usize, 60..300usize, 60..300usize, 1500..1520usize, 2040..2060usize, 60..9018usize];
    let protocol = prop_oneof![Just(None), (any::<bool>(), any::<bool>()).prop_map(Some)];
    let sending = (len, any::<bool>(), protocol, any::<u8>()).prop_map(|(len, tag, protocol, header)| Sending {
        len,
        tag,
        protocol,
        header: header > 40,
    });
    vec(sending, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(whole(100, 400)) })]

    #[test]
    fn a_driver_reads_what_was_sent(
        rounds in vec(sendings(), 1..4), format in formats(), flags in 0..16u8, piece in 60..3000usize, given in 1..64u32
    ) {
        let guest = Guest::new();
        let split = matches!(format, Format::Split { .. });
        let (count, step) = if split { (128, 2) } else { (64, 1) };
        let sizes = match format {
            Format::Legacy { buffer } | Format::Extended { buffer } => [buffer, 0, 0, 0],
            Format::Split { buffers } => buffers,
        };
        let room: usize = sizes.iter().map(|&bytes| bytes as usize).sum();
        let mut ring = Ring::new(&guest, count);
        let addresses: Vec<[u64; 4]> = (0..count)
            .map(|at| if at % step == 0 { sizes.map(|bytes| guest.alloc(bytes as usize, 1)) } else { [0; 4] })
            .collect();
        let settings = ReceiveSettings {
            strip_tag: flags & 1 != 0,
            strip_fcs: flags & 2 != 0,
            ip_sums: flags & 4 != 0,
            transport_sums: flags & 8 != 0,
            longest: 9018,
            ..open()
        };
        let mut receive = Receive::start(ring.base, count, 0, format).expect("a ring");
        for round in rounds {
            let at = receive.head();
            ring.tail = (at + given * step) % count;
            for at in (0..count).step_by(step as usize) {
                let [a, b, c, d] = addresses[at as usize];
                ring.set(&guest, at, [a, if split { b } else { 0 }]);
                if split {
                    ring.set(&guest, at + 1, [c, d]);
                }
            }
            let frames: Vec<OffloadedFrame> = round.iter().enumerate().map(|(seed, one)| frame(one, seed)).collect();
            let (result, received) = deliver(&mut receive, &guest, &frames, piece, &settings, ring.tail);
            prop_assert_eq!(result, Ok(()));
            let (mut wanted, mut free, mut full) = (vec![], given as usize % 64, 0);
            for (sending, frame) in round.iter().zip(&frames) {
                let one = expected(sending, frame, &settings, format);
                let need = one.bytes.len().div_ceil(room);
                match free.checked_sub(need).filter(|_| full == 0) {
                    Some(left) => {
                        free = left;
                        wanted.push(one);
                    }
                    None => full += 1,
                }
            }
            let got = read(&guest, &ring, format, &addresses, at, receive.head());
            prop_assert_eq!((got.len(), received.full, received.traffic.frames), (wanted.len(), full, got.len() as u64));
            for (got, wanted) in got.iter().zip(&wanted) {
                let differ = got.bytes.iter().zip(&wanted.bytes).position(|(a, b)| a != b);
                prop_assert!(got.bytes == wanted.bytes, "{} and {}, {differ:?}", got.bytes.len(), wanted.bytes.len());
                prop_assert_eq!((got.sums, got.tag), (wanted.sums, wanted.tag));
            }
        }
        prop_assert!(guest.allocated() <= LOW + LOW_BYTES && HIGH > LOW);
    }
}

#[test]
fn frames_that_the_guest_does_not_want_cost_it_nothing() {
    let guest = Guest::new();
    let mut ring = Ring::new(&guest, 64);
    (0..64).for_each(|at| ring.set(&guest, at, [guest.alloc(2048, 64), 0]));
    ring.tail = 63;
    let mut settings = open();
    settings.filters.set_control(0);
    settings.filters.set_address(0, 2, 0x8000_0900);
    let wanted = frame(&Sending { len: 200, tag: false, protocol: None, header: true }, 1);
    let mut other = wanted.clone();
    other.0[5] = 8;
    let mut receive = Receive::start(ring.base, 64, 0, Format::Legacy { buffer: 2048 }).expect("a ring");
    let frames = [other.clone(), wanted.clone(), other.clone(), other.clone(), wanted, other];
    let (result, received) = deliver(&mut receive, &guest, &frames, 100, &settings, ring.tail);
    assert_eq!((result, received.filtered, received.traffic.frames, receive.head()), (Ok(()), 4, 2, 2));
    assert!(guest.read(ring.get(&guest, 2)[0], 2048).iter().all(|&byte| byte == 0), "nothing was copied");
    let (_, received) = deliver(&mut receive, &guest, &frames, 100, &settings, 2);
    assert_eq!((received.filtered, received.full), (4, 2), "also without descriptors");
}
