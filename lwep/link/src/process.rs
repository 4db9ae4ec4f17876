//! A process port of a switch on this host.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::time::Duration;

use ringway_abi::Offload;
use ringway_abi::offload::PREFIX_BYTES;
use ringway_client::{AttachError, Port, Shape, prefetch_read};
use ringway_lwep::link::{Counts, Interface, Link, Received};
use ringway_memory::Buffer;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// How many received frames ahead the first cache line is prefetched.
const PREFETCH_AHEAD: usize = 4;
/// Received frames that are looked at together.
const BATCH: usize = 32;

/// How a process port is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessOptions {
    /// Slots of each ring: 4 to 32,768.
    pub slots: u32,
    /// Bytes of a buffer: 128 to 65,472, a multiple of 64.
    pub buffer: u32,
    /// Buffers that the program gets: up to 65,536.
    pub buffers: u32,
    /// The port takes and gives frames that are still to be segmented or lack a checksum.
    pub offload: bool,
    /// The address to use, for a port that has none bound to it.
    pub mac: Option<[u8; 6]>,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        Self { slots: 1024, buffer: 2112, buffers: 4096, offload: false, mac: None }
    }
}

/// Where a received frame is, with its header of offloads.
#[derive(Clone, Copy, Debug)]
struct Frame {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointers refer to the port's memory, which is kept next to them and is Send.
unsafe impl Send for ProcessLink {}

/// A link at a process port: frames go to and from the switch through shared memory.
#[derive(Debug)]
pub struct ProcessLink {
    port: Port,
    /// Readable when the switch has called or has ended the port.
    wakes: OwnedFd,
    interface: Interface,
    buffers: Vec<Buffer>,
    /// Frames queued since the port was attached.
    queued: u64,
    /// The first received frames, one slot each: their number, and how many of them the program has had.
    frames: [Frame; BATCH],
    found: usize,
    taken: usize,
    /// Most frames that are looked at together.
    most: usize,
    /// The next slot continues a frame that spans several, which is dropped.
    skips: bool,
    counts: Counts,
}

/// Returns a descriptor that is readable when the switch has called or has ended the port.
fn wakes(port: &Port) -> io::Result<OwnedFd> {
    let wakes = epoll::create(CreateFlags::CLOEXEC)?;
    for fd in [port.call_fd(), port.connection_fd()] {
        epoll::add(&wakes, fd, EventData::new_u64(0), EventFlags::IN)?;
    }
    Ok(wakes)
}

impl ProcessLink {
    /// Attaches as `SWITCH:PORT` through the daemon's socket.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn attach(socket: impl AsRef<Path>, name: &str, options: &ProcessOptions) -> Result<Self, AttachError> {
        let shape = Shape {
            tx_slots: options.slots,
            rx_slots: options.slots,
            buffer_size: options.buffer,
            extra_buffers: options.buffers,
            offload: options.offload,
            ..Shape::default()
        };
        let (port, buffers) = Port::attach_with_buffers(socket, name, shape)?;
        let wakes = wakes(&port).map_err(AttachError::Memory)?;
        let (buffer, slots) = (options.buffer as usize, options.slots as usize);
        let most = (slots / 8).clamp(1, BATCH);
        let front = if options.offload { PREFIX_BYTES } else { 0 };
        let interface = Interface {
            name: name.to_owned(),
            mac: options.mac.unwrap_or(port.mac()),
            longest: buffer - front,
            segmented: if options.offload { buffer - front } else { 0 },
            checksums: options.offload,
            front,
            buffer,
            places: options.slots as usize,
            // One place stays empty; those that were looked at, and then an eighth of the ring, wait until they are given back.
            holds: slots - 1 - most - slots / 8,
        };
        Ok(Self {
            port,
            wakes,
            interface,
            buffers,
            queued: 0,
            frames: [Frame { start: NonNull::dangling(), len: 0 }; BATCH],
            found: 0,
            taken: 0,
            most,
            skips: false,
            counts: Counts::default(),
        })
    }

    /// Finds the next frames. Returns false if there is none.
    #[cold]
    fn find(&mut self) -> bool {
        self.give_back();
        loop {
            let mut skipped = 0;
            for received in self.port.rx().peek(self.most) {
                if self.skips || received.more {
                    if self.found > 0 {
                        break;
                    }
                    skipped += 1;
                    self.skips = received.more;
                    self.counts.dropped += u64::from(!received.more);
                } else if skipped > 0 {
                    break;
                } else {
                    self.frames[self.found] =
                        Frame { start: NonNull::from(received.bytes).cast(), len: received.bytes.len() };
                    self.found += 1;
                }
            }
            if skipped == 0 {
                return self.found > 0;
            }
            self.port.rx().release(skipped);
        }
    }

