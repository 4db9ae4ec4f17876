//! `ringway extcap`: ports as interfaces of tshark, and the extcap protocol itself.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ringway_client::Port;
use ringway_scenes::{Daemon, PATIENCE, PATIENCE_VARIABLE, Said, binary, frame, receive, send, until};
use ringway_testing::child::Ended;
use ringway_testing::skip::is_root;
use ringway_testing::{file::directory, skip};
use rustix::process::Signal;

const A: [u8; 6] = [2, 0, 0, 0, 0, 0xa];
const B: [u8; 6] = [2, 0, 0, 0, 0, 0xb];
const ALL: [u8; 6] = [0xff; 6];

/// The preferences of the interface `ringway-lan:a`. tshark writes other characters than letters as `_`.
const OF_A: &str = "extcap.ringway_lan_a";

const TWO_PORTS: &str = "[switch.lan]\n[port.a]\nswitch = \"lan\"\nkind = \"process\"\n\
    [port.b]\nswitch = \"lan\"\nkind = \"process\"\n";

/// Folders of a user of Wireshark: home, temporary files, extcap programs.
struct User(tempfile::TempDir);

impl User {
    /// A user with `ringway extcap --install`, by this daemon's directory.
    fn of(daemon: &Daemon) -> Self {
        let user = Self::new();
        let said = daemon.ok(&["extcap", "--install", "--dir", user.path("extcap").to_str().unwrap()]);
        assert_eq!(said, format!("installed {}\n", user.program().display()));
        user
    }

    fn new() -> Self {
        let user = Self(directory());
        ["home", "tmp", "extcap"].iter().for_each(|folder| fs::create_dir(user.path(folder)).unwrap());
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The installed program.
    fn program(&self) -> PathBuf {
        self.path("extcap/ringway-extcap")
    }

    /// A program as this user. Wireshark reads no variables of root's: root becomes another user, in a user namespace.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=1", "900"]);
        if is_root() {
            command.args(["unshare", "--user", "--map-user=1000", "--map-group=1000"]);
        }
        command.arg(program).env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command.env(PATIENCE_VARIABLE, PATIENCE.as_secs().to_string());
        command.env("WIRESHARK_EXTCAP_DIR", self.path("extcap"));
        ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "WIRESHARK_CONFIG_DIR"]
            .iter()
            .for_each(|name| _ = command.env_remove(name));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Starts tshark on the interface `ringway-lan:a`, and waits until the daemon captures.
    fn tshark(&self, daemon: &Daemon, args: &[&str]) -> Ended {
        let mut command = self.command("tshark");
        command.args(["-l", "-n", "-i", "ringway-lan:a"]).args(args);
        let tshark = Ended(command.spawn().unwrap());
        until_captured(daemon);
        tshark
    }

    /// Runs tshark with these options and fields until it has `count` frames, which `with` sends. Returns its lines.
    fn fields(
        &self,
        daemon: &Daemon,
        options: &[&str],
        fields: &[&str],
        count: u8,
        with: impl FnOnce(),
    ) -> Vec<String> {
        let fields: Vec<&str> = fields.iter().flat_map(|field| ["-e", *field]).collect();
        let count = count.to_string();
        let args = [options, &["-c", &count, "-T", "fields", "-E", "separator=|"], &fields].concat();
        let tshark = self.tshark(daemon, &args);
        with();
        let said: Said = tshark.output().into();
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(!said.err.contains("extcap"), "{}", said.err);
        said.out.lines().map(str::to_owned).collect()
    }
}

fn is_here() -> bool {
    !is_root() || Command::new("unshare").args(["--user", "true"]).status().is_ok_and(|status| status.success())
}

fn until_captured(daemon: &Daemon) {
    until("the daemon captures", || daemon.status()["captures"].as_array().unwrap().len() == 1);
}

/// Clients of both ports of [`TWO_PORTS`] whose addresses the switch knows.
fn clients(daemon: &Daemon) -> (Port, Port) {
    let (mut a, mut b) = (daemon.attach("lan:a").unwrap(), daemon.attach("lan:b").unwrap());
    send(&mut b, &frame(ALL, B, 0));
    assert!(receive(&mut a, PATIENCE).is_some());
    send(&mut a, &frame(B, A, 0));
    assert!(receive(&mut b, PATIENCE).is_some());
    (a, b)
}

/// A capture into a fifo that the test reads.
struct Capture {
    child: Ended,
    fifo: File,
    _dir: tempfile::TempDir,
}

