//! Changes of a client to its memory file, and which port they cost.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ringway_memory::{Limits, Mapping, Quota, SharedMemory, can_limit_holes};
use ringway_testing::file::{MoreHugePages, allocated, allocated_by_name};
use ringway_testing::{skip, until};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create};

const PAGE: usize = 4096;
const BYTES: usize = 64 * PAGE;

fn unsealed(bytes: usize) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memory file");
    ftruncate(&file, bytes as u64).expect("a size");
    file
}

fn read_all(mapping: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; mapping.bytes()];
    assert!(mapping.whole().read(&mut bytes));
    bytes
}

#[test]
fn a_file_truncated_while_frames_are_copied_costs_only_its_own_mapping() {
    let files: Vec<OwnedFd> = (0..4).map(|_| unsealed(BYTES)).collect();
    let mappings: Vec<Mapping> = files.iter().map(|f| Mapping::shared(f.as_fd(), BYTES).expect("mapped")).collect();
    let other = SharedMemory::create("other", BYTES).expect("memory");
    for mapping in mappings.iter().chain([&**other.mapping()]) {
        assert!(mapping.whole().write(&[0x5a; BYTES]));
    }
    let (stop, laps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // As the switch does: from every client's memory to the other's and back.
        let copier = scope.spawn(|| {
            let target = Mapping::private(BYTES).expect("memory");
            while !stop.load(Ordering::Relaxed) {
                for mapping in &mappings {
                    assert!(target.whole().copy_from(mapping.whole()));
                    assert!(mapping.whole().copy_from(other.mapping().whole()));
                }
                laps.fetch_add(1, Ordering::Relaxed);
            }
        });
        until("frames are copied", || laps.load(Ordering::Relaxed) > 0);
        for (file, mapping) in files.iter().zip(&mappings).take(3) {
            ftruncate(file, PAGE as u64).expect("truncated");
            until("the loss is noted", || mapping.is_lost());
        }
        let seen = laps.load(Ordering::Relaxed);
        until("copying goes on", || laps.load(Ordering::Relaxed) > seen + 2);
        stop.store(true, Ordering::Relaxed);
        copier.join().expect("copies to the end");
    });
    assert!(!mappings[3].is_lost() && !other.mapping().is_lost());
    assert_eq!(read_all(&mappings[3]), [0x5a; BYTES]);
    assert_eq!(read_all(other.mapping()), [0x5a; BYTES]);
    // A lost mapping is private memory from then on: nothing of it reaches the file.
    assert!(mappings[0].whole().write(&[0x11; BYTES]));
    let looked = Mapping::shared(files[0].as_fd(), PAGE).expect("mapped");
    assert_eq!(read_all(&looked), [0x5a; PAGE]);
}

#[test]
fn a_lost_mapping_reads_zero_and_its_place_serves_the_next_one() {
    for round in 0..50 {
        let file = unsealed(2 * PAGE);
        let mapping = Mapping::shared(file.as_fd(), 2 * PAGE).expect("mapped");
        assert!(mapping.whole().write(&[7; 2 * PAGE]));
        ftruncate(&file, 0).expect("truncated");
        assert!(!mapping.is_lost(), "nobody has touched it in round {round}");
        assert_eq!(read_all(&mapping), [0; 2 * PAGE]);
        assert!(mapping.is_lost());
        drop(mapping);
        let next = Mapping::private(PAGE).expect("memory");
        assert!(!next.is_lost(), "a new mapping begins whole in round {round}");
    }
}

#[test]
fn a_punched_hole_reads_zero_and_is_no_loss() {
    let memory = SharedMemory::create("holes", BYTES).expect("memory");
    assert!(memory.mapping().whole().write(&[9; BYTES]));
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(memory.file(), flags, PAGE as u64, 2 * PAGE as u64).expect("a hole");
    let bytes = read_all(memory.mapping());
    assert!(bytes[PAGE..3 * PAGE].iter().all(|&b| b == 0));
    assert!(bytes[..PAGE].iter().chain(&bytes[3 * PAGE..]).all(|&b| b == 9));
    assert!(!memory.mapping().is_lost());
}

