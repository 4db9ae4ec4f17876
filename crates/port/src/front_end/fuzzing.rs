//! The common part of the fuzz targets of front ends.

use std::os::fd::AsFd;
use std::sync::Once;

use ringway_memory::{Limits, Mapping, Quota};

use super::testing::{memfd, new_eventfd};

/// Returns the names of this process's open descriptors, sorted. The first call makes a mapping and a call of an
/// eventfd first, so that the descriptors that the process keeps from those on are always in the list.
pub fn descriptors() -> Vec<String> {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        let file = memfd(4096);
        drop(Mapping::given(file.as_fd(), 0, 4096, &Quota::of_port(Limits::PORT)).expect("mapped"));
        ringway_runtime::call(new_eventfd().as_fd(), &ringway_runtime::CallAccount::default());
    });
    let links = std::fs::read_dir("/proc/self/fd").expect("a list").flatten();
    let name = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned);
    let mut names: Vec<String> = links.filter_map(name).collect();
    names.sort();
    names
}
