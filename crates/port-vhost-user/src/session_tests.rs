//! Sessions: rings start, pause and stop as the specification says, and a refused request changes nothing.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringway_keeper::Link;
use ringway_runtime::nanoseconds;
use ringway_switch::{Bell, CallReason, CallResult};
use ringway_testing::until;

use super::bell::VhostBell;
use super::features::{LOG_ALL, PROTOCOL_FEATURES};
use super::message::{Area, ConfigRange, MOST_REGIONS, RegionAt, Request, VringAddress, VringFile};
use super::reply::Reply;
use super::session::protocol;
use super::testing::{FRAME, Front, GUEST, MAC, MEMORY, RING, USER, address, count, file, memfd, new_eventfd, state};
use crate::virtqueue::{F_RING_PACKED, F_RING_RESET, F_VERSION_1};

const TX: u16 = 1;

fn number(reply: Result<Option<Reply>, super::end::SessionEnd>) -> u64 {
    match reply {
        Ok(Some(Reply::Number(number))) => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_front_end_learns_what_is_offered() {
    let mut front = Front::new();
    assert_eq!(number(front.ask(Request::GetFeatures)), front.device.offered());
    assert_eq!(number(front.ask(Request::GetProtocolFeatures)), 0x1_b21f);
    assert_eq!(number(front.ask(Request::GetQueueNum)), 4);
    assert_eq!(number(front.ask(Request::GetMaxMemSlots)), MOST_REGIONS as u64);
    assert_eq!(number(front.ask(Request::GetStatus)), 0);
    assert_eq!(front.ends(Request::SetFeatures(1 << 63)), "bad_features");
    assert_eq!(front.ends(Request::SetProtocolFeatures(1 << 5)), "bad_features");
    assert_eq!(front.ends(Request::Unknown(26)), "unsupported_message");
}

#[test]
fn a_ring_starts_with_its_kick_descriptor_and_stops_when_its_base_is_asked_for() {
    let mut front = Front::ready();
    front.guest.send(TX, 0, 3);
    front.does(Request::SetVringNum(state(TX, RING.into())));
    front.does(Request::SetVringAddr(address(TX)));
    front.does(Request::SetVringEnable(state(TX, 1)));
    assert_eq!(front.poll(), 0, "the ring has no kick descriptor yet");
    front.does(Request::SetVringKick(file(TX, &new_eventfd())));
    assert_eq!((front.poll(), front.guest.used(TX)), (3, 3));
    assert_eq!(front.base(TX), 3);
    front.guest.send(TX, 3, 5);
    front.does(Request::SetVringEnable(state(TX, 1)));
    assert_eq!(front.poll(), 0, "a stopped ring is not served");
    assert_eq!(front.base(TX), 3, "a second request has the same answer");
    front.does(Request::SetVringKick(VringFile { queue: TX.into(), file: None }));
    assert_eq!((front.poll(), front.guest.used(TX)), (2, 5), "the polled ring continues where it stopped");
}

#[test]
fn a_ring_without_a_kick_descriptor_is_looked_at_while_its_poller_sleeps() {
    let without = |queue: u16| Request::SetVringKick(VringFile { queue: queue.into(), file: None });
    let mut front = Front::ready();
    assert!(!front.needs_polling(), "there is no ring");
    front.start(TX);
    assert!(!front.needs_polling(), "the ring has a kick descriptor");
    front.start(TX + 2);
    front.does(without(TX + 2));
    assert!(front.needs_polling());
    front.base(TX + 2);
    assert!(!front.needs_polling(), "the ring is stopped");
    front.does(without(TX));
    assert!(front.needs_polling());
    front.does(Request::SetVringKick(file(TX, &new_eventfd())));
    assert!(!front.needs_polling(), "the ring has a kick descriptor again");
    front.start(0);
    front.does(without(0));
    assert!(!front.needs_polling(), "a receive ring needs no polling");
}

#[test]
fn the_order_of_what_is_said_of_a_ring_does_not_matter() {
    let mut front = Front::new();
    front.does(Request::SetVringEnable(state(TX, 1)));
    front.does(Request::SetVringKick(file(TX, &new_eventfd())));
    front.does(Request::SetVringAddr(address(TX)));
    front.does(Request::SetVringBase(state(TX, 0)));
    front.negotiate(0);
    front.guest.send(TX, 0, 4);
    assert_eq!(front.poll(), 0, "the ring's size is not known");
    front.does(Request::SetVringNum(state(TX, RING.into())));
    assert_eq!(front.poll(), 4);
}

#[test]
fn a_disabled_ring_is_emptied_and_nothing_passes() {
    let mut front = Front::ready();
    front.start(TX);
    front.does(Request::SetVringEnable(state(TX, 0)));
    front.guest.send(TX, 0, 3);
    assert_eq!((front.poll(), front.guest.used(TX)), (0, 3), "frames of a disabled ring are dropped");
    front.does(Request::SetVringEnable(state(TX, 1)));
    front.guest.send(TX, 3, 5);
    assert_eq!(front.poll(), 2);
    assert_eq!(front.base(TX), 5);
    front.does(Request::SetVringKick(file(TX, &new_eventfd())));
    front.guest.send(TX, 5, 6);
    assert_eq!(front.poll(), 1, "the ring stays enabled after a stop");
    assert_eq!(front.ends(Request::SetVringEnable(state(TX, 2))), "bad_enable");
}

#[test]
fn a_guest_whose_frames_are_dropped_while_its_calls_are_held_is_called_afterwards() {
    let mut front = Front::ready();
    let call = new_eventfd();
    front.start(TX);
    front.does(Request::SetVringCall(file(TX, &call)));
    front.does(Request::SetVringEnable(state(TX, 0)));
    let (bell, device) = (VhostBell { device: Arc::clone(&front.device) }, Arc::clone(&front.device));
    count(&call);
    device.account().charge(nanoseconds() + 3_600_000_000_000, Duration::from_secs(1));
    front.guest.send(TX, 0, 3);
    assert_eq!((front.poll(), front.guest.used(TX)), (0, 3));
    assert!(front.takes_event(), "the poller rings the bell");
    assert!(!front.takes_event());
    assert_eq!((bell.ring(CallReason::Room), count(&call)), (CallResult::Held { called: false }, 0));
    device.account().begin_client();
    until("calls are not held", || !device.account().is_held());
    assert_eq!((bell.ring(CallReason::Room), count(&call)), (CallResult::Called, 1));
    front.guest.send(TX, 3, 4);
    assert_eq!((front.poll(), count(&call)), (0, 1));
    assert!(!front.takes_event());
}

#[test]
fn without_protocol_features_a_ring_is_enabled_from_the_start() {
    let mut front = Front::new();
    front.does(Request::SetFeatures(F_VERSION_1));
    front.does(Request::SetMemTable(vec![front.guest.region()]));
    front.does(Request::SetVringNum(state(TX, RING.into())));
    front.does(Request::SetVringAddr(address(TX)));
    front.does(Request::SetVringKick(file(TX, &new_eventfd())));
    front.guest.send(TX, 0, 3);
    assert_eq!(front.poll(), 3);
}

#[test]
fn what_changes_a_running_ring_lets_it_go_on_where_it_was() {
    let mut front = Front::ready();
    front.start(TX);
    let flows = |front: &mut Front, what: &str| {
        let sent = front.guest.used(TX);
        front.guest.send(TX, sent, sent + 7);
        assert_eq!((front.poll(), front.guest.used(TX)), (7, sent + 7), "{what}");
    };
    flows(&mut front, "at first");
    front.does(Request::SetVringAddr(VringAddress { flags: 1, ..address(TX) }));
    flows(&mut front, "with other flags");
    front.does(Request::SetVringNum(state(TX, RING.into())));
    flows(&mut front, "with the same size");
    front.does(Request::SetMemTable(vec![front.guest.region()]));
    flows(&mut front, "with new memory");
    front.does(Request::SetVringKick(file(TX, &new_eventfd())));
    flows(&mut front, "with another kick descriptor");
    front.does(Request::SetVringCall(file(TX, &new_eventfd())));
    flows(&mut front, "with another call descriptor");
    let other = RegionAt { guest: GUEST + MEMORY, size: 4096, user: USER + MEMORY, offset: 0 };
    front.does(Request::AddMemReg(other, memfd(4096).into()));
    flows(&mut front, "with more memory");
    front.does(Request::SetFeatures(F_VERSION_1 | PROTOCOL_FEATURES));
    flows(&mut front, "with the same features, as QEMU sends them for each queue pair");
    front.does(Request::SetVringBase(state(TX, 8 * 7)));
    flows(&mut front, "with its own base");
    assert_eq!(front.base(TX), 9 * 7);
}

#[test]
fn a_running_ring_is_called_by_its_new_descriptor_at_once_as_the_old_one_may_not_be_heard_any_more() {
    let mut front = Front::ready();
    let (idle, running) = (new_eventfd(), new_eventfd());
    let is_called = |call: &OwnedFd| rustix::io::read(call, &mut [0; 8]).is_ok();
    front.does(Request::SetVringCall(file(TX, &idle)));
    assert!(!is_called(&idle), "the ring does not run");
    front.start(TX);
    front.does(Request::SetVringCall(file(TX, &running)));
    assert!(is_called(&running) && !is_called(&idle));
}

#[test]
fn while_regions_are_exchanged_rings_rest() {
    let mut front = Front::ready();
    front.start(TX);
    front.guest.send(TX, 0, 3);
    let (region, memory) = front.guest.region();
    front.does(Request::RemMemReg(region));
    assert!(front.session.is_unsettled());
    assert_eq!(front.poll(), 0, "the ring's memory is gone");
    front.does(Request::AddMemReg(region, memory));
    assert_eq!(front.poll(), 0, "further regions may come");
    front.session.settle().expect("settled");
    assert_eq!((front.poll(), front.session.is_unsettled()), (3, false));

    front.does(Request::RemMemReg(region));
    front.session.settle().expect("a ring without memory pauses");
    front.guest.send(TX, 3, 5);
    assert_eq!(front.poll(), 0);
    front.does(Request::AddMemReg(region, front.guest.region().1));
    assert_eq!(front.poll(), 2, "the ring continues when its memory is there");
    front.does(Request::RemMemReg(region));
    assert_eq!(front.base(TX), 5, "the ring stops while it is paused");
}

#[test]
fn rings_of_impossible_sizes_are_refused() {
    let mut front = Front::ready();
    for size in [0, 3, 255, 32_769, 65_536, u32::MAX] {
        assert_eq!(front.ends(Request::SetVringNum(state(TX, size))), "ring_size", "{size}");
    }
    let mut front = Front::new();
    front.negotiate(F_RING_PACKED);
    front.does(Request::SetVringNum(state(TX, 3)));
    for size in [0, 32_769] {
        assert_eq!(front.ends(Request::SetVringNum(state(TX, size))), "ring_size", "{size}");
    }
    // A ring size that only the features negotiated later make invalid.
    let mut front = Front::new();
    front.does(Request::SetVringNum(state(TX, 3)));
    front.negotiate(0);
    front.does(Request::SetVringAddr(address(TX)));
    assert_eq!(front.ends(Request::SetVringKick(file(TX, &new_eventfd()))), "ring_size");
}

#[test]
fn queues_that_are_not_there_are_refused() {
    let mut front = Front::ready();
    for queue in [4, 255, 65_536 + 1] {
        let wrong = super::message::VringState { queue, number: 1 };
        assert_eq!(front.ends(Request::SetVringNum(wrong)), "no_such_queue");
        assert_eq!(front.ends(Request::SetVringBase(wrong)), "no_such_queue");
        assert_eq!(front.ends(Request::GetVringBase(wrong)), "no_such_queue");
        assert_eq!(front.ends(Request::SetVringEnable(wrong)), "no_such_queue");
        assert_eq!(front.ends(Request::SetVringAddr(VringAddress { queue, ..address(0) })), "no_such_queue");
        for request in [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr] {
            assert_eq!(front.ends(request(VringFile { queue, file: None })), "no_such_queue");
        }
    }
}

#[test]
fn rings_outside_their_memory_are_refused() {
    for wrong in [
        VringAddress { descriptors: USER + MEMORY - 8, ..address(TX) },
        VringAddress { available: USER - 2, ..address(TX) },
        VringAddress { used: u64::MAX - 5, ..address(TX) },
        VringAddress { used: 0, ..address(TX) },
        VringAddress { descriptors: USER + 1, ..address(TX) },
    ] {
        let mut front = Front::ready();
        front.does(Request::SetVringNum(state(TX, RING.into())));
        front.does(Request::SetVringAddr(wrong));
        assert_eq!(front.ends(Request::SetVringKick(file(TX, &new_eventfd()))), "ring_place", "{wrong:?}");
    }
    let mut front = Front::ready();
    front.start(TX);
    let elsewhere = RegionAt { guest: 0, size: 4096, user: 0, offset: 0 };
    assert_eq!(front.ends(Request::SetMemTable(vec![(elsewhere, memfd(4096).into())])), "ring_place");
}

#[test]
fn memory_tables_that_cannot_be_are_refused_and_the_old_one_stays() {
    let mut front = Front::ready();
    front.start(TX);
    let right = RegionAt { guest: 0x1000, size: 0x2000, user: 0x10_1000, offset: 0 };
    let wrong = [
        vec![RegionAt { size: 0, ..right }],
        vec![RegionAt { guest: u64::MAX - 4095, ..right }],
        vec![RegionAt { user: u64::MAX - 8, ..right }],
        vec![RegionAt { offset: u64::MAX - 4095, ..right }],
        vec![RegionAt { size: u64::MAX, ..right }],
        vec![RegionAt { size: 0x4000, ..right }],
        vec![RegionAt { offset: 0x2000, ..right }],
        vec![right, right],
        vec![right, RegionAt { guest: 0x2fff, user: 0x20_0000, size: 0x1000, ..right }],
    ];
    for table in wrong {
        let what = format!("{table:x?}");
        let table = table.into_iter().map(|at| (at, memfd(0x3000).into())).collect();
        assert_eq!(front.ends(Request::SetMemTable(table)), "bad_memory_table", "{what}");
    }
    for not_memory in
        [new_eventfd(), std::io::pipe().expect("a pipe").0.into(), open("/proc/self/maps"), open("/dev/zero")]
    {
        assert_eq!(front.ends(Request::SetMemTable(vec![(right, not_memory.into())])), "bad_memory_table");
    }
    assert_eq!(front.ends(Request::AddMemReg(front.guest.region().0, memfd(MEMORY).into())), "bad_memory_table");
    front.guest.send(TX, 0, 3);
    assert_eq!(front.poll(), 3, "the refused requests did not change the ring");
}

#[test]
fn no_more_regions_than_were_offered() {
    let mut front = Front::ready();
    let at = |n: u64| RegionAt { guest: n << 20, size: 4096, user: n << 20, offset: 0 };
    for n in 1..MOST_REGIONS as u64 {
        front.does(Request::AddMemReg(at(n), memfd(4096).into()));
    }
    assert_eq!(front.ends(Request::AddMemReg(at(100), memfd(4096).into())), "bad_memory_table");
    front.does(Request::RemMemReg(at(1)));
    front.does(Request::AddMemReg(at(100), memfd(4096).into()));
}

#[test]
fn a_region_may_be_added_and_removed_once_for_each_queue_pair() {
    let mut front = Front::ready();
    front.start(TX);
    let (region, memory) = front.guest.region();
    for pair in 0..4 {
        front.does(Request::AddMemReg(region, memory.try_clone().expect("a descriptor").into()));
        front.guest.send(TX, 3 * pair, 3 * pair + 3);
        assert_eq!(front.poll(), 3);
    }
    let other = RegionAt { guest: GUEST + MEMORY, size: 4096, user: USER + MEMORY, offset: 0 };
    front.does(Request::AddMemReg(other, memfd(4096).into()));
    for _pair in 0..4 {
        front.does(Request::RemMemReg(other));
    }
    front.does(Request::AddMemReg(other, memfd(4096).into()));
}

fn open(path: &str) -> OwnedFd {
    std::fs::File::open(path).expect(path).into()
}

#[test]
fn only_eventfds_are_waited_for_and_written() {
    let mut front = Front::ready();
    let wrong: [fn() -> OwnedFd; 4] = [
        || std::io::pipe().expect("a pipe").1.into(),
        || memfd(8),
        || open("/dev/null"),
        || rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).expect("an epoll instance"),
    ];
    for wrong in wrong {
        for request in [Request::SetVringKick, Request::SetVringCall, Request::SetVringErr] {
            assert_eq!(front.ends(request(VringFile { queue: 0, file: Some(wrong().into()) })), "not_an_eventfd");
        }
        assert_eq!(front.ends(Request::SetLogFd(wrong().into())), "not_an_eventfd");
    }
    front.does(Request::SetLogFd(new_eventfd().into()));
    front.does(Request::SetVringErr(file(TX, &new_eventfd())));
    assert!(front.session.error_descriptor(TX).is_some());
}

#[test]
fn answers_are_given_where_they_were_asked_for_and_a_failure_changes_nothing() {
    let mut front = Front::ready();
    assert_eq!(front.asks(Request::SetOwner), 0);
    assert_eq!(front.asks(Request::SetVringNum(state(TX, 3))), 1);
    assert_eq!(front.session.take_refusal().map(|end| end.name()), Some("ring_size"));
    assert!(front.session.take_refusal().is_none(), "a refusal is reported once");
    assert_eq!(front.asks(Request::NetSetMtu(67)), 1);
    assert_eq!(front.asks(Request::NetSetMtu(1501)), 1);
    assert_eq!(front.asks(Request::NetSetMtu(1 << 32 | 1400)), 1);
    assert_eq!(front.asks(Request::NetSetMtu(1400)), 0);
    assert_eq!(front.asks(Request::Unknown(23)), 1);
    assert_eq!(front.asks(Request::GetQueueNum), 4, "only the request's own answer");
    let wrong = super::message::VringState { queue: 9, number: 0 };
    let header = super::message::Header { request: 11, size: 8, need_reply: true };
    assert!(
        front.session.handle(header, Request::GetVringBase(wrong)).is_err(),
        "this request's answer has no error code"
    );
    // Without REPLY_ACK the front end waits for no answer.
    let mut front = Front::new();
    assert!(matches!(front.session.handle(header, Request::SetOwner), Ok(None)));
    assert_eq!(
        front.asks(Request::SetProtocolFeatures(protocol::REPLY_ACK)),
        0,
        "REPLY_ACK applies from this message on"
    );
}

#[test]
fn features_change_only_while_nothing_runs() {
    let mut front = Front::ready();
    front.start(TX);
    assert_eq!(front.ends(Request::SetFeatures(F_VERSION_1 | PROTOCOL_FEATURES | F_RING_PACKED)), "bad_features");
    front.does(Request::SetStatus(0xf));
    assert_eq!(number(front.ask(Request::GetStatus)), 0x7, "refused features are not confirmed");
    front.base(TX);
    front.does(Request::SetFeatures(PROTOCOL_FEATURES));
    front.does(Request::SetStatus(0xf));
    assert_eq!(number(front.ask(Request::GetStatus)), 0xf);
    assert_eq!(front.ends(Request::SetStatus(0x100)), "bad_status");
}

#[test]
fn status_zero_stops_and_a_reset_forgets_all_but_the_memory() {
    let mut front = Front::ready();
    front.start(TX);
    front.guest.send(TX, 0, 3);
    front.does(Request::SetStatus(0));
    assert_eq!(front.poll(), 0);
    front.does(Request::SetVringKick(file(TX, &new_eventfd())));
    assert_eq!(front.poll(), 3);
    front.does(Request::ResetDevice);
    front.guest.send(TX, 3, 5);
    assert_eq!(front.poll(), 0);
    assert_eq!(front.base(TX), 0, "forgotten");
    front.does(Request::SetFeatures(F_VERSION_1 | PROTOCOL_FEATURES));
    // As a driver does.
    front.guest.write((usize::from(TX) << 16) + 0x8002, &[0; 2]);
    front.start(TX);
    assert_eq!(front.poll(), 5, "the ring starts at 0, in the earlier memory");
    front.does(Request::ResetOwner);
    front.guest.send(TX, 5, 6);
    assert_eq!(front.poll(), 1, "RESET_OWNER has no effect");
}

/// Returns the pages marked in the log, as the front end sees them.
fn marked(log: &OwnedFd) -> Vec<u64> {
    let mut bytes = vec![0; 64 << 10];
    rustix::io::pread(log, &mut bytes, 0).expect("readable");
    let bits = (0..).zip(bytes).flat_map(|(at, byte)| (0..8).map(move |bit| (8 * at + bit, byte >> bit & 1)));
    bits.filter(|(_, bit)| *bit == 1).map(|(page, _)| page).collect()
}

#[test]
fn pages_are_logged_from_when_it_is_asked_for_until_it_is_not() {
    let mut front = Front::ready();
    front.start(TX);
    let (log, area) = (memfd(64 << 10), Area { size: 64 << 10, offset: 0 });
    let ring_page = (GUEST + (u64::from(TX) << 16) + 0x8000) >> 12;
    let base = Request::SetLogBase(Some((area, log.try_clone().expect("a descriptor").into())));
    assert!(matches!(front.ask(base), Ok(Some(Reply::Log(at))) if at == area));
    front.guest.send(TX, 0, 3);
    assert_eq!((front.poll(), marked(&log)), (3, vec![]), "LOG_ALL was not asked for");
    front.does(Request::SetFeatures(F_VERSION_1 | PROTOCOL_FEATURES | LOG_ALL));
    front.guest.send(TX, 3, 6);
    assert_eq!((front.poll(), marked(&log)), (3, vec![ring_page]));
    front.does(Request::SetFeatures(F_VERSION_1 | PROTOCOL_FEATURES));
    rustix::io::pwrite(&log, &[0; 64 << 10], 0).expect("cleared");
    front.guest.send(TX, 6, 9);
    assert_eq!((front.poll(), marked(&log)), (3, vec![]));
}

#[test]
fn a_ring_that_is_to_be_logged_waits_for_the_log_or_for_being_enabled() {
    let log = || Request::SetLogBase(Some((Area { size: 64 << 10, offset: 0 }, memfd(64 << 10).into())));
    for by_log in [true, false] {
        let mut front = Front::new();
        front.negotiate(LOG_ALL);
        front.guest.send(TX, 0, 3);
        front.does(Request::SetVringNum(state(TX, RING.into())));
        front.does(Request::SetVringAddr(address(TX)));
        front.does(Request::SetVringKick(file(TX, &new_eventfd())));
        assert_eq!((front.poll(), front.guest.used(TX)), (0, 0), "the ring is not served without a log");
        if by_log {
            assert!(matches!(front.ask(log()), Ok(Some(Reply::Log(_)))));
        } else {
            front.does(Request::SetVringEnable(state(TX, 1)));
        }
        front.poll();
        assert_eq!(front.guest.used(TX), 3);
    }
}

#[test]
fn logs_that_do_not_cover_the_memory_are_refused() {
    let mut front = Front::ready();
    let needed = (GUEST + MEMORY) >> 15;
    let wrong = [(needed - 1, 0, 1 << 20), (u64::MAX, 0, 1 << 20), (needed, 4097, 1 << 20), (needed, 1 << 20, 1 << 20)];
    for (size, offset, bytes) in wrong {
        let log = Some((Area { size, offset }, memfd(bytes).into()));
        assert_eq!(front.ends(Request::SetLogBase(log)), "bad_log", "{size} {offset}");
    }
    assert_eq!(front.ends(Request::SetLogBase(None)), "bad_log");
    let pipe = OwnedFd::from(std::io::pipe().expect("a pipe").0).into();
    assert_eq!(front.ends(Request::SetLogBase(Some((Area { size: needed, offset: 0 }, pipe)))), "bad_log");
    let right = Some((Area { size: needed, offset: 4096 }, memfd(4096 + needed).into()));
    assert!(matches!(front.ask(Request::SetLogBase(right)), Ok(Some(Reply::Log(_)))));
}

#[test]
fn a_guest_that_moved_here_is_announced() {
    let mut front = Front::ready();
    front.does(Request::SendRarp([2, 0, 0, 0, 0, 7]));
    assert_eq!(front.poll(), 1);
    assert_eq!(front.ends(Request::SendRarp([3, 0, 0, 0, 0, 7])), "bad_rarp");
    assert_eq!(front.ends(Request::SendRarp([0; 6])), "bad_rarp");
    assert_eq!(front.poll(), 0);
}

#[test]
fn a_ring_that_is_reset_begins_anew_elsewhere_while_the_others_go_on() {
    const OTHER: u16 = 3;
    const ELSEWHERE: u16 = 9;
    let mut front = Front::new();
    front.negotiate(F_RING_RESET);
    front.start(TX);
    front.start(OTHER);
    front.guest.send(TX, 0, 5);
    front.guest.send(OTHER, 0, 7);
    assert_eq!((front.poll(), front.guest.used(TX), front.guest.used(OTHER)), (12, 5, 7));

    // The guest resets the ring while frames wait in both.
    front.guest.send(TX, 5, 9);
    front.guest.send(OTHER, 7, 11);
    assert_eq!(front.base(TX), 5);
    assert_eq!((front.poll(), front.guest.used(TX), front.guest.used(OTHER)), (4, 5, 11));

    // QEMU tells size, base, addresses and the same kick descriptor again; the ring is still enabled.
    front.guest.send(ELSEWHERE, 0, 3);
    front.does(Request::SetVringNum(state(TX, 64)));
    front.does(Request::SetVringBase(state(TX, 0)));
    front.does(Request::SetVringAddr(VringAddress { queue: TX.into(), ..address(ELSEWHERE) }));
    assert_eq!(front.poll(), 0, "the ring is not started yet");
    front.does(Request::SetVringKick(file(TX, &new_eventfd())));
    front.guest.send(OTHER, 11, 12);
    assert_eq!((front.poll(), front.guest.used(ELSEWHERE), front.guest.used(OTHER)), (4, 3, 12));
    assert_eq!(front.guest.used(TX), 5, "nothing is written where the ring was");
}

#[test]
fn a_packed_ring_that_is_reset_begins_at_its_first_descriptor() {
    const BASE: u32 = 0x8000_8000;
    const AVAILABLE: u64 = 0x80;
    const USED: u16 = 0x8080;
    let mut front = Front::new();
    front.negotiate(F_RING_RESET | F_RING_PACKED);
    front.start_at(TX, BASE);
    let send = |front: &Front, ring: u16, from: usize, to: usize| {
        for slot in from..to {
            let words = [GUEST + (2 << 20), u64::from(12 + FRAME) | (slot as u64) << 32 | AVAILABLE << 48];
            front.guest.write((usize::from(ring) << 16) + 16 * slot, words.map(u64::to_le_bytes).as_flattened());
        }
    };
    let used =
        |front: &Front, ring: u16, slot: usize| front.guest.get16((usize::from(ring) << 16) + 16 * slot + 14) == USED;
    send(&front, TX, 0, 3);
    assert_eq!(front.poll(), 3);
    send(&front, TX, 3, 5);
    assert_eq!(front.base(TX), BASE + 0x3_0003);
    send(&front, 9, 0, 2);
    front.does(Request::SetVringNum(state(TX, 100)));
    front.does(Request::SetVringBase(state(TX, BASE)));
    front.does(Request::SetVringAddr(VringAddress { queue: TX.into(), ..address(9) }));
    front.does(Request::SetVringKick(file(TX, &new_eventfd())));
    assert_eq!(front.poll(), 2);
    assert!(used(&front, 9, 0) && used(&front, TX, 0) && !used(&front, TX, 3));
    assert_eq!(front.base(TX), BASE + 0x2_0002);
}

#[test]
fn a_ring_of_receive_buffers_that_is_reset_has_its_new_buffers() {
    const RX: u16 = 0;
    let mut front = Front::new();
    front.negotiate(F_RING_RESET);
    front.start(RX);
    assert_eq!(front.base(RX), 0);
    assert_eq!(front.device.status(std::time::Instant::now()).expect("no poller").queues, 0);
    front.does(Request::SetVringEnable(state(RX, 0)));
    front.does(Request::SetVringNum(state(RX, 128)));
    front.does(Request::SetVringAddr(VringAddress { queue: RX.into(), ..address(9) }));
    front.does(Request::SetVringKick(file(RX, &new_eventfd())));
    front.does(Request::SetVringEnable(state(RX, 1)));
    let status = front.device.status(std::time::Instant::now()).expect("no poller");
    assert_eq!((status.queues, status.ring_size), (1, 128));
}

#[test]
fn rings_are_reset_only_where_the_front_end_is_said_to_pass_it_on() {
    let offered = |ring_reset| super::features::offered(&super::Settings { ring_reset, ..super::testing::settings() });
    assert_eq!(offered(true) ^ offered(false), F_RING_RESET);
}

/// Returns a range of the configuration space, or nothing if there is no such range.
fn read(front: &mut Front, offset: u32, size: u32) -> Vec<u8> {
    match front.ask(Request::GetConfig(ConfigRange { offset, size, flags: 0 })) {
        Ok(Some(Reply::Config(range, bytes))) if (range.offset, range.size) == (offset, size) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_front_end_reads_address_link_queues_and_mtu() {
    let mut front = Front::ready();
    let mut known = MAC.to_vec();
    known.extend([1, 0, 2, 0, 0xdc, 5]);
    known.extend([0xff; 5]);
    assert_eq!(read(&mut front, 0, 17), known);
    let whole = read(&mut front, 0, 256);
    assert!(whole.starts_with(&known) && whole[17..].iter().all(|byte| *byte == 0));
    assert_eq!(read(&mut front, 10, 2), 1500u16.to_le_bytes());
    assert_eq!(read(&mut front, 255, 1), [0]);
    assert_eq!(front.device.offered() & (1 << 5 | 1 << 3 | 1 << 16), 1 << 5 | 1 << 3 | 1 << 16);
    let without = super::Settings { mac: None, mtu: None, ..super::testing::settings() };
    assert_eq!(super::features::offered(&without) & (1 << 5 | 1 << 3), 0);
}

#[test]
fn what_is_outside_the_configuration_space_is_refused() {
    let mut front = Front::ready();
    for (offset, size) in
        [(0, 257), (256, 1), (255, 2), (1, 256), (0, 0), (256, 0), (u32::MAX, 1), (u32::MAX, u32::MAX)]
    {
        assert!(read(&mut front, offset, size).is_empty(), "{offset} {size}");
        let set = Request::SetConfig(ConfigRange { offset, size, flags: 0 });
        assert_eq!(front.asks(set), 1, "{offset} {size}");
    }
    let set = |flags, size| Request::SetConfig(ConfigRange { offset: 0, size, flags });
    assert_eq!(front.ends(set(2, 1)), "bad_config");
    let before = read(&mut front, 0, 256);
    front.does(set(0, 256));
    front.does(set(1, 6));
    assert_eq!(read(&mut front, 0, 256), before, "a driver writes nothing that the port uses");
}

#[test]
fn the_configuration_space_is_offered_only_where_the_front_end_is_said_to_ask_for_it() {
    let settings = super::Settings { config_space: false, ..super::testing::settings() };
    let device = super::Device::new(&settings, &Link::default()).expect("a device");
    let mut front = Front::of(std::sync::Arc::new(device), super::testing::Guest::new());
    let offered = match front.ask(Request::GetProtocolFeatures) {
        Ok(Some(Reply::Number(offered))) => offered,
        other => panic!("{other:?}"),
    };
    assert_eq!((offered & protocol::CONFIG, front.device.offered() & 1 << 5), (0, 0));
    let range = ConfigRange { offset: 0, size: 6, flags: 0 };
    assert_eq!(front.ends(Request::GetConfig(range)), "unsupported_message");
    assert_eq!(front.ends(Request::SetConfig(range)), "unsupported_message");
    assert_eq!(front.ends(Request::SetProtocolFeatures(protocol::CONFIG)), "bad_features");
}
