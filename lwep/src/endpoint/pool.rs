//! The buffers of an endpoint.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_memory::Buffer;

use super::free::Free;
use super::share;
use super::stations::{Stations, Use};

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
    /// What the buffer counts as.
    used_for: Option<Use>,
    /// The station that it counts against, if there is one: the program has no address.
    station: Option<u32>,
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
    /// Most buffers for each use, and how many are used. What is sent never takes the buffers of what waits, nor the reverse.
    most: [usize; 2],
    used: [usize; 2],
    /// So many are for neither: for frames without messages and for copies, so that no connection keeps others from being acknowledged.
    reserve: usize,
    /// Buffers were given back since the last look at this.
    pub has_more: bool,
    pub stations: Stations,
}

impl Pool {
    pub fn new(buffers: Vec<Buffer>, places: usize, longest: u32) -> Self {
        let count = buffers.len();
        let slot = |buffer| Slot { buffer: Some(buffer), ..Slot::default() };
        let (reserve, keep) = (count / 16, 3 * count / 8);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            slots: buffers.into_iter().map(slot).collect(),
            free: Free::new(count, places),
            unread: VecDeque::with_capacity(count),
            sent: 0,
            most: [count - reserve - keep, keep],
            used: [0; 2],
            reserve,
            has_more: false,
            stations: Stations::new(longest),
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

    /// Returns a free buffer for the program, which counts against no station until [`Pool::charge`].
    #[inline]
    pub fn take_for_program(&mut self) -> Option<u32> {
        if self.left(Use::Send) > 0 { self.take_for(Use::Send) } else { None }
    }

    #[inline]
    fn take_for(&mut self, used: Use) -> Option<u32> {
        let slot = self.take()?;
        self.used[used as usize] += 1;
        self.slots[slot as usize].used_for = Some(used);
        Some(slot)
    }

    /// A buffer of the program counts against a station.
    #[inline]
    pub fn charge(&mut self, slot: u32, station: u32) {
        let charged = &mut self.slots[slot as usize];
        if let Some(used) = charged.used_for {
            charged.station = Some(station);
            self.stations.add(station, used);
        }
    }

    /// Returns a free buffer for a message to a station.
    #[inline]
    pub fn take_to_send(&mut self, station: u32) -> Option<u32> {
        if !self.may_take(station, Use::Send, 1) {
            return None;
        }
        let slot = self.take_for(Use::Send)?;
        self.charge(slot, station);
        Some(slot)
    }

    /// Returns true if a buffer that the program has may hold messages to a station.
    #[inline]
    pub fn may_charge(&self, station: u32) -> bool {
        // The buffer is not among those that are left, and is as good as one of these.
        let most = self.most[Use::Send as usize];
        let left = most - self.used[Use::Send as usize];
        share::may_take(self.stations.held(station, Use::Send), left + 1, most, 1)
    }

    /// A buffer with a message that has waited is the program's now, and counts against no station. Returns false if the program has as
    /// many as it may.
    pub fn hand_to_program(&mut self, slot: u32) -> bool {
        if self.left(Use::Send) == 0 {
            return false;
        }
        self.uncount(slot);
        self.used[Use::Send as usize] += 1;
        self.slots[slot as usize].used_for = Some(Use::Send);
        true
    }

    #[inline]
    fn uncount(&mut self, slot: u32) {
        let counted = &mut self.slots[slot as usize];
        let Some(used) = counted.used_for.take() else { return };
        self.used[used as usize] -= 1;
        if let Some(station) = counted.station.take() {
            self.stations.put_back(station, used);
        }
    }

    /// Returns a free buffer.
    #[inline]
    pub fn take(&mut self) -> Option<u32> {
        self.free.take()
    }

    /// Returns true if [`Pool::take_to_copy`] returns a buffer.
    pub fn has_to_copy(&self) -> bool {
        self.free.len() > self.reserve / 2
    }

    /// Returns a free buffer for a frame that takes messages out of another buffer.
    pub fn take_to_copy(&mut self) -> Option<u32> {
        if self.has_to_copy() { self.take() } else { None }
    }

    /// Returns a free buffer for a station's message that has arrived and has to wait.
    pub fn take_to_keep(&mut self, station: u32) -> Option<u32> {
        if !self.may_take(station, Use::Keep, 1) {
            return None;
        }
        let slot = self.take_for(Use::Keep)?;
        self.charge(slot, station);
        Some(slot)
    }

    /// Returns how many buffers all stations together can still take for a use.
    #[inline]
    fn left(&self, used: Use) -> usize {
        let left = self.most[used as usize] - self.used[used as usize];
        left.min(self.free.len().saturating_sub(self.reserve))
    }

    /// Returns true if a station may have so many more buffers.
    #[inline]
    pub fn may_take(&self, station: u32, used: Use, count: usize) -> bool {
        share::may_take(self.stations.held(station, used), self.left(used), self.most[used as usize], count)
    }

    /// Returns how many buffers each of the stations that have some, and one more, could have, if all had as many.
    pub fn part(&self, used: Use) -> usize {
        self.most[used as usize] / (self.stations.holders(used) + 1)
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

    /// Checks that what is used is what buffers count as, of all and of each station.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&self) -> Result<(), String> {
        for used in [Use::Send, Use::Keep] {
            let slots = self.slots.iter().filter(|slot| slot.used_for == Some(used));
            let mut held: HashMap<u32, usize> = HashMap::new();
            slots.clone().filter_map(|slot| slot.station).for_each(|station| *held.entry(station).or_default() += 1);
            let is_right = slots.count() == self.used[used as usize]
                && held.len() == self.stations.holders(used)
                && held.iter().all(|(station, count)| self.stations.held(*station, used) == *count);
            if !is_right {
                return Err(format!("wrong counts for {used:?}: {held:?} {:?}", self.stations));
            }
        }
        Ok(())
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
        self.uncount(slot);
        self.has_more = true;
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
            self.has_more = true;
        }
    }
}
