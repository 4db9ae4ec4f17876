//! A program of ours in C, `probe.c`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use ringway_scenes::namespace::frames;
use ringway_scenes::{Daemon, PATIENCE, Said, frame, receive, send};
use ringway_testing::child::Ended;
use ringway_testing::skip;
use ringway_testing::skip::{is_installed, is_root};
use rustix::process::Signal;

use super::{A, ALL, exec, run, text, until};

/// The compiled program.
fn probe() -> &'static Path {
    static PROBE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROBE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("probe");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libraries/pcap/probe.c");
        let mut cc = Command::new("cc");
        // The program's epoll_wait is the library's, too.
        cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-rdynamic", "-o"])
            .arg(&path)
            .arg(source)
            .args(["-lpcap", "-lpthread"]);
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
        Probe::run(exec(daemon, &[&[text(probe())], args].concat()))
    }

    fn run(mut command: Command) -> Probe {
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
    let mut sequence = Vec::new();
    let mut has_ended = false;
    loop {
        while let Some(got) = receive(&mut a, std::time::Duration::from_millis(10)) {
            assert_eq!((got.len(), &got[6..14]), (60, &[2, 0, 0, 0, 0, 0xc, 0x88, 0xb5][..]));
            sequence.push(got[14]);
        }
        // What it sent arrives before its port goes.
        if has_ended {
            break;
        }
        has_ended = probe.child.try_wait().unwrap().is_some() && daemon.port("p").is_null();
    }
    assert_eq!(probe.succeed(), "");
    assert!(
        sequence.len() >= 256 && sequence.iter().take(200).enumerate().all(|(n, got)| usize::from(*got) == n % 256)
    );
}

#[test]
fn one_thread_receives_while_another_sends_on_the_same_handle() {
    const FRAMES: u32 = 50_000;
    // Fewer than the program's ring has room for: none of these is lost.
    const UNDER_WAY: u32 = 256;
    for how in ["loop", "next", "poll"] {
        let daemon = Daemon::start("");
        let mut a = daemon.attach("lan0:a").unwrap();
        let mut probe = Probe::start(&daemon, &["both-ways", "lan0:p", &FRAMES.to_string(), how]);
        probe.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let (mut sent, mut received, mut next, mut acknowledged) = (0, 0u32, 0, 0);
        let mut take = |a: &mut ringway_client::Port| {
            a.rx().drain(usize::MAX, |frame| {
                let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().unwrap());
                assert!(word(14) >= next, "{how}: {} after {next}", word(14));
                (next, acknowledged, received) = (word(14) + 1, word(18), received + 1);
            });
            (acknowledged, received)
        };
        let mut one = frame([2, 0, 0, 0, 0, 0xc], A, 0);
        let within = std::time::Instant::now() + PATIENCE;
        while probe.child.try_wait().unwrap().is_none() {
            a.wait_rx(std::time::Duration::from_millis(1)).unwrap();
            let (acknowledged, _) = take(&mut a);
            while sent < FRAMES.min(acknowledged + UNDER_WAY) {
                one[14..18].copy_from_slice(&sent.to_le_bytes());
                if !a.tx().push(&one) {
                    break;
                }
                sent += 1;
            }
            a.flush();
            assert!(std::time::Instant::now() < within, "{how}: stuck after {acknowledged} received of {sent}");
        }
        let said = probe.succeed();
        let (_, received) = take(&mut a);
        let lost: u64 = daemon.port("a")["drops"].as_object().unwrap().values().filter_map(|n| n.as_u64()).sum();
        assert_eq!(said, format!("{} sent\n", u64::from(received) + lost), "{how}: {lost} counted as lost");
    }
}

