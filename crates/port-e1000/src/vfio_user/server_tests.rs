//! A port's socket, used by the tests' own client and by another project's client.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;

use ringway_testing::until;
use rustix::io::Errno;
use vfio_user::Client;

use super::client::{Raw, Served};
use super::limits::{MOST_DATA, MOST_FDS};
use super::testing::{
    AREA, BAR, HOLE, Happened, IRQS, access, count, map, memfd, message, new_eventfd, unmap, version, words,
};

const NO_REPLY: u32 = 1 << 4;
/// Flags of SET_IRQS.
const NONE: u32 = 1 << 0;
const BOOL: u32 = 1 << 1;
const EVENTFD: u32 = 1 << 2;
const MASK: u32 = 1 << 3;
const UNMASK: u32 = 1 << 4;
const TRIGGER: u32 = 1 << 5;

fn errno(errno: Errno) -> Option<u32> {
    Some(errno.raw_os_error().unsigned_abs())
}

#[test]
fn an_independent_client_can_do_everything_it_knows() {
    let served = Served::new();
    let mut client = Client::new(&served.socket).expect("a client");
    let region = client.region(0).expect("region 0");
    assert_eq!((region.size, region.flags), (BAR, 0xf));
    let areas: Vec<_> = region.sparse_areas.iter().map(|area| (area.offset, area.size)).collect();
    assert_eq!(areas, [(AREA.offset, AREA.size)]);
    assert!(region.file_offset.is_some(), "a descriptor to map");
    let sizes: Vec<_> = (1..9).map(|index| client.region(index).map_or(0, |region| region.size)).collect();
    assert_eq!(sizes, [0, 32, 0, 4096, 0, 0, 256, 0]);
    let irqs: Vec<_> = (0..3).map(|index| client.get_irq_info(index).expect("an answer").count).collect();
    assert_eq!(irqs, [IRQS.intx, IRQS.msi, IRQS.msi_x]);

    client.region_write(0, 0x100, b"abcd").expect("a write");
    let mut data = [0; 6];
    client.region_read(0, 0xff, &mut data).expect("a read");
    assert_eq!(&data, b"\0abcd\0");
    let mut ids = [0; 4];
    client.region_read(7, 0, &mut ids).expect("a read");
    assert_eq!(ids, [0x86, 0x80, 0xd3, 0x10]);

    let guest = memfd(0x20_000);
    client.dma_map(0x1000, 0x10_0000, 0x4000, guest.as_raw_fd()).expect("memory");
    let call = new_eventfd();
    client.set_irqs(2, EVENTFD | TRIGGER, 3, 1, &[call.as_raw_fd()]).expect("an interrupt");
    let piece = vec![(0x10_0000, 0x4000)];
    served.card.wait_for(|event| *event == Happened::Memory(piece.clone(), piece.clone()));
    assert!(served.card.interrupts.trigger(3) && !served.card.interrupts.trigger(2));
    assert_eq!(count(&call), 1);
    rustix::io::pwrite(&guest, b"xyz", 0x1010).expect("a write");
    {
        let memory = served.card.memory();
        let mut bytes = [0; 3];
        let view = memory.readable.view(0x10_0010, 3).expect("memory");
        assert!(view.read(&mut bytes) && &bytes == b"xyz", "the offset in the file is wrong");
    }
    client.dma_unmap(0x10_0000, 0x4000).expect("no memory");
    assert!(served.card.memory().writable.regions().is_empty(), "the memory is unmapped before the answer");
    client.reset().expect("a reset");
    assert!(served.card.happened().contains(&Happened::Reset));
    drop(client);
    served.card.wait_for(|event| *event == Happened::Connected(false));
    assert!(!served.card.interrupts.trigger(3));
}

#[test]
fn a_ports_own_thread_interrupts_nobody_who_runs() {
    let served = Served::new();
    let _front = Raw::connect(&served.socket);
    served.card.wait_for(|event| *event == Happened::Connected(true));
    assert_eq!(served.card.policy.load(Ordering::Relaxed), libc::SCHED_BATCH);
}

