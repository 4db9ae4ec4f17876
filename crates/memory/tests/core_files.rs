//! Core files of this process have no mapping: what clients own stays out of files that outlast them.

use std::os::fd::{AsFd, OwnedFd};

use ringway_memory::{Limits, Mapping, Quota, SharedMemory};
use ringway_testing::file::{MoreHugePages, memfd};
use ringway_testing::skip;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const PAGE: usize = 4096;

/// Returns true if a core file has the page at this address (proc(5), `VmFlags`).
fn is_dumped(address: usize) -> bool {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("the maps");
    let mut is_inside = false;
    for line in smaps.lines() {
        let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let range = range.and_then(|(start, end)| {
            Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
        });
        if let Some(range) = range {
            is_inside = range.contains(&address);
        } else if is_inside && let Some(flags) = line.strip_prefix("VmFlags:") {
            return !flags.split_whitespace().any(|flag| flag == "dd");
        }
    }
    panic!("nothing is mapped at {address:#x}");
}

fn check(what: &str, mapping: &Mapping) {
    let start = mapping.whole().as_ptr() as usize;
    for place in [0, mapping.bytes() / 2, mapping.bytes() - 1] {
        assert!(!is_dumped(start + place), "{what}, byte {place}");
    }
}

#[test]
fn no_mapping_is_in_a_core_file() {
    let ordinary = [0u8; 16];
    assert!(is_dumped(ordinary.as_ptr() as usize), "this stack is in core files");
    let bytes = 64 * PAGE;
    let file = memfd(2 * bytes as u64);
    let quota = Quota::of_port(Limits::PORT);
    check("memory of this process", &Mapping::private(bytes).expect("memory"));
    check("memory of this process and its children", &Mapping::inherited(bytes).expect("memory"));
    check("a file", &Mapping::shared(file.as_fd(), bytes).expect("mapped"));
    check("a part of a file", &Mapping::shared_at(file.as_fd(), PAGE as u64 + 8, bytes).expect("mapped"));
    check("a file that a client gave", &Mapping::given(file.as_fd(), PAGE as u64, bytes, &quota).expect("mapped"));
    let made = SharedMemory::create("test", bytes).expect("memory");
    check("memory for a client", made.mapping());
    let sent: OwnedFd = made.file().try_clone_to_owned().expect("a descriptor");
    check("memory that was sent", SharedMemory::open(sent, bytes).expect("memory").mapping());
}

#[test]
fn what_replaces_lost_memory_is_in_no_core_file_either() {
    let file = memfd(64 * PAGE as u64);
    let mapping = Mapping::shared(file.as_fd(), 64 * PAGE).expect("mapped");
    ftruncate(&file, 0).expect("truncated");
    assert!(mapping.whole().write(&[7; 64 * PAGE]) && mapping.is_lost());
    check("other memory", &mapping);
}

#[test]
fn huge_pages_are_in_no_core_file() {
    const HUGE: usize = 2 << 20;
    let more = MoreHugePages::ask_for(1);
    let file = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB);
    let mapped = file.and_then(|file| ftruncate(&file, HUGE as u64).map(|()| file));
    match mapped.map_err(std::io::Error::from).and_then(|file| Mapping::shared_at(file.as_fd(), PAGE as u64, PAGE)) {
        Ok(mapping) => check("a huge page", &mapping),
        Err(why) => skip::note(format!("needs a huge page of 2 MiB (vm.nr_hugepages): {why}")),
    }
    drop(more);
}
