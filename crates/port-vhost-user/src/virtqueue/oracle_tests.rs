//! Split rings compared with `virtio-queue`, which other hypervisors use: both read the same descriptors, write the
//! same used ring and make the same calls.

use std::fs::File;
use std::sync::atomic::Ordering;

use proptest::collection::vec;
use proptest::prelude::*;
use ringway_testing::whole;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};

use super::ring::walk;
use super::testing::{Driver, Guest, INDIRECT, LOW, LOW_BYTES, NEXT, Piece, SplitDriver, WRITE, descriptor};
use super::{F_EVENT_IDX, F_INDIRECT_DESC, Ring, Split};

const SIZE: u16 = 16;

/// The reference implementation, on the same memory.
fn oracle(guest: &Guest, driver: &SplitDriver, begin: u16) -> (GuestMemoryMmap, Queue) {
    let file = File::from(guest.file.try_clone().expect("a descriptor"));
    let region = (GuestAddress(LOW), LOW_BYTES as usize, Some(FileOffset::new(file, 0)));
    let memory = GuestMemoryMmap::from_ranges_with_files([region]).expect("a mapping");
    let mut queue = Queue::new(SIZE).expect("a queue");
    let all = driver.addresses();
    let halves = |address: u64| (Some(address as u32), Some((address >> 32) as u32));
    queue.set_size(SIZE);
    let (low, high) = halves(all.descriptors);
    queue.set_desc_table_address(low, high);
    let (low, high) = halves(all.driver);
    queue.set_avail_ring_address(low, high);
    let (low, high) = halves(all.device);
    queue.set_used_ring_address(low, high);
    queue.set_event_idx(true);
    queue.set_next_avail(begin);
    queue.set_next_used(begin);
    queue.set_ready(true);
    assert!(queue.is_valid(&memory));
    (memory, queue)
}

/// Address, length, and true if the device may write there.
type Pieces = Vec<(u64, u32, bool)>;
/// The length, kind and `next` of a descriptor.
type Made = (u32, u8, u16);

fn made(table: u16) -> impl Strategy<Value = Made> {
    (0..3000u32, 0..8u8, 0..table + 2)
}

/// Returns the words of a descriptor. No other descriptor has the same `address`.
fn words((len, kind, next): Made, address: u64, indirect: Option<u64>) -> [u64; 2] {
    let (flags, write) = match kind {
        0 | 1 => (0, false),
        2 => (0, true),
        3 if indirect.is_some() => (INDIRECT, false),
        4 => (NEXT, true),
        _ => (NEXT, false),
    };
    let (address, len) = match indirect {
        Some(table) if flags == INDIRECT => (table, (1 + len % 8) * 16),
        _ => (address, len),
    };
    descriptor(Piece { address, len, write }, flags, next)
}

fn used_ring(guest: &Guest, driver: &SplitDriver) -> Vec<u8> {
    guest.read(driver.addresses().device, 4 + 8 * usize::from(SIZE))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(whole(1000, 3000)) })]

    #[test]
    fn the_same_tables_are_the_same_chains(
        table in vec(made(SIZE), usize::from(SIZE)),
        indirect in vec(made(8), 8),
        heads in vec(0..SIZE, 1..=usize::from(SIZE)),
        begin in prop_oneof![Just(0u16), any::<u16>()],
        lens in vec(0..70_000u32, usize::from(SIZE)),
    ) {
        let guest = Guest::new();
        let mut driver = SplitDriver::new(&guest, SIZE, F_INDIRECT_DESC | F_EVENT_IDX);
        driver.begin_at(&guest, begin.into());
        let at = guest.alloc(8 * 16, 16);
        for (place, &entry) in (0..).zip(&indirect) {
            let words = words(entry, 0x80_0000 + place * 4096, None);
            guest.write(at + 16 * place, &[words[0].to_le_bytes(), words[1].to_le_bytes()].concat());
        }
        for (index, &entry) in (0..).zip(&table) {
            driver.write_descriptor(&guest, index, words(entry, 0x40_0000 + u64::from(index) * 4096, Some(at)));
        }
        for (position, &head) in (u64::from(begin)..).zip(&heads) {
            driver.set_available(&guest, position, head);
        }
        driver.set_index(&guest, begin.wrapping_add(heads.len() as u16));

        let (memory, mut queue) = oracle(&guest, &driver, begin);
        let chains: Vec<(u16, Pieces)> = queue
            .iter(&memory)
            .expect("chains")
            .map(|chain| (chain.head_index(), chain.map(|d| (d.addr().0, d.len(), d.is_write_only())).collect()))
            .collect();
        prop_assert_eq!(chains.len(), heads.len());

        let mut ring: Split = driver.device_at(&guest, begin.into()).expect("a ring");
        ring.refresh().expect("an index in range");
        let mut space = guest.memory.space();
        let (mut place, mut whole) = (ring.first(), 0);
        for (head, pieces) in &chains {
            let found = ring.head(place).expect("a head").expect("available");
            let mut seen = Vec::new();
            let chain = walk(&ring, &mut space, place, found, |_, d| {
                seen.push((d.address, d.len(), d.flags() & WRITE != 0));
                Ok(())
            });
            prop_assert_eq!(found.id, *head);
            match chain {
                Ok(chain) => {
                    prop_assert_eq!(&seen, pieces);
                    prop_assert_eq!(chain.id, *head);
                    whole += 1;
                    place = ring.after(place, chain.slots);
                }
                // On a fault, the reference either stops with the same pieces or goes around until its own limit.
                Err(_) => {
                    let common = seen.len().min(pieces.len());
                    prop_assert_eq!(&seen[..common], &pieces[..common]);
                    break;
                }
            }
        }

        // When the chains are marked used, both devices write the same bytes.
        let heads = &heads[..whole];
        for (&id, &len) in heads.iter().zip(&lens) {
            ring.give_back(super::ring::Chain { id, slots: 1 }, len);
        }
        ring.publish();
        let ours = used_ring(&guest, &driver);
        guest.write(driver.addresses().device, &vec![0; ours.len()]);
        for (&id, &len) in heads.iter().zip(&lens) {
            queue.add_used(&memory, id, len).expect("given back");
        }
        let theirs = used_ring(&guest, &driver);
        prop_assert!(whole == 0 || ours == theirs);
    }

    #[test]
    fn the_same_events_are_the_same_calls(
        begin in any::<u16>(),
        steps in vec((0..5u16, any::<bool>(), -6..6i16), 1..60),
    ) {
        let guest = Guest::new();
        let mut driver = SplitDriver::new(&guest, SIZE, F_EVENT_IDX);
        driver.begin_at(&guest, begin.into());
        let (memory, mut queue) = oracle(&guest, &driver, begin);
        let mut ring: Split = driver.device_at(&guest, begin.into()).expect("a ring");
        // Our device answers the first question with yes, whatever the event index is.
        prop_assert!(ring.call_wanted());
        let mut position = begin;
        for (count, moves, off) in steps {
            for _ in 0..count {
                ring.give_back(super::ring::Chain { id: 3, slots: 1 }, 0);
                queue.add_used(&memory, 3, 0).expect("given back");
            }
            ring.publish();
            position = position.wrapping_add(count);
            if moves {
                let event = position.wrapping_add_signed(off);
                guest.word16(driver.addresses().driver + 4 + 2 * u64::from(SIZE)).store(event, Ordering::SeqCst);
            }
            prop_assert_eq!(ring.call_wanted(), queue.needs_notification(&memory).expect("an answer"));
        }
    }
}