impl Capture {
    /// Starts it, and waits until the daemon captures.
    fn start(daemon: &Daemon, args: &[&str]) -> Self {
        let (child, path, dir) = Self::spawn(daemon, args);
        let fifo = File::open(path).unwrap();
        until_captured(daemon);
        Self { child, fifo, _dir: dir }
    }

    fn spawn(daemon: &Daemon, args: &[&str]) -> (Ended, PathBuf, tempfile::TempDir) {
        let dir = directory();
        let fifo = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let mut command = Command::new(binary());
        command.arg("--runtime-dir").arg(daemon.runtime_dir()).args(["extcap", "--capture"]);
        command.args(["--extcap-interface", "ringway-lan:a", "--fifo"]).arg(&fifo).args(args);
        (Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()), fifo, dir)
    }
}

/// Returns what a program said, and how it ended.
fn said(child: Ended) -> Said {
    let output: Output = child.output();
    output.into()
}

#[test]
fn tshark_lists_every_port_and_captures_its_frames_in_both_directions() {
    if !is_here() {
        skip!("no user namespaces: Wireshark as root reads no extcap folder of a test");
    }
    let daemon =
        Daemon::start(&format!("{TWO_PORTS}[switch.lan2]\n[port.t]\nswitch = \"lan2\"\nkind = \"vhost-user\"\n"));
    let (mut a, mut b) = clients(&daemon);
    let user = User::of(&daemon);
    let listed: Said = user.command("tshark").arg("-D").output().unwrap().into();
    for wanted in [
        "ringway-lan:a (Ringway port a of lan, process)",
        "ringway-lan:b (Ringway port b of lan, process)",
        "ringway-lan2:t (Ringway port t of lan2, vhost-user)",
    ] {
        assert!(listed.out.lines().any(|line| line.ends_with(wanted)), "{wanted}: {}", listed.out);
    }
    let lines = user.fields(&daemon, &[], &["eth.src", "frame.packet_flags", "frame.len"], 4, || {
        for number in 0..2 {
            send(&mut a, &frame(B, A, number));
            assert!(receive(&mut b, PATIENCE).is_some());
            send(&mut b, &frame(A, B, number));
            assert!(receive(&mut a, PATIENCE).is_some());
        }
    });
    let (sent, received) = ("02:00:00:00:00:0a|0x00000001|60", "02:00:00:00:00:0b|0x00000002|60");
    assert_eq!(lines, [sent, received, sent, received]);
    until("the capture has ended", || daemon.status()["captures"] == serde_json::json!([]));
    assert_eq!(fs::read_dir(user.path("tmp")).unwrap().count(), 0, "nothing is left");
}

#[test]
fn the_options_of_wireshark_choose_direction_dropped_frames_and_length() {
    if !is_here() {
        skip!("no user namespaces: Wireshark as root reads no extcap folder of a test");
    }
    let daemon = Daemon::start(TWO_PORTS);
    let (mut a, mut b) = clients(&daemon);
    let user = User::of(&daemon);
    let options = ["direction:in", "drops:true", "snaplen:20"].map(|option| format!("{OF_A}.{option}"));
    let options: Vec<&str> = options.iter().flat_map(|option| ["-o", option]).collect();
    let fields = ["frame.packet_flags", "frame.comment", "frame.cap_len", "frame.len"];
    let lines = user.fields(&daemon, &options, &fields, 3, || {
        send(&mut b, &frame(A, B, 1));
        assert!(receive(&mut a, PATIENCE).is_some());
        send(&mut a, &frame(B, A, 1));
        // To its own port, and with a source that is no station's.
        send(&mut a, &frame(A, A, 2));
        send(&mut a, &frame(B, [0; 6], 3));
    });
    let wanted = ["0x00000001||20|60", "0x00000001|dropped: same_port|20|60", "0x00000001|dropped: bad_source|20|60"];
    assert_eq!(lines, wanted);
}

#[test]
fn a_capture_filter_judges_whole_frames_before_they_are_cut() {
    if !is_here() {
        skip!("no user namespaces: Wireshark as root reads no extcap folder of a test");
    }
    let daemon = Daemon::start(TWO_PORTS);
    let (mut a, mut b) = clients(&daemon);
    let user = User::of(&daemon);
    let snaplen = format!("{OF_A}.snaplen:20");
    let options = ["-o", &snaplen, "-f", "ether src 02:00:00:00:00:0a and ether[50] = 7"];
    let lines = user.fields(&daemon, &options, &["data.data", "frame.cap_len"], 2, || {
        for number in [6, 7, 8, 7] {
            send(&mut b, &frame(A, B, number));
            assert!(receive(&mut a, PATIENCE).is_some());
            send(&mut a, &frame(B, A, number));
        }
    });
    assert_eq!(lines, ["070707070707|20"; 2]);
}

