//! The virtio-net driver as an endpoint.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringway_drivers::virtio::buffer::{HEADER, HEADER_AT};
use ringway_drivers::virtio::vhost_user::{Eventfds, FrontEnd, Inflight, Region, VhostUserError, Vring};
use ringway_drivers::virtio::{Direction, Gathering, Misuse, Queue, QueueLayout, Ring, Shape, Split, wrong_length};
use ringway_memory::SharedMemory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::options::{SocketRole, VirtioOptions, segmented};
use crate::endpoint::Endpoint;

/// Address of guest memory in descriptors. It is not 0, so that addresses cannot be confused with offsets.
const GUEST: u64 = 0x1_0000_0000;

/// A multiple of every page size.
const PAGE: usize = 65_536;

/// A virtio-net driver whose device is a vhost-user back end. `R` is the ring format.
#[derive(Debug)]
pub struct VirtioEndpoint<R> {
    tx: Queue<R>,
    rx: Queue<R>,
    tx_eventfds: Eventfds,
    rx_eventfds: Eventfds,
    path: PathBuf,
    connection: UnixStream,
    /// The device's violation, if any. Then nothing moves, and the next wait returns the error.
    misuse: Option<Misuse>,
    gathering: Option<Gathering>,
    guest: Guest,
    /// Eventfds of unused queue pairs.
    _idle: Vec<Eventfds>,
}

/// The driver, as it is described to a back end.
#[derive(Debug)]
struct Guest {
    memory: SharedMemory,
    /// Address of the memory in the driver, from which ring addresses are computed.
    user: u64,
    /// Offset of each queue's rings.
    rings: Vec<usize>,
    options: VirtioOptions,
    /// What back ends had in flight.
    inflight: Option<Inflight>,
}

impl Guest {
    /// Connects to a back end, which starts each queue at its `base`. Frames that are available when a queue starts are
    /// dropped, unless queues are `enabled_first` (vhost-user, "Ring states").
    fn connect<R: Ring>(
        &mut self,
        socket: &Path,
        enabled_first: bool,
        base: impl Fn(usize) -> u32,
    ) -> Result<(UnixStream, Vec<Eventfds>), VhostUserError> {
        let options = &self.options;
        let mut front = match options.socket_role {
            SocketRole::Connect => FrontEnd::connect(socket, options.within)?,
            SocketRole::Listen => FrontEnd::listen(socket, options.within)?,
        };
        front.negotiate(options.features(R::PACKED), options.pair + 1, options.inflight)?;
        let (bytes, user) = (self.memory.mapping().whole().len(), self.user);
        front.share(&Region { file: self.memory.file(), bytes, guest: GUEST, user })?;
        let queues = self.rings.len() as u32;
        if options.inflight {
            front.keep_inflight(&mut self.inflight, queues as u16, options.tx_ring.max(options.rx_ring))?;
        }
        if enabled_first {
            (0..queues).try_for_each(|queue| front.enable(queue))?;
        }
        let mut eventfds = Vec::new();
        for (queue, &at) in self.rings.iter().enumerate() {
            let (size, user) = (options.ring_of(queue), user + at as u64);
            let vring = Vring { index: queue as u32, size, base: base(queue), user, parts: R::parts(size) };
            eventfds.push(front.start(&vring)?);
        }
        if !enabled_first {
            (0..queues).try_for_each(|queue| front.enable(queue))?;
        }
        Ok((front.into_socket(), eventfds))
    }
}

impl VirtioEndpoint<Split> {
    /// Connects to another back end after the first has gone, and continues where that one was, as QEMU does: the other
    /// back end takes the buffers that the first had not used.
    ///
    /// # Errors
    /// Those of [`VirtioEndpoint::attach`].
    pub fn attach_again(&mut self) -> Result<(), VhostUserError> {
        let last = self.guest.rings.len() - 1;
        let (rx, tx) = (self.rx.ring().used_index(), self.tx.ring().used_index());
        let base = |queue| match queue {
            _ if queue == last => tx.into(),
            _ if queue + 1 == last => rx.into(),
            _ => Split::BASE,
        };
        let (connection, mut eventfds) = self.guest.connect::<Split>(&self.path, true, base)?;
        let (Some(tx), Some(rx)) = (eventfds.pop(), eventfds.pop()) else { unreachable!("two queues at least") };
        (self.connection, self.tx_eventfds, self.rx_eventfds, self._idle) = (connection, tx, rx, eventfds);
        Ok(())
    }
}

