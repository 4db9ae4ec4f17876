//! Buffers of many messages, in the segmentation layout.

use super::core::Endpoint;
use super::peer::Connection;
use super::transmit::{Outgoing, Refused, Sent};
use crate::connection::{Nanos, Part};
use crate::link::Link;
use crate::wire::segmented::{self, Train};
use crate::wire::{ETHERNET_BYTES, Header, IPV4, Kind, PLAIN_BYTES};

impl<L: Link> Endpoint<L> {
    /// Returns a buffer for many messages of equal length, to any connection. `None`: no buffer is free.
    pub fn reserve_many(&mut self) -> Option<Outgoing> {
        let interface = self.link.interface();
        let longest = interface.segmented.max(interface.longest).min(usize::from(u16::MAX));
        let end = (self.core.front + longest).min(interface.buffer);
        self.reserve_from(self.core.front + segmented::HEADERS, end)
    }

    /// Sends the first `len` bytes of a buffer from [`Endpoint::reserve_many`] as messages of `part` bytes each, the last one shorter
    /// if it has to be. Where both ends have addresses for it, the buffer goes out as a whole and segmentation makes the frames. If it
    /// goes out at once it is handed over to the device at once, too.
    ///
    /// # Errors
    /// The buffer comes back: see [`crate::SendError`].
    pub fn commit_many(
        &mut self,
        connection: Connection,
        outgoing: Outgoing,
        len: usize,
        part: usize,
        now: Nanos,
    ) -> Result<(), Refused> {
        self.commit_parts(connection, outgoing, len, part, now)
    }

    /// Sends a buffer of `count` messages at once, if nothing stands against it. Otherwise returns false.
    pub(super) fn launch_many(&mut self, id: u32, slot: u32, count: usize) -> bool {
        let core = &mut self.core;
        let queue = core.options.queue;
        let Some(peer) = core.table.get(id) else { return false };
        let number = peer.sender.next();
        let places = peer.places(core.pool.slot(slot).bytes as usize, count);
        let may = peer.is_open()
            && !peer.is_in_sending
            && peer.sender.may_send_many_at_once(count, queue)
            && peer.trains.may_add(places, peer.sender.acknowledged(), peer.far.holds)
            && (number & 0xffff) as usize + count <= 1 << 16;
        if !may || !self.send_train(id, number, Part { slot, index: 0, remaining: 0 }) {
            return false;
        }
        let core = &mut self.core;
        core.counters.frames_sent += 1;
        core.counters.messages_sent += count as u64;
        if let Some(peer) = core.table.get(id) {
            peer.sender.sent_many_at_once(slot, count as u16, core.now);
            let last = peer.sender.count_to(number.wrapping_add(count as u32 - 1));
            peer.trains.add(last, places);
            core.lists.arm(peer, core.options.keep_alive);
        }
        // The device copies this buffer while the program writes the next one.
        self.flush();
        true
    }

    /// Sends a message of a buffer for many, with those that can be sent with it.
    #[cold]
    pub(super) fn transmit_part(&mut self, id: u32, number: u32, part: Part) -> Sent {
        let core = &mut self.core;
        let Some(peer) = core.table.get(id) else { return Sent::NoRoom };
        let slot = core.pool.slot(part.slot);
        let (bytes, size) = (slot.bytes as usize, slot.part as usize);
        let segmented = if peer.addresses.is_some() { self.link.interface().segmented } else { 0 };
        let longest = segmented.saturating_sub(segmented::HEADERS);
        let most = if bytes <= longest { bytes.div_ceil(size) } else { longest / size };
        let mut run = peer.sender.run(number).min(most).max(1);
        if (peer.sender.room(number) as usize) < run {
            // Acknowledgements make room for all, unless the peer's window is too small for them.
            if !peer.sender.is_idle() {
                return Sent::Waits;
            }
            if peer.sender.is_new(number) {
                run = run.min(peer.sender.window() as usize).max(1);
            }
        }
        let (is_new, places) = (peer.sender.is_new(number), peer.places(bytes.min(size * run), run));
        if is_new && run > 1 && !peer.trains.may_add(places, peer.sender.acknowledged(), peer.far.holds) {
            return Sent::Waits;
        }
        let is_whole = part.index == 0 && run == bytes.div_ceil(size);
        if is_whole && !core.pool.is_read(part.slot) {
            let sent = self.link.sent();
            core.pool.sent(sent);
        }
        if is_whole && !core.pool.is_read(part.slot) {
            // As with a single message: the last transmission is still to come.
            let Some(peer) = core.table.get(id) else { return Sent::NoRoom };
            (0..run as u32).for_each(|index| peer.sender.sent(number.wrapping_add(index), core.now));
            return Sent::Frame;
        }
        let is_sent = if is_whole { self.send_train(id, number, part) } else { self.send_copy(id, number, part, run) };
        if let Some(peer) = self.core.table.get(id)
            && is_sent
            && is_new
            && run > 1
        {
            let last = peer.sender.count_to(number.wrapping_add(run as u32 - 1));
            peer.trains.add(last, places);
        }
        self.mark(id, number, is_sent, run)
    }