#[test]
fn a_version_is_agreed_on_first_and_once() {
    let served = Served::new();
    let mut front = Raw::connect(&served.socket);
    let proposal =
        r#"{"capabilities":{"max_msg_fds":16,"max_dma_maps":65535,"pgsizes":4096,"migration":{"pgsize":4096}}}"#;
    let answer = front.ask(1, &version(proposal));
    assert_eq!(answer.words()[0], 0, "version 0.0, as proposed");
    let (text, end) = answer.body[4..].split_at(answer.body.len() - 5);
    let expected = r#"{"capabilities":{"max_dma_maps":256,"max_msg_fds":16,"pgsizes":4096}}"#;
    assert_eq!(
        (std::str::from_utf8(text), end),
        (Ok(expected), &[0][..]),
        "the proposed capabilities that the port has"
    );
    assert!(answer.body.len() <= version(proposal).len(), "QEMU has no room for more than it sent");
    assert_eq!(front.ask(1, &version("{}")).error, errno(Errno::INVAL));
    assert_eq!(front.ask(4, &words(&[16, 0, 0, 0])).words(), [16, 3, 9, 3], "the session continues");
    drop(front);
    served.card.wait_for(|event| *event == Happened::Gone);

    let mut other = Raw::connect(&served.socket);
    let ahead = [&3u16.to_ne_bytes()[..], &0u16.to_ne_bytes()].concat();
    other.tell(1, 0, &ahead, &[]);
    assert!(other.answer().is_none());
    assert_eq!(served.card.wait_for_fault().0, "bad_message", "version 3.0");

    let mut hasty = Raw::connect(&served.socket);
    hasty.tell(4, 0, &words(&[16, 0, 0, 0]), &[]);
    assert!(hasty.answer().is_none());
    assert_eq!(
        served.card.wait_for_fault(),
        ("out_of_order", "DEVICE_GET_INFO before VERSION: the version is agreed on first".into())
    );
}

#[test]
fn regions_say_what_can_be_mapped_to_whom_has_room_for_it() {
    let served = Served::new();
    let mut front = served.attach();
    let ask = |argsz, index| words(&[argsz, 0, index, 0, 0, 0, 0, 0]);
    let short = front.ask(5, &ask(32, 0));
    assert_eq!(short.words(), [64, 3, 0, 0, BAR as u32, 0, 0, 0], "the port's limits, and no capability that it lacks");
    assert!(short.files.is_empty());
    let whole = front.ask(5, &ask(64, 0));
    assert_eq!(whole.words()[..8], [64, 0xf, 0, 32, BAR as u32, 0, 0, 0]);
    assert_eq!(whole.words()[8..], [1 << 16 | 1, 0, 1, 0, AREA.offset as u32, 0, AREA.size as u32, 0]);
    assert_eq!(whole.files.len(), 1);
    assert_eq!(front.ask(5, &ask(u32::MAX, 7)).words(), [32, 3, 7, 0, 256, 0, 0, 0]);
    assert_eq!(front.ask(5, &ask(32, 4)).words(), [32, 0, 4, 0, 4096, 0, 0, 0], "a region without access");
    assert_eq!(front.ask(5, &ask(32, 6)).words(), [32, 0, 6, 0, 0, 0, 0, 0], "no expansion ROM");
    assert_eq!(front.ask(5, &ask(32, 9)).error, errno(Errno::INVAL));
    assert_eq!(front.ask(5, &ask(32, u32::MAX)).error, errno(Errno::INVAL));
    assert_eq!(front.ask(5, &ask(31, 0)).error, errno(Errno::INVAL), "argsz is too small");
    assert_eq!(front.ask(6, &words(&[16, 0, 0, 0])).words(), [16, 0, 0, 0], "no descriptors for writes");
    assert_eq!(front.ask(7, &words(&[16, 0, 0, 0])).words(), [16, 7, 0, 1]);
    assert_eq!(front.ask(7, &words(&[16, 0, 1, 0])).words(), [16, 9, 1, 4]);
    assert_eq!(front.ask(7, &words(&[16, 0, 2, 0])).words(), [16, 1, 2, 5]);
    // QEMU warns of devices that list error interrupts but have none.
    assert_eq!(front.ask(7, &words(&[16, 0, 3, 0])).error, errno(Errno::INVAL));
    assert_eq!(front.ask(7, &words(&[16, 0, u32::MAX, 0])).error, errno(Errno::INVAL));
    assert_eq!(front.ask(16, &words(&[8, 1 << 16 | 1])).error, errno(Errno::NOTTY), "QEMU asks whether it can migrate");
    assert_eq!(front.ask(14, &[]).error, errno(Errno::OPNOTSUPP));
    assert_eq!(front.ask(999, &[1, 2, 3]).error, errno(Errno::OPNOTSUPP));
}