impl<R: Ring> VirtioEndpoint<R> {
    /// Connects to the back end at `socket` and starts its device.
    ///
    /// # Errors
    /// There is no back end, or it does not support the options.
    pub fn attach(socket: &Path, options: &VirtioOptions) -> Result<VirtioEndpoint<R>, VhostUserError> {
        options.check()?;
        // First the rings of all queues, then the buffers of the two queues that are used.
        let queues = 2 * (usize::from(options.pair) + 1);
        let size = |queue: usize| options.ring_of(queue);
        let mut end = 0;
        let mut reserve = |bytes: usize| {
            let at = end;
            end = (at + bytes).next_multiple_of(64);
            at
        };
        let rings: Vec<usize> = (0..queues).map(|queue| reserve(R::parts(size(queue)).bytes)).collect();
        let capacity = options.buffer_size as usize;
        let places = [(queues - 2, Direction::Rx), (queues - 1, Direction::Tx)].map(|(queue, direction)| {
            let shape = Shape { size: size(queue), direction, event_idx: options.event_idx };
            let (rings, in_order) = (rings[queue], options.in_order);
            let mut place = QueueLayout { shape, capacity, rings, buffers: 0, guest: GUEST, in_order };
            place.buffers = reserve(shape.size as usize * place.stride());
            place
        });
        let bytes = end.next_multiple_of(PAGE);
        let memory = SharedMemory::create("ringway-gen-virtio", bytes)?;
        let mut rx = Queue::<R>::new(memory.mapping(), &places[0])?;
        let mut tx = Queue::<R>::new(memory.mapping(), &places[1])?;
        if let Some(size) = options.segments {
            let header = segmented(size);
            for number in 0..options.tx_ring as usize {
                let at = places[1].buffers + number * places[1].stride() + HEADER_AT;
                memory.mapping().view(at, HEADER).map(|view| view.write(&header));
            }
        }
        tx.want_no_call();
        rx.want_no_call();
        rx.push_many(options.rx_ring);
        rx.publish();

        let user = memory.mapping().whole().as_ptr() as u64;
        let mut guest = Guest { memory, user, rings, options: options.clone(), inflight: None };
        let (connection, mut eventfds) = guest.connect::<R>(socket, false, |_| R::BASE)?;
        let (Some(tx_eventfds), Some(rx_eventfds)) = (eventfds.pop(), eventfds.pop()) else {
            unreachable!("two queues at least")
        };
        Ok(VirtioEndpoint {
            tx,
            rx,
            tx_eventfds,
            rx_eventfds,
            path: socket.to_owned(),
            connection,
            misuse: None,
            gathering: options.mergeable.then(|| Gathering::new(options.rx_ring)),
            guest,
            _idle: eventfds,
        })
    }

    /// Returns the connection. It becomes readable when the back end has disconnected.
    #[must_use]
    pub fn connection(&self) -> &UnixStream {
        &self.connection
    }

    #[cold]
    fn blame(&mut self, misuse: Misuse) {
        self.misuse.get_or_insert(misuse);
        self.tx.close();
        self.rx.close();
    }

    /// Takes back the transmit buffers that were used.
    #[inline]
    fn reclaim(&mut self) {
        if self.misuse.is_none()
            && let Err(misuse) = self.tx.take_all()
        {
            self.blame(misuse);
        }
    }

    #[inline]
    fn has_room(&mut self) -> bool {
        if self.tx.room() == 0 {
            self.reclaim();
            return self.tx.room() > 0;
        }
        true
    }

