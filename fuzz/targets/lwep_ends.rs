//! Two ends of LWEP with two connections, a network and an attacker that the fuzzer drives. Messages arrive once, whole and in order;
//! every buffer has one owner, and at the end all are free. The attacker does not know the connections' tokens: what it sends changes
//! nothing.
#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use ringway_link::memory::{InFlight, MemoryLink, MemoryOptions, pair};
use ringway_lwep::wire::{ETHER_TYPE, Ethernet, Header, Kind, checksum};
use ringway_lwep::{Connection, Endpoint, Event, Options, SendError};

/// The services of the two connections.
const SERVICES: [u32; 2] = [7, 8];
const BUFFERS: u32 = 64;

/// The first numbers are about to wrap; the token is not what the attacker guesses.
fn random() -> u64 {
    0xffff_fff0_5ec2_e700
}

/// One connection at one end.
#[derive(Default)]
struct One {
    connection: Option<Connection>,
    sent: Vec<Vec<u8>>,
    heard: Vec<Vec<u8>>,
    /// A long message of which a part may be sent.
    in_message: Option<Vec<u8>>,
    is_over: bool,
}

struct End {
    endpoint: Endpoint<MemoryLink>,
    both: [One; 2],
}

impl End {
    fn new(link: MemoryLink, options: &Options) -> Self {
        let mut endpoint = Endpoint::new(link, options.clone());
        SERVICES.iter().for_each(|service| endpoint.listen(*service));
        Self { endpoint, both: Default::default() }
    }

    fn poll(&mut self, now: u64) {
        for _ in 0..10_000 {
            match self.endpoint.poll(now) {
                Some(Event::Message { connection, data }) => {
                    let one = self.both.iter_mut().find(|one| one.connection == Some(connection));
                    one.expect("a message of another connection").heard.push(data.to_vec());
                }
                // Only the first one counts: the attacker's requests are never confirmed.
                Some(Event::Accepted { connection, service }) => {
                    let one = &mut self.both[usize::from(service == SERVICES[1])];
                    one.connection = one.connection.or(Some(connection));
                }
                Some(Event::Ended { connection, .. }) => {
                    self.both.iter_mut().for_each(|one| one.is_over |= Some(connection) == one.connection);
                }
                Some(_) => {}
                None => return,
            }
        }
        panic!("poll has no end");
    }

    fn is_idle(&mut self) -> bool {
        let connections = self.both.iter().filter_map(|one| one.connection);
        connections.filter_map(|connection| self.endpoint.status(connection)).all(|status| status.queued == 0)
    }

    fn send(&mut self, which: usize, len: usize, is_long: bool, now: u64) {
        let one = &mut self.both[which];
        let Some(connection) = one.connection else { return };
        let message = vec![one.sent.len() as u8; if is_long { 30 * len } else { len }];
        if !is_long {
            if self.endpoint.send(connection, &message, now).is_ok() {
                one.sent.push(message);
            }
            return;
        }
        let message = one.in_message.take().unwrap_or(message);
        match self.endpoint.send_long(connection, &message, now) {
            Ok(()) => one.sent.push(message),
            Err(SendError::Full) => one.in_message = Some(message),
            Err(_) => {}
        }
    }

    /// Sends the rest of long messages. Returns true if nothing is left of them.
    fn send_rest(&mut self, now: u64) -> bool {
        for which in 0..self.both.len() {
            if self.both[which].in_message.is_some() {
                self.send(which, 0, true, now);
            }
        }
        self.both.iter().all(|one| one.in_message.is_none())
    }

    /// Sends a buffer of messages.
    fn send_many(&mut self, which: usize, value: u8, now: u64) {
        let one = &mut self.both[which];
        let Some(connection) = one.connection else { return };
        let Some(mut outgoing) = self.endpoint.reserve_many() else { return };
        let (len, part) = (usize::from(value) * 7, 100 + 64 * usize::from(value % 16));
        let bytes: Vec<u8> = (0..len).map(|at| (one.sent.len() + at / part) as u8).collect();
        outgoing[..len].copy_from_slice(&bytes);
        match self.endpoint.commit_many(connection, outgoing, len, part, now) {
            Ok(()) if len == 0 => one.sent.push(vec![]),
            Ok(()) => one.sent.extend(bytes.chunks(part).map(<[u8]>::to_vec)),
            Err(refused) => self.endpoint.discard(refused.outgoing),
        }
    }
}

/// A frame of the attacker, of bytes that the fuzzer chooses.
fn forged(bytes: &[u8], to: u8) -> Vec<u8> {
    let Some((&[kind, from, connection, number, acknowledgement, window, len], rest)) = bytes.split_first_chunk::<7>()
    else {
        return bytes.to_vec();
    };
    let kinds = [Kind::Open, Kind::Accept, Kind::Data, Kind::Ack, Kind::Probe, Kind::End, Kind::Reset, Kind::Unknown];
    // From the highest connection on, an acknowledgement for many.
    let kind_of_frame = if connection == u8::MAX { Kind::Acks } else { kinds[usize::from(kind % 8)] };
    let header = Header {
        kind: kind_of_frame,
        flags: 0,
        length: len.into(),
        connection: connection.into(),
        token: u32::from(connection) << 16,
        number: 0xffff_fff0_u32.wrapping_add(number.into()),
        acknowledgement: 0xffff_fff0_u32.wrapping_add(acknowledgement.into()),
        window: u16::from(window) << 8,
        remaining: u16::from(kind >> 4),
        selective: number.into(),
    };
    let mut frame = Ethernet::encode([2, 0, 0, 0, 0, to], [2, 0, 0, 0, 0, from % 4], ETHER_TYPE).to_vec();
    let mut head = [0; ringway_lwep::wire::header::BYTES];
    header.encode(&mut head);
    frame.extend_from_slice(&head);
    frame.extend_from_slice(rest);
    if kind & 8 != 0 {
        let sum = checksum::crc(&frame[14..]);
        frame.extend_from_slice(&sum);
    }
    frame
}

