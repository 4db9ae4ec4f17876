//! Addresses that move to another port: a migrated machine, a loop, or two stations with one address.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};

use crate::frame::{Mac, Owner};

/// Number of addresses with a record: the latest that moved.
const MOST: usize = 64;

/// An address that moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The VLAN; 0 in switches without VLANs.
    pub vlan: u16,
    /// The address.
    pub mac: Mac,
    /// The port before the last move.
    pub from: Owner,
    /// The port after the last move.
    pub to: Owner,
    /// Number of moves since its record began.
    pub count: u64,
    /// The second of the last move.
    pub second: u32,
    /// True if it once returned to the port that it came from: two stations have this address, or there is a loop.
    pub is_duplicate: bool,
    /// Number of moves that its hold-down refused, since its hold-down record began.
    pub held: u64,
}

/// The addresses that moved last, and the number of all moves. Noting a move never waits for the lock: of two moves at
/// the same moment, one may have no record, but both are counted.
#[derive(Debug)]
pub(crate) struct Moves {
    last: Mutex<Vec<Move>>,
    count: AtomicU64,
}

impl Moves {
    pub(crate) fn new() -> Moves {
        Moves { last: Mutex::new(Vec::with_capacity(MOST)), count: AtomicU64::new(0) }
    }

    /// Counts and records a move.
    pub(crate) fn note(&self, vlan: u16, mac: Mac, from: Owner, to: Owner, now: u32) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut moves = match self.last.try_lock() {
            Ok(moves) => moves,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if let Some(known) = moves.iter_mut().find(|known| (known.vlan, known.mac) == (vlan, mac)) {
            let is_duplicate = known.is_duplicate || known.from == to;
            *known = Move { from, to, count: known.count + 1, second: now, is_duplicate, ..*known };
            return;
        }
        let new = Move { vlan, mac, from, to, count: 1, second: now, is_duplicate: false, held: 0 };
        if moves.len() < MOST {
            moves.push(new);
        } else if let Some(oldest) = moves.iter_mut().min_by_key(|known| known.second) {
            *oldest = new;
        }
    }

    /// All records, in no order.
    pub(crate) fn all(&self) -> Vec<Move> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of all moves.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MacTable;
    use crate::testing::mac;

    #[test]
    fn a_move_is_told_from_two_with_one_address_and_a_flood_of_moves_is_bounded() {
        let table = MacTable::new(4096, 4096, [1, 2]);
        let [one, two, three] = [0, 1, 2].map(|index| Owner::new(index, 0));
        let learn = |mac, owner, now| table.learn_in(7, mac, owner, now, |_| true);
        learn(mac(1), one, 1);
        assert_eq!(table.moves(), []);
        learn(mac(1), two, 2);
        let moved =
            Move { vlan: 7, mac: mac(1), from: one, to: two, count: 1, second: 2, is_duplicate: false, held: 0 };
        assert_eq!(table.moves(), [moved]);
        learn(mac(1), three, 3);
        assert!(!table.moves()[0].is_duplicate, "moved on");
        learn(mac(1), two, 4);
        assert_eq!((table.moves()[0].to, table.moves()[0].held), (three, 1), "held down");
        learn(mac(1), two, 5);
        let moved = Move { from: three, to: two, count: 3, second: 5, is_duplicate: true, held: 1, ..moved };
        assert_eq!(table.moves(), [moved]);
        for n in 100..400 {
            learn(mac(n), one, 6);
            learn(mac(n), two, 7);
        }
        assert_eq!((table.moves().len(), table.moved()), (MOST, 3 + 300));
        assert!(table.moves().iter().any(|known| known.mac == mac(399)));
    }
}