#[test]
fn accesses_stay_in_their_region() {
    let served = Served::new();
    let mut front = served.attach();
    let write = front.ask(10, &access(0, 8, 4, b"abcd"));
    assert_eq!((write.error, write.words()), (None, vec![8, 0, 0, 4]));
    let read = front.ask(9, &access(0, 7, 3, &[]));
    assert_eq!(
        (read.words()[..4].to_vec(), &read.body[16..]),
        (vec![7, 0, 0, 3], &b"\0ab"[..]),
        "an access of any size at any offset"
    );
    let whole = front.ask(9, &access(0, 0, MOST_DATA as u32, &[]));
    assert_eq!(whole.body.len(), 16 + MOST_DATA);
    for (region, offset, count) in [
        (0, BAR - 3, 4),
        (0, BAR, 1),
        (0, u64::MAX, 1),
        (0, u64::MAX - 3, 4),
        (0, 0, 0),
        (0, 0, MOST_DATA as u32 + 1),
        (0, 0, u32::MAX),
        (0, 1 << 32, u32::MAX),
        (0, HOLE, 4),
        (1, 0, 1),
        (4, 0, 4),
        (6, 0, 4),
        (7, 254, 4),
        (9, 0, 4),
        (u32::MAX, 0, 4),
    ] {
        let read = front.ask(9, &access(region, offset, count, &[]));
        assert_eq!(read.error, errno(Errno::INVAL), "{count} bytes at {offset:#x} of {region}");
        if count <= 4 {
            let write = front.ask(10, &access(region, offset, count, &[9; 4][..count as usize]));
            assert_eq!(write.error, errno(Errno::INVAL), "{count} bytes at {offset:#x} of {region}");
        }
    }
    // The refusal is reported when no message is left.
    served.card.wait_for(|event| matches!(event, Happened::Refused(..)));
    served.card.happened();
    // Posted writes, alone and several in a message: they get no answer, and their order is kept.
    front.tell(10, NO_REPLY, &access(0, 0x20, 2, b"12"), &[]);
    front.tell(10, NO_REPLY, &access(0, BAR, 2, b"no"), &[]);
    let one = |offset, count, data: &[u8; 8]| access(0, offset, count, data);
    let multi = |writes: &[Vec<u8>]| [&(writes.len() as u64).to_ne_bytes()[..], &writes.concat()].concat();
    let writes =
        [one(0x22, 2, b"34xxxxxx"), one(0x24, 9, b"5678xxxx"), one(HOLE, 4, b"abcdefgh"), one(0x28, 8, b"abcdefgh")];
    front.tell(15, NO_REPLY, &multi(&writes), &[]);
    let answer = front.ask(15, &multi(&writes));
    assert_eq!(answer.words(), [2, 0], "the number of completed writes");
    let read = front.ask(9, &access(0, 0x20, 16, &[]));
    assert_eq!(&read.body[16..], b"1234\0\0\0\0abcdefgh");
    assert_eq!(front.ask(15, &multi(&[])).words(), [0, 0]);
    let wrote: Vec<_> =
        served.card.happened().into_iter().filter(|event| matches!(event, Happened::Wrote(..))).collect();
    let wrote_at = |offset, data: &[u8]| Happened::Wrote(offset, data.to_vec());
    let both = [wrote_at(0x22, b"34"), wrote_at(0x28, b"abcdefgh")];
    assert_eq!(wrote, [&[wrote_at(0x20, b"12")][..], &both, &both].concat());
    front.tell(13, NO_REPLY, &[], &[]);
    assert_eq!(front.ask(13, &[]).error, None);
    assert_eq!(served.card.happened(), [Happened::Reset, Happened::Reset]);
}

