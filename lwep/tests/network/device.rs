//! Two links whose devices read a frame when the test says so. They allocate nothing later.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringway_link::{Buffer, Interface, Link, Offload, Received};
use ringway_memory::Mapping;

const BUFFER: u32 = 2048;

/// One direction.
pub struct Wire {
    /// Frames that the device has not read: where in the sender's memory, and what their bytes were.
    pending: VecDeque<(usize, usize, u64)>,
    arrived: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Frames that were read.
    read: u64,
    /// Most pending frames.
    pub room: usize,
    memory: Arc<Mapping>,
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl Wire {
    fn new(buffers: u32, room: usize) -> Rc<RefCell<Self>> {
        let memory = Arc::new(Mapping::private(buffers as usize * BUFFER as usize).expect("memory"));
        let spare = (0..2 * room).map(|_| Vec::with_capacity(BUFFER as usize)).collect();
        let (pending, arrived) = (VecDeque::with_capacity(1024), VecDeque::with_capacity(1024));
        Rc::new(RefCell::new(Self { pending, arrived, spare, read: 0, room, memory }))
    }

    /// The device reads all frames, whose bytes must be those that were sent. Returns their number.
    pub fn carry(&mut self) -> usize {
        let count = self.pending.len();
        while let Some((start, len, sum)) = self.pending.pop_front() {
            let mut frame = self.spare.pop().unwrap_or_else(|| Vec::with_capacity(BUFFER as usize));
            frame.clear();
            let view = self.memory.view(start, len).expect("of this memory");
            // SAFETY: the bytes are mapped; the endpoint, on this thread, holds no reference to them between two of its calls.
            frame.extend_from_slice(unsafe { std::slice::from_raw_parts(view.as_ptr(), len) });
            assert_eq!(hash(&frame), sum, "a frame was changed before the device had read it");
            self.read += 1;
            self.arrived.push_back(frame);
        }
        count
    }

    /// Loses the first `most` frames that were carried and not received.
    pub fn lose(&mut self, most: usize) {
        let most = most.min(self.arrived.len());
        self.spare.extend(self.arrived.drain(..most));
    }
}

/// One end.
pub struct Device {
    interface: Interface,
    buffers: Vec<Buffer>,
    pub tx: Rc<RefCell<Wire>>,
    pub rx: Rc<RefCell<Wire>>,
    first: Option<Vec<u8>>,
    queued: u64,
    call: File,
    /// The last sleep waited for room.
    pub waited_for_room: bool,
    /// How often the device was asked to wake this side, or no longer to, but by a sleep.
    pub asked: u32,
    /// Nothing is sent or received any more.
    pub has_ended: bool,
}

/// Returns two connected links with so many buffers each, and room for so many frames that the device has not read.
pub fn devices(buffers: u32, room: usize) -> (Device, Device) {
    let (there, back) = (Wire::new(buffers, room), Wire::new(buffers, room));
    (Device::new(1, buffers, &there, &back), Device::new(2, buffers, &back, &there))
}

impl Device {
    fn new(number: u8, buffers: u32, tx: &Rc<RefCell<Wire>>, rx: &Rc<RefCell<Wire>>) -> Self {
        let memory = Arc::clone(&tx.borrow().memory);
        let interface = Interface {
            name: format!("device{number}"),
            mac: [2, 0, 0, 0, 0, number],
            longest: BUFFER as usize,
            segmented: 0,
            checksums: false,
            places: 0,
            holds: 0,
            front: 0,
            buffer: BUFFER as usize,
        };
        // SAFETY: the memory is this link's own, and the buffers do not overlap.
        let buffer = |index| unsafe { Buffer::new(&memory, index, (index * BUFFER) as usize, BUFFER) };
        Self {
            interface,
            buffers: (0..buffers).filter_map(buffer).collect(),
            tx: Rc::clone(tx),
            rx: Rc::clone(rx),
            first: None,
            queued: 0,
            call: File::open("/dev/null").expect("/dev/null"),
            waited_for_room: false,
            asked: 0,
            has_ended: false,
        }
    }
}

impl Link for Device {
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn take_buffers(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.buffers)
    }

    fn room(&mut self) -> usize {
        let tx = self.tx.borrow();
        tx.room.saturating_sub(tx.pending.len())
    }

    fn send(&mut self, buffer: &mut Buffer, len: usize, offload: Option<&Offload>) -> bool {
        if offload.is_some() || len > buffer.len() || self.room() == 0 {
            return false;
        }
        self.queued += 1;
        let start = (buffer.index() * BUFFER) as usize;
        self.tx.borrow_mut().pending.push_back((start, len, hash(&buffer[..len])));
        true
    }

    fn flush(&mut self) {}

    fn sent(&mut self) -> u64 {
        self.tx.borrow().read
    }

    fn peek(&mut self) -> Option<Received<'_>> {
        if self.first.is_none() {
            self.first = self.rx.borrow_mut().arrived.pop_front();
        }
        self.first.as_ref().map(|bytes| Received { bytes, offload: None })
    }

    fn release(&mut self) {
        self.rx.borrow_mut().spare.extend(self.first.take());
    }

    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        let len = self.first.as_ref().map_or(0, Vec::len);
        spare[..len].copy_from_slice(self.first.as_deref().unwrap_or_default());
        self.release();
        (0, len)
    }

    fn want(&mut self, room: bool) -> bool {
        self.asked += 1;
        self.has_ended || self.first.is_some() || !self.rx.borrow().arrived.is_empty() || (room && self.room() > 0)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.call.as_fd()
    }

    fn awake(&mut self) {
        self.asked += 1;
    }

    fn wait(&mut self, room: bool, _timeout: Duration) -> io::Result<()> {
        self.waited_for_room = room;
        if self.has_ended { Err(io::Error::other("the device is gone")) } else { Ok(()) }
    }
}
