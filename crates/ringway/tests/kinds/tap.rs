//! TAP ports are added, changed and removed. The daemon runs in a new network namespace, so the host is not changed.
//! Without root it gets a new user namespace, too.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringway_scenes::namespace::Namespace;
use ringway_scenes::{Daemon, PATIENCE, Said, flood, receive, send, until};
use ringway_testing::child::Ended;
use ringway_testing::skip::is_root;

/// A daemon in a namespace, and the means to run commands there.
struct Lab {
    daemon: Daemon,
    net: File,
    user: File,
}

/// Options of `unshare` that make a network namespace.
fn apart() -> &'static [&'static str] {
    if is_root() { &["--net"] } else { &["--net", "--user", "--map-root-user"] }
}

impl Lab {
    fn start(config: &str) -> Self {
        let daemon = Daemon::start_by(&[&["unshare"], apart()].concat(), config);
        let namespace = |kind: &str| File::open(format!("/proc/{}/ns/{kind}", daemon.pid())).unwrap();
        let (net, user) = (namespace("net"), namespace("user"));
        Self { daemon, net, user }
    }

    /// Runs a command in the namespace, also if the daemon is gone.
    fn inside(&self, command: &[&str]) -> Command {
        let path = |file: &File| format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let mut enter = Command::new("nsenter");
        enter.arg(format!("--net={}", path(&self.net)));
        if !is_root() {
            enter.arg(format!("--user={}", path(&self.user))).arg("--preserve-credentials");
        }
        enter.arg("--").args(command);
        enter
    }

    fn run(&self, command: &[&str]) -> Said {
        self.inside(command).output().expect("nsenter and ip are installed").into()
    }

    /// Returns the index of the network device in the namespace, if the device exists.
    fn device(&self, name: &str) -> Option<String> {
        let said = self.run(&["ip", "-o", "link", "show", "dev", name]);
        said.out.split_once(':').map(|(number, _)| number.to_owned())
    }
}

const LAN0: &str = "[switch.lan0]\n[switch.lan1]\n";

fn tap(name: &str, switch: &str) -> String {
    format!("[port.{name}]\nswitch = \"{switch}\"\nkind = \"tap\"\n")
}

#[test]
fn what_the_stack_sends_reaches_a_client_and_devices_go_with_their_ports() {
    let mut lab = Lab::start(&format!("{LAN0}{}", tap("tap0", "lan0")));
    let mut client = lab.daemon.attach("lan0:c").unwrap();
    assert_eq!(lab.run(&["ip", "addr", "add", "10.9.9.1/24", "dev", "tap0"]).code, Some(0));
    let ping = lab.inside(&["ping", "-c", "1", "-W", "300", "10.9.9.2"]).stdout(Stdio::null()).spawn();
    let ping = Ended(ping.unwrap());
    let deadline = Instant::now() + PATIENCE;
    let mut asked = false;
    while !asked {
        assert!(Instant::now() < deadline, "no ARP request for 10.9.9.2");
        client.wait_rx(Duration::from_millis(100)).unwrap();
        client.rx().drain(64, |f| asked |= f[12..14] == [8, 6] && f[38..42] == [10, 9, 9, 2]);
    }
    drop(ping);
    let port = lab.daemon.port("tap0");
    assert_eq!((&port["kind"], &port["state"], &port["device"]), (&"tap".into(), &"up".into(), &"tap0".into()));
    assert!(port["in"]["frames"].as_u64() > Some(0));

    lab.daemon.ok(&["port", "add", "p", "switch=lan0", "kind=tap", "device=other"]);
    assert!(lab.device("other").is_some() && lab.device("p").is_none());
    lab.daemon.ok(&["port", "del", "p"]);
    assert_eq!(lab.device("other"), None, "the command removes the device before it answers");
    lab.daemon.ok(&["port", "add", "p", "switch=lan0", "kind=tap", "device=other"]);
    assert!(lab.daemon.stop().success());
    assert_eq!((lab.device("tap0"), lab.device("other")), (None, None), "a clean end leaves no device");
}

#[test]
fn a_device_that_moves_to_another_switch_is_never_closed() {
    let lab = Lab::start(&format!("{LAN0}{}", tap("tap0", "lan0")));
    let before = lab.device("tap0");
    lab.daemon.reload(&format!("{LAN0}{}", tap("tap0", "lan1")));
    assert_eq!(lab.daemon.line(), "reloaded: removed port tap0, added port tap0 to switch lan1");
    assert_eq!(lab.daemon.port("tap0")["switch"], "lan1");
    assert!(before.is_some() && lab.device("tap0") == before);
}

