//! A program in a guest drives the guest's NIC itself: `ringway gen --pci`, `ringway lwep` with `pci:ADDRESS`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use ringway_guests::{Builder, Guest, Job, Nic, Output, Qemu};
use ringway_scenes::{Daemon, PATIENCE, Said, binary, ringway, until};
use ringway_testing::child::Ended;
use ringway_testing::skip;
use rustix::process::Signal;
use serde_json::Value;

use crate::scene::{is_whole, mac, nic, port, turn};
use crate::shared::{Shared, Use};
use crate::{own_e1000, streams};

/// NICs by their rings. With event indices, a side tells when it wants to be woken; without, it tells whether. The last two use buffers in
/// order.
const RINGS: [&str; 6] = [
    "packed=off",
    "packed=on",
    "packed=off,event_idx=off",
    "packed=on,event_idx=off",
    "packed=off,in_order=on",
    "packed=on,in_order=on",
];

/// Frames of a test: several times what any ring holds.
const FRAMES: u64 = 3000;
/// Frames that come at their own pace.
const PACED: u64 = 1000;
/// Messages in the segmentation layout.
pub const MESSAGES: u64 = 2000;
/// Round trips of a test.
const PINGS: u64 = 30;
/// The time from one to the next. A program that does not poll goes to sleep in between, however slow a busy machine makes the guest.
const PAUSE: &str = "5ms";

/// A daemon, and a guest with NICs that programs may have.
pub struct Scene {
    pub daemon: Daemon,
    pub guest: Guest,
    /// The address of each NIC. NIC `n` is at the port `vmN`.
    pub nics: Vec<String>,
}

/// One guest with virtio NICs, QEMU's own NICs and Ringway's, for all tests that need no other machine.
static SCENE: Shared<Scene> = Shared::new(TESTS, scene);
pub const TESTS: &[&str] = &[
    "own_nic::a_program_in_a_guest_drives_its_virtio_nic_by_polling",
    "own_nic::a_program_in_a_guest_drives_two_nics_and_long_frames",
    "own_nic::a_program_in_a_guest_sleeps_until_its_virtio_nic_wakes_it",
    "own_nic::messages_go_between_a_program_in_a_guest_and_one_outside",
    "own_nic::what_a_guest_lacks_for_a_program_that_wants_its_nic_is_named",
    "own_e1000::a_program_in_a_guest_drives_qemus_nics_by_polling",
    "own_e1000::a_program_in_a_guest_drives_ringways_nics_by_polling",
    "own_e1000::a_program_in_a_guest_sleeps_until_qemus_nic_wakes_it",
    "own_e1000::a_program_in_a_guest_sleeps_until_ringways_nic_wakes_it",
];

/// The first of QEMU's own NICs, and the first of Ringway's.
pub const OF_QEMU: usize = RINGS.len();
pub const OF_RINGWAY: usize = OF_QEMU + own_e1000::OF_QEMU.len();

/// Waits for this test's turn. Returns `None` if these guests cannot run on this machine.
pub fn its_turn() -> Option<Use<'static, Scene>> {
    if let Some(why) = Qemu::no_vfio_user() {
        skip::note(format!("needs a QEMU with vfio-user: {why}"));
        return None;
    }
    SCENE.turn()
}

/// Returns the switch of a NIC. QEMU keeps what comes for its own NICs while no driver receives: others must not flood them.
fn switch(nic: usize) -> String {
    if (OF_QEMU..OF_RINGWAY).contains(&nic) { format!("lan{nic}") } else { "lan0".to_owned() }
}

/// Returns the process port outside with which a NIC exchanges frames.
fn outside(nic: usize) -> String {
    format!("{}:out", switch(nic))
}

/// Returns the configuration, with this behaviour of an idle poller.
pub fn config(idle: &str) -> String {
    let name = |nic: usize| format!("vm{nic}");
    let ports = (0..RINGS.len()).map(|nic| port(&name(nic), "lan0", "")).collect::<String>()
        + &(OF_QEMU..OF_RINGWAY)
            .map(|nic| format!("[switch.{0}]\n{1}", switch(nic), streams::port(&name(nic), &switch(nic), "server")))
            .collect::<String>()
        + &(OF_RINGWAY..)
            .zip(own_e1000::OF_RINGWAY)
            .map(|(nic, keys)| own_e1000::port(&name(nic), nic, keys))
            .collect::<String>();
    format!("[engine]\nidle = \"{idle}\"\n[switch.lan0]\n{ports}")
}

