//! Guests of two kernels with the driver of Linux guests (`guest/linux`), in both of its modes.
//!
//! They need a QEMU with vfio-user, as the tests of unmodified drivers do. Tests that take minutes are `#[ignore]`d. `make guests` runs
//! them.

mod checked;
mod filters;
mod long;
mod settings;
mod short;
mod xdp;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ringway_guests::{Builder, Guest, Job, Nic, Release};
use ringway_scenes::{Daemon, until};
use ringway_testing::PATIENCE;

use crate::e1000::{linked, no_faults, tell, there};
use crate::scene::{self, boot, mac};

/// The NICs of each guest in their order: the driver's mode, and the port's keys.
const NICS: [(&str, &str); 2] = [("status block", "csb = true\n"), ("registers", "")];
/// A NIC of the same model that the kernel's driver has.
const OTHER: usize = NICS.len();
const KERNELS: [Release; 2] = [Release::Bookworm, Release::TrixieBackports];
/// The driver's parameters. The second guest has them all by default.
const PARAMETERS: [&str; 2] = ["combine=on", ""];

/// Returns the port of guest `guest`'s NIC `nic`, which is on switch `lanNIC`.
fn port(guest: usize, nic: usize) -> String {
    format!("{}{nic}", ["a", "b"][guest])
}

fn ports() -> String {
    let ports = (0..2).flat_map(|guest| (0..=OTHER).map(move |nic| (guest, nic)));
    let ports = ports.map(|(guest, nic)| {
        let (name, mac, keys) = (port(guest, nic), mac(guest, nic), NICS.get(nic).map_or("", |(_, keys)| keys));
        format!("[port.{name}]\nswitch = \"lan{nic}\"\nkind = \"e1000\"\nmac = \"{mac}\"\nguard = \"off\"\n{keys}")
    });
    let switches = (0..=OTHER).map(|nic| format!("[switch.lan{nic}]\n"));
    switches.chain(ports).collect()
}

fn card(daemon: &Daemon, guest: usize, nic: usize) -> Nic {
    Nic::vfio_user(daemon.runtime_dir().join(format!("{}.sock", port(guest, nic))))
}

/// The first guest has one CPU, the second two.
fn builder(daemon: &Daemon, guest: usize) -> Builder {
    // By hand: a kernel that checks itself.
    let kernel = if std::env::var_os("RINGWAY_DRIVER_CHECKED").is_some() { Release::Debug } else { KERNELS[guest] };
    let builder = Guest::builder(["a", "b"][guest]).kernel(kernel).cpus(guest as u16 + 1).memory_mib(512);
    let builder = builder.own_driver(PARAMETERS[guest]).program(inside());
    (0..=OTHER).fold(builder, |builder, nic| builder.nic(card(daemon, guest, nic)))
}

/// Starts two guests with all NICs and their addresses.
fn scene() -> (Daemon, [Guest; 2]) {
    let daemon = Daemon::start(&ports());
    let guests = boot([builder(&daemon, 0), builder(&daemon, 1)]);
    for (number, guest) in guests.iter().enumerate() {
        settle(guest, number);
    }
    (daemon, guests)
}

/// Gives the driver its NICs, and the NICs their addresses, after a boot.
fn settle(guest: &Guest, number: usize) {
    // The kernel's driver has taken all NICs without a status block.
    for nic in 1..=OTHER {
        let driver = if is_own(guest, nic) { "ringway_e1000" } else { "e1000" };
        assert!(tell(guest, &format!("ethtool -i eth{nic}")).unwrap().contains(&format!("driver: {driver}\n")));
    }
    for nic in 1..NICS.len() {
        if !is_own(guest, nic) {
            take(guest, nic).unwrap();
        }
    }
    addresses(guest, number);
}

fn is_own(guest: &Guest, nic: usize) -> bool {
    tell(guest, &format!("readlink /sys/class/net/eth{nic}/device/driver")).unwrap().contains("ringway_e1000")
}

/// Gives a NIC to the driver that no identifier tells of it.
fn take(guest: &Guest, nic: usize) -> Result<(), String> {
    tell(
        guest,
        &format!(
            "d=$(basename $(readlink -f /sys/class/net/eth{nic}/device)); cd /sys/bus/pci; \
             echo ringway_e1000 >devices/$d/driver_override; echo $d >devices/$d/driver/unbind; echo $d >drivers_probe"
        ),
    )?;
    there(guest, nic)
}

/// Sets a guest's addresses, also if it already has some, and waits for its links.
fn addresses(guest: &Guest, number: usize) {
    tell(guest, "for n in $(cd /sys/class/net; echo eth*); do ip addr flush dev $n; done").unwrap();
    scene::addresses(guest, number, OTHER + 1);
    (0..=OTHER).for_each(|nic| linked(guest, nic).unwrap());
}

/// Runs `check` with the driver's modes, and reports the errors of both.
fn with_each(what: &str, check: impl FnMut(usize) -> Result<(), String>) {
    scene::with_each(&NICS, what, check);
}

/// A program with what busybox lacks, compiled once for this process.
fn inside() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let compile = || {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("inside");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guests/driver/inside.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        let output = compiler.arg(source).output().expect("a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (folder, program)
    };
    &PROGRAM.get_or_init(compile).1
}

/// Runs `inside ARGUMENTS` in a guest while `work` runs.
fn while_inside<T>(guest: &Guest, arguments: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let job = guest.start(&format!("exec inside {arguments}")).map_err(|error| error.to_string())?;
    let mut said = String::new();
    until("the program is ready", || {
        said = guest.so_far(&job).unwrap_or_default();
        !said.is_empty()
    });
    if !said.contains("ready") {
        return Err(format!("inside {arguments}: {said}"));
    }
    let result = work();
    tell(guest, "killall inside")?;
    ended(guest, &job)?;
    result
}

fn ended(guest: &Guest, job: &Job) -> Result<(), String> {
    guest.wait(job, PATIENCE).map(drop).map_err(|error| error.to_string())
}

/// Returns a count of `ethtool -S`.
fn count(guest: &Guest, nic: usize, name: &str) -> Result<u64, String> {
    let said = tell(guest, &format!("ethtool -S eth{nic}"))?;
    let found = said.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok());
    found.ok_or_else(|| format!("no {name} in {said}"))
}

/// Returns a count of the network device.
fn statistic(guest: &Guest, nic: usize, name: &str) -> Result<u64, String> {
    let said = tell(guest, &format!("cat /sys/class/net/eth{nic}/statistics/{name}"))?;
    said.trim().parse().map_err(|_| said.clone())
}

/// Checks that no port has a fault, and that no kernel complains of the driver.
fn all_is_well(daemon: &Daemon, guests: &[Guest; 2]) {
    no_faults(daemon);
    for guest in guests {
        // That a transmitter stood still is the truth if Ringway had no processor for some seconds.
        let complaints = guest.kernel_complaints().unwrap();
        let complaints: Vec<_> = complaints.iter().filter(|line| !line.contains("dev_watchdog")).collect();
        assert_eq!(complaints, [""; 0]);
        assert_eq!(guest.ok("dmesg | grep -E 'misbehaves|stalled pool|nobody cared' || :").unwrap(), "");
    }
}