    fn ready(&mut self, for_rx: bool) -> Result<bool, Misuse> {
        if for_rx {
            return self.rx.has_used();
        }
        self.tx.take_all()?;
        Ok(self.tx.room() > 0)
    }

    fn want_call(&mut self, for_rx: bool) {
        if for_rx { self.rx.want_call(false) } else { self.tx.want_call(true) }
    }

    fn want_no_call(&mut self) {
        self.rx.want_no_call();
        self.tx.want_no_call();
    }

    fn broken(&self, misuse: Misuse) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("the back end at {}: {misuse}", self.path.display()))
    }

    /// Sleeps until a call, the end of the connection, or the end of `left`.
    fn sleep(&mut self, for_rx: bool, left: Duration) -> io::Result<()> {
        let call = if for_rx { &self.rx_eventfds.call } else { &self.tx_eventfds.call };
        let mut descriptors = [PollFd::new(call, PollFlags::IN), PollFd::new(&self.connection, PollFlags::IN)];
        match poll(&mut descriptors, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [called, ended] = descriptors.map(|descriptor| !descriptor.revents().is_empty());
        if called {
            // Non-blocking. If the counter is empty, there was no call after all.
            let _ = rustix::io::read(call, &mut [0; 8]);
        }
        if ended {
            let what = format!("the back end at {} is gone", self.path.display());
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, what));
        }
        Ok(())
    }
}

impl<R: Ring> Endpoint for VirtioEndpoint<R> {
    #[inline]
    fn tx_room(&mut self) -> usize {
        self.reclaim();
        self.tx.room() as usize
    }

    #[inline]
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if !self.has_room() {
            return false;
        }
        let id = self.tx.next();
        let Some(frame) = self.tx.buffers.frame_mut(id, len) else { return false };
        fill(frame);
        self.tx.push(len)
    }

    #[inline]
    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        self.has_room() && self.tx.push(template.len())
    }

    #[inline]
    fn tx_flush(&mut self) {
        if self.tx.publish() {
            // Non-blocking. If the counter is full, the eventfd is readable already.
            let _ = rustix::io::write(&self.tx_eventfds.kick, &1u64.to_ne_bytes());
        }
    }

    #[inline]
    fn rx_batch(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        if self.misuse.is_some() {
            return 0;
        }
        let most = u32::try_from(max).unwrap_or(u32::MAX);
        let mut frames = 0;
        let taken = match &mut self.gathering {
            None => self.rx.drain::<true>(most, |buffers, id, written| {
                // For a length below that of the header, the subtraction wraps to a length that is too long.
                let frame = buffers.frame(id, (written as usize).wrapping_sub(HEADER));
                take(frame.ok_or_else(|| wrong_length(buffers, written))?);
                frames += 1;
                Ok(())
            }),
            Some(gathering) => self.rx.drain::<true>(most, |buffers, id, written| {
                let complete = gathering.add(buffers, id, written, &mut take)?;
                frames += usize::from(complete);
                Ok(())
            }),
        };
        match taken {
            Ok(0) => {}
            Ok(buffers) => {
                self.rx.push_many(buffers);
                if self.rx.publish() {
                    let _ = rustix::io::write(&self.rx_eventfds.kick, &1u64.to_ne_bytes());
                }
            }
            Err(misuse) => self.blame(misuse),
        }
        frames
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        if let Some(misuse) = self.misuse {
            return Err(self.broken(misuse));
        }
        if timeout.is_zero() {
            return self.sleep(for_rx, timeout);
        }
        let deadline = Instant::now() + timeout;
        loop {
            self.want_call(for_rx);
            let ready = self.ready(for_rx).map_err(|misuse| self.broken(misuse));
            let left = deadline.saturating_duration_since(Instant::now());
            let over = !matches!(ready, Ok(false)) || left.is_zero();
            let slept = if over { ready.map(|_| ()) } else { self.sleep(for_rx, left) };
            if over || slept.is_err() {
                self.want_no_call();
                return slept;
            }
        }
    }
}