fn scene() -> Scene {
    let daemon = Daemon::start(&config("adaptive"));
    let socket = |nic: usize| daemon.socket(&format!("vm{nic}.sock"));
    let virtio = RINGS
        .iter()
        .enumerate()
        .map(|(number, option)| nic(&daemon, &format!("vm{number}")).mac(&mac(0, number)).option(option));
    let qemus = (OF_QEMU..)
        .zip(own_e1000::OF_QEMU)
        .map(|(number, model)| Nic::stream(socket(number)).model(model).mac(&mac(0, number)));
    let ringways = (OF_RINGWAY..).zip(own_e1000::OF_RINGWAY).map(|(number, _)| Nic::vfio_user(socket(number)));
    let builder = Guest::builder("vm").memory_mib(512).program(binary());
    let guest = virtio.chain(qemus).chain(ringways).fold(builder, Builder::nic).start().unwrap();
    streams::name(&guest);
    let count = OF_RINGWAY + own_e1000::OF_RINGWAY.len();
    let nics = (0..count).map(|number| unbind(&guest, number)).collect();
    prepare(&guest);
    Scene { daemon, guest, nics }
}

/// What a program needs that drives a NIC.
fn prepare(guest: &Guest) {
    guest.ok("for m in uio uio_pci_generic; do insmod /modules/$m.ko; done").unwrap();
    guest.ok("echo 40 >/proc/sys/vm/nr_hugepages; [ $(cat /proc/sys/vm/nr_hugepages) = 40 ]").unwrap();
}

/// Returns the address of a NIC.
fn address_of(guest: &Guest, number: usize) -> String {
    let place =
        format!("d=$(readlink -f /sys/class/net/eth{number}/device); case $d in */virtio*) d=${{d%/*}} ;; esac");
    guest.ok(&format!("{place}; basename $d")).unwrap().trim().to_owned()
}

/// Takes a NIC from its driver. Returns its address.
fn unbind(guest: &Guest, number: usize) -> String {
    let address = address_of(guest, number);
    guest.ok(&format!("echo {address} >/sys/bus/pci/devices/{address}/driver/unbind")).unwrap();
    address
}

/// Returns what a command reports as JSON.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs `gen` in the guest.
pub fn gen_in(guest: &Guest, args: &str) -> Value {
    json(&guest.ok_within(&format!("ringway gen {args} --json"), PATIENCE).unwrap())
}

pub fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {value}"))
}

pub fn assert_unaltered(report: &Value) {
    assert_eq!(report["check"]["foreign"], 0, "{report}");
    assert_in_order(report);
}

fn assert_in_order(report: &Value) {
    for fault in ["reordered", "duplicated", "stale", "corrupted", "unsequenced"] {
        assert_eq!(report["check"][fault], 0, "{fault}: {report}");
    }
}

impl Scene {
    /// Sends frames from a NIC to a process port outside. The receiver checks each. Returns the sender's report.
    pub fn sends(&self, nic: usize, more: &str) -> Value {
        // QEMU's own NICs lose frames when more than 10,000 wait for a stream's socket.
        let frames = FRAMES.to_string();
        let (count, out, runtime_dir) = (frames.clone(), outside(nic), self.daemon.runtime_dir());
        let receiver = std::thread::spawn(move || {
            let rx = ["gen", "rx", &out, "--count", &count, "--check", "full", "--from-start", "--strict", "--json"];
            // Room for all frames: none is lost. A guest that fails does not keep it for ever.
            let room = ["--slots", "16384", "--buffer-size", "1536", "--duration", "300s"];
            Said::from(ringway().arg("--runtime-dir").arg(runtime_dir).args(rx).args(room).output().unwrap())
        });
        self.daemon.until_state("out", "up");
        let address = &self.nics[nic];
        let sent = gen_in(&self.guest, &format!("tx --pci {address} --count {frames} --size 60,1514 --flows 3 {more}"));
        println!("sent by NIC {nic} {more}: {sent}");
        let received = receiver.join().unwrap();
        assert_eq!(received.code, Some(0), "{}", received.err);
        assert_eq!(number(&json(&received.out), "/check/frames"), FRAMES, "{}", received.out);
        // Far fewer notifications than frames, in both directions.
        assert!(number(&sent, "/driver/kicks") < FRAMES / 2 && number(&sent, "/driver/calls") < FRAMES / 2, "{sent}");
        sent
    }

