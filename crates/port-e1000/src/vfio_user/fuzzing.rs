//! A front end driven by a fuzzer: messages right, nearly right and wrong, with descriptors of every kind, to a session over
//! a function, while another thread triggers the function's interrupts and reads its memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringway_port::front_end::fuzzing::descriptors;

use super::Function;
use super::kept_files::KeptFiles;
use super::limits::{MOST_DATA, MOST_FDS};
use super::message::{HEADER_BYTES, Header, MOST_BODY_BYTES};
use super::reply::Outgoing;
use super::session::Session;
use super::testing::{BAR, Card, IRQS, access, map, memfd, message, new_eventfd, unmap, version, words};

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
        match kind % 9 {
            0 => small,
            1 => small << 12,
            2 => (1 << 32) + (small << 12),
            3 => BAR - small,
            4 => 1 << (small % 64),
            5 => 4096 << (small % 16),
            6 => u64::MAX - small,
            7 => u64::from(u32::MAX) - small,
            _ => u64::from_ne_bytes(self.raw(8).try_into().unwrap_or_default()),
        }
    }

    fn small(&mut self) -> u32 {
        self.number() as u32
    }

    fn descriptor(&mut self) -> OwnedFd {
        match self.next() % 6 {
            0 | 1 => new_eventfd(),
            2..=4 => memfd(u64::from(self.next()) << 12),
            _ => std::io::pipe().expect("a pipe").1.into(),
        }
    }
}

/// Returns a valid body for a command, and its number of descriptors.
fn body(command: u16, bytes: &mut Bytes<'_>) -> (Vec<u8>, usize) {
    match command {
        1 => {
            let many = usize::from(bytes.next());
            (version(&String::from_utf8_lossy(&bytes.raw(many))), 0)
        }
        2 => {
            let file = usize::from(bytes.next() % 4 != 0);
            (map(u32::from(bytes.next() % 5), bytes.number(), bytes.number(), bytes.number()), file)
        }
        3 => (unmap(u32::from(bytes.next() % 4), bytes.number(), bytes.number()), 0),
        5 => (words(&[bytes.small(), 0, bytes.small(), 0, 0, 0, 0, 0]), 0),
        4 | 6 | 7 => (words(&[bytes.small(), 0, bytes.small(), 0]), 0),
        8 => {
            let flags = u32::from(bytes.next());
            let (index, start, count) = (bytes.next() % 5, bytes.small(), u32::from(bytes.next() % 8));
            let bools = if flags & 2 != 0 { bytes.raw(count as usize) } else { Vec::new() };
            let files = if flags & 4 != 0 && bytes.next() % 4 != 0 { count as usize } else { 0 };
            ([words(&[20, flags, index.into(), start, count]), bools].concat(), files)
        }
        9 => (access(u32::from(bytes.next() % 10), bytes.number(), bytes.small(), &[]), 0),
        10 => {
            let (region, offset, count) = (u32::from(bytes.next() % 10), bytes.number(), bytes.next());
            (access(region, offset, count.into(), &bytes.raw(count.into())), 0)
        }
        15 => {
            let count = u64::from(bytes.next() % 8);
            let mut body = count.to_ne_bytes().to_vec();
            for _ in 0..count {
                let (region, offset, size) =
                    (u32::from(bytes.next() % 10), bytes.number(), u32::from(bytes.next() % 10));
                body.extend(access(region, offset, size, &bytes.raw(8)));
            }
            (body, 0)
        }
        16 => (words(&[8, bytes.small()]), 0),
        _ => (Vec::new(), 0),
    }
}

/// One connection, and the answers that it still expects.
struct Connection {
    session: Session<'static>,
    /// Ids of the messages without an answer yet.
    owed: Vec<u16>,
    out: Vec<Outgoing>,
}

impl Connection {
    fn new(card: &Arc<Card>) -> Connection {
        let function = Arc::clone(card) as Arc<dyn Function>;
        let session = Session::new(function, Arc::clone(&card.interrupts), KeptFiles::default()).expect("descriptors");
        Connection { session, owed: Vec::new(), out: Vec::new() }
    }

