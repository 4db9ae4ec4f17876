//! A session goes on in a successor with what was kept of it, and with nothing that does not fit.

use ringway_keeper::Link;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringway_port::front_end::{Left, Part};

use super::device::Device;
use super::message::{Area, InflightAt, Request};
use super::reply::Reply;
use super::resume::{NotResumed, keep, resume};
use super::session::Session;
use super::settings::Settings;
use super::testing::{Front, MEMORY, RING, count, file, memfd, new_eventfd, settings, state};

const RX: u16 = 0;
const TX: u16 = 1;

fn copy(file: impl AsFd) -> OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(file, 3).expect("a descriptor")
}

/// A front end whose connection outlives the switch, and what is kept of it.
struct Kept {
    front: Front,
    left: Left,
}

impl Kept {
    fn new() -> Kept {
        let mut front = Front::new();
        front.session = Session::kept(Arc::clone(&front.device));
        Kept { front, left: Left::new() }
    }

    /// With features, memory, in-flight memory and two queues.
    fn ready() -> Kept {
        let mut kept = Kept::new();
        kept.front.negotiate(0);
        let area = Area { size: 0, offset: 0 };
        let at = InflightAt { area, queues: 4, queue_size: RING, padded: true };
        let Ok(Some(Reply::Inflight(at, memory))) = kept.front.ask(Request::GetInflightFd(at)) else {
            panic!("memory")
        };
        kept.front.does(Request::SetInflightFd(at, memory.into()));
        [RX, TX].into_iter().for_each(|queue| kept.front.start(queue));
        kept.keep();
        kept
    }

    fn keep(&mut self) {
        let left = &mut self.left;
        let kept = keep(&mut self.front.session, |part, note, files| {
            let files = files.iter().map(copy).collect();
            left.insert(part.to_owned(), Part { note: note.to_owned(), files });
            Ok(())
        });
        kept.expect("kept");
    }

    /// What the keeper gives a successor.
    fn copies(&self) -> Left {
        let copied = |part: &Part| Part { note: part.note.clone(), files: part.files.iter().map(copy).collect() };
        self.left.iter().map(|(name, part)| (name.clone(), copied(part))).collect()
    }

    /// The switch dies, and a successor with these settings goes on.
    fn dies(self, settings: &Settings) -> Result<Kept, NotResumed> {
        let left = self.copies();
        self.dies_with(settings, left)
    }

    fn dies_with(self, settings: &Settings, left: Left) -> Result<Kept, NotResumed> {
        let Kept { front: dead, left: held } = self;
        let guest = dead.guest.again();
        // Nothing of it runs any more, not even what ends it.
        std::mem::forget(dead);
        let mut front = Front::of(Arc::new(Device::new(settings, &Link::default()).expect("a device")), guest);
        front.session = Session::kept(Arc::clone(&front.device));
        resume(&mut front.session, left, |_| Ok(()))?;
        Ok(Kept { front, left: held })
    }
}

#[test]
fn queues_go_on_where_they_were_and_what_was_taken_is_not_sent_again() {
    let mut kept = Kept::ready();
    let (call, error) = (new_eventfd(), new_eventfd());
    for queue in [RX, TX] {
        kept.front.does(Request::SetVringCall(file(queue, &call)));
        kept.front.does(Request::SetVringErr(file(queue, &error)));
    }
    kept.keep();
    kept.front.guest.send(TX, 0, 7);
    assert_eq!((kept.front.poll(), kept.front.guest.used(TX)), (7, 7));
    for death in 0..3 {
        let base = 7 + 10 * death;
        kept.front.guest.send(TX, base, base + 5);
        assert_eq!(kept.front.poll_and_die(), 5);
        kept.front.guest.send(TX, base + 5, base + 10);
        count(&call);
        kept = kept.dies(&settings()).expect("it goes on");
        assert_eq!(kept.front.guest.used(TX), base + 5, "what was taken is given back unsent");
        assert!(count(&call) >= 2, "each queue is called");
        assert_eq!((kept.front.poll(), kept.front.guest.used(TX)), (5, base + 10));
        assert!(kept.front.session.error_descriptor(TX).is_some());
        kept.keep();
    }
    assert_eq!(kept.front.base(TX), 37);
}

