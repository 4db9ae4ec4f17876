//! Frames from a device.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_keeper::Guard;
use ringway_memory::{HEAD_BYTES, Head, Mapping, View};
use ringway_netdevice::xdp::{Attached, Consumer, Entry, Producer};
use ringway_switch::{Armed, Batch, Discarded, DropReason, Input, Offload, PortFault, WakeOn};
use rustix::net::sockopt::xdp_statistics;
use rustix::net::{RecvFlags, recv};

use super::queue::{RECEIVE, piece};
use super::tags::Tags;
use crate::device_closing::ClosedApart;
use crate::device_watch::{COLLECT, DeviceWatch};
use crate::kept::unreadable;
use crate::packet_socket::{Look, PacketSocket};
use crate::partial::left_to_do;
use crate::positions::QueuePosition;

/// Most pieces of a frame that are looked at: more than a device gives (`MAX_SKB_FRAGS` is 17).
const MAX_PIECES: usize = 64;

/// The receiving half of a queue.
pub(super) struct Receiver {
    pub(super) socket: OwnedFd,
    pub(super) memory: Arc<Mapping>,
    pub(super) ring: Consumer<2>,
    pub(super) fill: Producer<1>,
    /// Bytes of a chunk.
    chunk: u64,
    /// Frames may come from the local kernel, with incomplete checksums.
    is_local: bool,
    /// Entries that were taken, and whose chunks the kernel does not have yet.
    taken: usize,
    /// What a successor has to know of this beside the rings.
    position: QueuePosition,
}

impl Receiver {
    /// The receiver of a queue whose chunks have this many bytes.
    pub(super) fn new(
        socket: OwnedFd,
        memory: Arc<Mapping>,
        rings: (Consumer<2>, Producer<1>),
        chunk: usize,
        position: QueuePosition,
    ) -> Receiver {
        let (ring, fill) = rings;
        Receiver { socket, memory, ring, fill, chunk: chunk as u64, is_local: false, taken: 0, position }
    }

    /// Frames may come from the local kernel.
    pub(super) fn with_local_frames(self, is_local: bool) -> Receiver {
        Receiver { is_local, ..self }
    }

    /// Goes on where a predecessor has come to: gives back the chunks of frames that it had taken, each once.
    ///
    /// Chunks are given back in the order of the receive ring's entries, and published before the entries are released. So as many entries were given
    /// back as the fill ring has had entries after the first ones, and those behind them are still in the ring.
    ///
    /// # Errors
    /// The positions are none of such rings.
    pub(super) fn go_on(&mut self) -> io::Result<()> {
        let available = self.ring.available();
        let behind_released = |index: u32| index.wrapping_sub(self.ring.next()) as usize;
        let given = behind_released(self.fill.next().wrapping_sub(RECEIVE));
        let taken = behind_released(self.position.taken.load(Ordering::Relaxed));
        if given > taken || taken > available {
            return Err(unreadable());
        }
        self.give_back(given..taken);
        Ok(())
    }

    /// Returns what is left to do for a frame of `len` bytes that begins with these.
    #[inline]
    fn left_to_do(&self, first: View<'_>, len: usize, mtu: usize) -> Result<Option<Offload>, DropReason> {
        if !self.is_local {
            return Ok(None);
        }
        let mut head = Head([0; HEAD_BYTES]);
        let read = first.read_head(first.len(), &mut head);
        left_to_do(&head.0[..read], len, mtu)
    }

    /// Returns the number of entries of the frame that begins `ahead` entries behind the next one, if its last one is there.
    #[inline]
    fn pieces(&self, ahead: usize, available: usize) -> Option<usize> {
        let last = (ahead..available).find(|&entry| !Entry::of(self.ring.peek(entry)).continues)?;
        Some(last + 1 - ahead)
    }

