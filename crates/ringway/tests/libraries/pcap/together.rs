//! Both libraries of `ringway exec` in the same programs, and in programs that use neither.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use ringway_scenes::{Daemon, Said};
use ringway_testing::skip;

use super::{exec, run, start, succeed, text};

fn compile(source: &str, program: &Path, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libraries").join(source);
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-O2", "-pthread", "-o"]).arg(program).arg(source).args(flags);
    let said: Said = cc.output().unwrap().into();
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[test]
fn one_program_has_a_netmap_port_and_a_libpcap_handle() {
    let (daemon, dir) = (Daemon::start("[switch.lan0]\n"), tempfile::tempdir().unwrap());
    let program = dir.path().join("both");
    compile("pcap/both.c", &program, &["-lpcap"]);
    let said = run(&daemon, &[text(&program)]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "both\n"), "{}", said.err);
}

#[test]
fn a_netmap_program_sends_to_a_libpcap_program() {
    let (daemon, dir) = (Daemon::start("[switch.lan0]\n"), tempfile::tempdir().unwrap());
    let program = dir.path().join("cases");
    compile("netmap/cases.c", &program, &[]);
    let tcpdump = start(&daemon, "t", &["tcpdump", "-Z", "root", "-e", "-n", "-t", "-c", "50", "-i", "lan0:t"]);
    let said = run(&daemon, &[text(&program), "ioctl"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let lines = succeed(tcpdump).out;
    let from = "02:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, ethertype Unknown (0x88b5), length 60";
    assert_eq!(lines.lines().filter(|line| line.starts_with(from)).count(), 50, "{lines}");
}

#[test]
fn programs_that_use_neither_interface_run_as_without_the_libraries() {
    let (daemon, dir) = (Daemon::start(""), tempfile::tempdir().unwrap());
    let compiled = format!(
        "printf '#include <stdio.h>\nint main(void){{return puts(\"compiled\") < 0;}}' | gcc -x c -o {0}/program - && {0}/program",
        text(dir.path())
    );
    let bash = "exec 7>/dev/null; echo x | cat; read y < <(echo z); echo $y; ulimit -n >&7";
    let python = "import select, socket, subprocess\n\
        a, b = socket.socketpair(); a.send(b'x')\n\
        print(select.select([b], [], [], 5)[0] == [b], subprocess.check_output(['echo', 'out']))\n";
    let qemu = ["qemu-system-x86_64", "-accel", "tcg", "-nodefaults", "-display", "none", "-monitor", "stdio"];
    for (words, input) in [
        (&["bash", "-c", bash][..], ""),
        (&["python3", "-c", python], ""),
        (&["sh", "-c", &compiled], ""),
        (&["qemu-system-x86_64", "--version"], ""),
        (&qemu, "info status\nquit\n"),
        (&[&qemu[..], &["-S"]].concat(), "info status\nquit\n"),
    ] {
        let output = |mut command: Command| -> Option<Said> {
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = ringway_testing::child::Ended(command.spawn().ok()?);
            child.stdin.take()?.write_all(input.as_bytes()).unwrap();
            Some(child.output().into())
        };
        let mut plain = Command::new(words[0]);
        plain.args(&words[1..]);
        let Some(plain) = output(plain) else {
            skip::note(format!("needs {}", words[0]));
            continue;
        };
        let under = output(exec(&daemon, words)).unwrap();
        assert_eq!(plain.code, Some(0), "{words:?}: {}", plain.err);
        assert_eq!((under.code, under.out, under.err), (plain.code, plain.out, plain.err), "{words:?}");
    }
}