#[test]
fn memory_is_mapped_as_qemu_does_while_a_machine_boots() {
    let served = Served::new();
    let mut front = served.attach();
    let ram = memfd(0x40_0000);
    let files = &[ram.as_fd()][..];
    // RAM in two parts, between them a ROM without a file, and RAM above 4 GiB. The front end does not wait for
    // answers.
    let pieces = [
        (map(3, 0, 0, 0xc_0000), files),
        (map(1, 0, 0xc_0000, 0x2_0000), &[]),
        (map(1, 0xe_0000, 0xe_0000, 0x2_0000), files),
        (map(3, 0x10_0000, 0x10_0000, 0x10_0000), files),
        (map(1, 0, 0xfffc_0000, 0x4_0000), &[]),
        (map(3, 0x20_0000, 1 << 32, 0x20_0000), files),
    ];
    let ids: Vec<u16> = pieces.iter().map(|(body, files)| front.tell(2, 0, body, files)).collect();
    for id in ids {
        let answer = front.answer().expect("an answer");
        assert_eq!((answer.id, answer.error, answer.body.len()), (id, None, 0));
    }
    assert_eq!(front.ask(4, &words(&[16, 0, 0, 0])).error, None);
    let writable = vec![(0, 0xc_0000), (0x10_0000, 0x10_0000), (1 << 32, 0x20_0000)];
    let mut readable = writable.clone();
    readable.insert(1, (0xe_0000, 0x2_0000));
    served.card.wait_for(|event| *event == Happened::Memory(readable.clone(), writable.clone()));
    // A BAR of another device, and a mapping that overlaps one.
    served.card.happened();
    assert_eq!(front.ask(2, &map(3, 0, 0xfe00_0000, 0x1000)).error, None);
    assert_eq!(front.ask(3, &unmap(0, 0xfe00_0000, 0x1000)).error, None);
    assert_eq!(served.card.happened(), [], "a mapping without a file changes nothing");
    for (address, size) in [(0, 0x1000), (0xb_ffff, 1), (0xf_ffff, 2), (0xfffd_0000, 1), (0, 1 << 40)] {
        assert_eq!(front.ask_with(2, &map(3, 0, address, size), files).error, errno(Errno::EXIST), "{address:#x}");
    }
    // The answer to an unmap repeats its range.
    let gone = front.ask(3, &unmap(0, 0xe_0000, 0x2_0000));
    assert_eq!((gone.error, gone.words()), (None, vec![24, 0, 0xe_0000, 0, 0x2_0000, 0]));
    readable.remove(1);
    assert_eq!(served.card.happened()[1..], [Happened::Memory(readable.clone(), writable.clone())]);
    for (flags, address, size, error) in [
        (0, 0xe_0000, 0x2_0000, Errno::NOENT),
        (0, 0, 0x1000, Errno::INVAL),
        (0, 0x1000, 0xb_f000, Errno::INVAL),
        (0, 0, 0, Errno::INVAL),
        (0, 1, u64::MAX, Errno::INVAL),
        (1, 0, 0xc_0000, Errno::OPNOTSUPP),
        (2, 0, 0xc_0000, Errno::INVAL),
        (4, 0, 0xc_0000, Errno::INVAL),
    ] {
        assert_eq!(
            front.ask(3, &unmap(flags, address, size)).error,
            errno(error),
            "{size:#x} at {address:#x}, {flags}"
        );
    }
    assert_eq!(served.card.memory().writable.regions().len(), 3, "all mappings are there");
    assert_eq!(front.ask(3, &unmap(0, 0, 0x20_0000)).error, None, "two mappings, and the ROM between them");
    assert_eq!(front.ask(3, &unmap(2, 0, 0)).error, None);
    assert!(served.card.memory().readable.regions().is_empty());
    assert_eq!(front.ask(3, &unmap(2, 0, 0)).error, None, "unmapping all succeeds without mappings");
}

#[test]
fn memory_that_is_divided_otherwise_is_never_missing() {
    let served = Served::new();
    let mut front = served.attach();
    let ram = memfd(0x10_0000);
    let files = [ram.as_fd()];
    assert_eq!(front.ask_with(2, &map(3, 0, 0, 0x10_0000), &files).error, None);
    served.card.wait_for(|event| matches!(event, Happened::Memory(..)));
    // All messages have arrived before the first is handled.
    let held = served.card.hold();
    front.tell(10, NO_REPLY, &access(0, 0x20, 2, b"12"), &[]);
    let ids = [
        front.tell(3, 0, &unmap(0, 0, 0x10_0000), &[]),
        front.tell(2, 0, &map(3, 0, 0, 0x8_0000), &files),
        front.tell(2, 0, &map(1, 0x8_0000, 0x8_0000, 0x8_0000), &files),
    ];
    drop(held);
    for id in ids {
        assert!(front.answer().is_some_and(|answer| answer.id == id && answer.error.is_none()));
    }
    let (all, writable) = (vec![(0, 0x8_0000), (0x8_0000, 0x8_0000)], vec![(0, 0x8_0000)]);
    let changes = [Happened::Wrote(0x20, b"12".into()), Happened::Memory(all, writable)];
    assert_eq!(served.card.happened(), changes, "one change, before the first answer");
    // Answers arrive for any number of removed and added mappings.
    for _ in 0..20 {
        for _ in 0..50 {
            front.tell(3, 0, &unmap(0, 0, 0x8_0000), &[]);
            front.tell(2, 0, &map(3, 0, 0, 0x8_0000), &files);
        }
        assert!((0..100).all(|_| front.answer().is_some_and(|answer| answer.error.is_none())));
    }
    front.tell(3, NO_REPLY, &unmap(2, 0, 0), &[]);
    served.card.wait_for(|event| *event == Happened::Memory(vec![], vec![]));
}

