//! The instructions of a message, at both ends together, over a link that only copies:
//! `valgrind --tool=callgrind target/release/examples/message_cost ping|bulk SIZE CONNECTIONS MESSAGES`. Divide the difference of two runs with different
//! numbers of messages by the difference of the numbers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringway_link::{Buffer, Interface, Link, Offload, Received};
use ringway_lwep::{Connection, Endpoint, Event, Options};
use ringway_memory::Mapping;

const SLOTS: usize = 512;
const BYTES: usize = 2112;

/// Frames in one direction.
struct Ring {
    frames: Vec<Vec<u8>>,
    lengths: VecDeque<usize>,
    head: usize,
}

type Shared = Rc<RefCell<Ring>>;

/// A link that copies each frame into the other end's ring.
struct RingLink {
    interface: Interface,
    buffers: Vec<Buffer>,
    tx: Shared,
    rx: Shared,
    /// The first frame, while it is looked at.
    shown: Vec<u8>,
    is_shown: bool,
    queued: u64,
    never: OwnedFd,
}

fn ring() -> Shared {
    Rc::new(RefCell::new(Ring {
        frames: vec![vec![0; BYTES]; SLOTS],
        lengths: VecDeque::with_capacity(SLOTS),
        head: 0,
    }))
}

impl RingLink {
    fn new(number: u8, tx: &Shared, rx: &Shared) -> io::Result<Self> {
        let mapping = Arc::new(Mapping::private(BYTES * 2048)?);
        // SAFETY: the mapping is this link's own, and the buffers do not overlap.
        let buffer = |index: u32| unsafe { Buffer::new(&mapping, index, index as usize * BYTES, BYTES as u32) };
        let interface = Interface {
            name: "ring".to_owned(),
            mac: [2, 0, 0, 0, 0, number],
            longest: BYTES,
            segmented: 0,
            checksums: false,
            front: 0,
            buffer: BYTES,
            places: 0,
            holds: 0,
        };
        Ok(Self {
            interface,
            buffers: (0..2048).filter_map(buffer).collect(),
            tx: tx.clone(),
            rx: rx.clone(),
            shown: vec![0; BYTES],
            is_shown: false,
            queued: 0,
            never: rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?,
        })
    }
}

impl Link for RingLink {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn take_buffers(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.buffers)
    }

    fn room(&mut self) -> usize {
        SLOTS - self.tx.borrow().lengths.len()
    }

    #[inline]
    fn send(&mut self, buffer: &mut Buffer, len: usize, _offload: Option<&Offload>) -> bool {
        let ring = &mut *self.tx.borrow_mut();
        if ring.lengths.len() == SLOTS {
            return false;
        }
        ring.frames[(ring.head + ring.lengths.len()) % SLOTS][..len].copy_from_slice(&buffer[..len]);
        ring.lengths.push_back(len);
        self.queued += 1;
        true
    }

    fn flush(&mut self) {}

    fn sent(&mut self) -> u64 {
        self.queued
    }

    #[inline]
    fn peek(&mut self) -> Option<Received<'_>> {
        let ring = &mut *self.rx.borrow_mut();
        let len = *ring.lengths.front()?;
        if !self.is_shown {
            std::mem::swap(&mut self.shown, &mut ring.frames[ring.head]);
            self.is_shown = true;
        }
        Some(Received { bytes: &self.shown[..len], offload: None })
    }

    #[inline]
    fn release(&mut self) {
        let ring = &mut *self.rx.borrow_mut();
        ring.lengths.pop_front();
        ring.head = (ring.head + 1) % SLOTS;
        self.is_shown = false;
    }

    fn exchange(&mut self, _spare: &mut Buffer) -> (usize, usize) {
        unreachable!("nothing waits in this program")
    }

    fn want(&mut self, _room: bool) -> bool {
        true
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn awake(&mut self) {}

    fn wait(&mut self, _room: bool, _timeout: Duration) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, size, connections, messages] = &arguments[..] else {
        return Err("ping|bulk SIZE CONNECTIONS MESSAGES".into());
    };
    let (size, connections, messages): (usize, usize, u64) = (size.parse()?, connections.parse()?, messages.parse()?);
    let (there, back) = (ring(), ring());
    let options = Options { connections: 2048, ..Options::default() };
    let mut client = Endpoint::new(RingLink::new(1, &there, &back)?, options.clone());
    let mut server = Endpoint::new(RingLink::new(2, &back, &there)?, options);
    server.listen(1);
    let mut all: Vec<Connection> = Vec::new();
    let mut now = 0;
    for _ in 0..connections {
        all.push(client.connect(server.mac(), 1, now)?);
        for _ in 0..4 {
            now += 1000;
            while client.poll(now).is_some() {}
            while server.poll(now).is_some() {}
        }
    }
    let message = vec![0x55; size];
    let (mut received, mut next) = (0, 0);
    while received < messages {
        now += 1000;
        for _ in 0..if what == "ping" { 1 } else { 64 } {
            if client.send(all[next], &message, now).is_err() {
                break;
            }
            next = (next + 1) % all.len();
        }
        let mut reply = None;
        server.drain(now, usize::MAX, |event| {
            if let Event::Message { connection, .. } = event {
                received += 1;
                reply = Some(connection);
            }
        });
        if let ("ping", Some(connection)) = (&what[..], reply) {
            server.send(connection, &message, now)?;
        }
        client.drain(now, usize::MAX, |_| ());
    }
    println!("{received} messages, {:?}", client.counters());
    Ok(())
}
