//! `ringway top`, on a pseudo-terminal of the test and without a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use ringway_client::Port;
use ringway_scenes::{Daemon, PATIENCE, frame, ringway, send, until, until_some};
use ringway_testing::child::Ended;
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const ALL: [u8; 6] = [0xff; 6];
const ROWS: u16 = 30;
const COLUMNS: u16 = 132;

/// A program on a terminal, and the terminal's contents. Dropping it ends the program.
struct Terminal {
    child: Ended,
    keys: File,
    /// The program's side of the terminal, kept open to read its modes.
    side: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    fn start(daemon: &Daemon, args: &[&str]) -> Terminal {
        let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&control).unwrap();
        unlockpt(&control).unwrap();
        let name = ptsname(&control, Vec::new()).unwrap();
        let open = || File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let side = open();
        tcsetwinsize(&side, Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        // A new session makes this the controlling terminal, instead of the terminal that runs the tests.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_ringway"), "--runtime-dir"]).arg(daemon.runtime_dir());
        command.arg("top").args(args).env("TERM", "xterm-256color");
        let child = Ended(command.stdin(open()).stdout(open()).stderr(open()).spawn().unwrap());
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let keys = File::from(control);
        let (mut output, shown) = (keys.try_clone().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..len]);
            }
        });
        Terminal { child, keys, side: side.into(), screen }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen shows this text.
    fn shows(&self, wanted: &str) {
        until(&format!("the screen shows {wanted:?}"), || self.text().contains(wanted));
    }

    /// Returns the ports in the shown order.
    fn ports(&self) -> Vec<String> {
        let text = self.text();
        let rows = text.lines().skip_while(|line| !line.starts_with("PORT")).skip(1);
        let names = rows.filter_map(|line| line.split_whitespace().next());
        names.filter(|name| name.len() == 1).map(str::to_owned).collect()
    }

    /// Returns true if the terminal is as a shell leaves it: the main screen, a visible cursor, line input with echo.
    fn is_restored(&self) -> bool {
        use rustix::termios::LocalModes;
        let modes = tcgetattr(&self.side).unwrap().local_modes;
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        !screen.alternate_screen() && !screen.hide_cursor() && modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Waits for the program's end. Returns its exit code.
    fn end(&mut self) -> Option<i32> {
        until("top ends", || self.child.try_wait().unwrap().is_some());
        until("the terminal is restored", || self.is_restored());
        self.child.wait().unwrap().code()
    }
}

/// Starts a daemon with three ports. `b` has sent the most frames, and `c` has lost some.
fn busy() -> (Daemon, [Port; 3]) {
    let daemon = Daemon::start("");
    let ports = ["a", "b", "c"].map(|name| daemon.attach(&format!("lan0:{name}")).unwrap());
    (daemon, ports)
}

fn traffic(daemon: &Daemon, [a, b, c]: &mut [Port; 3]) {
    let before = daemon.port("c")["in"]["frames"].as_u64().unwrap();
    for number in 0..20 {
        send(b, &frame(ALL, A, number));
        if number < 10 {
            send(a, &frame(ALL, A, number));
        }
        if number < 5 {
            send(c, &frame(ALL, [0; 6], number));
        }
    }
    until("all frames are taken", || daemon.port("c")["in"]["frames"] == before + 5);
    for port in [a, b, c] {
        while port.rx().drain(64, |_| {}) > 0 {}
    }
}

#[test]
fn the_screen_shows_rates_drops_and_pollers_and_sorts_by_keys() {
    let (daemon, mut ports) = busy();
    // The interval is so long that all frames come between two updates.
    let mut top = Terminal::start(&daemon, &["--interval", "500ms"]);
    top.shows("PORT");
    assert!(!top.is_restored());
    // The display is paused, so that the compared text stays. An update without frames is skipped.
    let text = until_some("there are rates", || {
        traffic(&daemon, &mut ports);
        top.press(" ");
        top.shows("standing still");
        let text = top.text();
        if text.contains("bad_source") && top.ports() == ["b", "a", "c"] {
            return Some(text);
        }
        top.press(" ");
        until("the display continues", || !top.text().contains("standing still"));
        None
    });
    for wanted in ["IN ppsv", "OUT bit/s", "DROPPED AS", "poller 0", "% busy", "3 ports", "every 500ms", "q: quit"] {
        assert!(text.contains(wanted), "{wanted}:\n{text}");
    }
    assert_eq!(top.ports(), ["b", "a", "c"], "most frames in first:\n{text}");
    top.press("r");
    until("the order is reversed", || top.ports() == ["c", "a", "b"]);
    top.press("r\x1b[D\x1b[D\x1b[D");
    until("the order is that of names", || top.ports() == ["a", "b", "c"]);
    // Moves from the first sort column to the last but one.
    top.press("<<");
    until("the port that lost frames is first", || top.ports() == ["c", "a", "b"]);
    top.shows("DROPS/sv");
    top.press("\x1b[B\x1b[B");
    top.press("+");
    top.shows("every 1s");
    top.press("q");
    assert_eq!(top.end(), Some(0));
}

