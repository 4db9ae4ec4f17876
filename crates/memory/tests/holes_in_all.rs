//! The bound of pages that are made for all mappings together. Alone in its process, because the bound is the process's.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringway_memory::{Limits, Mapping, Quota, can_limit_holes};
use ringway_testing::file::memfd;
use ringway_testing::skip;
use rustix::fs::{FallocateFlags, fallocate};

const PAGE: usize = 4096;

#[test]
fn ports_together_have_no_more_pages_made_than_all_may_until_their_mappings_go() {
    if !can_limit_holes() {
        skip!("needs userfaultfd(2)");
    }
    const PAGES: usize = 64;
    Quota::total().set_limits(Limits { holes: (PAGES * PAGE) as u64, ..Limits::TOTAL });
    let map = || {
        let (mapping, _, quota) = map_pages((1 << 30) / PAGE);
        (mapping, quota)
    };
    let touch = |mapping: &Mapping, page: usize| {
        assert!(mapping.view(page * PAGE, 1).expect("inside").write(&[1]));
    };
    let ((one, of_one), (other, of_other)) = (map(), map());
    (0..PAGES / 2).for_each(|page| touch(&one, page));
    (0..PAGES / 2).for_each(|page| touch(&other, page));
    assert_eq!(Quota::total().used().holes, (PAGES * PAGE) as u64);
    assert!(!one.is_lost() && !other.is_lost());
    touch(&other, PAGES);
    assert!(other.is_lost() && !one.is_lost());
    assert!(of_other.take_holes_exceeded().is_some() && of_one.take_holes_exceeded().is_none());
    // The pages of the dropped mapping are available to the next one.
    drop(other);
    assert_eq!(Quota::total().used().holes, (PAGES / 2 * PAGE) as u64);
    (PAGES / 2..PAGES).for_each(|page| touch(&one, page));
    assert!(!one.is_lost());
    drop(one);
    assert_eq!(Quota::total().used().holes, 0);
    // A mapping counts with its size at most, however often its pages are freed and filled again.
    let (mapping, file, quota) = map_pages(PAGES / 4);
    for _ in 0..100 {
        (0..PAGES / 4).for_each(|page| touch(&mapping, page));
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&file, how, 0, (PAGES / 4 * PAGE) as u64).expect("a hole");
    }
    assert!(!mapping.is_lost() && quota.take_holes_exceeded().is_none());
    assert_eq!(Quota::total().used().holes, (PAGES / 4 * PAGE) as u64);
    drop(mapping);
    assert_eq!(Quota::total().used().holes, 0);
}

fn map_pages(pages: usize) -> (Mapping, OwnedFd, Arc<Quota>) {
    let quota = Quota::of_port(Limits::PORT);
    let file = memfd((pages * PAGE) as u64);
    (Mapping::given(file.as_fd(), 0, pages * PAGE, &quota).expect("mapped"), file, quota)
}
