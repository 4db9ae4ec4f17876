//! What a client can do to its memory file, and whom it costs something.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringway_memory::{Mapping, SharedMemory};
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

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::yield_now();
    }
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
        wait_until("copying", || laps.load(Ordering::Relaxed) > 0);
        for (file, mapping) in files.iter().zip(&mappings).take(3) {
            ftruncate(file, PAGE as u64).expect("truncated");
            wait_until("the loss", || mapping.is_lost());
        }
        let seen = laps.load(Ordering::Relaxed);
        wait_until("going on", || laps.load(Ordering::Relaxed) > seen + 2);
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
fn memory_made_for_a_client_can_neither_shrink_nor_grow_nor_lose_its_seals() {
    let memory = SharedMemory::create("sealed", BYTES).expect("memory");
    for bytes in [0, PAGE, BYTES - 1, BYTES + 1, 2 * BYTES] {
        assert_eq!(ftruncate(memory.file(), bytes as u64), Err(rustix::io::Errno::PERM), "{bytes} bytes");
    }
    assert_eq!(fcntl_add_seals(memory.file(), SealFlags::WRITE), Err(rustix::io::Errno::PERM));
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