#[test]
fn memory_that_cannot_be_had_is_refused_by_name() {
    let served = Served::new();
    let mut front = served.attach();
    let ram = memfd(0x1_0000);
    for (flags, offset, address, size) in [
        (0, 0, 0, 0x1000),
        (4, 0, 0, 0x1000),
        (7, 0, 0, 0x1000),
        (3, 0, 0, 0),
        (3, 0, u64::MAX, 0x1000),
        (3, 0, 0, 0x1_0001),
        (3, 0xf000, 0, 0x2000),
        (3, u64::MAX, 0, 0x1000),
        (3, 0, 0, u64::MAX),
    ] {
        let answer = front.ask_with(2, &map(flags, offset, address, size), &[ram.as_fd()]);
        assert_eq!(answer.error, errno(Errno::INVAL), "{flags} {offset:#x} {address:#x} {size:#x}");
    }
    let pipe = std::io::pipe().expect("a pipe");
    assert_eq!(front.ask_with(2, &map(3, 0, 0, 0x1000), &[pipe.0.as_fd()]).error, errno(Errno::INVAL));
    for number in 0..256 {
        assert_eq!(front.ask(2, &map(1, 0, number << 12, 0x1000)).error, None);
    }
    assert_eq!(front.ask(2, &map(1, 0, 1 << 32, 0x1000)).error, errno(Errno::NOSPC));
    let told = served.card.wait_for(|event| matches!(event, Happened::Refused("bad_memory_map", _)));
    assert!(
        matches!(told, Happened::Refused(_, text) if text.contains("flags 0x0")),
        "the first refusal is reported once"
    );
    assert!(!served.card.happened().iter().any(|event| matches!(event, Happened::Refused(..) | Happened::Fault(..))));
}

#[test]
fn a_refusal_is_named_also_when_the_front_end_does_not_wait_for_it() {
    let served = Served::new();
    for no_reply in [0, 0x10] {
        let mut front = served.attach();
        front.tell(2, no_reply, &map(7, 0, 0, 0x1000), &[]);
        drop(front);
        served.card.wait_for(|event| matches!(event, Happened::Refused("bad_memory_map", _)));
        served.card.wait_for(|event| *event == Happened::Gone);
    }
}

#[test]
fn a_guest_whose_memory_is_not_shared_is_told_so_before_it_boots() {
    let served = Served::new();
    let mut front = served.attach();
    assert_eq!(front.ask(4, &words(&[16, 0, 0, 0])).error, None, "a front end without mappings may ask");
    assert_eq!(front.ask(2, &map(3, 0, 0, 0xc_0000)).error, None);
    assert_eq!(front.ask(4, &words(&[16, 0, 0, 0])).error, errno(Errno::INVAL));
    let told = served.card.wait_for(|event| matches!(event, Happened::Refused("memory_not_shared", _)));
    assert!(matches!(told, Happened::Refused(_, text) if text.contains("memory-backend-memfd")));
}

fn irqs(flags: u32, index: u32, start: u32, count: u32) -> Vec<u8> {
    words(&[20, flags, index, start, count])
}

#[test]
fn the_pin_rests_from_its_trigger_until_it_is_unmasked() {
    let served = Served::new();
    let (mut front, card) = (served.attach(), &served.card);
    let (call, unmask) = (new_eventfd(), new_eventfd());
    assert!(!card.interrupts.trigger(0), "no eventfd is set yet");
    assert_eq!(front.ask_with(8, &irqs(EVENTFD | TRIGGER, 0, 0, 1), &[call.as_fd()]).error, None);
    card.wait_for(|event| *event == Happened::Unmasked);
    assert!(card.interrupts.trigger(0) && !card.interrupts.trigger(0) && !card.interrupts.trigger(1));
    assert_eq!(count(&call), 1);
    assert_eq!(front.ask(8, &irqs(NONE | UNMASK, 0, 0, 1)).error, None);
    assert!(card.happened().contains(&Happened::Unmasked), "the interrupt may trigger again");
    assert_eq!(front.ask(8, &irqs(NONE | TRIGGER, 0, 0, 1)).error, None);
    assert_eq!(count(&call), 1, "the front end triggers the interrupt");
    // KVM unmasks by eventfd.
    assert_eq!(front.ask_with(8, &irqs(EVENTFD | UNMASK, 0, 0, 1), &[unmask.as_fd()]).error, None);
    assert!(!card.interrupts.trigger(0));
    for _ in 0..3 {
        rustix::io::write(&unmask, &1u64.to_ne_bytes()).expect("a write");
        card.wait_for(|event| *event == Happened::Unmasked);
        assert!(card.interrupts.trigger(0));
    }
    assert_eq!(count(&call), 3);
    assert_eq!(front.ask(8, &irqs(EVENTFD | UNMASK, 0, 0, 1)).error, None, "the unmask eventfd is removed");
    assert_eq!(front.ask(8, &irqs(NONE | UNMASK, 0, 0, 1)).error, None);
    assert_eq!(
        front.ask(8, &[irqs(BOOL | MASK, 0, 0, 1), vec![0]].concat()).error,
        None,
        "a boolean of 0 masks nothing"
    );
    assert!(card.interrupts.trigger(0));
    assert_eq!(front.ask(8, &irqs(NONE | UNMASK, 0, 0, 1)).error, None);
    assert_eq!(front.ask(8, &[irqs(BOOL | MASK, 0, 0, 1), vec![1]].concat()).error, None);
    assert!(!card.interrupts.trigger(0));
    assert_eq!(front.ask(8, &irqs(NONE | TRIGGER, 0, 0, 0)).error, None, "all interrupts are off");
    assert!(!card.interrupts.trigger(0));
    assert_eq!(card.interrupts.mode(), super::Mode::None);
}

