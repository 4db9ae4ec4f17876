//! Messages: valid ones are decoded, invalid ones are refused with a named error, and no descriptor leaks.

use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};

use ringway_port::front_end::ClientFd;
use rustix::event::{EventfdFlags, eventfd};

use super::message::{
    Area, ConfigRange, HEADER_BYTES, Header, InflightAt, MOST_BODY_BYTES, MOST_FDS, MOST_REGIONS, MessageError,
    RegionAt, Request, VringAddress, VringState, name,
};
use super::reply::Reply;

fn fds(count: usize) -> Vec<ClientFd> {
    (0..count).map(|_| eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd").into()).collect()
}

fn header(request: u32, flags: u32, size: u32) -> Result<Header, MessageError> {
    let words = [request, flags, size].map(u32::to_ne_bytes);
    Header::decode(words.as_flattened().try_into().expect("twelve bytes"))
}

fn decode(request: u32, body: &[u8], count: usize) -> Result<Request, MessageError> {
    Request::decode(header(request, 1, body.len() as u32)?, body, fds(count))
}

fn words64(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words32(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn table(regions: u32) -> Vec<u8> {
    let numbers = (0..u64::from(regions)).flat_map(|n| [n << 20, 4096, 0x7000_0000 + (n << 20), n << 12]);
    words32(&[regions, 0]).into_iter().chain(words64(&numbers.collect::<Vec<_>>())).collect()
}

/// Every message: its number, a valid body, and its number of descriptors.
fn right() -> Vec<(u32, Vec<u8>, usize)> {
    let (number, state) = (words64(&[1]), words32(&[1, 2]));
    let address = [words32(&[1, 1]), words64(&[2, 3, 4, 5])].concat();
    let region = words64(&[0, 1, 2, 3, 4]);
    let config = [words32(&[6, 4, 0]), vec![1, 2, 3, 4]].concat();
    let inflight = words64(&[4096, 0, 2 | 256 << 16]);
    let mut all = vec![
        (2, number.clone(), 0),
        (5, table(2), 2),
        (6, words64(&[4096, 0]), 1),
        (7, vec![], 1),
        (8, state.clone(), 0),
        (9, address, 0),
        (10, state.clone(), 0),
        (11, state.clone(), 0),
        (16, number.clone(), 0),
        (18, state, 0),
        (19, number.clone(), 0),
        (20, number.clone(), 0),
        (24, config.clone(), 0),
        (25, config, 0),
        (31, inflight.clone(), 0),
        (32, inflight, 1),
        (37, region.clone(), 1),
        (38, region, 0),
        (39, number.clone(), 0),
    ];
    all.extend([1, 3, 4, 15, 17, 34, 36, 40].map(|request| (request, vec![], 0)));
    all.extend([12, 13, 14].map(|request| (request, number.clone(), 1)));
    all
}

#[test]
fn every_message_is_understood_and_nothing_nearly_like_it() {
    for (request, body, count) in right() {
        let what = name(request);
        match decode(request, &body, count) {
            Ok(Request::Unknown(_)) | Err(_) => panic!("{what} is not understood"),
            Ok(_) => {}
        }
        let shorter = body.split_last().map(|(_, rest)| rest.to_vec());
        for wrong in shorter.into_iter().chain([[body.as_slice(), &[0]].concat()]) {
            let error = decode(request, &wrong, count).expect_err(what);
            assert!(matches!(error, MessageError::Size { .. }), "{what} of {} bytes: {error}", wrong.len());
            assert!(error.to_string().contains(what) || wrong.len() > MOST_BODY_BYTES, "{error}");
        }
        // REM_MEM_REG may come with a descriptor, and SET_LOG_BASE without one.
        let more = if request == 38 { 2 } else { count + 1 };
        let fewer = (count > 0 && request != 6).then(|| count - 1);
        for wrong in [Some(more), Some(MOST_FDS), fewer].into_iter().flatten() {
            let error = decode(request, &body, wrong).expect_err(what);
            assert!(matches!(error, MessageError::Descriptors { given, .. } if given == wrong), "{what}: {error}");
        }
    }
}

#[test]
fn fields_are_where_the_specification_has_them() {
    let region = RegionAt { guest: 1, size: 2, user: 3, offset: 4 };
    assert!(matches!(decode(37, &words64(&[9, 1, 2, 3, 4]), 1), Ok(Request::AddMemReg(at, _)) if at == region));
    assert!(matches!(decode(38, &words64(&[9, 1, 2, 3, 4]), 1), Ok(Request::RemMemReg(at)) if at == region));
    let address = VringAddress { queue: 1, flags: 2, descriptors: 3, used: 4, available: 5, log: 6 };
    let body = [words32(&[1, 2]), words64(&[3, 4, 5, 6])].concat();
    assert!(matches!(decode(9, &body, 0), Ok(Request::SetVringAddr(at)) if at == address));
    let state = VringState { queue: 7, number: 8 };
    assert!(matches!(decode(10, &words32(&[7, 8]), 0), Ok(Request::SetVringBase(at)) if at == state));
    let rarp = [1, 2, 3, 4, 5, 6, 0xff, 0xff];
    assert!(matches!(decode(19, &rarp, 0), Ok(Request::SendRarp([1, 2, 3, 4, 5, 6]))));
    let area = Area { size: 4096, offset: 8192 };
    assert!(matches!(decode(6, &words64(&[4096, 8192]), 1), Ok(Request::SetLogBase(Some((at, _)))) if at == area));
    assert!(matches!(decode(6, &words64(&[0]), 0), Ok(Request::SetLogBase(None))));
    let range = ConfigRange { offset: 6, size: 2, flags: 1 };
    let body = [words32(&[6, 2, 1]), vec![8, 9]].concat();
    assert!(matches!(decode(24, &body, 0), Ok(Request::GetConfig(at)) if at == range));
    assert!(matches!(decode(25, &body, 0), Ok(Request::SetConfig(at)) if at == range));
    for size in [0, 1, 3, u32::MAX] {
        let body = [words32(&[6, size, 1]), vec![8, 9]].concat();
        assert!(matches!(decode(25, &body, 0), Err(MessageError::Size { size: 14, .. })), "{size}");
    }
    let Ok(Request::SetMemTable(regions)) = decode(5, &table(3), 3) else { panic!("a table") };
    let second = RegionAt { guest: 1 << 20, size: 4096, user: 0x7010_0000, offset: 4096 };
    assert_eq!((regions.len(), regions[1].0), (3, second));
}

#[test]
fn descriptors_of_a_table_stay_with_their_regions() {
    let files = fds(2);
    let number = |file: &ClientFd| file.as_raw_fd();
    let numbers: Vec<_> = files.iter().map(number).collect();
    let body = table(2);
    let request = Request::decode(header(5, 1, body.len() as u32).expect("a header"), &body, files);
    let Ok(Request::SetMemTable(regions)) = request else { panic!("a table") };
    assert_eq!(regions.iter().map(|(_, file)| number(file)).collect::<Vec<_>>(), numbers);
}

#[test]
fn a_structure_with_the_padding_of_a_compiler_is_understood_and_answered_alike() {
    for (padded, bytes) in [(true, 24), (false, 20)] {
        let body = &words64(&[4096, 8192, 2 | 256 << 16])[..bytes];
        let Ok(Request::GetInflightFd(at)) = decode(31, body, 0) else { panic!("{bytes} bytes") };
        let area = Area { size: 4096, offset: 8192 };
        assert_eq!(at, InflightAt { area, queues: 2, queue_size: 256, padded });
        let file = eventfd(0, EventfdFlags::CLOEXEC).expect("an eventfd");
        let reply = Reply::Inflight(at, file);
        let (answer, beside) = reply.encode(31);
        assert_eq!((&answer[HEADER_BYTES..], beside.is_some()), (body, true));
    }
}

#[test]
fn a_header_that_is_none_is_refused_before_anything_is_read() {
    for version in [0, 2, 3] {
        assert_eq!(header(1, version, 0), Err(MessageError::Version(version)));
    }
    assert_eq!(header(1, 1 | 4, 0), Err(MessageError::Reply(1)));
    for size in [MOST_BODY_BYTES as u32 + 1, 0x8000_0000, u32::MAX] {
        assert_eq!(header(5, 1, size), Err(MessageError::TooLong { request: 5, size }));
    }
    let longest = header(5, 1 | 8, MOST_BODY_BYTES as u32);
    assert_eq!(longest, Ok(Header { request: 5, size: MOST_BODY_BYTES, need_reply: true }));
}

#[test]
fn a_table_has_as_many_regions_as_it_says_and_no_more_than_are_offered() {
    let most = MOST_REGIONS as u32;
    assert!(
        matches!(decode(5, &table(most), MOST_REGIONS), Ok(Request::SetMemTable(all)) if all.len() == MOST_REGIONS)
    );
    assert!(matches!(decode(5, &table(0), 0), Ok(Request::SetMemTable(all)) if all.is_empty()));
    for count in [most + 1, u32::MAX] {
        let body = [words32(&[count, 0]), vec![0; 64]].concat();
        assert!(matches!(decode(5, &body, 2), Err(MessageError::Regions(given)) if given == count));
    }
    let body = [words32(&[3, 0]), vec![0; 64]].concat();
    assert!(matches!(decode(5, &body, 2), Err(MessageError::Size { size: 72, right: 104, .. })));
    assert!(matches!(decode(5, &table(2), 1), Err(MessageError::Descriptors { given: 1, right: 2, .. })));
}

#[test]
fn no_descriptor_is_a_descriptor_that_the_message_says_is_missing() {
    for request in [12, 13, 14] {
        let file = match decode(request, &words64(&[0x105]), 0) {
            Ok(Request::SetVringKick(file) | Request::SetVringCall(file) | Request::SetVringErr(file)) => file,
            other => panic!("{other:?}"),
        };
        assert_eq!((file.queue, file.file.is_none()), (5, true));
        let beside = decode(request, &words64(&[0x105]), 1);
        assert!(matches!(beside, Err(MessageError::Descriptors { given: 1, right: 0, .. })));
        let missing = decode(request, &words64(&[0x5]), 0);
        assert!(matches!(missing, Err(MessageError::Descriptors { given: 0, right: 1, .. })));
    }
}

#[test]
fn bits_beside_a_queue_and_its_lack_of_a_descriptor_name_no_queue() {
    for request in [12, 13, 14] {
        for bit in 9..64 {
            for word in [1 << bit, 1 << bit | 5, 1 << bit | 0x105, 0xffff_0000] {
                let files = usize::from(word & 0x100 == 0);
                let error = decode(request, &words64(&[word]), files).expect_err("no queue");
                assert!(matches!(error, MessageError::VringFile { word: given, .. } if given == word), "{word:#x}");
                assert!(error.to_string().contains(name(request)), "{error}");
            }
        }
    }
}

#[test]
fn descriptors_that_are_not_wanted_are_closed() {
    for (request, body) in [(1, vec![]), (12, words64(&[0x100])), (99, vec![]), (38, words64(&[0; 5])), (2, vec![1])] {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK).expect("a reader that does not wait");
        drop(Request::decode(header(request, 1, 0).expect("a header"), &body, vec![OwnedFd::from(writer).into()]));
        assert_eq!(reader.read(&mut [0]).expect("readable"), 0, "{} keeps a descriptor", name(request));
    }
}

#[test]
fn messages_that_were_never_offered_are_known_as_such() {
    for request in [0, 21, 22, 23, 26, 27, 28, 29, 30, 33, 35, 41, 42, 43, 1000, u32::MAX] {
        assert!(matches!(decode(request, &[1, 2, 3], 1), Ok(Request::Unknown(number)) if number == request));
        assert!(!name(request).is_empty());
    }
}

#[test]
fn answers_are_what_the_specification_says() {
    let flags = 1u32 | 4;
    let answer = |reply: Reply, request| reply.encode(request).0;
    assert_eq!(answer(Reply::Number(7), 15), [words32(&[15, flags, 8]), words64(&[7])].concat());
    let state = VringState { queue: 3, number: 9 };
    assert_eq!(answer(Reply::State(state), 11), words32(&[11, flags, 8, 3, 9]));
    let log = Area { size: 4096, offset: 0 };
    let range = ConfigRange { offset: 1, size: 3, flags: 0 };
    let config = [words32(&[24, flags, 15, 1, 3, 0]), vec![7, 8, 9]].concat();
    assert_eq!(answer(Reply::Config(range, vec![7, 8, 9]), 24), config);
    assert_eq!(answer(Reply::Config(range, vec![]), 24), words32(&[24, flags, 0]), "an error has no body");
    assert_eq!(answer(Reply::Log(log), 6), [words32(&[6, flags, 16]), words64(&[4096, 0])].concat());
}
