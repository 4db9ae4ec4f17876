//! Addresses, regions and the dirty log.

use std::os::fd::{AsFd, OwnedFd};

use ringway_memory::Mapping;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::{DirtyLog, GuestMemory, LogFault, Region, RegionError, work_done};

fn file(bytes: u64) -> OwnedFd {
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).expect("memory");
    ftruncate(&file, bytes).expect("memory");
    file
}

#[test]
fn addresses_are_found_in_one_region_or_not_at_all() {
    let file = file(0x30_000);
    let region = |guest, size, user, offset| {
        std::sync::Arc::new(Region::map(&file, guest, size, user, offset).expect("a region"))
    };
    // Two regions with adjacent guest addresses, and one at the end of the address space.
    let memory = GuestMemory::new(vec![
        region(0x1000, 0x1000, 0x7000_0000, 0),
        region(0x2000, 0x1000, 0x7000_1000, 0x5000),
        region(u64::MAX - 0x1fff, 0x1000, 0x9000_0000, 0x2000),
    ]);
    let mut space = memory.space();
    let cases = [
        (0x1000, 0x1000, true),
        (0x1fff, 1, true),
        (0x2000, 0x1000, true),
        (0x1fff, 2, false),
        (0x1000, 0x1001, false),
        (0xfff, 1, false),
        (0, 0x1001, false),
        (0x3000, 1, false),
        (u64::MAX - 0x1fff, 0x1000, true),
        (u64::MAX - 0xfff, 1, false),
        (u64::MAX, 1, false),
        (u64::MAX, u32::MAX, false),
        (0x1000, u32::MAX, false),
    ];
    for (address, len, inside) in cases.into_iter().chain(cases.into_iter().rev()) {
        assert_eq!(space.view(address, len).is_some(), inside, "{len:#x} bytes at {address:#x}");
        assert_eq!(memory.view(address, len as usize).is_some(), inside, "{len:#x} bytes at {address:#x}");
        assert!(space.view(address, len).is_none_or(|view| view.len() == len as usize));
    }
    // Each guest address leads to its own byte of the file.
    let own = Mapping::shared(file.as_fd(), 0x30_000).expect("memory");
    for (address, offset) in [(0x1000, 0), (0x1fff, 0xfff), (0x2000, 0x5000), (u64::MAX - 0x1000, 0x2fff)] {
        assert!(space.view(address, 1).expect("inside").write(&[7]));
        let mut byte = [0];
        assert!(own.view(offset, 1).expect("inside").read(&mut byte) && byte == [7], "{address:#x}");
        assert!(own.view(offset, 1).expect("inside").write(&[0]));
    }
    for (user, len, guest) in [
        (0x7000_0000, 0x1000, Some(0x1000)),
        (0x7000_1fff, 1, Some(0x2fff)),
        (0x7000_0fff, 2, None),
        (0x6fff_ffff, 1, None),
        (0x9000_0000, 0x1000, Some(u64::MAX - 0x1fff)),
        (u64::MAX, 1, None),
    ] {
        assert_eq!(memory.guest_address(user, len), guest, "{user:#x}");
    }
    assert!(GuestMemory::default().space().view(0, 0).is_none());
    assert!(GuestMemory::default().space().view(0, 1).is_none());
}

/// Some regions are adjacent and others are not, in no order. The addresses looked up are at, or near, the beginning or
/// the end of a region.
#[test]
fn what_a_search_looks_at_does_not_grow_with_the_number_of_regions() {
    let (file, mut regions, mut start) = (file(0x1000), Vec::new(), 0x1000u64);
    for number in 0..255u64 {
        let size = 1 + number * 7 % 13;
        regions
            .push(std::sync::Arc::new(Region::map(&file, start, size, 0x100_0000 - start, number).expect("a region")));
        start += size + [0, 0, 1, 9][(number * number % 4) as usize];
    }
    let spans: Vec<(u64, u64)> = regions.iter().map(|region| (region.guest(), region.size())).collect();
    // A front end may list the regions in any order: here the last region is among the others.
    regions.sort_by_key(|region| region.guest() * 0x9e37_79b9 % 1009);
    let memory = GuestMemory::new(regions);
    assert!(memory.regions().iter().map(|region| (region.guest(), region.size())).eq(spans.iter().copied()));
    let mut space = memory.space();
    let places = spans.iter().flat_map(|&(at, size)| [at - 1, at, at + size / 2, at + size - 1, at + size]);
    for address in places.chain([0, u64::MAX, 1 << 63]) {
        for len in [1u32, 2, 3, 20, 300, 4096] {
            let is_in = |&(at, size): &(u64, u64)| at <= address && address.checked_add(len.into()) <= Some(at + size);
            let inside = address.checked_add(len.into()).is_some() && spans.iter().any(is_in);
            let is_there = |byte: u64| spans.iter().any(|&(at, size)| (at..at + size).contains(&byte));
            let all = address.checked_add(len.into()).is_some_and(|end| (address..end).all(is_there));
            work_done();
            assert_eq!(memory.view(address, len as usize).is_some(), inside, "{len} bytes at {address:#x}");
            assert_eq!(space.view(address, len).is_some(), inside, "{len} bytes at {address:#x}");
            let pieces = memory.pieces(address, len);
            let user = 0x100_0000u64.wrapping_sub(address);
            let _ = memory.guest_address(user, 1);
            assert!(work_done() <= 3 * 9, "halving 255 takes eight comparisons");
            assert_eq!(pieces.is_some(), all, "{len} bytes at {address:#x} in several regions");
            if let Some(pieces) = pieces {
                assert_eq!(pieces.map(|piece| piece.len()).sum::<usize>(), len as usize);
            }
        }
    }
}