#[test]
fn messages_go_where_the_front_end_wants_them() {
    let served = Served::new();
    let (mut front, card) = (served.attach(), &served.card);
    let calls: Vec<_> = (0..5).map(|_| new_eventfd()).collect();
    let fds: Vec<_> = calls.iter().map(AsFd::as_fd).collect();
    assert_eq!(front.ask_with(8, &irqs(EVENTFD | TRIGGER, 1, 0, 4), &fds[..4]).error, None);
    assert_eq!(card.interrupts.mode(), super::Mode::Msi);
    assert!((0..4).all(|vector| card.interrupts.trigger(vector)) && !card.interrupts.trigger(4));
    assert!(card.interrupts.trigger(2), "messages cannot be masked");
    assert_eq!(calls.iter().map(count).collect::<Vec<_>>(), [1, 1, 2, 1, 0]);
    assert_eq!(
        front.ask_with(8, &irqs(EVENTFD | TRIGGER, 2, 0, 5), &fds).error,
        errno(Errno::INVAL),
        "only one kind of interrupt is on"
    );
    assert_eq!(front.ask(8, &irqs(NONE | TRIGGER, 2, 0, 0)).error, None, "an interrupt that is off may be turned off");
    assert_eq!(card.interrupts.mode(), super::Mode::Msi);
    assert_eq!(front.ask(8, &irqs(NONE | TRIGGER, 1, 0, 0)).error, None);
    // MSI-X: vectors are set and removed one at a time.
    assert_eq!(front.ask_with(8, &irqs(EVENTFD | TRIGGER, 2, 4, 1), &fds[4..]).error, None);
    assert!(card.interrupts.trigger(4) && !card.interrupts.trigger(0));
    assert_eq!(front.ask_with(8, &irqs(EVENTFD | TRIGGER, 2, 1, 2), &fds[1..3]).error, None);
    assert_eq!(front.ask(8, &[irqs(BOOL | TRIGGER, 2, 0, 5), vec![1, 1, 0, 1, 1]].concat()).error, None);
    assert_eq!(calls.iter().map(count).collect::<Vec<_>>(), [0, 1, 0, 0, 2]);
    assert_eq!(front.ask(8, &irqs(EVENTFD | TRIGGER, 2, 4, 1)).error, None, "this vector is removed");
    assert!(!card.interrupts.trigger(4) && card.interrupts.trigger(1));
    drop(front);
    card.wait_for(|event| *event == Happened::Connected(false));
    assert!(!card.interrupts.trigger(1), "interrupts are removed with their front end");
}

#[test]
fn interrupts_that_cannot_be_are_refused() {
    let served = Served::new();
    let mut front = served.attach();
    let (call, pipe) = (new_eventfd(), std::io::pipe().expect("a pipe"));
    for (flags, index, start, count) in [
        (0, 0, 0, 1),
        (NONE, 0, 0, 1),
        (NONE | EVENTFD | TRIGGER, 0, 0, 1),
        (NONE | MASK | TRIGGER, 0, 0, 1),
        (NONE | TRIGGER | 1 << 6, 0, 0, 1),
        (NONE | MASK, 0, 0, 0),
        (NONE | MASK, 0, 0, 2),
        (NONE | MASK, 0, 1, 1),
        (NONE | MASK, 0, u32::MAX, 1),
        (NONE | MASK, 0, 1, u32::MAX),
        (EVENTFD | TRIGGER, 1, 0, 5),
        (EVENTFD | TRIGGER, 2, 0, u32::MAX),
        (EVENTFD | TRIGGER, 3, 0, 1),
        (NONE | TRIGGER, 4, 0, 0),
        (NONE | TRIGGER, u32::MAX, 0, 1),
    ] {
        let answer = front.ask(8, &irqs(flags, index, start, count));
        assert_eq!(answer.error, errno(Errno::INVAL), "{flags:#x} for {count} from {start} of {index}");
    }
    assert_eq!(front.ask_with(8, &irqs(EVENTFD | TRIGGER, 1, 0, 1), &[call.as_fd()]).error, None);
    for flags in [NONE | MASK, NONE | UNMASK, EVENTFD | UNMASK] {
        assert_eq!(front.ask(8, &irqs(flags, 1, 0, 1)).error, errno(Errno::NOTTY), "messages cannot be masked");
    }
    let two = [call.as_fd(), pipe.1.as_fd()];
    assert_eq!(front.ask_with(8, &irqs(EVENTFD | TRIGGER, 1, 1, 2), &two).error, errno(Errno::INVAL));
    assert!(!served.card.interrupts.trigger(1), "a refused set changes no vector");
    assert_eq!(front.ask(8, &irqs(NONE | TRIGGER, 1, 0, 0)).error, None);
    assert_eq!(front.ask_with(8, &irqs(EVENTFD | UNMASK, 0, 0, 1), &[pipe.0.as_fd()]).error, errno(Errno::INVAL));
    served.card.wait_for(|event| matches!(event, Happened::Refused("bad_interrupts", _)));
}