#[test]
fn memory_that_was_made_whole_is_lost_with_the_first_page_that_its_client_takes_out() {
    if !can_limit_holes() {
        skip!("needs userfaultfd(2)");
    }
    let memory = SharedMemory::create_whole("whole", BYTES).expect("memory");
    assert_eq!(allocated(memory.file()), BYTES as u64);
    assert_eq!(read_all(memory.mapping()), [0; BYTES]);
    assert!(memory.mapping().whole().write(&[9; BYTES]) && !memory.mapping().is_lost());
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for _ in 0..2 {
        fallocate(memory.file(), flags, PAGE as u64, 2 * PAGE as u64).expect("a hole");
        assert!(memory.mapping().view(2 * PAGE, 1).expect("inside").write(&[1]));
        assert!(memory.mapping().is_lost());
        assert_eq!(allocated(memory.file()), (BYTES - 2 * PAGE) as u64, "no page is made again");
    }
}

#[test]
fn memory_made_for_a_client_can_neither_shrink_nor_grow_nor_be_taken_from_writers() {
    let memory = SharedMemory::create("sealed", BYTES).expect("memory");
    for bytes in [0, PAGE, BYTES - 1, BYTES + 1, 2 * BYTES] {
        assert_eq!(ftruncate(memory.file(), bytes as u64), Err(rustix::io::Errno::PERM), "{bytes} bytes");
    }
    assert_eq!(fcntl_add_seals(memory.file(), SealFlags::WRITE), Err(rustix::io::Errno::BUSY));
    assert!(memory.mapping().whole().write(&[1; BYTES]));
}

#[test]
fn a_client_refuses_memory_that_could_shrink_or_is_too_short() {
    let refused = SharedMemory::open(unsealed(BYTES), BYTES).expect_err("not sealed");
    assert!(refused.to_string().contains("not sealed"), "{refused}");
    let short = unsealed(PAGE);
    fcntl_add_seals(&short, SealFlags::SHRINK).expect("sealed");
    let refused = SharedMemory::open(short, BYTES).expect_err("too short");
    assert!(refused.to_string().contains("has 4096 bytes, 262144 were promised"), "{refused}");
}

const HUGE: usize = 2 << 20;

/// A memory file of four huge pages that the kernel keeps for it.
fn huge() -> Option<OwnedFd> {
    let file = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB).ok()?;
    ftruncate(&file, 4 * HUGE as u64).ok()?;
    // Mapping it reserves the pages.
    Mapping::shared(file.as_fd(), 4 * HUGE).ok().map(|_| file)
}

/// Runs `test` with files of four ordinary and of four huge pages.
fn with_pages_of_all_sizes(test: impl Fn(&dyn Fn() -> OwnedFd, usize)) {
    test(&|| unsealed(4 * PAGE), PAGE);
    let _more = MoreHugePages::ask_for(4);
    let are_there = huge().is_some();
    match are_there {
        true => test(&|| huge().expect("huge pages were there"), HUGE),
        false => skip::note("needs four huge pages of 2 MiB (vm.nr_hugepages)"),
    }
}

#[test]
fn a_file_truncated_at_any_page_costs_its_mapping_whatever_the_size_of_its_pages() {
    with_pages_of_all_sizes(|file, page| {
        for left in 0..4 {
            for (offset, bytes) in [(0, 4 * page), (0, 3 * page + 1), (PAGE as u64, 4 * page - PAGE)] {
                let file = file();
                let mapping = Mapping::shared_at(file.as_fd(), offset, bytes).expect("mapped");
                assert_eq!(mapping.bytes(), bytes);
                assert!(mapping.whole().write(&vec![7; bytes]));
                ftruncate(&file, (left * page) as u64).expect("truncated");
                let _ = read_all(&mapping);
                assert!(mapping.is_lost(), "{left} pages of {page} are left, {bytes} bytes at {offset} are mapped");
                assert_eq!(read_all(&mapping), vec![0; bytes], "replaced whole");
                assert!(mapping.whole().write(&vec![9; bytes]));
                assert_eq!(read_all(&mapping), vec![9; bytes]);
            }
        }
    });
}