fuzz_target!(|data: &[u8]| {
    let Some((&shape, mut steps)) = data.split_first() else { return };
    let options = Options {
        random,
        window: 8 + u16::from(shape >> 4) * 8,
        queue: 40,
        long: 20_000,
        checksums: shape & 1 != 0,
        half_open: 4,
        connections: 8,
        address: Some([10, 0, 0, 1].into()),
        keep_alive: (shape & 2 != 0).then_some(1_000_000),
        ..Options::default()
    };
    let links = MemoryOptions { capacity: 48, buffers: BUFFERS, buffer: 2048, offload: shape & 4 != 0 };
    let (mut left, mut right) = pair(&links).expect("memory");
    // What becomes of the next frames: a byte each, then all arrive.
    let fates = Rc::new(RefCell::new(VecDeque::<u8>::new()));
    for link in [&mut left, &mut right] {
        let fates = Rc::clone(&fates);
        link.set_network(move |mut frame: InFlight, queue| match fates.borrow_mut().pop_front().unwrap_or(0) % 8 {
            1 => {}
            2 => {
                queue.push_back(frame.clone());
                queue.push_back(frame);
            }
            3 => queue.push_front(frame),
            // A damaged frame is noticed if it has a checksum.
            4 if shape & 5 == 1 => {
                let at = frame.bytes.len() / 2;
                frame.bytes[at] ^= 1;
                queue.push_back(frame);
            }
            _ => queue.push_back(frame),
        });
    }
    let mut ends = [End::new(left, &options), End::new(right, &options)];
    let mut now = 1_000_000;
    let mac = ends[1].endpoint.mac();
    for (which, service) in SERVICES.into_iter().enumerate() {
        ends[0].both[which].connection = ends[0].endpoint.connect(mac, service, now).ok();
    }
    while let Some((&[step, value], rest)) = steps.split_first_chunk::<2>() {
        steps = rest;
        let (end, which) = (usize::from(step & 1), usize::from(step >> 4 & 1));
        match step >> 1 & 7 {
            0 | 1 => (0..=value / 64).for_each(|_| ends[end].send(which, usize::from(value), false, now)),
            2 => ends[end].send(which, usize::from(value), true, now),
            3 => {
                let len = usize::from(value % 16).min(steps.len());
                fates.borrow_mut().extend(&steps[..len]);
                steps = &steps[len..];
            }
            4 => {
                let len = usize::from(value % 64).min(steps.len());
                let frame = forged(&steps[..len], end as u8 + 1);
                ends[end].endpoint.link().inject(&frame);
                steps = &steps[len..];
            }
            5 => {
                let Some(connection) = ends[end].both[which].connection else { continue };
                match value % 16 {
                    0..8 => ends[end].endpoint.pause(connection),
                    8..14 => ends[end].endpoint.resume(connection),
                    14 => drop(ends[end].endpoint.close(connection, now)),
                    _ => ends[end].endpoint.abort(connection, now),
                }
            }
            6 => now += 1 << (value % 28),
            _ => ends[end].send_many(which, value, now),
        }
        ends[end].poll(now);
        let audit = ends[end].endpoint.audit().expect("in order");
        assert!(audit.timers < 100);
    }
    fates.borrow_mut().clear();
    for end in &mut ends {
        end.both.iter().filter_map(|one| one.connection).for_each(|connection| end.endpoint.resume(connection));
    }
    for _ in 0..400 {
        ends.iter_mut().for_each(|end| end.poll(now));
        let left = ends.iter_mut().filter_map(|end| (!end.send_rest(now) || !end.is_idle()).then_some(())).count();
        if left == 0 {
            break;
        }
        now += 20_000_000;
    }
    for which in 0..2 {
        let is_over = ends.iter().any(|end| end.both[which].is_over) || ends[1].both[which].connection.is_none();
        for (from, to) in [(0, 1), (1, 0)] {
            let (sent, heard) = (&ends[from].both[which].sent, &ends[to].both[which].heard);
            assert!(sent.starts_with(heard), "{} were sent, others were heard", sent.len());
            assert!(is_over || sent.len() == heard.len(), "{} of {}", heard.len(), sent.len());
        }
    }
    for end in &mut ends {
        end.both.iter().filter_map(|one| one.connection).for_each(|connection| end.endpoint.abort(connection, now));
    }
    // Requests and ends of connections time out.
    for _ in 0..20 {
        ends.iter_mut().for_each(|end| end.poll(now));
        now += 1_000_000_000;
    }
    for end in &mut ends {
        assert_eq!((end.endpoint.connections(), end.endpoint.audit().expect("in order").free), (0, BUFFERS as usize));
    }
});