#[test]
fn one_front_end_at_a_time_and_the_next_when_it_has_gone() {
    let mut served = Served::new();
    let ram = memfd(0x1000);
    for _ in 0..3 {
        let mut front = served.attach();
        assert_eq!(front.ask_with(2, &map(3, 0, 0, 0x1000), &[ram.as_fd()]).error, None);
        assert_eq!(front.ask(4, &words(&[16, 0, 0, 0])).error, None);
        let mut second = Raw::connect(&served.socket);
        assert!(second.answer().is_none(), "a second front end is refused");
        assert_eq!(front.ask(4, &words(&[16, 0, 0, 0])).error, None, "the first front end is still served");
        drop(front);
        served.card.wait_for(|event| *event == Happened::Gone);
        assert!(served.card.memory().readable.regions().is_empty(), "memory is unmapped when the front end goes");
    }
    let mut front = served.attach();
    served.end();
    assert!(front.answer().is_none(), "the connection ends with the port");
    until("the socket is removed", || !served.socket.exists());
}

#[test]
fn a_port_that_ends_answers_what_it_was_asked_before() {
    const ASKED: u16 = 200;
    for round in 0..50 {
        let mut served = Served::new();
        let mut front = served.attach();
        // Sent in one call, so that most of it is unread when the port ends. The answers still fit into the socket's
        // buffer.
        let read = access(0, 0x20, 2, &[]);
        let asked: Vec<u8> = (0..ASKED).flat_map(|id| message(id, 9, 0, &read)).collect();
        front.send(&asked, &[]);
        served.end();
        for id in 0..ASKED {
            assert!(
                front.answer().is_some_and(|answer| answer.id == id && answer.error.is_none()),
                "{id}, round {round}"
            );
        }
        assert!(front.answer().is_none());
    }
}

#[test]
fn what_is_no_message_ends_the_connection_by_name() {
    let served = Served::new();
    let head =
        |command: u16, size: u32, flags: u32| [&[0, 0][..], &command.to_ne_bytes(), &words(&[size, flags, 0])].concat();
    let cases: [(&str, Vec<u8>); 17] = [
        ("shorter than its header", head(13, 15, 0)),
        ("of no bytes", head(13, 0, 0)),
        ("of 4 GiB", head(10, u32::MAX, 0)),
        ("longer than the longest message", head(10, 16 + 8193, 0)),
        ("a reply", head(13, 16, 1)),
        ("of unknown type", head(13, 16, 2)),
        ("a reset with a body", message(1, 13, 0, &[0])),
        ("a read cut short", message(1, 9, 0, &access(0, 0, 4, &[])[..15])),
        ("a read with data", message(1, 9, 0, &access(0, 0, 4, &[0; 4]))),
        ("a write with less data than it says", message(1, 10, 0, &access(0, 0, 4, &[0; 3]))),
        ("a write of 4 GiB", message(1, 10, 0, &access(0, 0, u32::MAX, &[0; 4]))),
        ("a map cut short", message(1, 2, 0, &map(3, 0, 0, 0x1000)[..31])),
        ("an unmap cut short", message(1, 3, 0, &unmap(0, 0, 0x1000)[..16])),
        ("a region query cut short", message(1, 5, 0, &words(&[32, 0, 0]))),
        ("interrupts cut short", message(1, 8, 0, &irqs(NONE | MASK, 0, 0, 1)[..19])),
        ("fewer booleans than interrupts", message(1, 8, 0, &irqs(BOOL | MASK, 0, 0, u32::MAX))),
        ("more writes than there are", message(1, 15, 0, &u64::MAX.to_ne_bytes())),
    ];
    for (what, bytes) in cases {
        let mut front = served.attach();
        front.send(&bytes, &[]);
        assert!(front.answer().is_none(), "{what}");
        assert_eq!(served.card.wait_for_fault().0, "bad_message", "{what}");
    }
    for text in ["{", "[]", "{\"capabilities\":7}", "\u{fffd}", &"[".repeat(8000)] {
        let mut front = Raw::connect(&served.socket);
        front.tell(1, 0, &version(text), &[]);
        assert!(front.answer().is_none(), "{text:.20}");
        assert_eq!(served.card.wait_for_fault().0, "bad_message", "{text:.20}");
    }
    assert_eq!(served.attach().ask(13, &[]).error, None, "the next front end is served");
}