#[test]
fn how_full_buckets_are_is_shown_for_ports_and_those_that_they_share() {
    let daemon = Daemon::start(
        "[bucket.t]\nrate = \"1Gbit\"\n[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\n\
         ingress = { rate = \"8kbit\", burst = \"1514B\" }\negress = { rate = \"1Mbit\", bucket = \"t\" }\n",
    );
    let (mut a, _b) = (daemon.attach("lan0:a").unwrap(), daemon.attach("lan0:b").unwrap());
    let mut top = Terminal::start(&daemon, &["--interval", "50ms", "--sort", "fill"]);
    top.shows("bucket t         [########################] 100.0 % full; 1Gbit for 1 ports; 0 bit/s, 0 pps refused");
    top.shows("in 100%");
    until("the bucket is not full", || {
        let _ = a.tx().push(&frame(ALL, A, 0));
        a.flush();
        !top.text().contains("in 100%") && top.text().contains("in ")
    });
    top.press("q");
    assert_eq!(top.end(), Some(0));
}

#[test]
fn the_terminal_is_restored_however_top_ends() {
    let daemon = Daemon::start("");
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut top = Terminal::start(&daemon, &[]);
        top.shows("q: quit");
        top.signal(signal);
        assert_eq!(top.end(), Some(0), "{signal:?}");
    }
    for key in ["q", "\x03"] {
        let mut top = Terminal::start(&daemon, &[]);
        top.shows("q: quit");
        top.press(key);
        assert_eq!(top.end(), Some(0), "{key:?}");
    }
    // Ctrl-Z leaves the terminal to the shell until the user comes back.
    let mut top = Terminal::start(&daemon, &[]);
    top.shows("q: quit");
    top.press("\x1a");
    until("top is stopped, and the terminal is restored", || top.is_restored());
    let stat = format!("/proc/{}/stat", top.child.id());
    until("the process is stopped", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    top.signal(Signal::CONT);
    until("top is shown again", || !top.is_restored() && top.text().contains("q: quit"));
    top.press("q");
    assert_eq!(top.end(), Some(0));
}

#[test]
fn a_daemon_that_goes_and_comes_back_is_waited_for() {
    let mut daemon = Daemon::start("");
    let mut top = Terminal::start(&daemon, &["--interval", "50ms"]);
    top.shows("q: quit");
    assert!(daemon.stop().success());
    top.shows("no ringway daemon");
    daemon.replace();
    top.shows("q: quit");
    top.press("q");
    assert_eq!(top.end(), Some(0));
}

#[test]
fn without_a_terminal_there_are_tables_lines_of_json_or_what_to_write() {
    let (daemon, mut ports) = busy();
    let said = daemon.ringway(&["top"]);
    assert!(said.code == Some(2) && said.err.contains("--batch, --once and --json"), "{}", said.err);
    let said = daemon.ringway(&["top", "--interval", "1ms"]);
    assert!(said.code == Some(2) && said.err.contains("write 50ms to 1h"), "{}", said.err);

    // A run whose lines were written while this test stood still shows no frames.
    let (lines, out, before) = until_some("top sees frames", || {
        let mut command = ringway();
        command.arg("--runtime-dir").arg(daemon.runtime_dir()).args(["top", "--json", "-n", "2", "--interval", "1s"]);
        let mut child = Ended(command.stdout(Stdio::piped()).spawn().unwrap());
        let before = daemon.port("b")["in"]["frames"].as_u64().unwrap();
        until("top has ended", || {
            traffic(&daemon, &mut ports);
            child.try_wait().unwrap().is_some()
        });
        let mut out = String::new();
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{out}");
        out.contains("bad_source").then_some((lines, out, before))
    });
    // The sum of all lines is the counted number.
    let total = |name: &str, pointer: &str| -> f64 {
        let one = |line: &Value| {
            let port = line["ports"].as_array().unwrap().iter().find(|port| port["name"] == name).unwrap();
            port.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0) * line["seconds"].as_f64().unwrap()
        };
        lines.iter().map(one).sum()
    };
    for line in &lines {
        let frames = line["ports"].as_array().unwrap().iter().map(|port| port["in"]["frames"].as_f64().unwrap());
        assert!(frames.is_sorted_by(|one, next| one >= next), "sorted by frames in: {line}");
    }
    let counted = daemon.port("b")["in"]["frames"].as_u64().unwrap() - before;
    let shown = total("b", "/in/frames");
    assert!(shown > 0.0 && shown <= counted as f64 + 0.1, "{out}");
    assert!(total("c", "/drops/bad_source") > 0.0, "{out}");
    assert!((0.0..=1.0).contains(&lines[0]["pollers"][0]["busy"].as_f64().unwrap()));

    let table = daemon.ok(&["top", "--once", "--interval", "50ms", "--sort", "name", "--port", "lan0:a"]);
    let rows: Vec<&str> = table.lines().collect();
    assert!(rows[0].starts_with("ringway ") && rows[1].starts_with("poller 0"), "{table}");
    assert!(rows[2].starts_with("PORT") && rows[3].starts_with("a ") && rows.len() == 4, "{table}");
    let tables = daemon.ok(&["top", "--batch", "-n", "3", "--interval", "50ms"]);
    assert_eq!(tables.matches("PORT").count(), 3);
    // If the reader closes the pipe, top ends without an error.
    let line = format!(
        "{} --runtime-dir {} top -b --interval 50ms | head -1",
        env!("CARGO_BIN_EXE_ringway"),
        daemon.runtime_dir().display()
    );
    let said: ringway_scenes::Said = Command::new("sh").args(["-c", &line]).output().unwrap().into();
    assert!(said.out.starts_with("ringway ") && said.err.is_empty(), "{said:?}");
    assert!(ports[0].wait_rx(PATIENCE / 1000).is_ok());
}