#[test]
fn a_queue_that_was_stopped_stays_stopped_and_a_request_that_is_applied_again_has_the_same_result() {
    let mut kept = Kept::ready();
    kept.front.guest.send(TX, 0, 4);
    assert_eq!(kept.front.poll(), 4);
    // It dies before the stop was kept: the request is in the socket still.
    assert_eq!(kept.front.base(TX), 4);
    let mut kept = kept.dies(&settings()).expect("it goes on");
    kept.front.guest.send(TX, 4, 6);
    assert_eq!(kept.front.poll(), 2, "it runs");
    assert_eq!(kept.front.base(TX), 6);
    kept.keep();
    let mut kept = kept.dies(&settings()).expect("it goes on");
    kept.front.guest.send(TX, 6, 9);
    assert_eq!(kept.front.poll(), 0, "it is stopped");
    assert_eq!(kept.front.base(TX), 6, "the answer is the same");
    kept.front.start_at(TX, 6);
    assert_eq!(kept.front.poll(), 3);
}

#[test]
fn what_the_front_end_has_set_is_kept_and_what_it_has_taken_back_is_not() {
    let mut kept = Kept::ready();
    kept.front.does(Request::NetSetMtu(1000));
    kept.front.does(Request::SetVringEnable(state(TX, 0)));
    kept.front.does(Request::SetStatus(0xf));
    kept.keep();
    let mut kept = kept.dies(&settings()).expect("it goes on");
    kept.front.guest.send(TX, 0, 3);
    assert_eq!((kept.front.poll(), kept.front.guest.used(TX)), (0, 3), "a disabled queue discards");
    assert!(matches!(kept.front.ask(Request::GetStatus), Ok(Some(Reply::Number(0xf)))));
    assert_eq!(kept.front.session.mtu, Some(1000));
    kept.front.does(Request::ResetDevice);
    kept.keep();
    let mut kept = kept.dies(&settings()).expect("it goes on");
    assert!(matches!(kept.front.ask(Request::GetStatus), Ok(Some(Reply::Number(0)))));
    kept.front.guest.send(TX, 3, 5);
    assert_eq!(kept.front.poll(), 0);
    kept.front.negotiate(0);
    kept.front.start_at(TX, 3);
    assert_eq!(kept.front.poll(), 2, "after a reset it starts anew");
}

#[test]
fn a_port_that_is_another_one_now_does_not_go_on() {
    for (settings, why) in [
        (Settings { queues: 1, ..settings() }, "queue"),
        (Settings { memory: ringway_memory::Limits { bytes: MEMORY / 2, ..settings().memory }, ..settings() }, "limit"),
    ] {
        let mut kept = Kept::ready();
        kept.front.start(2);
        kept.keep();
        let end = kept.dies(&settings).err().expect("refused").to_string();
        assert!(end.contains(why), "{end}");
    }
}

/// Where the messages of a part end.
fn ends(name: &str, note: &[u8]) -> Vec<usize> {
    let mut at = usize::from(name == "state");
    let mut ends = Vec::new();
    while at < note.len() {
        at += 13 + u32::from_ne_bytes(note[at + 9..at + 13].try_into().expect("four bytes")) as usize;
        ends.push(at);
    }
    ends
}

/// Each part cut at any place but between two messages, and each part with a file too few.
#[test]
fn what_is_cut_does_not_go_on() {
    let whole = Kept::ready();
    let names: Vec<_> = whole.left.keys().cloned().collect();
    let lengths: Vec<_> = whole.left.values().map(|part| (part.note.len(), part.files.len())).collect();
    for (name, (length, files)) in names.iter().zip(lengths) {
        for cut in 0..length {
            let kept = Kept::ready();
            let mut left = kept.copies();
            let note = &mut left.get_mut(name).expect("a part").note;
            let is_end = cut == 0 && files == 0 || ends(name, note).contains(&cut);
            note.truncate(cut);
            let resumed = kept.dies_with(&settings(), left);
            // What ends between two messages is a session that said less.
            assert!(is_end || resumed.is_err(), "{name} of {cut} bytes");
        }
        if files > 0 {
            let kept = Kept::ready();
            let mut left = kept.copies();
            left.get_mut(name).expect("a part").files.pop();
            let end = kept.dies_with(&settings(), left).err().expect("refused").to_string();
            assert!(end.contains("not kept as a whole"), "{end}");
        }
    }
}

#[test]
fn files_of_another_kind_are_refused_as_from_a_front_end() {
    for (name, file, why) in [("queue1", memfd(4096), "not an eventfd"), ("memory", new_eventfd(), "file system")] {
        let kept = Kept::ready();
        let mut left = kept.copies();
        left.get_mut(name).expect("a part").files[0] = file;
        let end = kept.dies_with(&settings(), left).err().expect("refused").to_string();
        assert!(end.contains(why), "{end}");
    }
}
