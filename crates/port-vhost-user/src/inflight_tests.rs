//! Frames that were in flight when a predecessor died are given back unsent, if the record is of the same ring.

use ringway_keeper::Link;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use ringway_keeper::opener::Ask;

use super::device::Device;
use super::message::{Area, InflightAt, Request};
use super::reply::Reply;
use super::testing::{Front, Guest, RING, count, file, memfd, new_eventfd, settings};
use super::{MOST_QUEUES, Settings};
use crate::virtqueue::{InflightNote, Record, answer_about_record};

const TX: u16 = 1;

fn inflight(front: &mut Front) -> (InflightAt, OwnedFd) {
    let area = Area { size: 0, offset: 0 };
    let at = InflightAt { area, queues: 4, queue_size: RING, padded: true };
    match front.ask(Request::GetInflightFd(at)) {
        Ok(Some(Reply::Inflight(at, file))) => (at, file),
        other => panic!("{other:?}"),
    }
}

/// A front end whose back end took `taken` of `sent` frames and died. Returns the guest and the in-flight memory that
/// the front end kept.
fn died_with(taken: u16, sent: u16) -> (Guest, InflightAt, OwnedFd) {
    let mut front = Front::ready();
    let (at, memory) = inflight(&mut front);
    front.does(Request::SetInflightFd(at, memory.try_clone().expect("a descriptor").into()));
    front.start(TX);
    front.guest.send(TX, 0, taken);
    assert_eq!(front.poll_and_die(), usize::from(taken));
    assert_eq!(front.guest.used(TX), 0, "no chain is marked used");
    front.guest.send(TX, taken, sent);
    (front.guest, at, memory)
}

fn restarted(guest: Guest, at: InflightAt, memory: OwnedFd) -> Front {
    let mut front = Front::of(Arc::new(Device::new(&settings(), &Link::default()).expect("a device")), guest);
    front.negotiate(0);
    front.does(Request::SetInflightFd(at, memory.into()));
    front
}

/// The front end of a port may delay its end, and a client of another role needs no socket of the old port.
#[test]
fn the_record_of_a_port_that_is_slow_to_go_is_not_that_of_the_next() {
    for is_empty in [false, true] {
        let dir = ringway_testing::file::directory();
        let path = dir.path().join("record");
        let old = Record::open(&path, 2).expect("a record");
        line(&old).begin(5);
        let new = Record::open(&path, 2).expect("another record");
        assert_eq!(line(&new).noted(), None, "the old one is in use");
        line(&new).begin(6);
        if is_empty {
            line(&old).clear();
        }
        drop(old);
        let left = fs::read(&path).expect("the file of the new one stays in its place");
        assert!(left.contains(&6), "it has the notes of the new one");
        drop(new);
        assert_eq!(line(&Record::open(&path, 2).expect("a record")).noted().map(|noted| noted.from), Some(6));
    }
}

#[test]
fn frames_that_a_dead_predecessor_took_are_given_back_and_not_sent_again() {
    let (guest, at, memory) = died_with(5, 8);
    let mut front = restarted(guest, at, memory);
    let call = new_eventfd();
    front.does(Request::SetVringCall(file(TX, &call)));
    front.start(TX);
    assert_eq!(front.guest.used(TX), 5, "the chains in flight are given back at the start");
    assert!(count(&call) > 0, "a guest that waits for room is called");
    assert_eq!((front.poll(), front.guest.used(TX)), (3, 8), "only chains that were not taken are sent");
    assert_eq!(front.base(TX), 8);
}

#[test]
fn inflight_memory_of_any_content_only_delays_what_the_guest_sends() {
    for content in [0u64, u64::MAX, 9, 0xffff, 0xffff_0005, 5 << 32, 1 << 32 | 5, 5 << 32 | 5] {
        let (guest, at, memory) = died_with(5, 8);
        rustix::io::pwrite(&memory, &content.to_le_bytes(), 64).expect("written");
        let mut front = restarted(guest, at, memory);
        front.start(TX);
        assert_eq!((front.poll(), front.guest.used(TX)), (8, 8), "{content:x}: all frames are sent, some twice");
    }
}

