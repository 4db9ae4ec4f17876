//! What a successor reads in the page that threads have noted in.

use std::os::fd::{AsFd, OwnedFd};

use ringway_keeper::page::{BYTES, Cause, DEATH, Left, SLOTS, death_word};
use ringway_memory::SharedMemory;
use ringway_runtime::serving::{Blame, begin, serve};
use ringway_switch::giving;

/// Whom a successor would blame if the thread died now that serves a port.
fn blame(page: &OwnedFd) -> Blame {
    let of_slot = |slot| {
        let word = death_word(Cause::Signal(11), Some(slot));
        rustix::io::pwrite(page, &word.to_ne_bytes(), 8 * DEATH as u64).expect("a page");
        Left::read(page).expect("a page").blame("signal 11", false)
    };
    (0..SLOTS).take(8).map(of_slot).find(|blame| *blame != Blame::Nobody).unwrap_or_default()
}

#[test]
fn a_port_whose_thread_sends_what_others_left_for_it_is_no_more_than_a_suspect() {
    let memory = SharedMemory::create("serving", BYTES).expect("memory");
    let [page, ours] = [(); 2].map(|()| memory.file().as_fd().try_clone_to_owned().expect("descriptors"));
    begin(Some(ours)).expect("a page");
    let thread = std::thread::spawn(move || {
        let serving = serve("lan0:r");
        let alone = blame(&page);
        let given = giving(|| blame(&page));
        let again = blame(&page);
        drop(serving);
        [alone, given, again, blame(&page)]
    });
    let r = || "lan0:r".to_owned();
    let wanted = [Blame::Port(r()), Blame::Either(vec![r()]), Blame::Port(r()), Blame::Nobody];
    assert_eq!(thread.join().expect("it ends"), wanted);
}
