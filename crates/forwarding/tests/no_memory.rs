//! A machine without memory for one more instance. Alone in its process, whose limit it changes.

mod support;

use std::fs;

use ringway_forwarding::Unacceptable;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Lan, frames, load};

#[test]
fn an_instance_that_finds_no_memory_makes_no_module_unacceptable() {
    let lan = Lan::new(2);
    let module = frames("");
    // Compiled once, for both.
    let first = load(&lan, &module).expect("acceptable");
    let before = getrlimit(Resource::As);
    let pages = fs::read_to_string("/proc/self/statm").expect("a file");
    let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
    // Enough for what is small. An instance reserves much more.
    let most = pages * rustix::param::page_size() as u64 + (8 << 20);
    setrlimit(Resource::As, Rlimit { current: Some(most), ..before }).expect("a lower limit");
    let second = load(&lan, &module).map(drop);
    setrlimit(Resource::As, before).expect("the limit before");
    let why = second.expect_err("no memory");
    assert!(matches!(why, Unacceptable::System(_)) && !why.is_final(), "{why:?}");
    load(&lan, &module).expect("there is memory again");
    drop(first);
}