#[test]
fn a_ring_that_was_stopped_leaves_nothing_in_flight() {
    let mut front = Front::ready();
    let (at, memory) = inflight(&mut front);
    front.does(Request::SetInflightFd(at, memory.try_clone().expect("a descriptor").into()));
    front.start(TX);
    front.guest.send(TX, 0, 5);
    assert_eq!((front.poll(), front.base(TX)), (5, 5));
    let mut word = [1; 8];
    rustix::io::pread(&memory, &mut word, 72).expect("readable");
    assert_eq!(word, [0; 8]);
}

#[test]
fn inflight_memory_that_cannot_be_is_refused() {
    let mut front = Front::ready();
    let right = InflightAt { area: Area { size: 4096, offset: 0 }, queues: 4, queue_size: RING, padded: false };
    for (size, offset) in [(0, 0), (255, 0), (4096, 1), (4096, 4096), (u64::MAX, 4096), (4097, 0)] {
        let at = InflightAt { area: Area { size, offset }, ..right };
        assert_eq!(front.ends(Request::SetInflightFd(at, memfd(4096).into())), "bad_inflight", "{size} {offset}");
    }
    assert_eq!(front.ends(Request::SetInflightFd(right, new_eventfd().into())), "bad_inflight");
    let many = InflightAt { queues: u16::MAX, ..right };
    front.does(Request::SetInflightFd(many, memfd(4096).into()));
    assert!(
        matches!(front.ask(Request::GetInflightFd(many)), Ok(Some(Reply::Inflight(at, _))) if at.area.size == 4096)
    );
}

/// A device that records the chains in flight in this file.
fn recording(record: &Path) -> Arc<Device> {
    let settings = Settings { record: Some(record.to_owned()), ..settings() };
    Arc::new(Device::new(&settings, &Link::default()).expect("a device"))
}

/// A guest whose back end, with a record in a file, took 5 of 8 frames and was killed. The file is at `record`
/// afterwards.
fn killed(record: &Path) -> Guest {
    let mut front = Front::of(recording(record), Guest::new());
    front.negotiate(0);
    front.start(TX);
    front.guest.send(TX, 0, 3);
    assert_eq!((front.poll(), front.guest.used(TX)), (3, 3));
    front.guest.send(TX, 3, 5);
    assert_eq!((front.poll_and_die(), front.guest.used(TX)), (2, 3));
    front.guest.send(TX, 5, 8);
    // A killed process leaves the file as it is.
    let left = fs::read(record).expect("the file");
    let guest = front.end();
    assert!(!record.exists(), "a port that ends normally removes the record");
    fs::write(record, left).expect("written");
    guest
}

fn successor(record: &Path, guest: Guest, base: u32) -> Front {
    let mut front = Front::of(recording(record), guest);
    front.negotiate(0);
    front.start_at(TX, base);
    front
}

#[test]
fn a_file_tells_a_successor_what_was_in_flight() {
    let dir = tempfile::tempdir().expect("a directory");
    let record = dir.path().join("record");
    let guest = killed(&record);
    let mut front = successor(&record, guest, 3);
    assert_eq!(front.guest.used(TX), 5, "the chains in flight are given back at the start");
    assert_eq!((front.poll(), front.guest.used(TX)), (3, 8), "only chains that were not taken are sent");
}