#[test]
fn a_few_bytes_of_a_file_of_large_pages_are_mapped_replaced_and_unmapped_with_their_page() {
    // Alone in a process: another test's mapping could take the address as soon as it is free.
    if !is_child() {
        let test = "a_few_bytes_of_a_file_of_large_pages_are_mapped_replaced_and_unmapped_with_their_page";
        assert!(in_child(test).success(), "run it alone, with RINGWAY_TEST_CHILD=1, to see why");
        return;
    }
    with_pages_of_all_sizes(|file, page| {
        for (offset, bytes) in [(0, 64), (0, PAGE), ((page + PAGE) as u64 % (4 * page) as u64, 64)] {
            let file = file();
            let mapping = Mapping::shared_at(file.as_fd(), offset, bytes).expect("mapped");
            let at = mapping.whole().as_ptr() as usize;
            assert!(mapping.whole().write(&[5; 64]));
            assert!(is_mapped(at));
            ftruncate(&file, 0).expect("truncated");
            assert_eq!(read_all(&mapping), vec![0; bytes]);
            assert!(mapping.is_lost());
            drop(mapping);
            assert!(!is_mapped(at), "{bytes} bytes at {offset} of pages of {page} stay mapped");
        }
    });
}

/// Returns true if the page at `address` belongs to a mapping of a memory file.
fn is_mapped(address: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a list");
    maps.lines().any(|line| {
        let (range, rest) = line.split_once(' ').expect("a range");
        let (start, end) = range.split_once('-').expect("two ends");
        let number = |text| usize::from_str_radix(text, 16).expect("a number");
        (number(start)..number(end)).contains(&address) && rest.contains("memfd:")
    })
}

#[test]
fn the_largest_mapping_is_replaced_whole() {
    for bits in [30, 40, 42] {
        let file = unsealed(1 << bits);
        let mapping = Mapping::shared(file.as_fd(), 1 << bits).expect("mapped");
        ftruncate(&file, 0).expect("truncated");
        for place in [0, (1 << bits) - 8, 1 << (bits - 1)] {
            let view = mapping.view(place, 8).expect("inside");
            assert_eq!(view.first_word(), Some(0));
            assert!(view.write(&[1; 8]));
        }
        assert!(mapping.is_lost());
    }
}

#[test]
fn limits_of_this_process_do_not_keep_a_mapping_from_being_replaced() {
    if !is_child() {
        let status = in_child("limits_of_this_process_do_not_keep_a_mapping_from_being_replaced");
        assert!(status.success(), "{status}");
        return;
    }
    let file = unsealed(1 << 40);
    let mapping = Mapping::shared(file.as_fd(), 1 << 40).expect("mapped");
    let limit = |which, soft| {
        let limits = libc::rlimit { rlim_cur: soft, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the structure is complete.
        assert_eq!(unsafe { libc::setrlimit(which, &limits) }, 0);
    };
    // No room for a second mapping of this size, nor for a page of private memory.
    limit(libc::RLIMIT_AS, (1 << 40) + (1 << 35));
    limit(libc::RLIMIT_DATA, 0);
    let truncated = ftruncate(&file, 0);
    let word = mapping.view(1 << 39, 8).and_then(|view| view.first_word());
    limit(libc::RLIMIT_DATA, libc::RLIM_INFINITY);
    assert_eq!((truncated, word, mapping.is_lost()), (Ok(()), Some(0), true));
}

/// Allocated bytes of the memory that replaces lost mappings.
fn spare_bytes() -> u64 {
    allocated_by_name("self", "ringway-spare")
}

#[test]
fn what_replaces_a_mapping_is_nobody_elses_and_goes_with_it() {
    if !is_child() {
        let status = in_child("what_replaces_a_mapping_is_nobody_elses_and_goes_with_it");
        assert!(status.success(), "{status}");
        return;
    }
    let lose = |mark: u8| {
        let file = unsealed(BYTES);
        let mapping = Mapping::shared(file.as_fd(), BYTES).expect("mapped");
        ftruncate(&file, 0).expect("truncated");
        assert_eq!(read_all(&mapping), [0; BYTES]);
        assert!(mapping.whole().write(&[mark; BYTES]));
        mapping
    };
    let mappings: Vec<Mapping> = (1..9).map(lose).collect();
    for (mapping, mark) in mappings.iter().zip(1..) {
        assert_eq!(read_all(mapping), [mark; BYTES]);
    }
    assert_eq!(spare_bytes(), 8 * BYTES as u64);
    drop(mappings);
    assert_eq!(spare_bytes(), 0);
    // At the same addresses.
    drop((1..9).map(lose).collect::<Vec<_>>());
}

#[test]
fn many_threads_lose_the_same_mapping_at_once() {
    const THREADS: usize = 8;
    for _ in 0..200 {
        let file = unsealed(BYTES);
        let mapping = Mapping::shared(file.as_fd(), BYTES).expect("mapped");
        ftruncate(&file, 0).expect("truncated");
        let barrier = std::sync::Barrier::new(THREADS);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (mapping, barrier) = (&mapping, &barrier);
                scope.spawn(move || {
                    let view = mapping.view(thread * PAGE, 8).expect("inside");
                    barrier.wait();
                    assert!(view.write(&[thread as u8 + 1; 8]));
                    assert_eq!(view.first_word(), Some(u64::from_ne_bytes([thread as u8 + 1; 8])));
                });
            }
        });
        assert!(mapping.is_lost());
    }
}

