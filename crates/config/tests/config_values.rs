//! A valid configuration has the values that it sets, and the documented defaults of all others.

use std::time::Duration;

use ringway_config::e1000::{Cable, Model, Registers};
use ringway_config::kinds::device::Device;
use ringway_config::kinds::socket::SocketPath;
use ringway_config::kinds::stream::Stream;
use ringway_config::kinds::tap::Tap;
use ringway_config::{CallInterval, Config, E1000, Host, Memory, Placement, Role, Settings, Socket, VhostUser, parse};

const LAN0: &str = "[switch.lan0]\n";

fn host() -> Host {
    Host { cpus: vec![0, 1], runtime_dir: "/run/ringway".into() }
}

#[test]
fn the_example_of_the_manual_is_accepted_and_defaults_are_as_documented() {
    let text = r#"
        [engine]
        cores = [1]
        idle = "spin"
        [switch.lan0]
        ageing = "0s"
        multicast = "port:up"
        [switch.lan1]
        forwarding = "map"
        [port.vm1]
        switch = "lan0"
        kind = "tap"
        mac = "52:54:00:00:00:01"
        weight = 64
        isolated = true
        [port.up]
        switch = "lan0"
        kind = "process"
        [port.vm2]
        switch = "lan0"
        kind = "vhost-user"
        [port.pc]
        switch = "lan0"
        kind = "stream"
        role = "client"
        [port.nic]
        switch = "lan0"
        kind = "e1000"
        model = "e1000e"
        link = "down"
        csb = true
        completion_delay = "0s"
        [port.old]
        switch = "lan0"
        kind = "e1000"
        [port.vm3]
        switch = "lan0"
        kind = "vhost-user"
        socket = "./vms//3.sock"
        role = "client"
        queues = 1
        mtu = 9000
        offload = false
        call_interval = "50us"
        call_above = "10kpps"
        poller = 0
    "#;
    let config = parse("r.toml", text, &host()).unwrap();
    let vm1 = &config.ports[&"vm1".parse().unwrap()];
    let device = Settings::Tap(Tap { mtu: None, device: Device { name: "vm1".to_owned(), netns: None } });
    assert_eq!((&vm1.settings, vm1.weight, vm1.isolated), (&device, 64, true));
    let vm2 = &config.ports[&"vm2".parse().unwrap()];
    let given = VhostUser::default().memory;
    let socket = Socket::new("vm2.sock", Role::Server);
    let plain = VhostUser {
        queues: 8,
        mtu: None,
        ring_reset: false,
        config_space: false,
        offload: true,
        socket,
        memory: given.clone(),
    };
    assert_eq!(vm2.settings, Settings::VhostUser(plain));
    assert_eq!((vm2.calls.interval, vm2.calls.above, vm2.poller), (CallInterval::Auto, 0, Placement::Any));
    let vm3 = &config.ports[&"vm3".parse().unwrap()];
    let socket = Socket::new("vms/3.sock", Role::Client);
    let told = VhostUser {
        queues: 1,
        mtu: Some(9000),
        ring_reset: false,
        config_space: false,
        offload: false,
        socket,
        memory: given,
    };
    assert_eq!(vm3.settings, Settings::VhostUser(told));
    let (nic, old) = (&config.ports[&"nic".parse().unwrap()], &config.ports[&"old".parse().unwrap()]);
    let at = |path: &str| SocketPath { path: path.into(), ..SocketPath::default() };
    let newer = E1000 { socket: at("nic.sock"), ..E1000::new(Model::E1000e) };
    let told = E1000 { link: Cable::Down, csb: true, completion_delay: Duration::ZERO, ..newer };
    assert_eq!(told.registers, Registers::Mapped);
    assert_eq!(nic.settings, Settings::E1000(told));
    assert_eq!(old.settings, Settings::E1000(E1000 { socket: at("old.sock"), ..E1000::new(Model::E1000) }));
    assert_eq!(E1000::new(Model::E1000).registers, Registers::Trapped);
    assert_eq!(E1000::new(Model::E1000).completion_delay, Duration::from_millis(2));
    let pc = &config.ports[&"pc".parse().unwrap()];
    assert_eq!(pc.settings, Settings::Stream(Stream { socket: Socket::new("pc.sock", Role::Client) }));
    assert_eq!((vm3.calls.interval, vm3.calls.above), (CallInterval::Fixed(Duration::from_micros(50)), 10_000));
    assert_eq!(vm3.poller, Placement::Poller(0));
    let lan1 = &config.switches[&"lan1".parse().unwrap()];
    assert_eq!((lan1.mac_entries, lan1.mac_limit, lan1.ageing.as_secs()), (16384, 4096, 300));
    assert_eq!(lan1.unknown_unicast.to_string(), "drop", "what a map does not hold has no destination");
    assert_eq!(parse("r.toml", "", &host()).unwrap(), Config::default());
    assert!(parse("r.toml", LAN0, &host()).unwrap().switches.len() == 1);
}

#[test]
fn the_memory_that_front_ends_give_is_bounded_per_port_and_in_all() {
    let text = r#"
        [memory]
        size = "16TiB"
        [switch.lan0]
        [port.vm1]
        switch = "lan0"
        kind = "vhost-user"
        memory = { size = "1.5TiB", mappings = 9 }
        [port.nic]
        switch = "lan0"
        kind = "e1000"
        memory = { holes = "0B" }
    "#;
    let config = parse("r.toml", text, &host()).unwrap();
    assert_eq!(config.memory, Memory { size: 16 << 40, ..Memory::TOTAL });
    let memory = |port: &str| match &config.ports[&port.parse().unwrap()].settings {
        Settings::VhostUser(port) => port.memory.memory,
        Settings::E1000(port) => port.memory.memory,
        other => panic!("{other:?} has no memory"),
    };
    assert_eq!(memory("vm1"), Memory { size: 3 << 39, mappings: 9, ..Memory::PORT });
    assert_eq!(memory("nic"), Memory { holes: 0, ..Memory::PORT });
    assert_eq!((Memory::PORT.size, Memory::TOTAL.size), (2 << 40, 64 << 40));
    for (wrong, what) in [
        ("[memory]\nholes = 5", "holes"),
        ("[memory]\nsize = \"200TiB\"", "out of range"),
        ("[memory]\nmappings = 12289", "12288"),
        ("[switch.a]\n[port.b]\nswitch = \"a\"\nkind = \"stream\"\nmemory = {}", "a stream port has no memory"),
        ("[switch.a]\n[port.b]\nswitch = \"a\"\nkind = \"e1000\"\nmemory = \"1TiB\"", "bounds like"),
    ] {
        let said = parse("r.toml", wrong, &host()).unwrap_err().to_string();
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn a_small_mac_table_lowers_the_default_limit_with_it() {
    let config = parse("r.toml", "[switch.a]\nmac_entries = 64\n", &host()).unwrap();
    assert_eq!(config.switches[&"a".parse().unwrap()].mac_limit, 64);
}