#[test]
fn lost_frames_are_counted_also_for_a_program_that_has_given_root_up() {
    // A port that stays: the second program's losses are its own.
    let daemon = Daemon::start("[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let mut a = daemon.attach("lan0:a").unwrap();
    let users: &[&str] = if is_root() { &["nobody", "root"] } else { &["the same"] };
    let mut before = 0;
    for user in users {
        let mut probe = Probe::start(&daemon, &["lost", "lan0:p", user]);
        for number in 0..3000u32 {
            until("there is room", || a.tx().push(&frame(ALL, A, number as u8)));
            a.flush();
        }
        assert!(a.wait_sent(PATIENCE).unwrap());
        let drops = daemon.port("p")["drops"].clone();
        let lost: u64 = drops.as_object().unwrap().values().filter_map(|frames| frames.as_u64()).sum();
        probe.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert!(lost >= before + 3000 - 1024, "{drops}");
        assert_eq!(probe.succeed(), format!("{} lost\n", lost - before), "{user}: {drops}");
        before = lost;
    }
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
fn the_descriptor_tells_of_frames_after_a_wait_was_broken() {
    let daemon = Daemon::start("[switch.lan0]\n[port.m]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let (mut a, _m) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:m").unwrap());
    for device in ["lan0:p", "mirror:m"] {
        let mut probe = Probe::start(&daemon, &["wait-after-break", device]);
        send(&mut a, &frame(ALL, A, 1));
        let mut line = String::new();
        probe.out.read_line(&mut line).unwrap();
        assert_eq!(line, "open\n", "{device}");
        send(&mut a, &frame(ALL, A, 2));
        assert_eq!(probe.succeed(), "told twice\n");
    }
}

#[test]
fn a_waiting_thread_can_be_cancelled() {
    let daemon = Daemon::start("[switch.lan0]\n[port.m]\nswitch = \"lan0\"\nkind = \"process\"\n");
    for device in ["lan0:p", "mirror:m"] {
        done(run(&daemon, &[text(probe()), "cancel", device]), "cancelled twice\n");
    }
}

#[test]
fn exceptions_of_a_callback_pass_through_a_loop() {
    let daemon = Daemon::start("");
    let (_dir, program) = compile_cpp(
        r#"
        #include <pcap/pcap.h>
        #include <cstdio>
        static void throws(u_char *, const struct pcap_pkthdr *, const u_char *data) { throw int(data[14]); }
        int main() {
            char errbuf[PCAP_ERRBUF_SIZE];
            pcap_t *p = pcap_open_live("lan0:p", 100, 1, 0, errbuf);
            if (p == nullptr) return 1;
            int sum = 0;
            for (int frame = 0; frame < 2; frame++)
                try { pcap_loop(p, -1, throws, nullptr); } catch (int number) { sum += number; }
            pcap_close(p);
            std::printf("%d\n", sum);
        }"#,
    );
    let mut a = daemon.attach("lan0:a").unwrap();
    let throws = super::start(&daemon, "p", &[text(&program)]);
    for number in [3, 4] {
        send(&mut a, &frame(ALL, A, number));
    }
    assert_eq!(super::succeed(throws).out, "7\n");
}

#[test]
fn the_descriptor_is_true_after_exceptions_of_a_callback() {
    let daemon = Daemon::start("");
    let (_dir, program) = compile_cpp(
        r#"
        #include <pcap/pcap.h>
        #include <cstdio>
        #include <poll.h>
        static void throws(u_char *, const struct pcap_pkthdr *, const u_char *data) { throw int(data[14]); }
        static int dispatch(pcap_t *p) {
            try { return pcap_dispatch(p, -1, throws, nullptr); } catch (int number) { return number; }
        }
        int main() {
            char errbuf[PCAP_ERRBUF_SIZE];
            pcap_t *p = pcap_open_live("lan0:p", 100, 1, 0, errbuf);
            if (p == nullptr || pcap_setnonblock(p, 1, errbuf) != 0) return 1;
            struct pollfd wanted = {pcap_get_selectable_fd(p), POLLIN, 0};
            std::puts("open");
            std::fflush(stdout);
            // All four frames are in the ring before the first one is read.
            if (std::getchar() == EOF) return 2;
            int sum = 0;
            for (int frame = 0; frame < 4; frame++) {
                if (poll(&wanted, 1, 10000) != 1) return 3;
                sum += dispatch(p);
            }
            // A wake-up may come late, once.
            for (int late = 0; poll(&wanted, 1, 100) != 0; late++)
                if (late == 5 || dispatch(p) != 0) return 4;
            pcap_close(p);
            std::printf("%d\n", sum);
        }"#,
    );
    let mut probe = Probe::run(exec(&daemon, &[text(&program)]));
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    for number in [3, 4, 5, 6] {
        send(&mut a, &frame(ALL, A, number));
        assert!(receive(&mut b, PATIENCE).is_some());
    }
    probe.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert_eq!(probe.succeed(), "18\n");
}

/// Compiles a program in C++.
fn compile_cpp(code: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("program.cpp"), dir.path().join("program"));
    std::fs::write(&source, code).unwrap();
    let said: Said = Command::new("c++").arg("-o").arg(&program).arg(&source).arg("-lpcap").output().unwrap().into();
    assert_eq!(said.code, Some(0), "{}", said.err);
    (dir, program)
}

#[test]
fn a_sender_is_not_stuck_when_the_daemon_hangs() {
    let daemon = Daemon::start("");
    let mut probe = Probe::start(&daemon, &["stuck", "lan0:p"]);
    daemon.pause();
    probe.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let said = probe.succeed();
    daemon.signal(Signal::CONT);
    assert_eq!(said, "not stuck\n");
}

#[test]
fn a_thread_that_receives_and_one_that_sends_are_both_told_to_end() {
    let daemon = Daemon::start("");
    let mut probe = Probe::start(&daemon, &["break-both", "lan0:p"]);
    daemon.pause();
    probe.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let said = probe.succeed();
    daemon.signal(Signal::CONT);
    assert_eq!(said, "both broken\n");
}

