//! A capture's file, read by the capture reader of the traffic generator (end-to-end tests use other programs' readers).

use ringway_memory::Mapping;
use ringway_switch::{BatchStorage, DropReason, FrameDirection, Tap, TappedFrame};
use ringway_traffic::pcap::CaptureReader;

use crate::{Capture, Counts, Options, Reader, Selection};

fn options() -> Options {
    Options {
        program: "test".into(),
        interface: "lan0:p".into(),
        selection: Selection::Both,
        drops: false,
        snaplen: 262_144,
        count: None,
        buffer: 1 << 18,
    }
}

/// Returns a frame of `len` bytes, whose contents depend on its number.
fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + number) as u8).collect()
}

/// Passes a batch of frames to the capture. Each has a number, a length, a direction, and the reason if it was dropped.
fn show(capture: &Capture, frames: &[(usize, usize, FrameDirection, Option<DropReason>)]) {
    let total: usize = frames.iter().map(|frame| frame.1).sum();
    let memory = Mapping::private(total.max(1)).unwrap();
    let mut batch = BatchStorage::new(frames.len()).into_batch();
    let mut at = 0;
    for &(number, len, ..) in frames {
        let place = memory.view(at, len).unwrap();
        assert!(place.write(&bytes(number, len)));
        at += len;
        // In two pieces.
        let half = len * 2 / 3;
        batch.push_pieces([place.sub(0, half).unwrap(), place.sub(half, len - half).unwrap()]);
    }
    assert_eq!(batch.len(), frames.len());
    let seen = |(index, &(_, _, way, dropped))| TappedFrame { frame: batch.frame(index), way, dropped };
    capture.see(&mut frames.iter().enumerate().map(seen));
    capture.ring();
}

fn read_all(reader: &mut Reader) -> Vec<u8> {
    let mut file = Vec::new();
    while reader.read(&mut file, usize::MAX) {}
    file
}

fn frames(file: &[u8]) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file.pcapng");
    std::fs::write(&path, file).unwrap();
    let mut reader = CaptureReader::open(&path).unwrap();
    let mut frames = Vec::new();
    while let Some(record) = reader.next_frame().unwrap() {
        frames.push(record.data.to_vec());
    }
    frames
}

/// Returns the received and the lost frames from the statistics block, the last block of the file.
fn statistics(file: &[u8]) -> (u64, u64) {
    let len = u32::from_le_bytes(file[file.len() - 4..].try_into().unwrap()) as usize;
    let block = &file[file.len() - len..];
    assert_eq!(block[..4], [5, 0, 0, 0]);
    let option = |code: u8| {
        let at = (20..block.len()).step_by(12).find(|&at| block[at..at + 4] == [code, 0, 8, 0]).unwrap();
        u64::from_le_bytes(block[at + 4..at + 12].try_into().unwrap())
    };
    (option(4), option(5))
}

#[test]
fn frames_are_written_byte_for_byte_whatever_their_length() {
    let (capture, mut reader) = Capture::start(&options()).unwrap();
    let lengths = [14, 60, 127, 128, 129, 130, 131, 1514, 65_550];
    for (number, &len) in lengths.iter().enumerate() {
        show(&capture, &[(number, len, FrameDirection::In, None)]);
    }
    capture.end();
    let file = read_all(&mut reader);
    let want: Vec<_> = lengths.iter().enumerate().map(|(number, &len)| bytes(number, len)).collect();
    assert_eq!(frames(&file), want);
    assert_eq!((statistics(&file), reader.counts()), ((9, 0), Counts { captured: 9, lost: 0 }));
}

