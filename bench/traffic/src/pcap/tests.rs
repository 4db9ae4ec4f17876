use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ringway_testing::file::directory;
use ringway_testing::skip;

use super::format::{
    BLOCK_INTERFACE, BLOCK_OLD_PACKET, BLOCK_PACKET, BLOCK_SECTION, BLOCK_SIMPLE_PACKET, BYTE_ORDER, PCAP_MICROS,
    PCAP_NANOS,
};
use super::*;
use crate::*;

/// A file of its own for each test, removed with its directory at the end.
struct Scratch(PathBuf, #[expect(dead_code, reason = "removes the file when dropped")] tempfile::TempDir);

impl Scratch {
    fn new(extension: &str) -> Scratch {
        let folder = directory();
        Scratch(folder.path().join(format!("file.{extension}")), folder)
    }

    fn holding(extension: &str, bytes: &[u8]) -> Scratch {
        let scratch = Scratch::new(extension);
        std::fs::write(&scratch.0, bytes).expect("the temporary directory is writable");
        scratch
    }
}

fn frame(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place * 7 + len) as u8).collect()
}

const LENGTHS: [usize; 6] = [60, 61, 62, 63, 1514, 9014];

fn time(index: usize) -> Duration {
    Duration::new(1_700_000_000, 123_456_789) + Duration::from_micros(1500) * index as u32
}

fn write_all(path: &Path, snap: usize) {
    let mut recorder = Recorder::create(path, snap).expect("the temporary directory is writable");
    for (index, len) in LENGTHS.into_iter().enumerate() {
        recorder.write(time(index), &frame(len)).expect("there is space");
    }
    recorder.flush().expect("there is space");
}

type Owned = (Duration, u32, Vec<u8>);

fn read_all(path: &Path) -> Result<Vec<Owned>, CaptureError> {
    let mut reader = CaptureReader::open(path)?;
    let mut frames = Vec::new();
    while let Some(record) = reader.next_frame()? {
        frames.push((record.time, record.original_len, record.data.to_vec()));
    }
    Ok(frames)
}

#[test]
fn what_is_written_is_read_back() {
    for extension in ["pcap", "pcapng"] {
        let file = Scratch::new(extension);
        write_all(&file.0, MAX_SNAP);
        let frames = read_all(&file.0).expect("our own file");
        let expected: Vec<Owned> =
            LENGTHS.iter().enumerate().map(|(index, &len)| (time(index), len as u32, frame(len))).collect();
        assert_eq!(frames, expected, "{extension}");
    }
}

#[test]
fn frames_beyond_the_snap_length_are_cut_and_say_so() {
    for extension in ["pcap", "pcapng"] {
        let file = Scratch::new(extension);
        write_all(&file.0, 61);
        let frames = read_all(&file.0).expect("our own file");
        let lengths: Vec<_> = frames.iter().map(|(_, original, data)| (*original, data.len())).collect();
        assert_eq!(lengths, [(60, 60), (61, 61), (62, 61), (63, 61), (1514, 61), (9014, 61)]);
        let replay = Replay::open(&file.0, ReplayOptions::default()).expect("our own file");
        assert_eq!((replay.len(), replay.cut()), (6, 4));
    }
}

/// Returns the output of another program, or `None` when it is not installed.
fn output(program: &str, arguments: &[&str], file: &Path) -> Option<String> {
    let run = Command::new(program).args(arguments).arg(file).output();
    let Ok(run) = run else {
        skip::note(format!("needs {program}"));
        return None;
    };
    assert!(run.status.success(), "{program}: {}", String::from_utf8_lossy(&run.stderr));
    Some(String::from_utf8_lossy(&run.stdout).into_owned())
}

#[test]
fn tcpdump_reads_what_we_write() {
    for extension in ["pcap", "pcapng"] {
        let file = Scratch::new(extension);
        write_all(&file.0, MAX_SNAP);
        let arguments = ["-n", "-tt", "-e", "--time-stamp-precision=nano", "-r"];
        let Some(text) = output("tcpdump", &arguments, &file.0) else { return };
        let lines: Vec<_> = text.lines().filter(|line| line.contains("length")).collect();
        assert_eq!(lines.len(), LENGTHS.len(), "{text}");
        for (index, (line, len)) in lines.iter().zip(LENGTHS).enumerate() {
            let stamp = format!("{}.{:09}", time(index).as_secs(), time(index).subsec_nanos());
            assert!(line.starts_with(&stamp) && line.contains(&format!("length {len}:")), "{line}");
        }
    }
}