#[test]
fn a_mistake_in_a_filter_is_shown_by_tshark_and_ends_the_capture() {
    if !is_here() {
        skip!("no user namespaces: Wireshark as root reads no extcap folder of a test");
    }
    let daemon = Daemon::start(TWO_PORTS);
    let user = User::of(&daemon);
    let mut command = user.command("tshark");
    let shown: Said = command.args(["-i", "ringway-lan:a", "-f", "tcp prot 80"]).output().unwrap().into();
    assert!(shown.err.contains("syntax error: \"tcp prot 80\" is not a filter"), "{}", shown.err);
    assert_ne!(shown.code, Some(0));
    // As Wireshark asks while the user types: text means a mistake, none that there is none.
    for (filter, is_wrong) in [("tcp prot 80", true), ("tcp port 80", false), ("-1", true), ("", false)] {
        let filter = ["--extcap-capture-filter", filter, "--extcap-interface", "ringway-lan:a"];
        let said: Said = Command::new(user.program()).args(filter).output().unwrap().into();
        assert_eq!(
            (said.code, said.out.is_empty(), said.err.as_str()),
            (Some(0), !is_wrong, ""),
            "{filter:?}: {}",
            said.out
        );
        assert!(said.out.lines().count() <= 1, "{}", said.out);
    }
}

#[test]
fn tshark_says_that_the_port_or_the_daemon_has_gone_during_a_capture() {
    if !is_here() {
        skip!("no user namespaces: Wireshark as root reads no extcap folder of a test");
    }
    let mut daemon = Daemon::start(TWO_PORTS);
    let user = User::of(&daemon);
    let tshark = user.tshark(&daemon, &[]);
    daemon.ok(&["port", "del", "a"]);
    let shown = said(tshark);
    assert!(shown.err.contains("the capture of lan:a has ended: the port was removed"), "{}", shown.err);
    daemon.ok(&["port", "add", "a", "switch=lan", "kind=process"]);
    let tshark = user.tshark(&daemon, &[]);
    daemon.replace();
    let shown = said(tshark);
    assert!(shown.err.contains("did not answer: it ended in the midst of the capture"), "{}", shown.err);
}

#[test]
fn a_reader_that_closes_the_fifo_ends_the_capture_while_no_frame_flows() {
    let daemon = Daemon::start(TWO_PORTS);
    for filter in [&[][..], &["--extcap-capture-filter", "arp"]] {
        let Capture { child, fifo, _dir } = Capture::start(&daemon, filter);
        drop(fifo);
        let said = said(child);
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));
        until("the daemon has ended the capture", || daemon.status()["captures"] == serde_json::json!([]));
    }
}

#[test]
fn a_signal_ends_a_capture_with_a_whole_file_and_without_a_word() {
    let daemon = Daemon::start(TWO_PORTS);
    let (mut a, mut b) = clients(&daemon);
    for (signal, filter) in [(Signal::TERM, &[][..]), (Signal::INT, &["--extcap-capture-filter", "greater 60"])] {
        let Capture { child, mut fifo, _dir } = Capture::start(&daemon, filter);
        send(&mut a, &frame(B, A, 5));
        assert!(receive(&mut b, PATIENCE).is_some());
        until("the frame is captured", || daemon.status()["captures"][0]["captured"] == 1);
        child.signal(signal);
        let mut file = Vec::new();
        fifo.read_to_end(&mut file).unwrap();
        let said = said(child);
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));
        let path = _dir.path().join("file.pcapng");
        fs::write(&path, file).unwrap();
        let facts: Said = Command::new("capinfos").arg(&path).output().unwrap().into();
        for fact in ["Number of packets:   1", "Number of stat entries = 1"] {
            assert!(facts.out.contains(fact), "{fact}: {}{}", facts.out, facts.err);
        }
    }
}

