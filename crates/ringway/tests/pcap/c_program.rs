//! A program of ours in C, `probe.c`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use ringway_scenes::namespace::frames;
use ringway_scenes::{Daemon, PATIENCE, Said, frame, receive, send};
use ringway_testing::child::Ended;

use super::{A, ALL, exec, run, text};

/// The compiled program.
fn probe() -> &'static Path {
    static PROBE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROBE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("probe");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pcap/probe.c");
        let mut cc = Command::new("cc");
        cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&path).arg(source).args(["-lpcap", "-lpthread"]);
        let said: Said = cc.output().unwrap().into();
        assert_eq!(said.code, Some(0), "{}", said.err);
        (dir, path)
    });
    path
}

/// A running probe that has opened its device.
struct Probe {
    child: Ended,
    out: BufReader<std::process::ChildStdout>,
}

impl Probe {
    fn start(daemon: &Daemon, args: &[&str]) -> Probe {
        let mut command = exec(daemon, &[&[text(probe())], args].concat());
        let mut child = Ended(command.stdin(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap());
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "open\n");
        Probe { child, out }
    }

    /// Waits for the end of the program, which must succeed. Returns what it wrote since it was open.
    fn succeed(mut self) -> String {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut self.out, &mut said).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {said}");
        said
    }
}

fn done(said: Said, wanted: &str) {
    assert_eq!((said.code, said.out.as_str()), (Some(0), wanted), "{}", said.err);
}

#[test]
fn a_program_sends_by_inject_and_sendpacket_in_order() {
    let daemon = Daemon::start("");
    let mut probe = Probe::start(&daemon, &["inject", "lan0:p", "2000"]);
    let mut a = daemon.attach("lan0:a").unwrap();
    probe.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    // The receiver's ring is smaller than what is sent at once: only the order is certain.
    let mut last = None;
    let mut sequence = Vec::new();
    while last != Some(1999 % 256) || sequence.len() < 256 {
        let Some(got) = receive(&mut a, std::time::Duration::from_millis(200)) else { break };
        assert_eq!((got.len(), &got[6..14]), (60, &[2, 0, 0, 0, 0, 0xc, 0x88, 0xb5][..]));
        last = Some(u32::from(got[14]));
        sequence.push(got[14]);
    }
    assert_eq!(probe.succeed(), "");
    assert!(
        sequence.len() >= 256 && sequence.iter().take(200).enumerate().all(|(n, got)| usize::from(*got) == n % 256)
    );
}

#[test]
fn a_program_answers_frames_from_its_callback() {
    let daemon = Daemon::start("");
    let mut a = daemon.attach("lan0:a").unwrap();
    let probe = Probe::start(&daemon, &["answer", "lan0:p", "300"]);
    for number in 0..300u32 {
        send(&mut a, &frame(ALL, A, number as u8));
        let got = receive(&mut a, PATIENCE).expect("an answer");
        assert_eq!((&got[..6], got[14..].len()), (&A[..], 46));
        assert_eq!(got[14..], frame(ALL, A, number as u8)[14..]);
    }
    assert_eq!(probe.succeed(), "");
}

#[test]
fn the_descriptor_is_readable_while_frames_are_in_the_ring() {
    let daemon = Daemon::start("[switch.lan0]\n[port.m]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let mut a = daemon.attach("lan0:a").unwrap();
    let mut m = daemon.attach("lan0:m").unwrap();
    for how in ["poll", "select", "epoll"] {
        for device in ["lan0:p", "mirror:m"] {
            let probe = Probe::start(&daemon, &[how, device, "100"]);
            // One at a time, and many at once.
            for number in 0..100 {
                send(&mut a, &frame(ALL, A, number));
                assert!(receive(&mut m, PATIENCE).is_some());
            }
            assert_eq!(probe.succeed(), format!("100 by {how}\n"));
        }
    }
}

#[test]
fn loops_are_broken_by_signals_threads_and_callbacks() {
    let daemon = Daemon::start("[switch.lan0]\n[port.m]\nswitch = \"lan0\"\nkind = \"process\"\n");
    for device in ["lan0:p", "mirror:m"] {
        done(run(&daemon, &[text(probe()), "break", device]), "broken three times\n");
        done(run(&daemon, &[text(probe()), "timeouts", device]), "nothing in time\n");
    }
    let mut a = daemon.attach("lan0:a").unwrap();
    let probe = Probe::start(&daemon, &["break-in-callback", "lan0:p", "50"]);
    for number in 0..50 {
        send(&mut a, &frame(ALL, A, number));
    }
    assert_eq!(probe.succeed(), "50 seen\n");
}

#[test]
fn time_stamps_have_nanoseconds_where_they_are_asked_for() {
    let (daemon, dir) = (Daemon::start(""), tempfile::tempdir().unwrap());
    let mut a = daemon.attach("lan0:a").unwrap();
    let file = dir.path().join("n.pcap");
    let probe = Probe::start(&daemon, &["nano", "lan0:p", text(&file)]);
    let sent: Vec<[u8; 60]> = (0..20).map(|number| frame(ALL, A, number)).collect();
    sent.iter().for_each(|frame| send(&mut a, frame));
    assert_eq!(probe.succeed(), "20 in the file\n");
    assert!(frames(&file) == sent, "the frames differ");
}

#[test]
fn mistakes_get_libpcaps_statuses_and_a_text() {
    let daemon = Daemon::start("");
    done(run(&daemon, &[text(probe()), "mistakes", "lan0:p"]), "all refused\n");
}