#[test]
fn descriptors_where_none_are_right_end_the_connection_and_are_closed() {
    let served = Served::new();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let flood = vec![writer.as_fd(); 253];
    let cases: [(&str, Vec<u8>, usize, &str); 6] = [
        ("with a reset", message(1, 13, 0, &[]), 1, "bad_message"),
        ("two with a map", message(1, 2, 0, &map(3, 0, 0, 0x1000)), 2, "bad_message"),
        ("with interrupts without data", message(1, 8, 0, &irqs(NONE | MASK, 0, 0, 1)), 1, "bad_message"),
        ("more than interrupts", message(1, 8, 0, &irqs(EVENTFD | TRIGGER, 1, 0, 1)), 2, "bad_message"),
        ("as many as can be sent", message(1, 13, 0, &[]), 253, "too_many_descriptors"),
        ("before a message is whole", vec![0; 3], MOST_FDS + 1, "too_many_descriptors"),
    ];
    for (what, bytes, files, reason) in cases {
        let mut front = served.attach();
        front.send(&bytes, &flood[..files]);
        assert!(front.answer().is_none(), "{what}");
        assert_eq!(served.card.wait_for_fault().0, reason, "{what}");
    }
    drop(flood);
    drop(writer);
    // The read returns 0 after the last write end was closed.
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
}

#[test]
fn messages_arrive_in_whatever_pieces_they_were_sent() {
    let served = Served::new();
    let mut front = served.attach();
    let ram = memfd(0x1000);
    let bytes = [
        message(7, 10, NO_REPLY, &access(0, 0, 4, b"abcd")),
        message(8, 2, 0, &map(3, 0, 0, 0x1000)),
        message(9, 9, 0, &access(0, 0, 4, &[])),
    ]
    .concat();
    let second = 16 + 20;
    for (at, byte) in bytes.iter().enumerate() {
        let files = [ram.as_fd()];
        front.send(&[*byte], if at == second { &files } else { &[] });
    }
    let map = front.answer().expect("an answer");
    assert_eq!((map.id, map.error), (8, None));
    let read = front.answer().expect("an answer");
    assert_eq!((read.id, &read.body[16..]), (9, &b"abcd"[..]));
    assert_eq!(served.card.memory().readable.regions().len(), 1, "the file came with its message");
    // Many messages in one send.
    let bytes: Vec<u8> = (0..500).flat_map(|id| message(id, 9, 0, &access(0, 0, 4, &[]))).collect();
    front.send(&bytes, &[]);
    assert!((0..500).all(|id| front.answer().is_some_and(|answer| answer.id == id)));
}

#[test]
fn descriptors_come_with_their_own_message_however_much_is_received_at_once() {
    let served = Served::new();
    let mut front = served.attach();
    let ram = memfd(0x2000);
    // The port pauses in between, and then finds all of these messages.
    let posted = message(1, 10, NO_REPLY, &access(0, 0, 4, b"abcd"));
    for page in [0, 1] {
        front.send(&posted.repeat(300), &[]);
        front.send(&message(2, 2, 0, &map(3, 0, page << 20, 0x1000)), &[ram.as_fd()]);
        front.send(&message(3, 2, 0, &map(3, 0, 1 << 40 | page << 20, 0x1000)), &[]);
        front.send(&posted.repeat(300), &[]);
    }
    for _ in [0, 1] {
        assert!(front.answer().is_some_and(|answer| (answer.id, answer.error) == (2, None)));
        assert!(front.answer().is_some_and(|answer| (answer.id, answer.error) == (3, None)));
    }
    assert_eq!(front.ask(4, &words(&[16, 0, 0, 0])).error, None);
    let memory = served.card.memory();
    let places: Vec<_> = memory.readable.regions().iter().map(|region| region.guest()).collect();
    assert_eq!(places, [0, 1 << 20], "only mappings with files");
}

#[test]
fn an_interrupt_whose_eventfd_is_blocking_and_full_is_signalled_without_waiting() {
    let served = Served::new();
    let mut front = served.attach();
    let call = new_eventfd();
    assert_eq!(front.ask_with(8, &irqs(EVENTFD | TRIGGER, 0, 0, 1), &[call.as_fd()]).error, None);
    // The counter is full and the eventfd blocking, so the next write blocks.
    rustix::io::write(&call, &(u64::MAX - 1).to_ne_bytes()).expect("a write");
    rustix::fs::fcntl_setfl(&call, rustix::fs::OFlags::empty()).expect("flags");
    for _ in 0..3 {
        assert_eq!(front.ask(8, &irqs(NONE | TRIGGER, 0, 0, 1)).error, None);
        assert_eq!(front.ask(8, &irqs(NONE | UNMASK, 0, 0, 1)).error, None);
    }
    assert_eq!(count(&call), u64::MAX, "a write cannot reach this value");
}
