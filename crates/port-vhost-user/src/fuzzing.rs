//! A front end and a guest driven by a fuzzer: messages right, nearly right and wrong, with descriptors of every kind, to a
//! session over a real device, while a poller works on its queues.

use std::os::fd::OwnedFd;

use ringway_port::front_end::ClientFd;
use ringway_port::front_end::fuzzing::descriptors;

use super::config::CONFIG_BYTES;
use super::message::{HEADER_BYTES, Header, MOST_BODY_BYTES, Request};
use super::reply::Reply;
use super::testing::{Front, GUEST, MEMORY, USER, memfd, new_eventfd};

/// Bytes before the bytes of a configuration space.
const CONFIG_HEAD: usize = 12;

/// The bytes of the input, then zeroes.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, others)) = self.0.split_first() else { return 0 };
        self.0 = others;
        *first
    }

    fn raw(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next()).collect()
    }

    /// Returns a number that is likely to have a meaning in some message.
    fn number(&mut self) -> u64 {
        let kind = self.next();
        let small = u64::from(self.next());
        match kind % 10 {
            0 => small,
            1 => GUEST + (small << 12),
            2 => USER + (small << 12),
            3 => MEMORY,
            4 => 1 << (small % 64),
            5 => 256 << 32 | small % 4,
            6 => 4096 << (small % 16),
            7 => (1 << 32 | 1 << 30) | (small << 24),
            8 => u64::MAX - small,
            _ => u64::from_ne_bytes(self.raw(8).try_into().unwrap_or_default()),
        }
    }

    fn descriptor(&mut self, front: &Front) -> ClientFd {
        match self.next() % 6 {
            0 | 1 => new_eventfd().into(),
            2 | 3 => front.guest.region().1,
            4 => memfd(u64::from(self.next()) << 12).into(),
            _ => OwnedFd::from(std::io::pipe().expect("a pipe").1).into(),
        }
    }
}

/// Returns how many 64-bit words and descriptors a valid message has.
fn shape(request: u32, regions: usize) -> (usize, usize) {
    match request {
        1 | 3 | 4 | 15 | 17 | 24 | 25 | 34 | 36 | 40 => (0, 0),
        5 => (1 + 4 * regions, regions),
        6 => (2, 1),
        7 => (0, 1),
        9 => (5, 0),
        12..=14 => (1, 1),
        31 => (3, 0),
        32 => (3, 1),
        37 => (5, 1),
        38 => (5, 0),
        _ => (1, 0),
    }
}

/// Returns the body of GET_CONFIG or SET_CONFIG: in most cases a range that is inside or nearly.
fn config(bytes: &mut Bytes<'_>) -> Vec<u8> {
    let size = usize::from(bytes.next());
    let offset = if size.is_multiple_of(7) { bytes.number() as u32 } else { bytes.next().into() };
    let head = [offset, size as u32, u32::from(bytes.next() % 3)].map(u32::to_ne_bytes);
    [head.as_flattened(), &bytes.raw(size)].concat()
}

/// Sends one message. Returns false if the connection would have ended.
fn say(front: &mut Front, bytes: &mut Bytes<'_>) -> bool {
    let odd = bytes.next();
    let request = u32::from(bytes.next() % 43);
    let regions = usize::from(bytes.next() % 4);
    let (words, files) = shape(request, regions);
    let mut body: Vec<u8> = (0..words).flat_map(|_| bytes.number().to_ne_bytes()).collect();
    if matches!(request, 24 | 25) {
        body = config(bytes);
    }
    if request == 5 {
        body[..8].copy_from_slice(&(regions as u64).to_ne_bytes());
    }
    if odd % 16 == 1 {
        body.resize(usize::from(bytes.next()), 0);
    }
    let files = if odd % 16 == 2 { usize::from(bytes.next() % 8) } else { files };
    let fds: Vec<ClientFd> = (0..files).map(|_| bytes.descriptor(front)).collect();
    let flags = if odd & 0x80 == 0 { 1u32 } else { 1 | 8 };
    let head = [request, flags, body.len() as u32].map(u32::to_ne_bytes);
    let mut head: [u8; HEADER_BYTES] = head.as_flattened().try_into().expect("twelve bytes");
    if odd % 16 == 3 {
        head.copy_from_slice(&bytes.raw(HEADER_BYTES));
    }
    let header = match Header::decode(&head) {
        Ok(header) => header,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    assert!(header.size <= MOST_BODY_BYTES);
    body.resize(header.size, 0);
    let result = match Request::decode(header, &body, fds) {
        Ok(request) => front.session.handle(header, request),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(reply) => {
            if let Some(reply) = reply {
                let (bytes, file) = reply.encode(header.request);
                assert!(bytes.len() <= HEADER_BYTES + CONFIG_HEAD + CONFIG_BYTES);
                assert_eq!(file.is_some(), matches!(reply, Reply::Inflight(..)));
            }
            true
        }
        Err(end) => {
            assert!(!end.name().is_empty() && !end.to_string().is_empty());
            false
        }
    }
}

/// Makes connections to one device, one after another, until the input is used up.
///
/// # Panics
/// An invariant does not hold, or a descriptor leaks.
pub fn connections(data: &[u8]) {
    let before = descriptors();
    let mut bytes = Bytes(data);
    let mut front = Front::new();
    front.start_if(bytes.next());
    while !bytes.0.is_empty() {
        let lives = match bytes.next() % 8 {
            0 => {
                front.poll();
                true
            }
            1 => {
                let (queue, from, count) = (bytes.next() % 4, bytes.next(), bytes.next());
                front.guest.send(queue.into(), from.into(), u16::from(from) + u16::from(count) % 64);
                true
            }
            2 => {
                let at = usize::from(bytes.next()) << 10 | usize::from(bytes.next());
                let word = bytes.number();
                front.guest.write(at, &word.to_ne_bytes());
                true
            }
            3 => front.session.settle().is_ok(),
            _ => say(&mut front, &mut bytes),
        };
        let broken = front.device.fault();
        if let Some(fault) = &broken {
            assert!(!fault.to_string().is_empty());
        }
        if !lives || broken.is_some() {
            front = front.again();
            front.start_if(bytes.next());
        }
    }
    drop(front);
    assert_eq!(descriptors(), before, "a descriptor was lost");
}