#[test]
fn a_file_that_speaks_of_another_guest_or_of_another_place_means_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let record = dir.path().join("record");

    drop(killed(&record));
    let other = Guest::new();
    other.send(TX, 0, 8);
    let mut front = successor(&record, other, 3);
    assert_eq!(front.poll(), 8, "another guest's memory: all chains that are not marked used are sent");

    let guest = killed(&record);
    // Its driver has cleared the ring.
    guest.write((usize::from(TX) << 16) + 0x8002, &[0; 2]);
    let mut front = successor(&record, guest, 0);
    assert_eq!(front.poll(), 8, "the guest started again: all its chains are sent");

    let mut front = {
        let guest = killed(&record);
        // The chains had been marked used before the process was killed.
        guest.write((usize::from(TX) << 16) + 0x8002, &5u16.to_le_bytes());
        successor(&record, guest, 5)
    };
    assert_eq!((front.poll(), front.guest.used(TX)), (3, 8));
}

#[test]
fn a_front_end_that_does_not_know_the_position_has_the_queue_go_on_where_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let record = dir.path().join("record");
    // DPDK's virtio-user says 0, Cloud Hypervisor the driver's index.
    for base in [0, 8] {
        let guest = killed(&record);
        let mut front = successor(&record, guest, base);
        assert_eq!((front.poll(), front.guest.used(TX)), (3, 8), "base {base}");
    }
    // What cannot be is left to the base.
    let guest = Guest::new();
    guest.send(TX, 0, 8);
    guest.write((usize::from(TX) << 16) + 0x8002, &1000u16.to_le_bytes());
    assert_eq!(successor(&record, guest, 2).poll(), 6);
}

#[test]
fn a_file_of_any_content_is_taken_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let record = dir.path().join("record");
    for content in [vec![], vec![0xff; 100], vec![0xff; 4096], vec![7; 10_000]] {
        fs::write(&record, &content).expect("written");
        let guest = Guest::new();
        guest.send(TX, 0, 8);
        assert_eq!(successor(&record, guest, 0).poll(), 8);
    }
    fs::create_dir(&record).expect("a directory in its place");
    let settings = Settings { record: Some(record.clone()), ..settings() };
    let error = Device::new(&settings, &Link::default()).err().expect("refused").to_string();
    assert!(error.contains(&record.display().to_string()), "{error}");
}

/// Returns the record's note of queue 1, whose ring has the hash 7.
fn line(record: &Record) -> InflightNote {
    InflightNote::of(&record.memory, TX, 7).expect("a line")
}

#[test]
fn a_file_that_says_where_a_ring_is_stays_until_its_port_is_there_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("record");
    let record = Record::open(&path, 2).expect("a record");
    line(&record).begin(5);
    drop(record);
    assert!(!path.exists(), "a port that ends leaves no record of its own");
    let record = Record::open(&path, 2).expect("a record");
    assert_eq!(line(&record).noted().map(|noted| noted.from), Some(5));
    line(&record).clear();
    drop(record);
    assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 0, "an empty record is removed");
}

#[test]
fn a_record_is_made_for_the_rings_of_one_port_and_no_larger() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("record");
    let most = u64::from(2 * MOST_QUEUES) * 64;
    let asked = |size| answer_about_record(&Ask::Record { path: path.clone(), size }).map(drop);
    assert!(asked(u64::from(u16::MAX) * 64).is_err() && asked(most.next_multiple_of(4096) + 1).is_err());
    assert!(!path.exists());
    asked(most.next_multiple_of(4096)).expect("a port has so many rings");
}

#[test]
fn ports_that_come_and_go_leave_files_of_the_last_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |number: u32| dir.path().join(format!("record{number}"));
    let open = Record::open(&path(9999), 2).expect("a record");
    for number in 0..1030 {
        let record = Record::open(&path(number), 2).expect("a record");
        line(&record).begin(5);
    }
    assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 1024 + 1);
    assert!(path(9999).exists(), "a record in use stays");
    let noted = |number: u32| line(&Record::open(&path(number), 2).expect("a record")).noted();
    assert_eq!((noted(0), noted(1029).map(|noted| noted.from)), (None, Some(5)));
    drop(open);
}
