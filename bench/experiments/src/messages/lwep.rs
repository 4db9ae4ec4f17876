//! LWEP between two links.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ringway_link::{Link, ProcessLink, ProcessOptions};
use ringway_lwep::{Connection, Endpoint, Event, Options, SendError};
use ringway_traffic::Mac;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::messenger::{Messenger, NAP, is_patient};
use crate::daemon::{Daemon, RingwayNetwork as _};
use crate::network::{Network, SENDER};

/// The service that the far end has.
const SERVICE: u32 = 1;
/// Messages that are sent at once.
const BATCH: usize = 128;
/// Most messages that are taken at once: of the segmentation layout, those of many buffers.
const TAKEN: usize = 2 * BATCH;
const TAKEN_OF_TRAINS: usize = 1024;
/// Bytes of a buffer of the segmentation layout: 45 messages of the longest kind.
const TRAIN: usize = 64_800;
/// How LWEP is used.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The receiver copies each message.
    pub copies: bool,
    /// An end without anything to do sleeps.
    pub sleeps: bool,
    /// Messages travel in buffers of the segmentation layout.
    pub segmented: bool,
    /// The receiver has its messages cut by the switch.
    pub is_cut: bool,
    /// Frames have checksums.
    pub checksums: bool,
    /// Connections that are open.
    pub connections: usize,
    /// Connections that carry messages, by turns.
    pub active: usize,
}

impl Way {
    /// One connection, whose messages are read in place; no end sleeps.
    pub const PLAIN: Way = Way {
        copies: false,
        sleeps: false,
        segmented: false,
        is_cut: false,
        checksums: false,
        connections: 1,
        active: 1,
    };
    /// The receiver copies each message, as sockets do.
    pub const COPIED: Way = Way { copies: true, ..Way::PLAIN };
}

/// A network with interfaces for LWEP.
pub trait LinkNetwork {
    /// The interfaces.
    type Link: Link;

    /// Makes interface `number`, 0 or 1, which has the address [`address`] where the network does not say another.
    ///
    /// # Errors
    /// The network refuses it.
    fn link(&mut self, number: usize, way: &Way) -> io::Result<Self::Link>;

    /// See [`Messenger::cpu_time_of_others`].
    ///
    /// # Errors
    /// A program has ended.
    fn cpu_time_of_programs(&mut self) -> io::Result<Duration> {
        Ok(Duration::ZERO)
    }

    /// See [`Messenger::busy_time`].
    ///
    /// # Errors
    /// A switch does not answer.
    fn busy_time(&mut self) -> io::Result<f64> {
        Ok(0.0)
    }

