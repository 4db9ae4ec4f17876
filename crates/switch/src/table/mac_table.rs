//! The MAC table: fixed size, keyed hash, bounded probes, one atomic word per entry (DESIGN §2).
//!
//! ```text
//! entry, 64 bits:   address (48) | owner (16)          0 = empty
//! beside it:        VLAN (32) | second last heard (32)
//! bucket:           8 entries = one cache line         an address can be in two buckets, so 16 probes at most
//! owner, 16 bits:   generation (4) | port index (12)   a flushed port takes its next generation
//! count, 32 bits:   generation (4) | addresses (28)    one for each port index
//! ```
//!
//! A flush is O(1): with the port's next generation its old entries are invalid. [`MacTable::sweep`] clears them later.
//! It must run before a generation repeats (after 15 flushes of one index).
//!
//! The seed is secret, so a client cannot choose addresses that collide in one bucket. The addresses of a port are
//! limited. The limit is that of an owner, not of an index: a poller that still works by an older topology may learn for an owner whose
//! index has another one already, and that learns and counts nothing. All operations are lock-free. If two pollers learn a new address at the same moment, it may have two
//! entries until one ages; a lookup returns the first of them.
//!
//! An address that moved to another port moves again only when its hold-down has ended (`hold_down.rs`). Addresses that
//! stay at their port never reach that code.
//!
//! An address is learned once for each VLAN. In switches without VLANs all entries are in VLAN 0, and a lookup does not
//! read the word beside an entry; in switches with VLANs it does. The two words are not written atomically, so for a
//! moment an entry can be found under the VLAN of its predecessor. Delivery therefore checks that the port is in the
//! frame's VLAN.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::hold_down::HoldDown;
use super::moves::{Move, Moves};
use crate::frame::{MAX_PORTS, Mac, Owner};

const WAYS: usize = 8;

/// The result of learning an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The address was at this port already.
    Known,
    /// New.
    New,
    /// The address moved here from the port of this owner.
    Moved(Owner),
    /// Not learned: the address stays at its port until its hold-down has ended.
    Held,
    /// Not learned: both buckets are full of valid entries.
    TableFull,
    /// Not learned: the port has reached its limit of addresses, or its index has another owner.
    PortLimit,
}

/// An entry as listed by `ringway fdb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacEntry {
    /// The VLAN; 0 in switches without VLANs.
    pub vlan: u16,
    /// The address.
    pub mac: Mac,
    /// The port that it is at.
    pub owner: Owner,
    /// The second in which it was last a source address.
    pub heard: u32,
}

/// What the table has to know of the owners of its entries, and has to tell them.
pub(crate) trait Owners {
    /// Returns true if the entries of an owner are valid; other entries may be overwritten.
    fn is_alive(&self, owner: Owner) -> bool;

    /// Counts an address whose move to `owner` the hold-down refused.
    fn count_held_move(&self, owner: Owner);
}

/// Owners that do not count refused moves.
struct Alive<F: Fn(Owner) -> bool>(F);

impl<F: Fn(Owner) -> bool> Owners for Alive<F> {
    #[inline]
    fn is_alive(&self, owner: Owner) -> bool {
        (self.0)(owner)
    }

    fn count_held_move(&self, _: Owner) {}
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

/// A MAC table (see the module's comment).
#[derive(Debug)]
pub struct MacTable {
    buckets: Box<[Bucket]>,
    heard: Box<[AtomicU64]>,
    /// By port index: the generation that may learn, and how many addresses it has.
    learned: Box<[AtomicU32]>,
    seed: [u64; 2],
    port_limit: u32,
    moves: Moves,
    hold_down: HoldDown,
}

/// Bits of a count. The generation is above it.
const COUNT_BITS: u32 = 28;
const MOST_COUNTED: u32 = (1 << COUNT_BITS) - 1;

/// What an owner's count is before it has learned an address.
fn none_of(owner: Owner) -> u32 {
    u32::from(owner.generation()) << COUNT_BITS
}

#[inline]
fn word(mac: Mac, owner: Owner) -> u64 {
    mac.bits() << 16 | u64::from(owner.bits())
}

#[inline]
fn owner_of(word: u64) -> Owner {
    Owner::from_bits(word as u16)
}

/// The word beside an entry.
#[inline]
fn heard_in(vlan: u16, now: u32) -> u64 {
    u64::from(vlan) << 32 | u64::from(now)
}

impl MacTable {
    /// A table for `entries` addresses (rounded up to a power of two, 64 to 2^20), at most `port_limit` of each port.
    /// `seed` should come from the kernel's random number generator.
    #[must_use]
    pub fn new(entries: usize, port_limit: u32, seed: [u64; 2]) -> MacTable {
        let entries = entries.clamp(64, 1 << 20).next_power_of_two();
        MacTable {
            buckets: (0..entries / WAYS).map(|_| Bucket::default()).collect(),
            heard: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            learned: (0..MAX_PORTS).map(|_| AtomicU32::new(0)).collect(),
            seed,
            port_limit: port_limit.min(MOST_COUNTED),
            moves: Moves::new(),
            hold_down: HoldDown::new(),
        }
    }