#[test]
fn a_change_that_cannot_be_made_whole_is_not_made_at_all() {
    let lab = Lab::start(&format!("{LAN0}{}", tap("tap0", "lan0")));
    assert_eq!(lab.run(&["ip", "link", "add", "taken", "type", "veth", "peer", "name", "taken2"]).code, Some(0));
    let said = lab.daemon.ringway(&["port", "add", "taken", "switch=lan0", "kind=tap"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("ringway port add: cannot open TAP device \"taken\""), "{}", said.err);
    // The reload would remove tap0, change lan0, make "first", and fail at "taken".
    lab.daemon.reload(&format!("{LAN0}{}{}", tap("first", "lan0"), tap("taken", "lan1")));
    lab.daemon.complains("not reloaded: nothing has changed");
    lab.daemon.reload(&format!("{LAN0}{}", tap("tap0", "lan0")));
    assert_eq!(lab.daemon.line(), "reloaded: nothing differs");
    assert!(lab.device("first").is_none() && lab.device("tap0").is_some());
    assert_eq!(lab.daemon.status()["ports"].as_array().unwrap().len(), 1);
}

#[test]
fn a_device_can_be_in_another_namespace() {
    let lab = Lab::start(LAN0);
    let own = fs::read_link(format!("/proc/{}/ns/net", lab.daemon.pid())).unwrap();
    let mut other = Ended(lab.inside(&["unshare", "--net", "cat"]).stdin(Stdio::piped()).spawn().unwrap());
    let path = format!("/proc/{}/ns/net", other.0.id());
    let there =
        || fs::read_link(&path).ok().filter(|ns| *ns != own && *ns != fs::read_link("/proc/self/ns/net").unwrap());
    until("the other namespace exists", || there().is_some());
    lab.daemon.ok(&["port", "add", "t", "switch=lan0", "kind=tap", &format!("netns={path}")]);
    let devices = || fs::read_to_string(format!("/proc/{}/net/dev", other.0.id())).unwrap();
    assert!(devices().contains(" t:"), "{}", devices());
    assert_eq!(lab.device("t"), None);
    let said = lab.daemon.ringway(&["port", "add", "u", "switch=lan0", "kind=tap", "netns=no-such"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("cannot open network namespace /run/netns/no-such"), "{}", said.err);
    drop(other.0.stdin.take());
}

#[test]
fn a_device_that_somebody_deletes_is_made_again_as_soon_as_it_can_be() {
    let lab = Lab::start(&format!("{LAN0}{}", tap("tap0", "lan0")));
    let before = lab.device("tap0");
    assert_eq!(lab.run(&["ip", "link", "del", "tap0"]).code, Some(0));
    until("a new device exists", || lab.device("tap0").is_some_and(|now| Some(now) != before));
    until("the new device's port is up", || lab.daemon.port("tap0")["state"] == "up");
    assert_eq!(lab.daemon.status()["faults"][0]["reason"], "device_lost");

    // Another kind of device takes the name.
    until("the port says why it failed", || {
        if !lab.run(&["ip", "link", "show", "dev", "tap0", "type", "veth"]).out.contains("tap0") {
            lab.run(&["ip", "link", "del", "tap0"]);
            lab.run(&["ip", "link", "add", "tap0", "type", "veth", "peer", "name", "other"]);
        }
        let port = lab.daemon.port("tap0");
        let detail = port["detail"].as_str().unwrap_or_default();
        port["state"] == "failed" && detail.contains("ip link del tap0; tried again every second")
    });
    assert!(lab.daemon.ok(&["status"]).contains("tap0: cannot open TAP device \"tap0\""));
    assert_eq!(lab.run(&["ip", "link", "del", "tap0"]).code, Some(0));
    until("the port is up again", || lab.daemon.port("tap0")["state"] == "up");
    assert!(lab.daemon.port("tap0")["detail"].is_null());
    lab.daemon.reload(LAN0);
    assert_eq!(lab.daemon.line(), "reloaded: removed port tap0");
    assert_eq!(lab.device("tap0"), None);
}

#[test]
fn a_device_that_an_administrator_made_for_the_user_needs_no_privilege() {
    let nic = Namespace::new();
    nic.ok("ip", &["tuntap", "add", "ours", "mode", "tap", "user", "0"]);
    nic.ok("ip", &["tuntap", "add", "theirs", "mode", "tap", "user", "1"]);
    nic.ok("ip", &["link", "set", "ours", "up"]);
    nic.ok("ip", &["addr", "add", "10.9.9.1/24", "dev", "ours"]);
    // Root without a capability is a user like any other.
    let way = ["ip", "netns", "exec", &nic.name, "setpriv", "--bounding-set", "-all", "--inh-caps", "-all"];
    let daemon = Daemon::start_by(&way, LAN0);
    daemon.ok(&["port", "add", "ours", "switch=lan0", "kind=tap"]);
    let mut client = daemon.attach("lan0:c").unwrap();
    let _ping = nic.run("ping", &["-c", "1", "-W", "1", "10.9.9.2"]);
    let is_request = |frame: &[u8]| frame[12..14] == [8, 6] && frame[38..42] == [10, 9, 9, 2];
    until("the request comes", || receive(&mut client, PATIENCE).is_some_and(|frame| is_request(&frame)));
    for device in ["theirs", "new"] {
        let said = daemon.ringway(&["port", "add", device, "switch=lan0", "kind=tap"]);
        let help = format!("ip tuntap add {device} mode tap user USER");
        assert!(said.code != Some(0) && said.err.contains(&help), "{} {}", said.out, said.err);
    }
    daemon.ok(&["port", "del", "ours"]);
    assert!(nic.has_device("ours"), "the device stays");
}

#[test]
fn a_bridge_with_two_ports_on_a_switch_that_forwards_stp_finds_the_loop() {
    let host = Namespace::new();
    let ports = ["up0", "up1"].map(|name| format!("{}uplink = true\n", tap(name, "lan0")));
    let config =
        format!("{LAN0}{}", ports.concat()).replace("[switch.lan0]", "[switch.lan0]\nforward_reserved = \"stp\"");
    let daemon = Daemon::start_by(&["ip", "netns", "exec", &host.name], &config);
    host.ok("ip", &["link", "add", "br0", "type", "bridge", "stp_state", "1", "forward_delay", "200"]);
    ["up0", "up1"].into_iter().for_each(|port| drop(host.ok("ip", &["link", "set", port, "master", "br0", "up"])));
    host.ok("ip", &["link", "set", "br0", "up"]);
    let state = |port: &str| host.ok("ip", &["-d", "link", "show", "dev", port]);
    until("one port of the bridge is blocked, as it hears the other one", || state("up1").contains(" state blocking "));
    assert!(!state("up0").contains(" state blocking "));
    until("the other one forwards", || state("up0").contains(" state forwarding "));
    // A broadcast goes round no more.
    let mut client = daemon.attach("lan0:c").unwrap();
    send(&mut client, &flood::frame([0xff; 6], 9, 60));
    until("the bridge has it", || flood::count(&daemon.port("up0"), "out", "frames") > 0);
    assert_eq!(daemon.port("c")["out"]["frames"].as_u64(), Some(0), "{}", daemon.ok(&["status"]));
}

#[test]
fn a_device_has_the_ports_address_and_mtu_and_may_be_one_of_several_queues() {
    let host = Namespace::new();
    host.ok("ip", &["tuntap", "add", "many", "mode", "tap", "multi_queue"]);
    let before = host.ok("cat", &["/sys/class/net/many/address"]);
    let ports = [
        tap("made", "lan0") + "mac = \"52:54:00:00:00:07\"\nmtu = 9000\n",
        tap("many", "lan0") + "mac = \"52:54:00:00:00:08\"\nmtu = 1400\n",
        tap("two", "lan0") + "mac = [\"52:54:00:00:00:09\", \"52:54:00:00:00:0a\"]\n",
    ];
    let daemon = Daemon::start_by(&["ip", "netns", "exec", &host.name], &format!("{LAN0}{}", ports.concat()));
    let of = |device: &str, what: &str| {
        host.ok("ip", &["-d", "-o", "link", "show", "dev", device])
            .split_once(what)
            .unwrap()
            .1
            .split(' ')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!((of("made", "link/ether "), of("made", " mtu ")), ("52:54:00:00:00:07".into(), "9000".into()));
    // An administrator's device keeps its address.
    assert_eq!((of("many", "link/ether "), of("many", " mtu ")), (before.trim().into(), "1400".into()));
    assert!(!of("two", "link/ether ").starts_with("52:54:00"), "one of two would be chosen by chance");
    // Its own frames are not spoofed ones, and long ones arrive.
    let mut client =
        daemon.attach_as("lan0:c", ringway_client::Shape { buffer_size: 16384, ..Default::default() }).unwrap();
    for device in ["made", "many"] {
        host.ok("ip", &["addr", "add", if device == "made" { "10.9.9.1/24" } else { "10.9.8.1/24" }, "dev", device]);
    }
    let _ping = host.run("ping", &["-c", "1", "-W", "1", "10.9.9.2"]);
    let is_request = |frame: &[u8]| frame[12..14] == [8, 6] && frame[38..42] == [10, 9, 9, 2];
    until("the request comes", || receive(&mut client, PATIENCE).is_some_and(|frame| is_request(&frame)));
    host.ok("ip", &["neigh", "add", "10.9.9.3", "lladdr", "02:00:00:00:00:03", "dev", "made"]);
    let _ping = host.run("ping", &["-c", "1", "-W", "1", "-s", "8900", "10.9.9.3"]);
    until("the long one comes", || {
        receive(&mut client, PATIENCE).is_some_and(|frame| frame.len() == 14 + 20 + 8 + 8900)
    });
    assert_eq!(daemon.port("made")["drops"]["spoofed_mac"].as_u64(), None);
}

#[test]
fn in_a_user_namespace_a_device_has_the_kernels_queue() {
    let daemon =
        Daemon::start_by(&["unshare", "--net", "--user", "--map-root-user"], &format!("{LAN0}{}", tap("tap0", "lan0")));
    assert_eq!(daemon.port("tap0")["state"], "up");
}
