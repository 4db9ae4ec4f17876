//! A process port of a switch on this host.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use ringway_abi::Offload;
use ringway_abi::offload::PREFIX_BYTES;
use ringway_client::{AttachError, Port, Shape, prefetch_read};
use ringway_memory::Buffer;

use crate::link::{Counts, Interface, Link, Received};

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
        Self { slots: 512, buffer: 2112, buffers: 1024, offload: false, mac: None }
    }
}

/// A link at a process port: frames go to and from the switch through shared memory.
#[derive(Debug)]
pub struct ProcessLink {
    port: Port,
    interface: Interface,
    buffers: Vec<Buffer>,
    /// Frames queued since the port was attached.
    queued: u64,
    /// Received frames that were counted and not yet released: one slot each.
    known: usize,
    /// The next slot continues a frame that spans several, which is dropped.
    skips: bool,
    counts: Counts,
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
        let buffer = options.buffer as usize;
        let front = if options.offload { PREFIX_BYTES } else { 0 };
        let interface = Interface {
            name: name.to_owned(),
            mac: options.mac.unwrap_or(port.mac()),
            longest: buffer - front,
            segmented: if options.offload { buffer - front } else { 0 },
            checksums: options.offload,
            front,
            buffer,
        };
        Ok(Self { port, interface, buffers, queued: 0, known: 0, skips: false, counts: Counts::default() })
    }

    /// Returns the port.
    pub fn port(&mut self) -> &mut Port {
        &mut self.port
    }

    /// Finds the next frames. Returns false if there is none.
    fn find(&mut self) -> bool {
        while self.known == 0 {
            let mut skipped = 0;
            for received in self.port.rx().peek(BATCH) {
                if self.skips || received.more {
                    if self.known > 0 {
                        break;
                    }
                    skipped += 1;
                    self.skips = received.more;
                    self.counts.dropped += u64::from(!received.more);
                } else if skipped > 0 {
                    break;
                } else {
                    self.known += 1;
                }
            }
            if skipped == 0 {
                break;
            }
            self.port.rx().release(skipped);
        }
        self.known > 0
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
        self.queued - self.port.tx().unsent() as u64
    }

    #[inline]
    fn peek(&mut self) -> Option<Received<'_>> {
        if !self.find() {
            return None;
        }
        let front = self.interface.front;
        let mut frames = self.port.rx().peek(self.known.min(PREFETCH_AHEAD + 1));
        let first = frames.next()?.bytes;
        if let Some(ahead) = frames.last() {
            prefetch_read(ahead.bytes.as_ptr());
        }
        let (prefix, bytes) = first.split_at_checked(front).unwrap_or_default();
        let offload = prefix.first_chunk().and_then(|header| Offload::decode(header).ok().flatten());
        Some(Received { bytes, offload })
    }

    #[inline]
    fn release(&mut self) {
        if self.known > 0 {
            self.known -= 1;
            self.port.rx().release(1);
        }
    }

    #[inline]
    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        self.known = self.known.saturating_sub(1);
        let front = self.interface.front;
        // `peek` has found a frame of one slot.
        let len = self.port.rx().exchange(spare).unwrap_or(0);
        (front, len.saturating_sub(front))
    }

    fn want(&mut self, room: bool) -> bool {
        let received = self.port.want_rx();
        received | (room && self.port.want_tx())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.port.call_fd()
    }

    fn awake(&mut self) {
        self.counts.calls += 1;
        let mut count = [0; 8];
        // Non-blocking: without a call there is nothing to read.
        let _ = rustix::io::read(self.port.call_fd(), &mut count);
        self.port.want_nothing();
    }

    fn wait(&mut self, room: bool, timeout: Duration) -> io::Result<()> {
        let waited = if room && self.port.want_tx() { Ok(true) } else { self.port.wait_rx(timeout) };
        match waited {
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