#[test]
fn snaplen_count_direction_and_drops_select() {
    let lost = Some(DropReason::ReceiverFull);
    let batch = [
        (1, 100, FrameDirection::In, None),
        (2, 100, FrameDirection::Out, None),
        (3, 100, FrameDirection::Out, lost),
        (4, 100, FrameDirection::Out, None),
    ];
    let captured = |options: Options| {
        let (capture, mut reader) = Capture::start(&options).unwrap();
        show(&capture, &batch);
        capture.end();
        frames(&read_all(&mut reader))
    };
    let numbered = |numbers: &[usize], len| numbers.iter().map(|&n| bytes(n, 100)[..len].to_vec()).collect::<Vec<_>>();
    assert_eq!(captured(options()), numbered(&[1, 2, 4], 100));
    assert_eq!(captured(Options { drops: true, ..options() }), numbered(&[1, 2, 3, 4], 100));
    assert_eq!(captured(Options { selection: Selection::In, ..options() }), numbered(&[1], 100));
    assert_eq!(captured(Options { selection: Selection::Out, ..options() }), numbered(&[2, 4], 100));
    assert_eq!(captured(Options { count: Some(2), ..options() }), numbered(&[1, 2], 100));
    assert_eq!(captured(Options { count: Some(0), ..options() }), numbered(&[], 100));
    assert_eq!(captured(Options { snaplen: 21, ..options() }), numbered(&[1, 2, 4], 21));
}

#[test]
fn a_count_that_is_reached_ends_the_file_by_itself() {
    let (capture, mut reader) = Capture::start(&Options { count: Some(3), ..options() }).unwrap();
    let mut file = Vec::new();
    assert!(reader.read(&mut file, usize::MAX) && reader.may_sleep());
    show(&capture, &(0..5).map(|n| (n, 60, FrameDirection::In, None)).collect::<Vec<_>>());
    assert!(!reader.may_sleep());
    while reader.read(&mut file, usize::MAX) {}
    assert_eq!((frames(&file).len(), statistics(&file)), (3, (3, 0)));
}

#[test]
fn a_reader_that_stalls_loses_frames_which_the_file_counts_where_they_lack() {
    let (capture, mut reader) = Capture::start(&Options { count: Some(300), ..options() }).unwrap();
    // 200 frames of 2,000 bytes exceed 256 KiB.
    show(&capture, &(0..200).map(|n| (n, 2000, FrameDirection::In, None)).collect::<Vec<_>>());
    let (mut file, before) = (Vec::new(), capture.counts());
    assert!(before.lost > 50 && before.captured + before.lost == 200);
    while file.len() < before.captured as usize * 2000 {
        reader.read(&mut file, usize::MAX);
    }
    show(&capture, &[(200, 60, FrameDirection::In, None), (201, 60, FrameDirection::In, None)]);
    capture.end();
    let at = file.len();
    file.extend(read_all(&mut reader));
    let kept: Vec<_> = (0..before.captured as usize).map(|n| bytes(n, 2000)).collect();
    assert_eq!(frames(&file), [kept, vec![bytes(200, 60), bytes(201, 60)]].concat());
    // Enhanced Packet Block: 28 bytes, 60 of data, flags (8), `epb_dropcount`.
    assert_eq!(file[at + 96..at + 100], [4, 0, 8, 0]);
    assert_eq!(file[at + 100..at + 108], before.lost.to_le_bytes());
    let second = at + u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap()) as usize;
    assert_eq!(file[second + 96..second + 100], [0; 4], "told once");
    assert_eq!(statistics(&file), (202, before.lost));
}

#[test]
fn a_sleeping_reader_is_woken_once_for_each_sleep() {
    let (capture, mut reader) = Capture::start(&options()).unwrap();
    let wakes = |reader: &Reader| {
        let mut count = [0; 8];
        rustix::io::read(reader.wake(), &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    };
    assert!(!reader.may_sleep(), "the beginning of the file can be read");
    let mut file = Vec::new();
    reader.read(&mut file, usize::MAX);
    assert!(reader.may_sleep());
    show(&capture, &[(1, 60, FrameDirection::In, None)]);
    show(&capture, &[(2, 60, FrameDirection::In, None)]);
    assert_eq!(wakes(&reader), 1);
    drop(reader);
    show(&capture, &[(3, 60, FrameDirection::In, None)]);
    assert_eq!(capture.counts().captured, 2, "without a reader nothing is captured");
}