    /// Writes the headers of a buffer of messages, which begin with this number, and queues it at the link. Returns false if
    /// the link does not take it.
    fn send_train(&mut self, id: u32, number: u32, part: Part) -> bool {
        let core = &mut self.core;
        let segmented = self.link.interface().segmented;
        let Some(peer) = core.table.get(id) else { return false };
        let Some(addresses) = peer.addresses else { return false };
        let slot = core.pool.slot(part.slot);
        let (bytes, size) = (slot.bytes as usize, slot.part as usize);
        let len = segmented::HEADERS + bytes;
        let frame = slot.buffer.as_mut().and_then(|buffer| buffer.get_mut(core.front..));
        let Some((head, rest)) = frame.and_then(|frame| frame.split_first_chunk_mut::<ETHERNET_BYTES>()) else {
            return false;
        };
        let Some(rest) = rest.first_chunk_mut().filter(|_| len <= segmented) else { return false };
        let header = Header { remaining: part.remaining, ..peer.header(Kind::Data, number, 0) };
        let train = Train { header, part: size, count: bytes.div_ceil(size), fragments: part.remaining > 0 };
        *head = peer.ethernet();
        head[12..].copy_from_slice(&IPV4.to_be_bytes());
        let offload = train.encode(&addresses, bytes, rest);
        let is_sent = slot.buffer.as_mut().is_some_and(|buffer| self.link.send(buffer, len, Some(&offload)));
        if is_sent {
            self.queued += 1;
            core.pool.queued(part.slot, self.queued);
        } else {
            core.tell_again(id);
        }
        is_sent
    }

    /// Copies `count` messages of a buffer, from the one with this number on, to a buffer of their own, and queues that at the link. It
    /// is free when the device has read it. Returns false if there is no buffer, or the link does not take it.
    fn send_copy(&mut self, id: u32, number: u32, part: Part, count: usize) -> bool {
        if !self.core.pool.has_to_copy() {
            let sent = self.link.sent();
            self.core.pool.sent(sent);
        }
        let core = &mut self.core;
        let Some(own) = core.pool.take_to_copy() else { return false };
        let slot = core.pool.slot(part.slot);
        let (size, at) = (slot.part as usize, slot.part as usize * usize::from(part.index));
        let len = (size * count).min((slot.bytes as usize).saturating_sub(at));
        let from = core.front + segmented::HEADERS + at;
        let to = core.front + if count > 1 { segmented::HEADERS } else { PLAIN_BYTES };
        let source = slot.buffer.take();
        let bytes = source.as_deref().and_then(|buffer| buffer.get(from..from + len));
        let target = core.pool.slot(own);
        let place = target.buffer.as_mut().and_then(|buffer| buffer.get_mut(to..to + len));
        let copied = bytes.zip(place).map(|(bytes, place)| place.copy_from_slice(bytes));
        (target.bytes, target.part) = (len as u32, size.min(len) as u32);
        core.pool.slot(part.slot).buffer = source;
        let copy = Part { slot: own, index: 0, ..part };
        let is_sent = copied.is_some()
            && if count > 1 { self.send_train(id, number, copy) } else { self.send_plain(id, number, copy) };
        self.core.pool.give_back(own);
        is_sent
    }
}