    /// Sends frames from a process port outside to a NIC until it has received some. The receiver in the guest checks each. The switch names
    /// those that the guest was too slow for. Returns the report of the receiver.
    pub fn receives(&self, nic: usize, more: &str) -> Value {
        let (port, address, mac) = (format!("vm{nic}"), &self.nics[nic], mac(0, nic));
        let count = |path| number(&self.daemon.port(&port), path);
        let dropped = || -> u64 {
            let drops = self.daemon.port(&port)["drops"].clone();
            drops.as_object().unwrap().values().filter_map(Value::as_u64).sum()
        };
        let (before, dropped_before) = (count("/in/frames"), dropped());
        let receive = format!("rx --pci {address} --count {PACED} --check full --from-start --announce {more}");
        let job = self.guest.start(&format!("ringway gen {receive} --json")).unwrap();
        until("the guest is ready to receive", || count("/in/frames") > before);
        let sender = self.outside(&["gen", "tx", &outside(nic), "--size", "60,1514", "--rate", "2kpps", "--dst", &mac]);
        let received = json(&self.guest.wait(&job, PATIENCE).unwrap().text);
        ends(sender);
        println!("received by NIC {nic} {more}: {received}");
        // There may be frames for the program that had the NIC before.
        assert_in_order(&received);
        let (came, lost) = (number(&received, "/check/frames"), number(&received, "/check/lost"));
        // QEMU's e1000 takes none in its first second.
        let named = dropped() - dropped_before;
        assert!(came >= PACED && lost <= named, "{lost} frames are missing, the switch names {named}: {received}");
        received
    }

    /// Sends frames from outside to a program in the guest that sends each back. Returns how often the program was woken, how often
    /// the switch called it, and the port.
    pub fn answers(&self, nic: usize, more: &str) -> (u64, u64, Value) {
        let (address, mac) = (&self.nics[nic], mac(0, nic));
        let job = self.guest.start(&format!("ringway gen pong --pci {address} {more} --json")).unwrap();
        let out = outside(nic);
        let ping = ["gen", "ping", &out, "--dst", &mac, "--json", "--count"];
        until("the guest answers", || self.daemon.ringway(&[&ping[..], &["1"]].concat()).code == Some(0));
        let port = self.daemon.port(&format!("vm{nic}"));
        let pings = json(&self.daemon.ok(&[&ping[..], &[&PINGS.to_string(), "--interval", PAUSE]].concat()));
        assert_eq!(number(&pings, "/received"), PINGS, "{pings}");
        let calls = number(&self.daemon.port(&format!("vm{nic}")), "/calls") - number(&port, "/calls");
        let returned = self.interrupt(&job, &format!("answered by NIC {nic} {more}"));
        (number(&returned, "/driver/calls"), calls, port)
    }

    /// Sends frames from a NIC to a program outside that sends each back. Returns how often the program in the guest was woken.
    pub fn pings(&self, nic: usize, more: &str) -> u64 {
        let pong = self.outside(&["gen", "pong", &outside(nic)]);
        self.daemon.until_state("out", "up");
        let ping =
            format!("ping --pci {} --dst {} --count {PINGS} --interval {PAUSE} {more}", self.nics[nic], outside(nic));
        let pings = gen_in(&self.guest, &ping);
        println!("pings of NIC {nic} {more}: {pings}");
        assert_eq!(number(&pings, "/received"), PINGS, "{pings}");
        ends(pong);
        number(&pings, "/driver/calls")
    }

