//! A program in a guest drives the guest's NIC itself: `ringway gen --pci`.

use ringway_guests::Guest;
use ringway_scenes::{Daemon, PATIENCE, Said, binary, ringway, until};
use serde_json::Value;

use crate::scene::{mac, nic, port, turn};

/// Starts a daemon with a port for a guest, and the guest, which the NIC was taken from: a program may have it. Returns its address.
fn scene(option: &str) -> (Daemon, Guest, String) {
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}", port("vm", "lan0", "")));
    let nic = nic(&daemon, "vm").mac(&mac(0, 0)).option(option);
    let guest = Guest::builder("vm").nic(nic).program(binary()).start().unwrap();
    let address = give_nic(&guest);
    (daemon, guest, address)
}

/// Takes the guest's NIC from its driver, and makes it ready for a program. Returns its address.
fn give_nic(guest: &Guest) -> String {
    let address = guest.ok("basename $(readlink -f /sys/class/net/eth0/device/..)").unwrap().trim().to_owned();
    guest.ok(&format!("echo {address} >/sys/bus/pci/devices/{address}/driver/unbind")).unwrap();
    guest
        .ok("for m in uio uio_pci_generic; do insmod /modules/$m.ko; done; echo 8 >/proc/sys/vm/nr_hugepages")
        .unwrap();
    address
}

/// Returns what a command reports as JSON.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs `gen` in the guest.
fn gen_in(guest: &Guest, args: &str) -> Value {
    json(&guest.ok_within(&format!("ringway gen {args} --json"), PATIENCE).unwrap())
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {path} in {value}"))
}

/// Frames to a process port outside, and from there. Each is checked by the receiver.
fn goes_both_ways(daemon: &Daemon, guest: &Guest, address: &str, more: &str) {
    const FRAMES: &str = "16000";
    let wanted: u64 = FRAMES.parse().unwrap();
    let runtime_dir = daemon.runtime_dir();
    let receiver = std::thread::spawn(move || {
        let rx = ["gen", "rx", "lan0:out", "--count", FRAMES, "--check", "full", "--from-start", "--strict", "--json"];
        // Room for all frames: none is lost. A guest that fails does not keep it for ever.
        let more = ["--slots", "16384", "--buffer-size", "1536", "--duration", "100s"];
        Said::from(ringway().arg("--runtime-dir").arg(runtime_dir).args(rx).args(more).output().unwrap())
    });
    daemon.until_state("out", "up");
    let sent = gen_in(guest, &format!("tx --pci {address} --count {FRAMES} --size 60,1514 --flows 3 {more}"));
    println!("sent by {address} {more}: {sent}");
    let received = receiver.join().unwrap();
    assert_eq!(received.code, Some(0), "{}", received.err);
    assert_eq!(number(&json(&received.out), "/check/frames"), wanted, "{}", received.out);
    assert!(number(&sent, "/driver/kicks") < wanted, "{sent}");
    let [before, sent_before] = ["/out/frames", "/in/frames"].map(|path| number(&daemon.port("vm"), path));
    let receive =
        format!("rx --pci {address} --count 5000 --check full --from-start --idle 5s --announce {more} --json");
    let job = guest.start(&format!("ringway gen {receive}")).unwrap();
    until("the guest is ready to receive", || number(&daemon.port("vm"), "/in/frames") > sent_before);
    let tx = ["gen", "tx", "lan0:out", "--count", "5000", "--size", "60,1514", "--rate", "4kpps", "--dst"];
    daemon.ok(&[&tx[..], &[&mac(0, 0)]].concat());
    let output = guest.wait(&job, PATIENCE).unwrap();
    let received = json(&output.text);
    println!("received by {address} {more}: {received}");
    for fault in ["reordered", "duplicated", "stale", "corrupted", "foreign", "unsequenced"] {
        assert_eq!(received["check"][fault], 0, "{fault}: {received}");
    }
    // The switch counts each frame that the guest was too slow for.
    let delivered = number(&daemon.port("vm"), "/out/frames") - before;
    assert_eq!(number(&received, "/check/frames"), delivered, "{received}");
    assert!(delivered > 1000, "{received}");
}

#[test]
fn a_program_in_a_guest_drives_its_virtio_nic_by_polling() {
    let Some(_turn) = turn() else { return };
    let (daemon, guest, address) = scene("packed=off");
    goes_both_ways(&daemon, &guest, &address, "--spin");
}
