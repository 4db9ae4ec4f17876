//! The Debian package of the driver of Linux guests: DKMS builds the module, and in the initramfs, with the kernel's own e1000 beside it, the
//! module takes the NIC of a port with `csb = true`.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use ringway_guests::Qemu;
use ringway_scenes::Daemon;
use ringway_testing::skip;

use crate::scene::turn;

/// The first QEMU with vfio-user.
const QEMU: (u32, u32) = (10, 1);
/// Longest time until an emulated Debian waits in its initramfs.
const BOOT: Duration = Duration::from_secs(480);
/// Prompt of the shell in an initramfs.
const PROMPT: &str = "(initramfs) ";

#[test]
#[ignore = "takes a minute: make guests"]
fn the_package_puts_the_driver_before_e1000_in_the_initramfs() {
    let Some(_turn) = turn() else { return };
    if !rustix::process::geteuid().is_root() {
        skip!("needs root");
    }
    let qemu = match Qemu::at_least(QEMU) {
        Ok(qemu) => qemu,
        Err(why) => skip!("needs a QEMU with vfio-user: {why}"),
    };
    let dir = tempfile::tempdir().unwrap();
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let tree = said(&mut Command::new(packaging.join("guest-debian")));
    let package = said(Command::new(packaging.join("guest-driver-package")).arg(dir.path()));
    let script = include_str!("driver_package.sh");
    let mut install = Command::new("unshare");
    said(install.args(["--mount", "bash", "-c", script, "bash", &tree, &package]).arg(dir.path()));

    let port = |name: &str, keys: &str| format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"e1000\"\n{keys}");
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}{}", port("plain", ""), port("csb", "csb = true\n")));
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(qemu.path).args(["-accel", "tcg", "-m", "768M", "-smp", "1,maxcpus=2"]);
    command.args(["-machine", "q35,memory-backend=memory", "-nodefaults", "-no-user-config", "-display", "none"]);
    command.args(["-object", "memory-backend-memfd,id=memory,size=768M,share=on", "-serial", "stdio"]);
    command.args(["-append", "console=ttyS0 tsc=unstable clocksource=hpet no_timer_check break=mount"]);
    command.arg("-kernel").arg(dir.path().join("kernel")).arg("-initrd").arg(dir.path().join("initramfs"));
    for name in ["plain", "csb"] {
        let socket = daemon.runtime_dir().join(format!("{name}.sock"));
        let device = r#"{"driver":"vfio-user-pci","rombar":0,"x-msg-timeout":60000,"socket":{"type":"unix","path":"#;
        command.arg("-device").arg(format!("{device}{socket:?}}}}}"));
    }
    let mut console = Console::start(&mut command);
    console.until(PROMPT);
    let command =
        "for nic in /sys/bus/pci/drivers/*e1000/0*; do echo $(cat $nic/subsystem_device) $(readlink $nic/driver); done";
    let drivers = console.run(command);
    println!("{drivers}");
    let driver_of = |subsystem: &str| {
        let line = drivers.lines().find_map(|line| line.strip_prefix(subsystem)).unwrap_or_default();
        line.trim().rsplit('/').next().unwrap_or_default().to_owned()
    };
    assert_eq!(driver_of("0x1101"), "ringway_e1000", "{drivers}");
    assert_eq!(driver_of("0x001e"), "e1000", "{drivers}");
}

/// Runs a command that must succeed. Returns its last line.
fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let [text, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{command:?}: {text}{errors}");
    text.trim_end().lines().last().unwrap_or_default().to_owned()
}

/// The serial console of an emulated machine, which ends with it.
struct Console {
    qemu: Child,
    bytes: Receiver<Vec<u8>>,
}

impl Console {
    fn start(command: &mut Command) -> Console {
        let mut qemu = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, bytes) = channel();
        let mut output = qemu.stdout.take().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..len].to_vec()).is_err() {
                    break;
                }
            }
        });
        Console { qemu, bytes }
    }

    /// Waits for this text. Returns what came before it.
    fn until(&mut self, wanted: &str) -> String {
        let deadline = Instant::now() + BOOT;
        let mut text = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.bytes.recv_timeout(left) else { panic!("no {wanted:?} in {text}") };
            text.push_str(&String::from_utf8_lossy(&bytes));
            if let Some((before, _)) = text.split_once(wanted) {
                return before.to_owned();
            }
        }
    }

    /// Runs a command. Returns what it says.
    fn run(&mut self, command: &str) -> String {
        let stdin = self.qemu.stdin.as_mut().unwrap();
        stdin.write_all(format!("{command}\n").as_bytes()).unwrap();
        self.until(PROMPT)
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}
