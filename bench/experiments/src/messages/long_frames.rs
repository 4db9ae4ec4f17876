//! Frames to be segmented, without messages: what the segmentation layout of LWEP is compared with.

use std::io;
use std::time::{Duration, Instant};

use ringway_link::{Buffer, Gso, Interface, Link, Offload};
use ringway_traffic::{FrameSpec, Frames};

use super::lwep::{LinkNetwork, Way, address};
use crate::patience::PATIENCE;
use crate::placement::{Cores, pin};
use crate::trial::Contestant;
use crate::vhost::make_tcp;

/// Bytes of a frame.
pub const LONG: usize = 65_000;
/// Bytes of its headers: Ethernet, IPv4, TCP.
const HEADERS: usize = 54;
/// What is left to do for it.
const OFFLOAD: Offload = Offload {
    needs_csum: true,
    gso: Gso::Tcp4,
    ecn: false,
    hdr_len: HEADERS as u16,
    gso_size: 1440,
    csum_start: 34,
    csum_offset: 16,
    tunnel: None,
};

/// Frames of TCP of [`LONG`] bytes, each of them written, from one link to another, in million frames per second.
pub struct LongFrames<N: LinkNetwork> {
    // Links are dropped before the network.
    near: N::Link,
    far: N::Link,
    buffers: Vec<Buffer>,
    queued: u64,
    headers: Vec<u8>,
    network: N,
    cores: Cores,
}

/// Returns the headers of a frame from one of the ends to the other.
fn headers(from: usize, to: usize) -> io::Result<Vec<u8>> {
    let (source, destinations) = (address(from).0, vec![address(to).0]);
    let spec = FrameSpec { size: LONG, source, destinations, ..FrameSpec::default() };
    let mut frame = Frames::new(&spec).map_err(io::Error::other)?.next_frame();
    make_tcp(&mut frame);
    frame.truncate(HEADERS);
    Ok(frame)
}

impl<N: LinkNetwork> LongFrames<N> {
    /// Makes both links, and lets the network learn their addresses. It is stopped when this returns.
    ///
    /// # Errors
    /// The network refuses a link, or no frame gets through.
    pub fn start(mut network: N, cores: Cores) -> io::Result<LongFrames<N>> {
        let way = Way { segmented: true, ..Way::PLAIN };
        let (mut near, mut far) = (network.link(0, &way)?, network.link(1, &way)?);
        let mut buffers = near.take_buffers();
        buffers.truncate(near.room());
        // The switch learns the receiver's address by a short frame of its own.
        let back = headers(1, 0)?;
        let (mut spare, front) = (far.take_buffers(), far.interface().front);
        let buffer = spare.first_mut().ok_or(io::ErrorKind::OutOfMemory)?;
        buffer[front..front + HEADERS].copy_from_slice(&back);
        far.send(buffer, HEADERS, None);
        far.flush();
        let began = Instant::now();
        while near.peek().is_none() {
            if began.elapsed() > PATIENCE {
                return Err(io::Error::other("no frame gets through"));
            }
        }
        near.release();
        network.hold()?;
        Ok(LongFrames { near, far, buffers, queued: 0, headers: headers(0, 1)?, network, cores })
    }

    /// Sends what there is room for, and takes what has arrived. Returns the frames that it took.
    fn pass(&mut self) -> u64 {
        let Interface { front, .. } = *self.near.interface();
        let free = self.buffers.len() - (self.queued - self.near.sent()) as usize;
        for _ in 0..free.min(self.near.room()) {
            let place = (self.queued % self.buffers.len() as u64) as usize;
            let buffer = &mut self.buffers[place];
            buffer[front..front + HEADERS].copy_from_slice(&self.headers);
            buffer[front + HEADERS..front + LONG].fill(0x55);
            if !self.near.send(buffer, LONG, Some(&OFFLOAD)) {
                break;
            }
            self.queued += 1;
        }
        self.near.flush();
        let (mut frames, mut first_bytes) = (0, 0);
        while let Some(frame) = self.far.peek() {
            frames += u64::from(frame.bytes.len() == LONG);
            first_bytes ^= frame.bytes.first().copied().unwrap_or(0);
            self.far.release();
        }
        std::hint::black_box(first_bytes);
        frames
    }

    fn rate(&mut self, span: Duration) -> io::Result<f64> {
        let (began, mut frames) = (Instant::now(), 0);
        while began.elapsed() < span || frames == 0 && began.elapsed() < PATIENCE {
            frames += self.pass();
        }
        if frames == 0 {
            return Err(io::Error::other("no frame arrived as a whole"));
        }
        Ok(frames as f64 / began.elapsed().as_secs_f64() / 1e6)
    }
}

impl<N: LinkNetwork> Contestant for LongFrames<N> {
    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }

    fn window(&mut self, span: Duration) -> io::Result<f64> {
        pin(self.cores.generator)?;
        self.rate(span / 8)?;
        self.rate(span)
    }
}