    pub(super) fn collect<'m>(&'m mut self, batch: &mut Batch<'m>, mtu: usize) {
        let available = self.ring.available();
        let mut ahead = 0;
        while batch.room() > 0
            && let Some(pieces) = self.pieces(ahead, available)
        {
            let entry = |index| Entry::of(self.ring.peek(index));
            let view = |index| {
                let Entry { address, len, .. } = entry(index);
                piece(&self.memory, address, len)
            };
            let frame = ahead..ahead + pieces;
            ahead += pieces;
            if pieces > MAX_PIECES {
                batch.refuse(DropReason::Oversize);
                continue;
            }
            let len = frame.clone().map(|index| entry(index).len as usize).sum();
            let first = view(frame.start).filter(|_| frame.clone().all(|index| view(index).is_some()));
            match first.ok_or(DropReason::BadBuffer).and_then(|first| Ok((first, self.left_to_do(first, len, mtu)?))) {
                Err(reason) => batch.refuse(reason),
                Ok((whole, None)) if pieces == 1 => batch.push(whole, len),
                Ok((whole, Some(offload))) if pieces == 1 => batch.push_offloaded(whole, len, offload),
                Ok((_, None)) => batch.push_pieces(frame.filter_map(view)),
                Ok((_, Some(offload))) => batch.push_pieces_offloaded(frame.filter_map(view), offload),
            }
        }
        self.taken = ahead;
        self.note_taken();
    }

    /// Notes which entries are taken, if there are any.
    #[inline]
    fn note_taken(&self) {
        if self.taken > 0 {
            self.position.taken.store(self.ring.next().wrapping_add(self.taken as u32), Ordering::Relaxed);
        }
    }

    /// Returns how many frames the socket has lost since this was last called: those for which it had no chunk or no entry.
    fn look(&mut self) -> u64 {
        // A driver may have asked to be woken after the last chunks were given back.
        self.wake_driver();
        let Ok(now) = xdp_statistics(&self.socket) else { return 0 };
        let lost = (now.rx_dropped + now.rx_ring_full.unwrap_or(0)) as u32;
        lost.wrapping_sub(self.position.lost.swap(lost, Ordering::Relaxed)).into()
    }

    /// Gives the chunks of the taken entries back to the kernel.
    pub(super) fn release(&mut self) {
        let taken = std::mem::take(&mut self.taken);
        self.give_back(0..taken);
    }

    /// Gives the chunks of these entries back to the kernel, and then all entries up to these.
    fn give_back(&mut self, entries: Range<usize>) {
        if entries.end == 0 {
            return;
        }
        let free = self.fill.free();
        for entry in entries.clone().take(free) {
            let Entry { address, .. } = Entry::of(self.ring.peek(entry));
            self.fill.put([address & !(self.chunk - 1)]);
        }
        let is_any = self.fill.publish();
        self.ring.advance(entries.end);
        self.ring.release();
        if is_any {
            self.wake_driver();
        }
    }

    /// Tells the driver of chunks, if it waits for them.
    fn wake_driver(&self) {
        if self.fill.needs_wakeup() {
            // An error shows at the next look at the socket.
            let _ = recv(&self.socket, &mut [0u8; 0], RecvFlags::DONTWAIT);
        }
    }
}

/// What the port has changed of its device.
pub(super) struct Held {
    // Dropped first: no frame comes without its tag.
    pub(super) attached: Attached,
    pub(super) tags: Tags,
}

/// What is open of the device.
struct Open {
    // Dropped first: the next port of the device finds it as it was, and comes only when the sockets are closed.
    _held: Held,
    queues: Vec<Receiver>,
    packets: PacketSocket,
    _kept: Arc<Guard>,
}

/// The input of an XDP port: a round takes frames of each queue in turn.
pub(super) struct XdpInput {
    open: ClosedApart<Open>,
    /// The queue that comes first.
    turn: usize,
    watch: DeviceWatch,
}

impl XdpInput {
    pub(super) fn new(
        queues: Vec<Receiver>,
        watch: DeviceWatch,
        packets: PacketSocket,
        held: Held,
        kept: &Arc<Guard>,
    ) -> XdpInput {
        let open = Open { _held: held, queues, packets, _kept: Arc::clone(kept) };
        XdpInput { open: ClosedApart::new(open), turn: 0, watch }
    }

    fn look(&mut self) {
        let Open { queues, packets, .. } = &mut *self.open;
        let Look { lost, .. } = packets.look();
        self.watch.look(queues.iter_mut().map(Receiver::look).sum::<u64>() + lost);
    }
}

impl Input for XdpInput {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.watch.report(batch)?;
        if self.watch.is_due(COLLECT) {
            self.look();
        }
        // The packet socket has its turn, too.
        let turn = self.turn;
        let Open { queues, packets, .. } = &mut *self.open;
        self.turn = (turn + 1) % (queues.len() + 1);
        let mtu = self.watch.mtu();
        let (first, last) = queues.split_at_mut(turn);
        last.iter_mut().for_each(|queue| queue.collect(batch, mtu));
        packets.collect(batch, mtu);
        first.iter_mut().for_each(|queue| queue.collect(batch, mtu));
        Ok(())
    }

    fn release(&mut self) {
        self.open.queues.iter_mut().for_each(Receiver::release);
        self.open.packets.release();
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        let mut discarded = Discarded::default();
        for queue in &mut self.open.queues {
            let available = queue.ring.available();
            let mut ahead = 0;
            while discarded.frames < most as u64
                && let Some(pieces) = queue.pieces(ahead, available)
            {
                let lens = (ahead..ahead + pieces).map(|entry| u64::from(Entry::of(queue.ring.peek(entry)).len));
                discarded.bytes += lens.sum::<u64>();
                discarded.frames += 1;
                ahead += pieces;
            }
            queue.taken = ahead;
            queue.note_taken();
            queue.release();
        }
        self.open.packets.discard(most as u64, &mut discarded);
        Ok(discarded)
    }

    #[inline]
    fn pending(&mut self) -> bool {
        if self.watch.is_due(1) {
            self.look();
        }
        let Open { queues, packets, .. } = &*self.open;
        self.watch.has_report() || queues.iter().any(|queue| queue.ring.has_entries()) || packets.has_frames()
    }

    /// The kernel reports frames by the sockets' readiness, and changes of the device by events. There is no event of a client.
    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        self.look();
        Armed::with_kick(wake_on == WakeOn::Frames && self.pending())
    }

    fn disarm(&mut self) {}
}
