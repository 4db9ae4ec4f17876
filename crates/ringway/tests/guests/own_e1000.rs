//! A program in a guest drives the guest's e1000 or e1000e itself: QEMU's, or Ringway's.

use ringway_guests::{Guest, Nic, Qemu};
use ringway_scenes::{Daemon, PATIENCE, Said, binary, ringway, until};
use ringway_testing::skip;
use serde_json::Value;

use crate::scene::{mac, turn};
use crate::streams;

/// A NIC on the port `vm` of `lan0`: the port's configuration, and QEMU's.
struct Scene {
    daemon: Daemon,
    guest: Guest,
    /// The address of the PCI function in the guest.
    address: String,
}

impl Scene {
    /// QEMU's own NIC of a model, on a stream port.
    fn of_qemu(model: &str) -> Scene {
        let config = format!("[switch.lan0]\n{}", streams::port("vm", "lan0", "server"));
        Scene::start(&config, |daemon| {
            Nic::stream(daemon.runtime_dir().join("vm.sock")).model(model).mac(&mac(0, 0))
        })
    }

    /// Ringway's NIC, as these keys of an e1000 port say.
    fn of_ringway(keys: &str) -> Option<Scene> {
        if let Some(why) = Qemu::no_vfio_user() {
            skip::note(format!("needs a QEMU with vfio-user: {why}"));
            return None;
        }
        let mac = mac(0, 0);
        let config = format!("[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"e1000\"\nmac = \"{mac}\"\n{keys}");
        Some(Scene::start(&config, |daemon| Nic::vfio_user(daemon.runtime_dir().join("vm.sock"))))
    }

    fn start(config: &str, nic: impl FnOnce(&Daemon) -> Nic) -> Scene {
        let daemon = Daemon::start(config);
        let guest = Guest::builder("vm").nic(nic(&daemon)).program(binary()).start().unwrap();
        let address = guest.ok("basename $(readlink -f /sys/class/net/eth0/device)").unwrap().trim().to_owned();
        guest.ok(&format!("echo {address} >/sys/bus/pci/devices/{address}/driver/unbind")).unwrap();
        guest
            .ok("for m in uio uio_pci_generic; do insmod /modules/$m.ko; done; echo 8 >/proc/sys/vm/nr_hugepages")
            .unwrap();
        Scene { daemon, guest, address }
    }

    /// Sends `frames` frames to a process port outside, which checks them. Returns the sender's report.
    fn sends(&self, frames: u64, more: &str) -> Value {
        let runtime_dir = self.daemon.runtime_dir();
        let count = frames.to_string();
        let receiver = std::thread::spawn(move || {
            let rx = ["gen", "rx", "lan0:out", "--check", "full", "--from-start", "--strict", "--json", "--count", &count];
            // Room for all frames: none is lost. A guest that fails does not keep it for ever.
            let more = ["--slots", "16384", "--buffer-size", "1536", "--duration", "100s"];
            Said::from(ringway().arg("--runtime-dir").arg(runtime_dir).args(rx).args(more).output().unwrap())
        });
        self.daemon.until_state("out", "up");
        let sent = self.generate(&format!("tx --count {frames} --size 60,1514 --flows 3 {more}"));
        println!("sent {more}: {sent}");
        let received = receiver.join().unwrap();
        assert_eq!(received.code, Some(0), "{}", received.err);
        assert_eq!(number(&json(&received.out), "/check/frames"), frames, "{}", received.out);
        sent
    }

    /// Receives frames from a process port outside, and checks them. Returns the receiver's report.
    fn receives(&self, frames: u64, more: &str) -> Value {
        let seen = |path: &str| number(&self.daemon.port("vm"), path);
        let (before, sent_before) = (seen("/out/frames"), seen("/in/frames"));
        let receive = format!("rx --count {frames} --check full --from-start --idle 5s --announce {more}");
        let job = self.guest.start(&format!("ringway gen {receive} --pci {} --json", self.address)).unwrap();
        until("the guest is ready to receive", || seen("/in/frames") > sent_before);
        let count = frames.to_string();
        let tx = ["gen", "tx", "lan0:out", "--count", &count, "--size", "60,1514", "--rate", "4kpps", "--dst"];
        self.daemon.ok(&[&tx[..], &[&mac(0, 0)]].concat());
        let output = self.guest.wait(&job, PATIENCE).unwrap();
        let received = json(&output.text);
        println!("received {more}: {received}");
        for fault in ["reordered", "duplicated", "stale", "corrupted", "foreign", "unsequenced"] {
            assert_eq!(received["check"][fault], 0, "{fault}: {received}");
        }
        // The switch counts each frame that the guest was too slow for.
        let delivered = seen("/out/frames") - before;
        assert_eq!(number(&received, "/check/frames"), delivered, "{received}");
        assert!(delivered > frames / 5, "{received}");
        received
    }

    /// Sends frames to a process port outside that answers, and awaits each answer. Returns the report.
    fn pings(&self, more: &str) -> Value {
        let said = self.generate(&format!("ping --count 200 {more}"));
        println!("pings {more}: {said}");
        said
    }

    /// Runs `gen` in the guest.
    fn generate(&self, args: &str) -> Value {
        json(&self.guest.ok_within(&format!("ringway gen {args} --pci {} --json", self.address), PATIENCE).unwrap())
    }
}

/// Returns what a command reports as JSON.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {value}"))
}

#[test]
fn a_program_in_a_guest_drives_qemus_e1000() {
    let Some(_turn) = turn() else { return };
    let scene = Scene::of_qemu("e1000");
    scene.sends(16_000, "--spin");
    scene.receives(5000, "--spin");
}