#[test]
fn pages_that_are_not_there_are_made_up_to_the_bound_and_then_the_mapping_is_lost() {
    if !can_limit_holes() {
        skip!("needs userfaultfd(2)");
    }
    const MOST: u64 = 1 << 20;
    // A write fills 16 pages at a time.
    for (writes, holes, at_once) in [(true, MOST, 16), (false, 64 * MOST, 1)] {
        let quota = Quota::of_port(Limits { holes, ..Limits::PORT });
        let file = unsealed(1 << 40);
        let there = Mapping::shared(file.as_fd(), 64 * PAGE).expect("mapped");
        assert!(there.whole().write(&[7; 64 * PAGE]));
        let had = allocated(&file);
        let mapping = Mapping::given(file.as_fd(), 0, 1 << 40, &quota).expect("mapped");
        let touch = |at: usize| match writes {
            true => assert!(mapping.view(at, 1).expect("inside").write(&[1])),
            false => assert!(mapping.view(at, 1).expect("inside").read(&mut [0])),
        };
        // What is there is free.
        (0..64).for_each(|page| touch(page * PAGE + 1));
        assert_eq!((quota.used().holes, allocated(&file)), (0, had));
        let touches = MOST as usize / PAGE / at_once;
        (1..=touches).for_each(|number| touch(number << 22));
        assert_eq!((quota.used().holes, allocated(&file) - had), (MOST, MOST));
        assert!(!mapping.is_lost() && quota.take_holes_exceeded().is_none());
        touch(1 << 39);
        assert!(mapping.is_lost() && quota.take_holes_exceeded().is_some());
        (0..1000).for_each(|page| touch((1 << 38) + page * PAGE));
        assert_eq!(allocated(&file) - had, MOST);
        // The next mapping of this port finds the bound used up.
        let next = Mapping::given(file.as_fd(), 0, 1 << 40, &quota).expect("mapped");
        assert!(next.view(0, 1).expect("inside").read(&mut [0]) && !next.is_lost());
        match writes {
            true => assert!(next.view((1 << 40) - 1, 1).expect("inside").write(&[1])),
            false => assert!(next.view((1 << 40) - 1, 1).expect("inside").read(&mut [0])),
        }
        assert!(next.is_lost());
        assert_eq!(allocated(&file) - had, MOST);
    }
}