    /// Sleeps like [`Link::wait`], also until a frame can be queued.
    fn wait_for_either(&mut self, timeout: Duration) -> io::Result<()> {
        let is_there = self.want(true);
        let timeout = Timespec::try_from(timeout).ok();
        let slept =
            if is_there { Ok(0) } else { poll(&mut [PollFd::new(&self.wakes, PollFlags::IN)], timeout.as_ref()) };
        self.awake();
        match slept {
            Ok(0) | Err(Errno::INTR) => Ok(()),
            Ok(_) => self.check(),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives the slots of the frames that were looked at back to the switch.
    #[inline]
    fn give_back(&mut self) {
        if self.taken > 0 {
            self.port.rx().release(self.taken);
        }
        self.found = self.found.saturating_sub(self.taken);
        self.frames.copy_within(self.taken..self.taken + self.found, 0);
        self.taken = 0;
    }
}

impl Link for ProcessLink {
    #[inline]
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn take_buffers(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.buffers)
    }

    #[inline]
    fn room(&mut self) -> usize {
        self.port.tx().room()
    }

    #[inline]
    fn send(&mut self, buffer: &mut Buffer, len: usize, offload: Option<&Offload>) -> bool {
        let front = self.interface.front;
        if front > 0 {
            let Some(prefix) = buffer.first_chunk_mut::<PREFIX_BYTES>() else { return false };
            prefix[..Offload::BYTES].copy_from_slice(&Offload::encode(offload));
        } else if offload.is_some() {
            return false;
        }
        let is_queued = self.port.tx().push_buffer(buffer, front + len);
        self.queued += u64::from(is_queued);
        is_queued
    }

    #[inline]
    fn flush(&mut self) {
        self.port.flush();
    }

    #[inline]
    fn sent(&mut self) -> u64 {
        self.queued.saturating_sub(self.port.tx().unsent() as u64)
    }

    #[inline]
    fn peek(&mut self) -> Option<Received<'_>> {
        if self.taken == self.found && !self.find() {
            return None;
        }
        if let Some(ahead) = self.frames.get(self.taken + PREFETCH_AHEAD) {
            prefetch_read(ahead.start.as_ptr());
        }
        let Frame { start, len } = *self.frames.get(self.taken)?;
        // SAFETY: `find` has seen a received frame there. Its slot is this side's until `give_back`, which takes `&mut self`.
        let frame = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) };
        if self.interface.front == 0 {
            return Some(Received { bytes: frame, offload: None });
        }
        let (prefix, bytes) = frame.split_at_checked(self.interface.front).unwrap_or_default();
        let offload = prefix.first_chunk().and_then(|header| Offload::decode(header).ok().flatten());
        Some(Received { bytes, offload })
    }

    #[inline]
    fn release(&mut self) {
        self.taken = self.found.min(self.taken + 1);
    }

    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        self.give_back();
        let front = self.interface.front;
        // `peek` has found a frame of one slot.
        let len = self.port.rx().exchange(spare).unwrap_or(0);
        self.found = self.found.saturating_sub(1);
        self.frames.copy_within(1..1 + self.found, 0);
        (front, len.saturating_sub(front))
    }

    fn want(&mut self, room: bool) -> bool {
        self.give_back();
        let received = self.port.want_rx();
        received | (room && self.port.want_tx())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wakes.as_fd()
    }

    fn awake(&mut self) {
        let mut count = [0; 8];
        // Non-blocking: without a call there is nothing to read.
        self.counts.calls += u64::from(rustix::io::read(self.port.call_fd(), &mut count).is_ok());
        self.port.want_nothing();
    }

    fn wait(&mut self, room: bool, timeout: Duration) -> io::Result<()> {
        self.give_back();
        if room {
            return self.wait_for_either(timeout);
        }
        match self.port.wait_rx(timeout) {
            Ok(_) => Ok(()),
            Err(AttachError::Refused(why)) => Err(io::Error::new(io::ErrorKind::ConnectionReset, why)),
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn check(&mut self) -> io::Result<()> {
        match self.port.ended() {
            Some(why) => Err(io::Error::new(io::ErrorKind::ConnectionReset, why)),
            None => Ok(()),
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