#[test]
fn a_signal_ends_a_capture_whose_fifo_nobody_reads() {
    let daemon = Daemon::start(TWO_PORTS);
    // Nobody has opened it.
    let (child, _path, _dir) = Capture::spawn(&daemon, &[]);
    // It catches SIGHUP last. Until then a signal ends it, too, but not with 0.
    until("the command waits for a reader", || {
        let state = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = state.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&caught, 16).unwrap() & 1 << (Signal::HUP.as_raw() - 1) != 0
    });
    child.signal(Signal::TERM);
    assert_eq!(said(child).code, Some(0));
    // Its reader does not read, and the fifo is full.
    let (mut a, mut b) = clients(&daemon);
    let Capture { child, fifo, _dir } = Capture::start(&daemon, &["--buffer", "256KiB"]);
    until("the fifo and the buffer are full", || {
        for _ in 0..500 {
            send(&mut a, &frame(B, A, 1));
            let _ = receive(&mut b, Duration::ZERO);
        }
        daemon.status()["captures"][0]["lost"].as_u64() > Some(0)
    });
    child.signal(Signal::TERM);
    assert_eq!(said(child).code, Some(0));
    drop(fifo);
}

#[test]
fn without_a_daemon_that_answers_there_are_no_interfaces_and_no_failure() {
    let dir = directory();
    let list = |runtime_dir: &Path| -> Said {
        let mut command = Command::new("timeout");
        // As Wireshark runs it: its own limit for the daemon holds.
        command.arg("300").arg(binary()).arg("--runtime-dir").arg(runtime_dir);
        command.args(["extcap", "--extcap-interfaces", "--extcap-version=4.0"]).output().unwrap().into()
    };
    let version = format!("extcap {{version={}}}{{display=Ringway}}\n", env!("CARGO_PKG_VERSION"));
    let said = list(dir.path());
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), version.as_str(), ""));
    let daemon = Daemon::start(TWO_PORTS);
    daemon.pause();
    let said = list(&daemon.runtime_dir());
    daemon.signal(Signal::CONT);
    assert_eq!((said.code, said.out), (Some(0), version.clone()));
    assert!(said.err.contains("no answer within 2 s"), "{}", said.err);
    // The questions about one interface need no daemon: Wireshark asks them for each at every start.
    for (question, wanted) in [
        ("--extcap-dlts", "dlt {number=1}{name=EN10MB}{display=Ethernet}\n"),
        ("--extcap-config", "{call=--direction}"),
    ] {
        let mut command = Command::new(binary());
        command.arg("--runtime-dir").arg(dir.path()).args(["extcap", question, "--extcap-interface", "ringway-lan:a"]);
        let said: Said = command.output().unwrap().into();
        assert!(said.code == Some(0) && said.out.contains(wanted), "{said:?}");
    }
}

#[test]
fn what_cannot_be_captured_is_refused_and_its_reader_comes_to_the_end() {
    let daemon = Daemon::start(TWO_PORTS);
    daemon.ok(&["port", "del", "a"]);
    for (args, wanted) in [
        (&[][..], "there is no port \"lan:a\""),
        (&["--snaplen", "x"], "--snaplen: \"x\" is not a number of bytes; write 14 to 262144"),
        (&["--snaplen", "13"], "--snaplen: 13 is out of range"),
        (&["--buffer", "1KiB"], "--buffer: 1024 bytes are out of range"),
        (&["--extcap-capture-filter", "arp arp"], "is not a filter"),
    ] {
        let (child, path, _dir) = Capture::spawn(&daemon, args);
        let mut read = Vec::new();
        File::open(path).unwrap().read_to_end(&mut read).unwrap();
        let said = said(child);
        assert_eq!((said.code, said.out.as_str(), read.len()), (Some(2), "", 0), "{args:?}: {}", said.err);
        assert!(said.err.contains(wanted), "{args:?}: {}", said.err);
    }
    for (args, wanted) in [
        (&["--extcap-dlts", "--extcap-interface", "eth0"][..], "\"eth0\" is no interface: write ringway-SWITCH:PORT"),
        (&["--extcap-config"], "add --extcap-interface"),
        (&["--capture", "--extcap-interface", "ringway-lan:b"], "--fifo"),
        (&["--capture", "--extcap-interface", "ringway-lan:b", "--fifo", "/no/such"], "cannot write to /no/such"),
        (&["--user"], "belong to --install"),
        (&[], "nothing to do"),
    ] {
        let said = daemon.ringway(&[&["extcap"], args].concat());
        assert!(said.code != Some(0) && said.out.is_empty() && said.err.contains(wanted), "{args:?}: {}", said.err);
    }
}