#[test]
fn holes_beside_a_page_are_filled_with_it_and_pages_that_are_there_stay_as_they_are() {
    if !can_limit_holes() {
        skip!("needs userfaultfd(2)");
    }
    let quota = Quota::of_port(Limits::PORT);
    let file = unsealed(64 * PAGE);
    let there = Mapping::shared(file.as_fd(), 64 * PAGE).expect("mapped");
    let touch_there = |page: usize| assert!(there.view(page * PAGE, PAGE).expect("inside").write(&[7; PAGE]));
    touch_there(5);
    let mapping = Mapping::given(file.as_fd(), 2 * PAGE as u64, 60 * PAGE, &quota).expect("mapped");
    let touch = |page: usize| assert!(mapping.view((page - 2) * PAGE, 1).expect("inside").write(&[1]));
    let holes = || {
        let holes = quota.used().holes;
        assert_eq!(holes + PAGE as u64, allocated(&file), "what was made is charged, and nothing else");
        holes / PAGE as u64
    };
    touch(5);
    assert_eq!(holes(), 0);
    for page in [40, 3, 9] {
        let before = holes();
        touch(page);
        assert!((before + 1..=before + 16).contains(&holes()), "{page}: {before}, then {}", holes());
        let after = holes();
        touch(page);
        assert_eq!(holes(), after);
    }
    assert!(holes() > 10, "several are filled at a time");
    (2..62).for_each(touch);
    assert_eq!(holes(), 59, "nothing is filled outside of the mapping");
    assert!(!mapping.is_lost());
    let mut bytes = [0; PAGE];
    assert!(there.view(5 * PAGE, PAGE).expect("inside").read(&mut bytes));
    assert!(bytes[0] == 1 && bytes[1..].iter().all(|&byte| byte == 7));
}

#[test]
fn many_threads_touch_the_same_holes_and_find_the_same_pages() {
    const THREADS: usize = 8;
    let quota = Quota::of_port(Limits::PORT);
    let file = unsealed(1 << 30);
    let mapping = Mapping::given(file.as_fd(), 0, 1 << 30, &quota).expect("mapped");
    let barrier = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (mapping, barrier) = (&mapping, &barrier);
            scope.spawn(move || {
                for page in 0..2000 {
                    barrier.wait();
                    assert!(mapping.view(page * PAGE + 8 * thread, 8).expect("inside").write(&[thread as u8 + 1; 8]));
                }
            });
        }
    });
    assert!(!mapping.is_lost());
    for page in 0..2000 {
        let view = mapping.view(page * PAGE, 8 * THREADS).expect("inside");
        let mut bytes = [0; 8 * THREADS];
        assert!(view.read(&mut bytes));
        assert!((0..8 * THREADS).all(|at| usize::from(bytes[at]) == at / 8 + 1), "page {page}: {bytes:?}");
    }
}

/// Runs this very program again with one test, which acts only then.
fn in_child(test: &str) -> std::process::ExitStatus {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program);
    child.args([test, "--exact"]).env("RINGWAY_TEST_CHILD", "1").stdout(Stdio::null()).stderr(Stdio::null());
    child.status().expect("a child")
}

fn is_child() -> bool {
    std::env::var_os("RINGWAY_TEST_CHILD").is_some()
}

#[test]
fn a_fault_in_memory_that_is_not_ours_still_kills() {
    if !is_child() {
        let status = in_child("a_fault_in_memory_that_is_not_ours_still_kills");
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
        return;
    }
    let _ours = Mapping::private(PAGE).expect("memory");
    let file = unsealed(PAGE);
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe {
        use std::os::fd::AsRawFd;
        libc::mmap(std::ptr::null_mut(), PAGE, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    assert_ne!(start, libc::MAP_FAILED);
    ftruncate(&file, 0).expect("truncated");
    // SAFETY: the page is mapped; reading it raises the signal that this test is about.
    let byte = unsafe { start.cast::<u8>().read_volatile() };
    unreachable!("the page was read as {byte}");
}

#[test]
fn a_signal_that_somebody_sent_still_kills() {
    if !is_child() {
        let status = in_child("a_signal_that_somebody_sent_still_kills");
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
        return;
    }
    let _ours = Mapping::private(PAGE).expect("memory");
    // SAFETY: sends a signal to this process alone.
    unsafe { libc::kill(libc::getpid(), libc::SIGBUS) };
}