    /// Sends one message. Returns false if the connection would have ended.
    fn say(&mut self, bytes: &mut Bytes<'_>) -> bool {
        let (odd, command) = (bytes.next(), u16::from(bytes.next() % 20));
        let (mut body, files) = body(command, bytes);
        match odd % 16 {
            1 => body.truncate(bytes.next().into()),
            2 => body.resize(usize::from(bytes.next()) << 4, 0),
            3 if !body.is_empty() => {
                let at = usize::from(bytes.next()) % body.len();
                body[at] = bytes.next();
            }
            _ => {}
        }
        let files = if odd % 16 == 4 { usize::from(bytes.next()) % (MOST_FDS + 1) } else { files };
        let fds = (0..files).map(|_| bytes.descriptor().into()).collect();
        let id = u16::from_ne_bytes([bytes.next(), 7]);
        let no_reply = odd & 0x80 != 0;
        let mut whole = message(id, command, if no_reply { 1 << 4 } else { 0 }, &body);
        if odd % 16 == 5 {
            whole[..HEADER_BYTES].copy_from_slice(&bytes.raw(HEADER_BYTES));
        }
        let header = match Header::decode(whole[..HEADER_BYTES].try_into().expect("a header")) {
            Ok(header) => header,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return false;
            }
        };
        assert!(header.size <= MOST_BODY_BYTES);
        body.resize(header.size, 0);
        if !header.no_reply {
            self.owed.push(header.id);
        }
        if let Err(end) = self.session.handle(header, &body, fds, &mut self.out) {
            assert!(!end.name().is_empty() && !end.to_string().is_empty());
            return false;
        }
        if let Some(refusal) = self.session.take_refusal() {
            assert!(refusal.name().is_some() && !refusal.to_string().is_empty() && refusal.errno() != 0);
        }
        true
    }

    /// Checks that answers come in order, each to its message and within its size limit.
    fn hear(&mut self) {
        let unsettled = self.session.is_unsettled();
        for Outgoing { bytes, file } in self.out.drain(..) {
            assert_eq!(u16::from_ne_bytes([bytes[0], bytes[1]]), self.owed.remove(0));
            let size = u32::from_ne_bytes(bytes[4..8].try_into().expect("4 bytes")) as usize;
            assert!(size == bytes.len() && size <= HEADER_BYTES + 16 + MOST_DATA);
            assert!(file.is_none() || bytes[2] == 5);
        }
        assert!(unsettled || self.owed.is_empty());
    }
}

/// Checks the memory that the card may use: no overlaps, and all of it mapped.
fn look_at(card: &Card) {
    let memory = card.memory();
    for table in [&memory.readable, &memory.writable] {
        let mut places: Vec<_> = table.regions().iter().map(|region| (region.guest(), region.size())).collect();
        places.sort_unstable();
        assert!(places.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
        for region in table.regions() {
            let mut byte = [0];
            let last = region.guest() + region.size() - 1;
            assert!(table.view(last, 1).is_some_and(|view| view.read(&mut byte)));
        }
    }
}

/// Makes connections to one card, one after another, until the input is used up.
///
/// # Panics
/// An invariant does not hold, or a descriptor leaks.
pub fn connections(data: &[u8]) {
    let before = descriptors();
    let mut bytes = Bytes(data);
    let card = Card::new();
    let mut front = Connection::new(&card);
    let hello = |front: &mut Connection| {
        let body = version("");
        let header = Header { id: 1, command: 1, size: body.len(), no_reply: true };
        assert!(front.session.handle(header, &body, Vec::new(), &mut front.out).is_ok());
    };
    if bytes.next() % 8 != 0 {
        hello(&mut front);
    }
    while !bytes.0.is_empty() {
        let lives = match bytes.next() % 8 {
            0 => {
                let vector = bytes.next() % 8;
                let done = card.interrupts.trigger(vector.into());
                assert!(!done || u32::from(vector) < IRQS.msi_x);
                true
            }
            1 => {
                front.session.settle(&mut front.out);
                front.session.look_at_unmask();
                true
            }
            2 => {
                look_at(&card);
                true
            }
            _ => front.say(&mut bytes),
        };
        card.happened();
        if lives {
            front.hear();
            continue;
        }
        drop(front);
        assert!(!card.interrupts.trigger(0) && card.memory().readable.regions().is_empty());
        front = Connection::new(&card);
        if bytes.next() % 8 != 0 {
            hello(&mut front);
        }
    }
    drop((front, card));
    assert_eq!(descriptors(), before, "a descriptor was lost");
}