    /// Stops the network's programs.
    ///
    /// # Errors
    /// One has ended.
    fn hold(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Lets the network's programs go on.
    ///
    /// # Errors
    /// One has ended.
    fn resume(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ethernet and IPv4 address of interface `number`.
pub fn address(number: usize) -> (Mac, Ipv4Addr) {
    (Mac::local(SENDER + number as u32), Ipv4Addr::new(198, 18, 0, 1 + number as u8))
}

impl LinkNetwork for Daemon {
    type Link = ProcessLink;

    fn link(&mut self, number: usize, way: &Way) -> io::Result<ProcessLink> {
        let options = ProcessOptions { mac: Some(address(number).0.0), ..ProcessOptions::default() };
        let whole = ProcessOptions { slots: 64, buffer: 65_472, buffers: 128, offload: true, ..options };
        let takes_whole = way.segmented && !(way.is_cut && number == 1);
        self.attach_link(&Daemon::port_name(number), if takes_whole { &whole } else { &options })
    }

    fn cpu_time_of_programs(&mut self) -> io::Result<Duration> {
        self.cpu_time()
    }

    fn busy_time(&mut self) -> io::Result<f64> {
        Ok(self.times()?.0)
    }

    fn hold(&mut self) -> io::Result<()> {
        Network::hold(self)
    }

    fn resume(&mut self) -> io::Result<()> {
        Network::resume(self)
    }
}

/// Two endpoints with connections.
pub struct Lwep<N: LinkNetwork> {
    // Endpoints are dropped before the network.
    near: Endpoint<N::Link>,
    far: Endpoint<N::Link>,
    /// Connections of the near end, and the first one of the far end.
    connections: Vec<Connection>,
    accepted: Connection,
    /// The connection of the next message.
    next: usize,
    began: Instant,
    network: N,
    way: Way,
    copy: Vec<u8>,
}

impl<N: LinkNetwork> Lwep<N> {
    /// Connects over a network that runs. It is stopped when this returns.
    ///
    /// # Errors
    /// The network refuses an interface, or a connection does not come about.
    pub fn start(mut network: N, way: Way) -> io::Result<Lwep<N>> {
        let mut end = |number: usize| {
            let link = network.link(number, &way)?;
            let address = way.segmented.then(|| address(number).1);
            let (connections, checksums) = (1 + way.connections as u32, way.checksums);
            let options = Options { connections, address, checksums, ..Options::default() };
            Ok::<_, io::Error>(Endpoint::new(link, options))
        };
        let (mut near, mut far) = (end(0)?, end(1)?);
        far.listen(SERVICE);
        let began = Instant::now();
        let (mut connections, mut accepted) = (Vec::new(), None);
        for _ in 0..way.connections {
            let (asked, mut is_open, mut is_accepted) = (Instant::now(), false, false);
            let to = far.mac();
            connections.push(near.connect(to, SERVICE, nanos(began, asked)).map_err(io::Error::other)?);
            while !(is_open && is_accepted) {
                let now = nanos(began, Instant::now());
                while let Some(event) = near.poll(now) {
                    is_open |= matches!(event, Event::Connected { .. });
                }
                while let Some(event) = far.poll(now) {
                    if let Event::Accepted { connection, .. } = event {
                        is_accepted = true;
                        accepted.get_or_insert(connection);
                    }
                }
                is_patient(asked)?;
            }
        }
        let accepted = accepted.ok_or_else(|| io::Error::other("there is no connection"))?;
        network.hold()?;
        let copy = vec![0; TRAIN];
        Ok(Lwep { near, far, connections, accepted, next: 0, began, network, way, copy })
    }

    /// Sends messages of one frame each. Returns false if there was no room for all.
    fn send_each(&mut self, size: usize, now: u64) -> io::Result<bool> {
        for _ in 0..BATCH {
            match self.near.send_with(self.connections[self.next], size, now, |bytes| bytes.fill(0x55)) {
                Ok(()) => {}
                Err(SendError::Full) => return Ok(false),
                Err(error) => return Err(io::Error::other(error)),
            }
            self.next = if self.next + 1 == self.way.active { 0 } else { self.next + 1 };
        }
        Ok(true)
    }

    /// Sends buffers of many messages. Returns false: there is no room for another.
    fn send_trains(&mut self, size: usize, now: u64) -> io::Result<bool> {
        let whole = TRAIN / size * size;
        while let Some(mut outgoing) = self.near.reserve_many() {
            outgoing[..whole].fill(0x55);
            if let Err(refused) = self.near.commit_many(self.connections[0], outgoing, whole, size, now) {
                self.near.discard(refused.outgoing);
                if !matches!(refused.error, SendError::Full) {
                    return Err(io::Error::other(refused.error));
                }
                break;
            }
        }
        Ok(false)
    }

    /// Sleeps until either end has something to do.
    fn sleep(&mut self, now: u64) -> io::Result<()> {
        let (near, far) = (&mut self.near, &mut self.far);
        if near.prepare_sleep(now) && far.prepare_sleep(now) {
            let deadline = [near.next_deadline(), far.next_deadline()].into_iter().flatten().min();
            let nap = deadline.map_or(u64::MAX, |at| at.saturating_sub(now)).min(NAP.tv_nsec as u64);
            let nap = Timespec { tv_sec: 0, tv_nsec: nap as i64 };
            let mut ends =
                [&*near.link(), &*far.link()].map(|link| PollFd::from_borrowed_fd(link.descriptor(), PollFlags::IN));
            match poll(&mut ends, Some(&nap)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        near.link().awake();
        far.link().awake();
        Ok(())
    }
}

fn nanos(began: Instant, now: Instant) -> u64 {
    now.saturating_duration_since(began).as_nanos() as u64
}

/// Takes messages at an endpoint, up to `most` events. Returns how many it took.
fn take<L: Link>(end: &mut Endpoint<L>, now: u64, most: usize, copy: Option<&mut [u8]>) -> u64 {
    let mut messages = 0;
    match copy {
        Some(copy) => {
            end.drain(now, most, |event| {
                if let Event::Message { data, .. } = event {
                    messages += 1;
                    copy[..data.len()].copy_from_slice(data);
                }
            });
            std::hint::black_box(copy);
        }
        None => {
            let mut first_bytes = 0;
            end.drain(now, most, |event| {
                if let Event::Message { data, .. } = event {
                    messages += 1;
                    first_bytes ^= data.first().copied().unwrap_or(0);
                }
            });
            std::hint::black_box(first_bytes);
        }
    }
    messages
}

impl<N: LinkNetwork> Messenger for Lwep<N> {
    fn ask(&mut self, message: &[u8], now: Instant) -> io::Result<bool> {
        let now = nanos(self.began, now);
        match self.near.send(self.connections[0], message, now) {
            Ok(()) => {
                self.near.flush();
                Ok(true)
            }
            Err(SendError::Full) => {
                self.near.drain(now, BATCH, |_| ());
                Ok(false)
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn answer(&mut self, message: &[u8], now: Instant) -> io::Result<()> {
        let now = nanos(self.began, now);
        let arrived = take(&mut self.far, now, BATCH, self.way.copies.then_some(&mut self.copy));
        if arrived > 0 {
            self.far.send(self.accepted, message, now).map_err(io::Error::other)?;
            self.far.flush();
        } else if self.way.sleeps {
            self.sleep(now)?;
        }
        Ok(())
    }

    fn is_answered(&mut self, _: usize, now: Instant) -> io::Result<bool> {
        let now = nanos(self.began, now);
        Ok(take(&mut self.near, now, BATCH, self.way.copies.then_some(&mut self.copy)) > 0)
    }

    fn pass(&mut self, size: usize, now: Instant) -> io::Result<u64> {
        let now = nanos(self.began, now);
        let has_room = if self.way.segmented { self.send_trains(size, now) } else { self.send_each(size, now) }?;
        self.near.drain(now, BATCH, |_| ());
        let most = if self.way.segmented { TAKEN_OF_TRAINS } else { TAKEN };
        let messages = take(&mut self.far, now, most, self.way.copies.then_some(&mut self.copy));
        if messages == 0 && !has_room && self.way.sleeps {
            self.sleep(now)?;
        }
        Ok(messages)
    }

    fn sleeps(&self) -> bool {
        self.way.sleeps
    }

    fn cpu_time_of_others(&mut self) -> io::Result<Duration> {
        self.network.cpu_time_of_programs()
    }

    fn busy_time(&mut self) -> io::Result<f64> {
        self.network.busy_time()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.network.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.network.hold()
    }
}