#[test]
fn we_read_what_tcpdump_and_editcap_write() {
    let ours = Scratch::new("pcapng");
    write_all(&ours.0, MAX_SNAP);
    let expected = read_all(&ours.0).expect("our own file");
    let in_micros: Vec<Owned> = expected
        .iter()
        .map(|(time, original, data)| (Duration::from_micros(time.as_micros() as u64), *original, data.clone()))
        .collect();
    let rewrite = |program: &str, arguments: &[&str], wanted: &[Owned]| {
        let theirs = Scratch::new("out");
        let (from, to) = (ours.0.to_string_lossy().into_owned(), theirs.0.to_string_lossy().into_owned());
        let arguments: Vec<_> =
            arguments.iter().map(|argument| argument.replace("FROM", &from).replace("TO", &to)).collect();
        match Command::new(program).args(&arguments).output() {
            Err(_) => skip::note(format!("needs {program}")),
            Ok(run) => {
                assert!(run.status.success(), "{program}: {}", String::from_utf8_lossy(&run.stderr));
                assert_eq!(read_all(&theirs.0).expect("a file of a real tool"), wanted, "{program} {arguments:?}");
            }
        }
    };
    rewrite("tcpdump", &["-r", "FROM", "-w", "TO"], &in_micros);
    rewrite("tcpdump", &["--time-stamp-precision=nano", "-r", "FROM", "-w", "TO"], &expected);
    rewrite("editcap", &["-F", "pcap", "FROM", "TO"], &in_micros);
    rewrite("editcap", &["-F", "nsecpcap", "FROM", "TO"], &expected);
    rewrite("editcap", &["-F", "pcapng", "FROM", "TO"], &expected);
}

