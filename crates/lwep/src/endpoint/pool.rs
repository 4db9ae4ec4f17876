//! The buffers of an endpoint.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_link::Buffer;

use super::free::Free;

/// So many unread buffers are looked at together: each look takes a cache line from the device.
const MANY: usize = 32;

/// The number of the next pool.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A buffer and who uses it.
#[derive(Debug, Default)]
pub struct Slot {
    /// `None` while the program has it.
    pub buffer: Option<Buffer>,
    /// Messages in it that are not acknowledged, or have arrived and wait.
    pub users: u16,
    /// Bytes of data, and of each message but the last one.
    pub bytes: u32,
    pub part: u32,
    /// It holds a message that has arrived and waits.
    is_kept: bool,
    /// The link's number of its last transmission.
    ticket: u64,
}

/// All buffers, by number.
#[derive(Debug)]
pub struct Pool {
    /// Other pools have other numbers: a buffer that the program gives back must be this one's.
    pub number: u32,
    slots: Vec<Slot>,
    free: Free,
    /// Buffers that are free when the device has read them.
    unread: VecDeque<u32>,
    /// All transmissions up to this number are read.
    sent: u64,
    /// The program gets no buffer of the last so many: they are for messages that are early or taken out of others, and the last half
    /// of them for frames without messages alone, so that no connection keeps others from being acknowledged.
    reserve: usize,
    /// Buffers with messages that have arrived and wait, or that the program keeps: at most half of all, whatever peers send.
    kept: usize,
}

impl Pool {
    pub fn new(buffers: Vec<Buffer>, places: usize) -> Self {
        let count = buffers.len();
        let slot = |buffer| Slot { buffer: Some(buffer), ..Slot::default() };
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            slots: buffers.into_iter().map(slot).collect(),
            free: Free::new(count, places),
            unread: VecDeque::with_capacity(count),
            sent: 0,
            reserve: count / 8,
            kept: 0,
        }
    }

    /// Returns the number of buffers.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns all buffers.
    pub fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// Returns the buffers that nothing but the device uses.
    pub fn unused(&self) -> impl Iterator<Item = u32> {
        (0..self.slots.len() as u32).filter(|slot| self.free.has(*slot)).chain(self.unread.iter().copied())
    }

    /// Returns a free buffer for the program.
    #[inline]
    pub fn take_for_program(&mut self) -> Option<u32> {
        if self.free.len() > self.reserve { self.take() } else { None }
    }

    /// Returns a free buffer.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        self.free.take()
    }

    /// Returns true if [`Pool::take_for_messages`] returns a buffer.
    pub fn has_for_messages(&self) -> bool {
        self.free.len() > self.reserve / 2
    }

    /// Returns a free buffer for messages of a buffer that are sent alone.
    pub fn take_for_messages(&mut self) -> Option<u32> {
        if self.has_for_messages() { self.take() } else { None }
    }

    /// Returns a free buffer for a message that has arrived and has to wait.
    pub fn take_to_keep(&mut self) -> Option<u32> {
        if self.kept >= self.slots.len() / 2 {
            return None;
        }
        let slot = self.take_for_messages()?;
        self.kept += 1;
        self.slots[slot as usize].is_kept = true;
        Some(slot)
    }

    /// Returns the number of free buffers for the program.
    pub fn free_for_program(&self) -> usize {
        self.free.len().saturating_sub(self.reserve)
    }

    /// Returns the number of buffers that the program can have.
    pub fn most_for_program(&self) -> usize {
        self.slots.len() - self.reserve
    }

    #[inline]
    pub fn slot(&mut self, slot: u32) -> &mut Slot {
        &mut self.slots[slot as usize]
    }

    #[inline]
    pub fn bytes(&self, slot: u32, from: u32, len: u32) -> Option<&[u8]> {
        self.slots.get(slot as usize)?.buffer.as_ref()?.get(from as usize..)?.get(..len as usize)
    }

    /// A buffer that the program had holds messages now.
    #[inline]
    pub fn fill(&mut self, slot: u32, buffer: Buffer, messages: u16, bytes: usize, part: usize) {
        let filled = &mut self.slots[slot as usize];
        filled.buffer = Some(buffer);
        (filled.users, filled.bytes, filled.part) = (messages, bytes as u32, part as u32);
    }

    /// The buffer was queued at the link as transmission number `ticket`.
    #[inline]
    pub fn queued(&mut self, slot: u32, ticket: u64) {
        self.slots[slot as usize].ticket = ticket;
    }

    /// A buffer from [`Pool::take_to_keep`] holds messages that wait.
    pub fn hold(&mut self, slot: u32, messages: u16) {
        self.slots[slot as usize].users = messages;
        if messages == 0 {
            self.give_back(slot);
        }
    }

    /// Returns true if the buffer holds several messages.
    pub fn is_shared(&self, slot: u32) -> bool {
        self.slots[slot as usize].users > 1
    }

    /// One message less in this buffer is unacknowledged, or waits.
    #[inline]
    pub fn release(&mut self, slot: u32) {
        let used = &mut self.slots[slot as usize];
        used.users = used.users.saturating_sub(1);
        if used.users == 0 {
            self.give_back(slot);
        }
    }

    /// Nothing but the device uses this buffer any more.
    #[inline]
    pub fn give_back(&mut self, slot: u32) {
        if std::mem::take(&mut self.slots[slot as usize].is_kept) {
            self.kept -= 1;
        }
        if self.slots[slot as usize].ticket <= self.sent {
            self.free.put(slot);
        } else {
            self.unread.push_back(slot);
        }
    }

    /// Returns true if it is worth while to ask the device what it has read.
    #[inline]
    pub fn waits_for_device(&self) -> bool {
        self.unread.len() > self.free.len().min(MANY - 1)
    }

    /// Returns true if the device has yet to read buffers that are free then.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Returns true if the device has read the buffer's last transmission, as far as is known.
    #[inline]
    pub fn is_read(&self, slot: u32) -> bool {
        self.slots[slot as usize].ticket <= self.sent
    }

    /// The device has read all transmissions up to this number.
    #[inline]
    pub fn sent(&mut self, sent: u64) {
        self.sent = sent;
        while let Some(slot) = self.unread.front().copied() {
            if self.slots[slot as usize].ticket > sent {
                break;
            }
            self.unread.pop_front();
            self.free.put(slot);
        }
    }
}
