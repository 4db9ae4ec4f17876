use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::time::Duration;

use ringway_testing::skip;

use super::*;
use crate::pcap::{Format, Recorder};

#[test]
fn headers_are_what_the_standards_say() {
    let spec = FrameSpec { size: 60, flows: 2, stream: Some(0x1234), ..FrameSpec::default() };
    let mut frames = Frames::new(&spec).expect("valid");
    drop(frames.next_frame());
    let frame = frames.next_frame();
    assert_eq!(frame[..6], Mac::local(2).0);
    assert_eq!(frame[6..12], Mac::local(1).0);
    assert_eq!(frame[12..18], [0x08, 0, 0x45, 0, 0, 46], "Ethernet type, IPv4 version and length");
    let sum: u32 = frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff, "IPv4 header checksum");
    assert_eq!(frame[34..42], [0x9c, 0x41, 0, 9, 0, 26, 0, 0], "ports, length, no checksum");
    assert_eq!(frame[42..56], [b'R', b'W', 0x12, 0x34, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn tcpdump_finds_nothing_wrong_with_any_size() {
    let folder = ringway_testing::file::directory();
    let file = folder.path().join("frames.pcapng");
    let sizes = [60, 61, 64, 1514, 9014, 65_535];
    let output = Box::new(std::fs::File::create(&file).expect("the temporary directory is writable"));
    let mut recorder = Recorder::new(output, "frames", Format::Pcapng, MAX_FRAME).expect("there is space");
    for size in sizes {
        let mut frames = Frames::new(&FrameSpec { size, flows: 3, ..FrameSpec::default() }).expect("valid");
        (0..3).for_each(|_| recorder.write(Duration::ZERO, &frames.next_frame()).expect("there is space"));
    }
    recorder.flush().expect("there is space");
    let run = Command::new("tcpdump").args(["-n", "-vv", "-r"]).arg(&file).stderr(Stdio::null()).output();
    let Ok(run) = run else { skip!("needs tcpdump") };
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(!text.contains("bad") && !text.contains("truncated"), "{text}");
    for size in sizes {
        assert_eq!(text.matches(&format!("UDP, length {}\n", size - 42)).count(), 3, "size {size}: {text}");
    }
}

#[test]
fn flows_differ_in_source_port_and_count_on_their_own() {
    let spec = FrameSpec { flows: MAX_FLOWS, ..FrameSpec::default() };
    let mut frames = Frames::new(&spec).expect("valid");
    let ports: HashSet<_> = (0..MAX_FLOWS).map(|_| frames.next_frame()[34..36].to_vec()).collect();
    assert_eq!(ports.len(), MAX_FLOWS);
    assert_eq!(frames.next_frame()[46..56], [0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "second frame of flow 0");
}

#[test]
fn every_byte_is_written_whatever_was_there() {
    for size in (14..70).chain([1514]) {
        let spec = FrameSpec { size, stream: Some(7), ..FrameSpec::default() };
        let write = |old: u8| {
            let mut frame = vec![old; size];
            Frames::new(&spec).expect("valid").write(&mut frame);
            frame
        };
        assert_eq!(write(0), write(0xff), "size {size}");
    }
}

#[test]
fn two_senders_have_different_streams() {
    // 1 in 65,536 pairs agree by chance. Four senders hardly ever all agree.
    let stream = || Frames::new(&FrameSpec::default()).expect("valid").stream();
    let streams: HashSet<_> = (0..4).map(|_| stream()).collect();
    assert!(streams.len() > 1);
}

#[test]
fn what_cannot_be_sent_is_refused_with_its_value() {
    let default = FrameSpec::default;
    let group = Mac([1, 0, 0x5e, 0, 0, 1]);
    let cases = [
        (FrameSpec { size: 13, ..default() }, "13"),
        (FrameSpec { size: 65_536, ..default() }, "65536"),
        (FrameSpec { source: group, ..default() }, "01:00:5e:00:00:01"),
        (FrameSpec { destinations: vec![], ..default() }, "at least one"),
        (FrameSpec { flows: 0, ..default() }, "0 flows"),
        (FrameSpec { flows: MAX_FLOWS / 2 + 1, destinations: vec![group, group], ..default() }, "32769 flows"),
        (FrameSpec { flows: usize::MAX, destinations: vec![group, group], ..default() }, "flows"),
    ];
    for (spec, expected) in cases {
        let error = Frames::new(&spec).err().unwrap_or_else(|| panic!("{expected} was accepted")).to_string();
        assert!(error.contains(expected), "{error}");
    }
}