fn be(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn big_endian_pcap_of_both_resolutions_is_read() {
    for (magic, nanos) in [(PCAP_MICROS, 7000), (PCAP_NANOS, 7)] {
        let mut bytes = be(&[magic, 2 << 16 | 4, 0, 0, 65_535, 1, 5, 7, 60, 60]);
        bytes.extend(frame(60));
        let file = Scratch::holding("pcap", &bytes);
        assert_eq!(read_all(&file.0).expect("well formed"), [(Duration::new(5, nanos), 60, frame(60))]);
    }
}

/// Returns a big-endian section with one interface (with these options) and these blocks.
fn section(options: &[u8], blocks: &[u8]) -> Vec<u8> {
    let len = 20 + options.len() as u32;
    let mut bytes = be(&[BLOCK_SECTION, 28, BYTE_ORDER, 1 << 16, u32::MAX, u32::MAX, 28]);
    bytes.extend(be(&[BLOCK_INTERFACE, len, 1 << 16, 0]));
    bytes.extend(options);
    bytes.extend(be(&[len]));
    bytes.extend(blocks);
    bytes
}

fn block(kind: u32, words: &[u32], data: &[u8]) -> Vec<u8> {
    let padding = data.len().next_multiple_of(4) - data.len();
    let len = (12 + 4 * words.len() + data.len() + padding) as u32;
    [&be(&[kind, len]), &be(words), data, &[0; 3][..padding], &be(&[len])].concat()
}

#[test]
fn all_packet_blocks_of_pcapng_are_read_and_others_skipped() {
    let blocks = [
        block(5, &[0, 0, 0], &[]),
        block(BLOCK_PACKET, &[0, 0, 1_500_000, 61, 100], &frame(61)),
        block(BLOCK_SIMPLE_PACKET, &[62], &frame(62)),
        block(BLOCK_OLD_PACKET, &[0, 0, 2_000_000, 63, 63], &frame(63)),
    ];
    let once = section(&[], &blocks.concat());
    // A second section starts a new list of interfaces.
    let file = Scratch::holding("pcapng", &[once.clone(), once].concat());
    let frames = read_all(&file.0).expect("well formed");
    let millis = Duration::from_millis;
    let expected = [(millis(1500), 100, frame(61)), (millis(1500), 62, frame(62)), (millis(2000), 63, frame(63))];
    assert_eq!(frames, [expected.clone(), expected].concat());
}

#[test]
fn resolution_and_offset_of_an_interface_are_used() {
    let cases: [(&[u8], u32, Duration); 4] = [
        // Behind the name of the interface, whose three bytes are padded to four.
        (&[0, 2, 0, 3, b'e', b't', b'h', 0, 0, 9, 0, 1, 9, 0, 0, 0], 1_500_000_000, Duration::from_millis(1500)),
        (&[0, 9, 0, 1, 9, 0, 0, 0], 1_500_000_000, Duration::from_millis(1500)),
        (&[0, 9, 0, 1, 0x81, 0, 0, 0], 3, Duration::from_millis(1500)),
        (&[0, 14, 0, 8, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0], 500_000, Duration::from_millis(5500)),
    ];
    for (options, ticks, expected) in cases {
        let packet = block(BLOCK_PACKET, &[0, 0, ticks, 60, 60], &frame(60));
        let file = Scratch::holding("pcapng", &section(options, &packet));
        assert_eq!(read_all(&file.0).expect("well formed")[0].0, expected, "{options:?}");
    }
}

#[test]
fn a_file_cut_anywhere_is_an_error_with_its_place_and_never_a_wrong_frame() {
    for extension in ["pcap", "pcapng"] {
        let whole = Scratch::new(extension);
        write_all(&whole.0, 200);
        let bytes = std::fs::read(&whole.0).expect("just written");
        let frames = read_all(&whole.0).expect("our own file");
        let mut clean_ends = 0;
        for len in 0..bytes.len() {
            let cut = Scratch::holding(extension, &bytes[..len]);
            match read_all(&cut.0) {
                Ok(read) => {
                    clean_ends += 1;
                    assert_eq!(read, frames[..read.len()]);
                }
                Err(error) => {
                    assert!(matches!(error.problem, CaptureProblem::Truncated), "{error}");
                    assert!(error.position <= len as u64);
                    let text = error.to_string();
                    assert!(text.contains(&format!("frame {}, byte {}", error.frame, error.position)), "{text}");
                }
            }
        }
        // Only between two records or blocks does a truncated file look complete.
        assert!(clean_ends <= LENGTHS.len() + 1, "{clean_ends}");
    }
}

#[test]
fn damaged_files_say_what_is_wrong() {
    let interface = |blocks: &[u8]| section(&[], blocks);
    let cases: [(Vec<u8>, &str); 10] = [
        (b"GIF89a, no capture at all".to_vec(), "not a pcap or pcapng file"),
        (be(&[PCAP_MICROS, 3 << 16, 0, 0, 65_535, 1]), "version 3"),
        (be(&[PCAP_MICROS, 2 << 16, 0, 0, 65_535, 113]), "link type 113"),
        (be(&[PCAP_MICROS, 2 << 16, 0, 0, 65_535, 1, 0, 0, 0x7fff_ffff, 60]), "captured length is 2147483647"),
        (be(&[BLOCK_SECTION, 28, 0x1111_1111, 1 << 16, 0, 0, 28]), "byte order mark"),
        (interface(&be(&[BLOCK_PACKET, 13])), "block length is 13"),
        (interface(&be(&[BLOCK_PACKET, 0x7fff_fffc])), "block length is 2147483644"),
        (interface(&be(&[99, 16, 0, 20])), "differs from the length at the end"),
        (interface(&block(BLOCK_PACKET, &[0, 0, 0, 64, 64], &frame(60))), "captured length is 64"),
        (interface(&block(BLOCK_PACKET, &[7, 0, 0, 60, 60], &frame(60))), "interface 7"),
    ];
    for (bytes, expected) in cases {
        let file = Scratch::holding("cap", &bytes);
        let text = read_all(&file.0).expect_err(expected).to_string();
        assert!(text.contains(expected) && text.contains("frame 1, byte"), "{text}");
        assert!(text.starts_with(&*file.0.to_string_lossy()), "{text}");
    }
    let missing = read_all(Path::new("/nonexistent/file.pcap")).expect_err("no such file").to_string();
    assert!(missing.contains("/nonexistent/file.pcap") && missing.contains("No such file"), "{missing}");
}

#[test]
fn a_replay_repeats_the_file_in_its_own_time() {
    let file = Scratch::new("pcapng");
    write_all(&file.0, MAX_SNAP);
    let options = ReplayOptions { timing: Timing::Recorded, loops: Some(2), ..ReplayOptions::default() };
    let mut replay = Replay::open(&file.0, options).expect("our own file");
    let mut dues = Vec::new();
    for len in LENGTHS.into_iter().chain(LENGTHS) {
        assert_eq!(replay.next_len(), Some(len));
        dues.push(replay.due());
        let mut sent = vec![0; len];
        replay.fill(&mut sent);
        assert_eq!(sent, frame(len));
    }
    assert_eq!(replay.next_len(), None);
    let expected: Vec<_> = (0..12).map(|index| Duration::from_micros(1500) * index).collect();
    assert_eq!(dues, expected);
}

#[test]
fn what_is_received_is_written_and_can_be_sent_again_in_its_own_time() {
    let file = Scratch::new("pcapng");
    let (mut a, mut b) = memory::pair(64);
    let limits = Limits { frames: Some(20), duration: Some(ringway_testing::PATIENCE) };
    let mut frames = Frames::new(&FrameSpec { size: 77, ..FrameSpec::default() }).expect("valid");
    let options = TxOptions { limits, rate: Rate::Frames(1000), ..TxOptions::default() };
    let receiver = std::thread::spawn({
        let path = file.0.clone();
        move || {
            let mut recorder = Recorder::create(&path, MAX_SNAP).expect("the temporary directory is writable");
            let mut checker = Checker::new(Level::Full, Origin::Zero);
            let options = RxOptions { limits, ..RxOptions::default() };
            receive(&mut b, &mut checker, Some(&mut recorder), &options, &mut Watch::none()).map(|report| (b, report))
        }
    });
    transmit(&mut a, &mut frames, &options, &mut Watch::none()).expect("a memory link never fails");
    let (mut b, report) = receiver.join().expect("no panic").expect("there is space");
    assert!(report.check.is_clean() && report.received.frames == 20, "{report}");

    // With other times: the machine's clock may have been set meanwhile.
    let timed = Scratch::new("pcapng");
    let mut recorder = Recorder::create(&timed.0, MAX_SNAP).expect("the temporary directory is writable");
    for (index, (_, _, data)) in read_all(&file.0).expect("our own file").iter().enumerate() {
        recorder.write(time(index), data).expect("there is space");
    }
    recorder.flush().expect("there is space");
    let options = ReplayOptions { timing: Timing::Recorded, ..ReplayOptions::default() };
    let mut replay = Replay::open(&timed.0, options).expect("our own file");
    let span = time(19) - time(0);
    let report =
        transmit(&mut a, &mut replay, &TxOptions::default(), &mut Watch::none()).expect("a memory link never fails");
    assert_eq!((report.sent.frames, report.ended), (20, Ended::Frames));
    assert!(report.sent.seconds >= span.as_secs_f64(), "{report}: recorded over {span:?}");
    let mut checker = Checker::new(Level::Full, Origin::Zero);
    b.rx_batch(100, |frame| checker.see(frame));
    assert!(checker.report().is_clean() && checker.report().frames == 20, "{}", checker.report());
}

#[test]
fn a_file_without_anything_to_send_or_too_large_is_refused() {
    let mut bytes = be(&[PCAP_MICROS, 2 << 16, 0, 0, 65_535, 1, 0, 0, 13, 13]);
    bytes.extend(frame(13));
    let file = Scratch::holding("pcap", &bytes);
    let error = Replay::open(&file.0, ReplayOptions::default()).expect_err("13 bytes are no frame");
    assert!(matches!(error.problem, CaptureProblem::Empty), "{error}");
    write_all(&file.0, MAX_SNAP);
    let error =
        Replay::open(&file.0, ReplayOptions { memory: 2000, ..ReplayOptions::default() }).expect_err("too large");
    assert!(error.to_string().contains("more than 2000 bytes"), "{error}");
    assert_eq!(error.frame, LENGTHS.len() as u64, "{error}");
}

proptest::proptest! {
    #[test]
    fn any_damage_ends_in_frames_or_an_error(place in 0usize..600, value: u8, second in 0usize..600, other: u8) {
        for extension in ["pcap", "pcapng"] {
            let whole = Scratch::new(extension);
            write_all(&whole.0, 70);
            let mut bytes = std::fs::read(&whole.0).expect("just written");
            let len = bytes.len();
            bytes[place % len] = value;
            bytes[second % len] = other;
            let damaged = Scratch::holding(extension, &bytes);
            if let Ok(frames) = read_all(&damaged.0) {
                proptest::prop_assert!(frames.len() <= LENGTHS.len());
            }
        }
    }
}
