//! The dirty log marks all pages that were written, and no others.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::sync::Arc;

use ringway_memory::Mapping;
use ringway_port::guest::DirtyLog;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::testing::{
    Driver, Guest, HIGH, LOW, LOW_BYTES, Piece, both, collect, deliver, receive_queue, transmit_queue,
};
use super::{F_EVENT_IDX, F_IN_ORDER, Ring, RingFault};

both!(what_is_received_is_logged_with_the_ring, what_is_sent_logs_the_ring_only, a_log_that_is_too_small_ends_the_ring,);

const PAGE: u64 = 4096;

struct Log {
    shared: Arc<DirtyLog>,
    own: Mapping,
}

impl Log {
    /// Returns a log for the first `pages` pages.
    fn of(pages: u64) -> Log {
        let bytes = pages.div_ceil(32) * 4;
        let file = memfd_create("log", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&file, bytes).expect("memory");
        let own = Mapping::shared(file.as_fd(), bytes as usize).expect("memory");
        Log { shared: Arc::new(DirtyLog::map(&file, bytes, 0).expect("a log")), own }
    }

    /// Returns the marked pages, and clears the log.
    fn take(&self) -> BTreeSet<u64> {
        let mut bytes = vec![0; self.own.bytes()];
        assert!(self.own.whole().read(&mut bytes) && self.own.whole().write(&vec![0; bytes.len()]));
        (0..bytes.len() as u64 * 8).filter(|page| bytes[*page as usize / 8] >> (page % 8) & 1 == 1).collect()
    }
}

fn pages(ranges: impl IntoIterator<Item = (u64, u64)>) -> BTreeSet<u64> {
    ranges.into_iter().filter(|(_, len)| *len > 0).flat_map(|(at, len)| at / PAGE..=(at + len - 1) / PAGE).collect()
}

/// Returns the pages of the lower region whose contents differ from `before`.
fn changed(guest: &Guest, before: &[u8]) -> BTreeSet<u64> {
    let now = guest.read(LOW, LOW_BYTES as usize);
    let both = before.chunks(PAGE as usize).zip(now.chunks(PAGE as usize));
    (LOW / PAGE..).zip(both).filter(|(_, (old, new))| old != new).map(|(page, _)| page).collect()
}

/// Returns the pages of the ring that the device may write: the table of a packed ring, the used ring of a split ring.
fn ring_pages<D: Driver>(driver: &D, size: u64) -> BTreeSet<u64> {
    let all = driver.addresses();
    if D::PACKED { pages([(all.descriptors, 16 * size), (all.device, 4)]) } else { pages([(all.device, 6 + 8 * size)]) }
}

fn what_is_received_is_logged_with_the_ring<D: Driver>() {
    for features in [0, F_EVENT_IDX, F_IN_ORDER] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 256, features);
        let log = Log::of(HIGH / PAGE + 64);
        let mut queue = receive_queue(&guest, &driver, true);
        queue.set_log(Some(Arc::clone(&log.shared)));
        for (lens, frames) in [
            (vec![2000], vec![1500]),
            (vec![20_000], vec![60, 9000]),
            (vec![4096, 4096, 4096], vec![9000, 100]),
            (vec![1, 11, 5000], vec![4990]),
            (vec![100, 9000], vec![8000, 60]),
        ] {
            let (mut offered, mut before) = (Vec::new(), guest.allocated());
            for _ in 0..6 {
                let pieces: Vec<Piece> = lens.iter().map(|&len| Piece::write(guest.alloc(len, 1), len)).collect();
                driver.put(&guest, &pieces, pieces.len()).expect("room");
                offered.push(pieces);
            }
            driver.publish(&guest);
            before -= before % PAGE;
            let memory = guest.read(LOW, LOW_BYTES as usize);
            let frames: Vec<_> = frames.iter().map(|&len| (vec![0x77; len], None)).collect();
            assert_eq!(deliver(&mut queue, &guest, &frames, 1000).0, Ok(()));
            let marked = log.take();
            let used = driver.all_used(&guest);
            let mut written = Vec::new();
            for ((_, len), pieces) in used.iter().zip(&offered) {
                let mut left = *len;
                for piece in pieces {
                    written.push((piece.address, u64::from(left.min(piece.len))));
                    left -= left.min(piece.len);
                }
            }
            let mut expected = pages(written);
            expected.extend(ring_pages(&driver, 256));
            assert_eq!(marked, expected, "buffers of {lens:?}, from {before:#x}");
            assert!(changed(&guest, &memory).is_subset(&marked));
            // Uses up the remaining buffers, so that the next round starts with its own.
            let rest: Vec<_> = (0..6 - used.len()).map(|_| (vec![1; 14], None)).collect();
            assert_eq!(deliver(&mut queue, &guest, &rest, 1000).0, Ok(()));
            driver.all_used(&guest);
            log.take();
        }
    }
}

fn what_is_sent_logs_the_ring_only<D: Driver>() {
    for features in [0, F_EVENT_IDX, F_IN_ORDER] {
        let guest = Guest::new();
        let mut driver = D::new(&guest, 256, features);
        let log = Log::of(HIGH / PAGE);
        let mut queue = transmit_queue(&guest, &driver);
        queue.set_log(Some(Arc::clone(&log.shared)));
        assert_eq!(log.take(), BTreeSet::new());
        let at = guest.alloc(20_000, 1);
        for _ in 0..5 {
            driver.put(&guest, &[Piece::read(at, 12), Piece::read(at + 12, 9000)], 2).expect("room");
        }
        driver.publish(&guest);
        let memory = guest.read(LOW, LOW_BYTES as usize);
        assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 5);
        let marked = log.take();
        assert_eq!(marked, ring_pages(&driver, 256));
        let changed = changed(&guest, &memory);
        assert!(!changed.is_empty() && changed.is_subset(&marked));
        // Enabling kicks writes to the ring, too.
        queue.ring.arm();
        queue.note_ring();
        assert_eq!(log.take(), ring_pages(&driver, 256));
        // Without a log nothing is marked.
        queue.set_log(None);
        driver.send(&guest, &[Piece::read(at, 100)]);
        assert_eq!(collect(&mut queue, &guest).expect("no fault").frames.len(), 1);
        assert_eq!(log.take(), BTreeSet::new());
    }
}

fn a_log_that_is_too_small_ends_the_ring<D: Driver>() {
    let guest = Guest::new();
    // The log covers the pages of the ring, but not the page of the buffer.
    let mut driver = D::new(&guest, 16, 0);
    let far = guest.alloc(64 * PAGE as usize, PAGE);
    let buffer = far + 63 * PAGE;
    for pages in [1, 32] {
        let log = Log::of(pages);
        let mut queue = receive_queue(&guest, &driver, false);
        queue.set_log(Some(Arc::clone(&log.shared)));
        driver.send(&guest, &[Piece::write(buffer, 1000)]);
        let (result, tally) = deliver(&mut queue, &guest, &[(vec![1; 60], None)], 1);
        assert_eq!((result.is_err(), tally.frames, tally.full), (true, 0, 1));
        driver = D::new(&guest, 16, 0);
    }
    // The log does not even cover the ring.
    let log = Log::of(1);
    let high = guest.alloc(100, 1);
    let mut queue = transmit_queue(&guest, &driver);
    queue.set_log(Some(Arc::clone(&log.shared)));
    driver.send(&guest, &[Piece::read(high, 100)]);
    let ring = if D::PACKED { driver.addresses().descriptors } else { driver.addresses().device };
    assert_eq!(collect(&mut queue, &guest), Err(RingFault::LogTooSmall(ring)));
}