/// Makes a tshark that names these folders.
fn tshark_of(user: &User, folders: &str) -> String {
    let bin = user.path("bin");
    let _ = fs::create_dir(&bin);
    fs::write(bin.join("tshark"), format!("#!/bin/sh\n[ \"$*\" = '-G folders' ] && printf '{folders}'\n")).unwrap();
    fs::set_permissions(bin.join("tshark"), fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:/usr/bin:/bin", bin.display())
}

#[test]
fn the_program_is_installed_where_this_version_of_wireshark_looks_for_it() {
    let user = User::new();
    let (own, all) = (user.path("home/own/extcap"), user.path("all"));
    let new = format!("Personal Extcap path:\\t{}\\nGlobal Extcap path:\\t{}\\n", own.display(), all.display());
    let old = format!("Extcap path:         \\t{}\\n", all.display());
    let run = |path: &str, args: &[&str]| -> Said {
        let mut command = Command::new(binary());
        command.arg("extcap").args(args).env("PATH", path).env("HOME", user.path("home")).output().unwrap().into()
    };
    let home = user.path("home/.local/lib/wireshark/extcap");
    for (folders, options, wanted) in [
        (new.as_str(), &[][..], Some(&own)),
        (&new, &["--user"], Some(&own)),
        (&new, &["--system"], Some(&all)),
        (&old, &[], Some(&all)),
        (&old, &["--user"], None),
        ("", &["--system"], None),
    ] {
        let path = tshark_of(&user, folders);
        let said = run(&path, &[&["--install"], options].concat());
        let Some(wanted) = wanted else {
            assert!(said.code == Some(2) && said.err.contains("no extcap folder of that kind"), "{}", said.err);
            continue;
        };
        let file = wanted.join("ringway-extcap");
        assert_eq!(said.out, format!("installed {}\n", file.display()), "{}", said.err);
        assert_eq!(fs::read_link(&file).unwrap(), binary());
        let again = run(&path, &[&["--install"], options].concat());
        assert_eq!(again.code, Some(0), "{}", again.err);
        let listed: Said = Command::new(&file).args(["--extcap-version=4.0"]).output().unwrap().into();
        assert!(listed.out.starts_with("extcap {version="), "{listed:?}");
        let said = run(&path, &[&["--uninstall"], options].concat());
        assert_eq!(said.out, format!("removed {}\n", file.display()), "{}", said.err);
        let said = run(&path, &[&["--uninstall"], options].concat());
        assert!(said.code == Some(2) && said.err.contains("is not there") && !file.exists(), "{}", said.err);
    }
    // Without a tshark: the folder of newer versions, for this user alone.
    let nowhere = user.path("tmp").to_str().unwrap().to_owned();
    let said = run(&nowhere, &["--install"]);
    assert_eq!(said.out, format!("installed {}\n", home.join("ringway-extcap").display()), "{}", said.err);
    let said = run(&nowhere, &["--install", "--system"]);
    assert!(said.code == Some(2) && said.err.contains("cannot ask tshark"), "{}", said.err);
}

#[test]
fn the_folder_that_the_real_tshark_names_is_found() {
    if !is_here() {
        skip!("no user namespaces: Wireshark as root reads no extcap folder of a test");
    }
    let user = User::new();
    let said: Said = user.command(binary()).args(["extcap", "--install", "--system"]).output().unwrap().into();
    assert_eq!(said.out, format!("installed {}\n", user.program().display()), "{}", said.err);
}

#[test]
fn a_file_of_another_program_is_neither_replaced_nor_removed() {
    let user = User::new();
    let folder = user.path("extcap");
    let run = |option: &str| -> Said {
        let mut command = Command::new(binary());
        command.args(["extcap", option, "--dir"]).arg(&folder).output().unwrap().into()
    };
    let file = user.program();
    let makes: [&dyn Fn(); 3] =
        [&|| fs::write(&file, "#!/bin/sh\nexit 0\n").unwrap(), &|| symlink("/usr/bin/true", &file).unwrap(), &|| {
            fs::create_dir(&file).unwrap()
        }];
    for make in makes {
        make();
        for option in ["--install", "--uninstall"] {
            let said = run(option);
            assert!(said.code == Some(2) && said.err.contains("was not made by"), "{}", said.err);
        }
        assert!(fs::remove_file(&file).or_else(|_| fs::remove_dir(&file)).is_ok());
    }
    // A link to a program that is not there any more.
    symlink("/no/such/ringway", &file).unwrap();
    assert_eq!(run("--install").code, Some(0));
    assert_eq!(fs::read_link(&file).unwrap(), binary());
}