#[test]
fn senders_wait_for_each_other_and_not_for_ever() {
    let daemon = Daemon::start("");
    let mut probe = Probe::start(&daemon, &["senders", "lan0:p"]);
    daemon.pause();
    probe.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let said = probe.succeed();
    daemon.signal(Signal::CONT);
    assert_eq!(said, "no sender is left\n");
}

#[test]
fn a_sender_that_stands_still_is_waited_for_until_a_request_to_break() {
    let daemon = Daemon::start("");
    done(run(&daemon, &[text(probe()), "held", "lan0:p"]), "held and let go\n");
}

#[test]
fn both_sides_and_a_child_are_told_why_the_port_has_ended() {
    let daemon = Daemon::start("");
    let probe = Probe::start(&daemon, &["told", "lan0:p", "the port was removed"]);
    daemon.ok(&["port", "del", "p"]);
    assert_eq!(probe.succeed(), "all told\n");
}

/// A probe under strace, which counts these system calls.
struct Counted {
    probe: Probe,
    summary: tempfile::NamedTempFile,
}

impl Counted {
    fn start(daemon: &Daemon, calls: &str, args: &[&str]) -> Counted {
        let summary = tempfile::NamedTempFile::new().unwrap();
        let strace = ["strace", "-f", "-c", "-o", text(summary.path()), "-e", calls, text(probe())];
        let probe = Probe::run(exec(daemon, &[&strace, args].concat()));
        Counted { probe, summary }
    }

    /// Tells the program to begin. Returns what it says, and the number of its system calls.
    fn go(mut self) -> (String, u64) {
        self.probe.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let said = self.probe.succeed();
        let summary = std::fs::read_to_string(self.summary.path()).unwrap();
        let total = summary.lines().find(|line| line.ends_with("total")).expect("the program makes such calls");
        (said, total.split_whitespace().nth(3).and_then(|calls| calls.parse().ok()).expect("the column of calls"))
    }
}

#[test]
fn frames_that_are_dropped_or_taken_one_by_one_cost_no_system_call_each() {
    if !is_installed("strace") {
        skip!("needs strace");
    }
    let daemon = Daemon::start("");
    let taker = Counted::start(&daemon, "read,epoll_wait,epoll_pwait,eventfd2", &["take", "lan0:p", "500"]);
    let (mut a, mut b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    for number in 0..500u32 {
        send(&mut a, &frame(ALL, A, number as u8));
        assert!(receive(&mut b, PATIENCE).is_some());
    }
    let (said, calls) = taker.go();
    assert_eq!(said, "500 taken\n");
    assert!(calls < 200, "{calls} system calls");

    let sender = Counted::start(&daemon, "poll,ppoll,epoll_wait,epoll_pwait", &["drop", "lan0:p", "6400"]);
    daemon.pause();
    let (said, calls) = sender.go();
    daemon.signal(Signal::CONT);
    assert_eq!(said, "6400 dropped\n");
    assert!(calls < 1000, "{calls} system calls");
}

#[test]
fn a_sender_with_some_room_and_too_little_sleeps() {
    if !is_installed("strace") {
        skip!("needs strace");
    }
    let daemon = Daemon::start("");
    let calls = "poll,ppoll,epoll_wait,epoll_pwait,nanosleep,clock_nanosleep";
    let sender = Counted::start(&daemon, calls, &["stuck-with-some-room", "lan0:p"]);
    daemon.pause();
    let (said, calls) = sender.go();
    daemon.signal(Signal::CONT);
    assert_eq!(said, "stuck with some room\n");
    assert!(calls < 100, "{calls} system calls");
}

#[test]
fn a_child_goes_on_with_the_handle_of_its_parent() {
    let daemon = Daemon::start("[switch.lan0]\n[port.m]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let mut a = daemon.attach("lan0:a").unwrap();
    let _m = daemon.attach("lan0:m").unwrap();
    for device in ["lan0:p", "mirror:m"] {
        let probe = Probe::start(&daemon, &["in-child", device, "3"]);
        (0..3).for_each(|number| send(&mut a, &frame(ALL, A, number)));
        assert_eq!(probe.succeed(), "3 in the child\n");
    }
}

#[test]
fn everything_that_is_opened_over_and_over_is_closed() {
    let daemon = Daemon::start("[switch.lan0]\n[port.p]\nswitch = \"lan0\"\nkind = \"process\"\n");
    done(run(&daemon, &[text(probe()), "over-and-over", "lan0:p", "40"]), "all closed\n");
}

#[test]
fn sizes_and_names_beyond_all_reason_are_survived() {
    let daemon = Daemon::start("");
    done(run(&daemon, &[text(probe()), "extremes", "lan0:p"]), "all survived\n");
}

#[test]
fn a_text_that_stderr_does_not_take_is_lost_and_not_the_program() {
    let daemon = Daemon::start("");
    let command = format!("{} perror lan0:p 2>/dev/full", text(probe()));
    done(run(&daemon, &["sh", "-c", &command]), "still here\n");
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
