//! Frames without a protocol over two links: what LWEP is compared with where `ringway gen` has no ports.

use std::io;
use std::time::Instant;

use ringway_link::{ETHERTYPE, Link};
use ringway_traffic::{Endpoint as _, LinkEndpoint};

use super::lwep::{LinkNetwork, Way};
use super::messenger::Messenger;

/// Bytes before the message: as many as LWEP has.
const HEADERS: usize = 48;
/// Frames that are sent at once.
const BATCH: usize = 128;

/// Two ends whose messages are frames.
pub struct Bare<N: LinkNetwork> {
    // Ends are dropped before the network.
    near: End<N::Link>,
    far: End<N::Link>,
    network: N,
}

struct End<L> {
    link: LinkEndpoint<L>,
    headers: [u8; HEADERS],
}

impl<L: Link> End<L> {
    fn send(&mut self, len: usize, write: impl FnOnce(&mut [u8])) -> bool {
        let headers = &self.headers;
        self.link.tx_push(HEADERS + len, |frame| {
            frame[..HEADERS].copy_from_slice(headers);
            write(&mut frame[HEADERS..]);
        })
    }
}

impl<N: LinkNetwork> Bare<N> {
    /// Has two ends at a network that runs. It is stopped when this returns.
    ///
    /// # Errors
    /// The network refuses an interface.
    pub fn start(mut network: N) -> io::Result<Bare<N>> {
        let links = [network.link(0, &Way::PLAIN)?, network.link(1, &Way::PLAIN)?];
        let macs = [0, 1].map(|number: usize| links[number].interface().mac);
        let headers = |to: usize| {
            let mut headers = [0; HEADERS];
            headers[..6].copy_from_slice(&macs[to]);
            headers[6..12].copy_from_slice(&macs[1 - to]);
            headers[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
            headers
        };
        let [near, far] = links.map(LinkEndpoint::new);
        let (near, far) = (End { link: near, headers: headers(1) }, End { link: far, headers: headers(0) });
        network.hold()?;
        Ok(Bare { near, far, network })
    }
}

impl<N: LinkNetwork> Messenger for Bare<N> {
    fn ask(&mut self, message: &[u8], _: Instant) -> io::Result<bool> {
        let is_sent = self.near.send(message.len(), |bytes| bytes.copy_from_slice(message));
        self.near.link.tx_flush();
        Ok(is_sent)
    }

    fn answer(&mut self, message: &[u8], _: Instant) -> io::Result<()> {
        if self.far.link.rx_batch(BATCH, |_| ()) > 0 {
            self.far.send(message.len(), |bytes| bytes.copy_from_slice(message));
            self.far.link.tx_flush();
        }
        Ok(())
    }

    fn is_answered(&mut self, _: usize, _: Instant) -> io::Result<bool> {
        Ok(self.near.link.rx_batch(BATCH, |_| ()) > 0)
    }

    fn pass(&mut self, size: usize, _: Instant) -> io::Result<u64> {
        for _ in 0..BATCH {
            if !self.near.send(size, |bytes| bytes.fill(0x55)) {
                break;
            }
        }
        self.near.link.tx_flush();
        let mut first_bytes = 0;
        let frames = self.far.link.rx_batch(2 * BATCH, |frame| first_bytes ^= frame.first().copied().unwrap_or(0));
        std::hint::black_box(first_bytes);
        Ok(frames as u64)
    }

    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }
}
