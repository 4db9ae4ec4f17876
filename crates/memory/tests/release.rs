//! Memory that a client has, too, is sealed before it is unmapped, where the program says. Alone in its process, because that is the process's.

use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::sync::Mutex;

use ringway_memory::{SharedMemory, Work, release_by};
use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals};
use rustix::io::Errno;

const BYTES: usize = 1 << 20;

/// What was handed over.
static HANDED: Mutex<Vec<(Option<NonZeroU32>, Work)>> = Mutex::new(Vec::new());

/// Returns true if this process maps a file of this name.
fn is_mapped(name: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").expect("maps").contains(name)
}

#[test]
fn nobody_punches_holes_into_memory_while_it_is_unmapped() {
    release_by(|owner, work| HANDED.lock().expect("no panic").push((owner, work)));
    let punch = |file: std::os::fd::BorrowedFd<'_>| {
        fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, BYTES as u64)
    };
    let memory = SharedMemory::create("released", BYTES).expect("memory");
    memory.mapping().set_owner(NonZeroU32::new(7));
    assert!(memory.mapping().whole().write(&[1; 64]));
    let clients = memory.file().try_clone_to_owned().expect("a copy");
    // A client that forbids further seals has its memory unmapped, too, when nobody has punched for a while.
    let stubborn = SharedMemory::create("stubborn", BYTES).expect("memory");
    let sealed = stubborn.file().try_clone_to_owned().expect("a copy");
    fcntl_add_seals(&sealed, SealFlags::SEAL).expect("sealed");
    punch(clients.as_fd()).expect("a hole, while the memory is in use");
    drop((memory, stubborn));
    assert!(is_mapped("released") && is_mapped("stubborn"), "another thread unmaps it");
    let handed = std::mem::take(&mut *HANDED.lock().expect("no panic"));
    assert_eq!(handed.iter().map(|(owner, _)| *owner).collect::<Vec<_>>(), [NonZeroU32::new(7), None]);
    handed.into_iter().for_each(|(_, work)| work());
    assert!(!is_mapped("released") && !is_mapped("stubborn"));
    assert_eq!(punch(clients.as_fd()), Err(Errno::PERM));
    let seals = fcntl_get_seals(&clients).expect("seals");
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE), "{seals:?}");
}