    /// Number of entries.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.heard.len()
    }

    /// Addresses learned by the port with this index in its present generation.
    #[must_use]
    pub fn learned(&self, index: u16) -> u32 {
        self.learned[usize::from(index) % MAX_PORTS].load(Ordering::Relaxed) & MOST_COUNTED
    }

    /// Lets this owner learn, as many addresses as its limit is, and those no more that had its index before. It has to be called before
    /// pollers learn for the owner; once it was, nothing changes.
    pub(crate) fn begin(&self, owner: Owner) {
        let (count, none) = (&self.learned[usize::from(owner.index())], none_of(owner));
        let _ =
            count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n & !MOST_COUNTED != none).then_some(none));
    }

    #[inline]
    fn hash(&self, vlan: u16, mac: Mac) -> u64 {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        fold(fold(mac.bits() ^ u64::from(vlan) << 48 ^ self.seed[0], self.seed[1] | 1), 0x9e37_79b9_7f4a_7c15)
    }

    #[inline]
    fn buckets_of(&self, vlan: u16, mac: Mac) -> [usize; 2] {
        let mixed = self.hash(vlan, mac);
        let mask = self.buckets.len() - 1;
        [mixed as usize & mask, (mixed >> 32) as usize & mask]
    }

    #[inline]
    fn find(&self, vlan: u16, mac: Mac) -> Option<(usize, u64)> {
        for bucket in self.buckets_of(vlan, mac) {
            for (way, entry) in self.buckets[bucket].0.iter().enumerate() {
                let found = entry.load(Ordering::Relaxed);
                let at = bucket * WAYS + way;
                if found >> 16 == mac.bits() && found != 0 && (vlan == 0 || self.vlan(at) == vlan) {
                    return Some((at, found));
                }
            }
        }
        None
    }

    #[inline]
    fn vlan(&self, at: usize) -> u16 {
        (self.heard[at].load(Ordering::Relaxed) >> 32) as u16
    }

    #[inline]
    fn entry(&self, at: usize) -> &AtomicU64 {
        &self.buckets[at / WAYS].0[at % WAYS]
    }

    /// The port that last sent from `mac`, in switches without VLANs. The caller checks that the owner's generation is
    /// the port's present one.
    #[inline]
    #[must_use]
    pub fn lookup(&self, mac: Mac) -> Option<Owner> {
        self.lookup_in(0, mac)
    }

    /// The port that last sent from `mac` in a VLAN. The caller checks that the owner's generation is the port's
    /// present one.
    #[inline]
    #[must_use]
    pub fn lookup_in(&self, vlan: u16, mac: Mac) -> Option<Owner> {
        self.find(vlan, mac).map(|(_, found)| owner_of(found))
    }

    /// Learns that `owner` sent from `mac` in second `now`, in switches without VLANs. `alive` returns true for owners
    /// with valid entries; other entries may be overwritten.
    #[inline]
    pub fn learn(&self, mac: Mac, owner: Owner, now: u32, alive: impl Fn(Owner) -> bool) -> Learned {
        self.learn_in(0, mac, owner, now, alive)
    }

    /// Learns that `owner` sent from `mac` in a VLAN in second `now`. `alive` returns true for owners with valid
    /// entries; other entries may be overwritten.
    #[inline]
    pub fn learn_in(&self, vlan: u16, mac: Mac, owner: Owner, now: u32, alive: impl Fn(Owner) -> bool) -> Learned {
        self.learn_with(vlan, mac, owner, now, &Alive(alive))
    }

    /// Learns as [`MacTable::learn_in`] does, and tells `owners` if the hold-down refuses a move. A callback costs less than a
    /// comparison of the result for each frame.
    #[inline(always)]
    pub(crate) fn learn_with(&self, vlan: u16, mac: Mac, owner: Owner, now: u32, owners: &impl Owners) -> Learned {
        if let Some((at, found)) = self.find(vlan, mac) {
            let heard = &self.heard[at];
            let word = heard_in(vlan, now);
            if heard.load(Ordering::Relaxed) != word {
                heard.store(word, Ordering::Relaxed);
            }
            let before = owner_of(found);
            if before == owner {
                return Learned::Known;
            }
            let learned = self.take_over((at, found), vlan, owner, now, owners.is_alive(before));
            if learned == Learned::Held {
                owners.count_held_move(owner);
            }
            return learned;
        }
        self.insert(vlan, mac, owner, now, |owner| owners.is_alive(owner))
    }

    /// Gives an entry, its index and its word, to another owner. With `is_alive` the owner before is valid, so that this is a move.
    #[cold]
    fn take_over(&self, entry: (usize, u64), vlan: u16, owner: Owner, now: u32, is_alive: bool) -> Learned {
        let (at, found) = entry;
        let (mac, before) = (Mac::from_bits(found >> 16), owner_of(found));
        if !self.count_up(owner) {
            return Learned::PortLimit;
        }
        // Checked after the port's limit: a refused port must not begin a hold-down.
        if is_alive && !self.hold_down.admits(self.hash(vlan, mac), before, owner, now) {
            self.count_down(owner);
            return Learned::Held;
        }
        if self.entry(at).compare_exchange(found, word(mac, owner), Ordering::Relaxed, Ordering::Relaxed).is_err() {
            self.count_down(owner);
            return Learned::Known;
        }
        if is_alive {
            self.count_down(before);
            self.moves.note(vlan, mac, before, owner, now);
            Learned::Moved(before)
        } else {
            Learned::New
        }
    }

    #[cold]
    fn insert(&self, vlan: u16, mac: Mac, owner: Owner, now: u32, alive: impl Fn(Owner) -> bool) -> Learned {
        if !self.count_up(owner) {
            return Learned::PortLimit;
        }
        // The emptier of the two buckets first, so that nearly all entries of a table can be used.
        let living = |bucket: usize| {
            let entries = self.buckets[bucket].0.iter().map(|entry| entry.load(Ordering::Relaxed));
            entries.filter(|&found| found != 0 && alive(owner_of(found))).count()
        };
        let [first, second] = self.buckets_of(vlan, mac);
        let order = if living(second) < living(first) { [second, first] } else { [first, second] };
        for bucket in order {
            for way in 0..WAYS {
                let at = bucket * WAYS + way;
                let found = self.entry(at).load(Ordering::Relaxed);
                if found != 0 && alive(owner_of(found)) {
                    continue;
                }
                let new = word(mac, owner);
                if self.entry(at).compare_exchange(found, new, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    self.heard[at].store(heard_in(vlan, now), Ordering::Relaxed);
                    return Learned::New;
                }
            }
        }
        self.count_down(owner);
        Learned::TableFull
    }

    /// Counts an address. Returns false if the owner has as many as it may, or if its index has another owner.
    fn count_up(&self, owner: Owner) -> bool {
        self.change_count(owner, |n| (n & MOST_COUNTED < self.port_limit).then_some(n + 1))
    }

    fn count_down(&self, owner: Owner) {
        // The index may have another owner.
        self.change_count(owner, |n| (n & MOST_COUNTED > 0).then(|| n - 1));
    }

    fn change_count(&self, owner: Owner, change: impl Fn(u32) -> Option<u32>) -> bool {
        let is_of = |n: u32| n & !MOST_COUNTED == none_of(owner);
        let count = &self.learned[usize::from(owner.index())];
        let change = |n: u32| Some(n).filter(|&n| is_of(n)).and_then(&change);
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).is_ok()
    }

    /// Clears entries that are not `alive`, and entries that were no source address for `max_age` seconds (0: entries
    /// do not age). Returns how many were cleared.
    pub fn sweep(&self, now: u32, max_age: u32, alive: impl Fn(Owner) -> bool) -> usize {
        let mut cleared = 0;
        for at in 0..self.heard.len() {
            let found = self.entry(at).load(Ordering::Relaxed);
            if found == 0 {
                continue;
            }
            let owner = owner_of(found);
            let living = alive(owner);
            let aged = max_age > 0 && now.saturating_sub(self.heard[at].load(Ordering::Relaxed) as u32) >= max_age;
            if living && !aged {
                continue;
            }
            if self.entry(at).compare_exchange(found, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                cleared += 1;
                if living {
                    self.count_down(owner);
                }
            }
        }
        cleared
    }

    /// The latest moves, in no order.
    #[must_use]
    pub fn moves(&self) -> Vec<Move> {
        let mut moves = self.moves.all();
        for known in &mut moves {
            known.held = self.hold_down.refused(self.hash(known.vlan, known.mac));
        }
        moves
    }

    /// Number of moves of all addresses.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moves.count()
    }

    /// Number of moves that a hold-down refused.
    #[must_use]
    pub fn moves_held(&self) -> u64 {
        self.hold_down.all_refused()
    }

    /// All entries, in no order.
    pub fn entries(&self) -> impl Iterator<Item = MacEntry> + '_ {
        (0..self.heard.len()).filter_map(|at| {
            let found = self.entry(at).load(Ordering::Relaxed);
            let mac = Mac::from_bits(found >> 16);
            let heard = self.heard[at].load(Ordering::Relaxed);
            let vlan = (heard >> 32) as u16;
            (found != 0).then(|| MacEntry { vlan, mac, owner: owner_of(found), heard: heard as u32 })
        })
    }
}