    /// Exchanges messages between a program in the guest and one outside, each being the server by turns. Returns how many frames the
    /// switch had from the guest for [`MESSAGES`] messages in the segmentation layout, if the NIC segments, and how many it gave to it for as
    /// many.
    pub fn messages(&self, nic: usize, segments: bool) -> [u64; 2] {
        let (address, mac, port, out) = (&self.nics[nic], mac(0, nic), format!("vm{nic}"), outside(nic));
        let count = |path| number(&self.daemon.port(&port), path);
        let guest = format!("pci:{address} --address 10.99.0.1");
        let job = self.guest.start(&format!("ringway lwep serve {guest} --json")).unwrap();
        let outside = |what, args: &[&str]| {
            let head = ["lwep", what, &out, "--to", &mac, "--address", "10.99.0.2", "--json"];
            let report = json(&self.daemon.ok(&[&head[..], args].concat()));
            println!("to NIC {nic}: {report}");
            report
        };
        let first = ["lwep", "ping", &out, "--to", &mac, "--count", "1"];
        until("the guest serves", || self.daemon.ringway(&first).code == Some(0));
        outside("ping", &["--size", "1000", "--count", "20"]);
        outside("bandwidth", &["--size", "1400", "--count", "500"]);
        let (before, count_segmented) = (count("/out/frames"), MESSAGES.to_string());
        outside("bandwidth", &["--count", &count_segmented, "--segmented"]);
        let received = count("/out/frames") - before;
        self.interrupt(&job, "served");

        let mut server = self.outside(&["lwep", "serve", &out, "--address", "10.99.0.2", "--json"]);
        let mut line = String::new();
        BufReader::new(server.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        let inside = |args: &str| {
            let said = self.guest.run_within(&format!("ringway lwep {args} {guest} --to {out} --json"), PATIENCE);
            let Output { status, text } = said.unwrap();
            println!("from NIC {nic}: {text}");
            (status, text)
        };
        assert_eq!(inside("ping --size 1000 --count 20").0, 0);
        assert_eq!(inside("bandwidth --size 1400 --count 500").0, 0);
        let before = count("/in/frames");
        let (status, said) = inside(&format!("bandwidth --count {MESSAGES} --segmented"));
        assert_eq!(status == 0, segments, "{said}");
        assert!(segments || said.contains("segments no frames"), "{said}");
        let sent = count("/in/frames") - before;
        ends(server);
        [sent, received]
    }

    /// Exchanges frames between two NICs, both ways, and checks each.
    pub fn loops(&self, near: usize, far: usize, more: &str) {
        let [near, far] = [near, far].map(|nic| &self.nics[nic]);
        let looped =
            gen_in(&self.guest, &format!("loop --pci {near} --pci {far} {more} --both --check full --duration 300ms"));
        println!("{looped}");
        for station in looped["stations"].as_array().unwrap() {
            assert!(number(station, "/received") > 0, "{looped}");
            assert_unaltered(station);
        }
    }

    /// Sets the behaviour of an idle poller.
    pub fn idles(&self, idle: &str) {
        self.daemon.reload(&config(idle));
        assert_eq!(self.daemon.line(), "reloaded: changed engine");
    }

    /// Starts a command against the daemon.
    fn outside(&self, args: &[&str]) -> Ended {
        let mut command = ringway();
        command.arg("--runtime-dir").arg(self.daemon.runtime_dir()).args(args);
        Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Ends the program in the guest. Returns its report.
    fn interrupt(&self, job: &Job, what: &str) -> Value {
        self.guest.ok("kill -INT $(pidof ringway)").unwrap();
        let said = self.guest.wait(job, PATIENCE).unwrap();
        assert_eq!(said.status, 0, "{}", said.text);
        println!("{what}: {}", said.text);
        // A server's first line is no JSON.
        json(&said.text[said.text.find('{').unwrap()..])
    }
}

/// Ends a program with SIGTERM, which must succeed.
fn ends(program: Ended) {
    program.signal(Signal::TERM);
    let said: Said = program.output().into();
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[test]
fn a_program_in_a_guest_drives_its_virtio_nic_by_polling() {
    let Some(scene) = its_turn() else { return };
    // A program that polls does not use what the kinds differ in.
    for (nic, option) in RINGS[..4].iter().enumerate().filter(|(nic, _)| *nic < 2 || is_whole()) {
        // A program that sleeps sends and receives by the same rings.
        if nic == 0 || is_whole() {
            scene.sends(nic, "--spin");
            scene.receives(nic, "--spin");
        }
        let (_, calls, _) = scene.answers(nic, "--spin");
        assert_eq!(calls, 0, "{option}: nothing calls a program that polls");
    }
}

#[test]
fn messages_go_between_a_program_in_a_guest_and_one_outside() {
    let Some(scene) = its_turn() else { return };
    for (nic, option) in RINGS[..2].iter().enumerate() {
        let [sent, received] = scene.messages(nic, true);
        assert!(
            sent < MESSAGES / 5 && received < MESSAGES / 5,
            "{option}: the switch takes and gives whole buffers: {sent}, {received}"
        );
        scene.pings(nic, "--spin");
    }
}

#[test]
fn a_program_in_a_guest_sleeps_until_its_virtio_nic_wakes_it() {
    let Some(scene) = its_turn() else { return };
    for (nic, option) in RINGS.iter().enumerate() {
        if nic < 2 || is_whole() {
            scene.sends(nic, "");
            scene.receives(nic, "");
        }
        // Every wake-up needs the interrupt line open again.
        let (calls, _, port) = scene.answers(nic, "");
        assert!(calls > 2, "{option}: the NIC wakes the program, {calls} times");
        let features = port["vhost_user"]["features"].as_array().unwrap();
        let has = |name: &str| features.iter().any(|feature| feature == name);
        assert_eq!(has("ring_packed"), option.contains("packed=on"), "{option}: {features:?}");
        assert_eq!(has("event_idx"), !option.contains("event_idx=off"), "{option}: {features:?}");
        assert_eq!(has("in_order"), option.contains("in_order=on"), "{option}: {features:?}");
    }
}

#[test]
fn a_program_in_a_guest_drives_its_virtio_nic_behind_an_iommu() {
    let Some(_turn) = turn() else { return };
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", streams::port("vm0", "lan0", "server")));
    let nic = Nic::stream(daemon.socket("vm0.sock")).mac(&mac(0, 0)).option("iommu_platform=on,disable-legacy=on");
    let guest = Guest::builder("vm").iommu().program(binary()).nic(nic).start().unwrap();
    let nics = vec![unbind(&guest, 0)];
    let modules = "irqbypass vfio_virqfd vfio vfio_iommu_type1 vfio-pci-core vfio-pci";
    guest.ok(&format!("for m in {modules}; do insmod /modules/$m.ko || exit 1; done")).unwrap();
    guest.ok("echo 40 >/proc/sys/vm/nr_hugepages").unwrap();
    let scene = Scene { daemon, guest, nics };
    scene.sends(0, "");
    scene.receives(0, "");
    assert!(scene.answers(0, "").0 > 2, "the NIC wakes the program");
    let driver = scene.guest.ok(&format!("readlink /sys/bus/pci/devices/{}/driver", scene.nics[0])).unwrap();
    assert!(driver.trim().ends_with("/vfio-pci"), "{driver}");
}

/// Each message says what to do next.
#[test]
fn what_a_guest_lacks_for_a_program_that_wants_its_nic_is_named() {
    let Some(scene) = its_turn() else { return };
    let (guest, address) = (&scene.guest, &scene.nics[0]);
    let says = |address: &str, wanted: &str| {
        for command in ["gen tx --count 1 --pci ", "lwep serve pci:"] {
            let said = guest.run(&format!("ringway {command}{address}")).unwrap();
            assert!(said.status != 0 && said.text.contains(wanted), "{command}{address}: {wanted}: {said:?}");
        }
    };
    // As if no program had had its NIC yet.
    guest.ok("rmmod uio_pci_generic uio; echo 0 >/proc/sys/vm/nr_hugepages").unwrap();
    let probe =
        format!("echo >/sys/bus/pci/devices/{address}/driver_override; echo {address} >/sys/bus/pci/drivers_probe");
    guest.ok(&probe).unwrap();
    says("eth0", "is not the address of a PCI device");
    says("00:1e.0", "no PCI device 0000:00:1e.0 is here; network devices: ");
    says("00:1e.0", address);
    says(address, &format!("{address} belongs to the driver virtio-pci"));
    guest.ok(&format!("echo {address} >/sys/bus/pci/drivers/virtio-pci/unbind")).unwrap();
    says(address, "run \"modprobe uio_pci_generic\"");
    guest.ok("for m in uio uio_pci_generic; do insmod /modules/$m.ko; done").unwrap();
    says(address, "huge pages of 2 MiB are needed and not free: run \"echo ");
    guest.ok("echo 40 >/proc/sys/vm/nr_hugepages; [ $(cat /proc/sys/vm/nr_hugepages) = 40 ]").unwrap();
    let other = guest.ok("cd /sys/bus/pci/devices; grep -l 0x1003 */device | cut -d/ -f1").unwrap();
    says(other.trim(), "belongs to the driver virtio-pci");
    says("00:00.0", "is no virtio network device but 8086:");
    // Those who have no privilege, but may read all that is there to be read.
    guest.ok("mkdir -p /etc; echo nobody:x:65534:65534::/:/bin/sh >/etc/passwd").unwrap();
    for command in ["gen tx --count 1 --pci ", "lwep serve pci:"] {
        let said = guest.run(&format!("su nobody -c 'ringway {command}{address}'")).unwrap();
        assert!(
            said.status == 1 && said.text.contains("may not use ") && said.text.contains(": run as root"),
            "{said:?}"
        );
    }
    // The short form of the address.
    let sent = gen_in(guest, &format!("tx --pci {} --count 5", address.trim_start_matches("0000:")));
    assert_eq!(number(&sent, "/sent/frames"), 5);
}

#[test]
fn a_program_in_a_guest_drives_two_nics_and_long_frames() {
    let Some(scene) = its_turn() else { return };
    for (size, buffers) in [("60", "2112"), ("1514", "2112"), ("9014", "16384"), ("65520", "65536")] {
        scene.loops(0, 1, &format!("--size {size} --buffer-size {buffers}"));
    }
}