#[test]
fn a_loss_is_found_whichever_region_it_is_in_and_looked_for_once() {
    let files: Vec<OwnedFd> = (0..40).map(|_| file(0x1000)).collect();
    let map = |at: usize| Region::map(&files[at], (at as u64) << 12, 0x1000, (at as u64) << 12, 0).expect("a region");
    let memory = GuestMemory::new((0..40).map(|at| std::sync::Arc::new(map(at))).collect());
    let other = GuestMemory::new((0..3).map(|at| std::sync::Arc::new(map(at))).collect());
    assert!(!memory.is_lost() && !other.is_lost());
    ftruncate(&files[39], 0).expect("cut");
    assert!(!memory.is_lost(), "no access has touched the lost page");
    assert!(memory.view(39 << 12, 1).expect("inside").read(&mut [0]));
    assert!(memory.is_lost() && !other.is_lost());
    work_done();
    // Other tests may lose mappings meanwhile, but only a few in total.
    (0..10_000).for_each(|_| assert!(memory.is_lost() && !other.is_lost()));
    assert!(work_done() < 10_000, "each check looked at every region");
}

#[test]
fn regions_must_fit_their_file_and_the_address_space() {
    let file = file(0x3000);
    let map = |guest, size, user, offset| Region::map(&file, guest, size, user, offset);
    assert!(matches!(map(0, 0, 0, 0), Err(RegionError::Empty)));
    assert!(matches!(map(u64::MAX, 2, 0, 0), Err(RegionError::Wraps { .. })));
    assert!(matches!(map(0, 2, u64::MAX, 0), Err(RegionError::Wraps { .. })));
    assert!(matches!(map(0, 2, 0, u64::MAX), Err(RegionError::Wraps { .. })));
    assert!(matches!(map(0, u64::MAX, 0, 0), Err(RegionError::BeyondFile { .. })));
    assert!(matches!(map(0, 0x3001, 0, 0), Err(RegionError::BeyondFile { .. })));
    assert!(matches!(map(0, 0x1000, 0, 0x2001), Err(RegionError::BeyondFile { .. })));
    // A region whose file offset is in the middle of a page leads to its own bytes.
    let own = Mapping::shared(file.as_fd(), 0x3000).expect("memory");
    assert!(own.view(0x1234, 3).expect("inside").write(b"abc"));
    let region = map(0x8000, 0x100, 0, 0x1234).expect("a region");
    let mut bytes = [0; 3];
    assert!(region.whole().read(&mut bytes) && &bytes == b"abc" && region.whole().len() == 0x100);
    let other = |guest, user| map(guest, 0x100, user, 0).expect("a region");
    assert!(other(0x80ff, 0x5000).overlaps(&region) && other(0x7f01, 0x5000).overlaps(&region));
    assert!(!other(0x8100, 0x5000).overlaps(&region) && !other(0x7f00, 0x5000).overlaps(&region));
    assert!(other(0x9000, 0xff).overlaps(&region), "the front end's addresses overlap");
}

#[test]
fn a_log_has_exactly_the_bits_of_the_pages() {
    for (address, len, pages) in [
        (0, 0, vec![]),
        (0, 1, vec![0]),
        (4095, 1, vec![0]),
        (4095, 2, vec![0, 1]),
        (4096, 4096, vec![1]),
        (31 * 4096, 4097, vec![31, 32]),
        (5 * 4096 + 7, 3 * 4096, vec![5, 6, 7, 8]),
        (255 * 4096, 4096, vec![255]),
    ] {
        let file = file(32);
        let log = DirtyLog::map(&file, 32, 0).expect("a log");
        assert!(log.mark(address, len));
        let mut bytes = [0; 32];
        assert!(Mapping::shared(file.as_fd(), 32).expect("memory").whole().read(&mut bytes));
        let set: Vec<u64> = (0..256).filter(|page| bytes[*page as usize / 8] >> (page % 8) & 1 == 1).collect();
        assert_eq!(set, pages, "{len} bytes at {address}");
    }
}

#[test]
fn what_a_log_does_not_reach_is_a_fault() {
    let file = file(4096);
    let log = DirtyLog::map(&file, 32, 0).expect("a log");
    for (address, len) in [(256 * 4096, 1), (256 * 4096 - 1, 2), (u64::MAX, 1), (u64::MAX, 2), (1 << 63, 4096)] {
        assert!(!log.mark(address, len), "{len} bytes at {address:#x}");
        assert_eq!(log.mark_all([(0, 1), (address, len)]), Err(LogFault::TooSmall(address)));
    }
    for (size, offset) in [(0, 0), (3, 0), (4097, 0), (32, 4096), (u64::MAX, 0), (4096, u64::MAX), (32, 8)] {
        assert!(DirtyLog::map(&file, size, offset).is_err(), "{size} bytes at {offset}");
    }
}
