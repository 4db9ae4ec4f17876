//! Ports that clients made by attaching are checked against the configuration like configured ports.

use ringway_client::{NotExchanged, Port, Shape};
use ringway_scenes::{Daemon, PATIENCE, Said, frame, receive, send, until, why_ended};

/// Returns the output of a command that changes a port made by a client.
fn changed(switch: &str, name: &str) -> String {
    format!("changed port {name} until its client goes; to keep it so: ringway port add {switch}:{name} kind=process\n")
}

fn refused(said: &Said, wanted: &str) {
    assert!(said.code == Some(2) && said.err.contains(wanted), "{wanted} is not in: {} {}", said.out, said.err);
}

#[test]
fn what_client_ports_are_guaranteed_is_no_more_than_their_bucket_has() {
    let daemon = Daemon::start("");
    assert_eq!(daemon.ok(&["bucket", "set", "ten", "rate=10Mbit"]), "set bucket ten\n");
    let clients = ["c1", "c2", "c3"].map(|name| daemon.attach(&format!("M:{name}")).unwrap());
    let set = |name: &str, rate: &str| {
        let limit = format!("ingress={{bucket=\"ten\",rate=\"{rate}\"}}");
        daemon.ringway(&["port", "set", name, &limit])
    };
    assert_eq!(set("c1", "10Mbit").code, Some(0));
    refused(&set("c2", "10Mbit"), "the rates of the ports of bucket \"ten\" add up to 20Mbit, and it has 10Mbit");
    assert_eq!(daemon.port("c2")["ingress"], serde_json::Value::Null);
    // A bucket's rate cannot go below the guaranteed rates, and earlier ports do not block later changes.
    let said = daemon.ringway(&["bucket", "set", "ten", "rate=5Mbit"]);
    refused(&said, "key \"port.M:c1.ingress.rate\": the rates of the ports of bucket \"ten\" add up to 10Mbit");
    assert_eq!(set("c1", "4Mbit").code, Some(0));
    assert_eq!(set("c2", "6Mbit").code, Some(0));
    refused(&set("c3", "1Mbit"), "add up to 11Mbit");
    assert_eq!(daemon.ringway(&["port", "set", "c3", "weight=2"]).code, Some(0));
    let config = "[switch.M]\n[bucket.ten]\nrate = \"9Mbit\"\n";
    daemon.reload(config);
    daemon.complains("add up to 10Mbit, and it has 9Mbit");
    drop(clients);
    until("the ports are gone", || daemon.status()["ports"] == serde_json::json!([]));
    daemon.reload(config);
    let said = "reloaded: set bucket ten, added switch M, bucket \"ten\": a command added it, and the file has got another one since: the file holds";
    assert!(daemon.line().starts_with(said));
}

#[test]
fn an_address_is_bound_to_one_port_of_a_map_switch_whoever_made_it() {
    let daemon = Daemon::start("[switch.lan0]\nforwarding = \"map\"\n[switch.lan1]\n");
    let _clients = ["lan0:c1", "lan0:c2", "lan1:c3", "lan1:c4"].map(|name| daemon.attach(name).unwrap());
    let mac = |name: &str| daemon.ringway(&["port", "set", name, "mac=02:00:00:00:00:01"]);
    assert_eq!(mac("c1").code, Some(0));
    refused(&mac("c2"), "02:00:00:00:00:01 is already bound to port \"lan0:c1\" of the map switch \"lan0\"");
    // A learning switch may have an address twice. It then cannot become a map switch.
    assert_eq!([mac("c3").code, mac("c4").code], [Some(0); 2]);
    let said = daemon.ringway(&["switch", "set", "lan1", "forwarding=map"]);
    refused(&said, "key \"port.lan1:c4.mac\": 02:00:00:00:00:01 is already bound to port \"lan1:c3\"");
    assert_eq!(daemon.ringway(&["switch", "set", "lan1", "mac_limit=100"]).code, Some(0));
}

#[test]
fn protocols_between_a_station_and_its_bridge_pass_only_where_the_switch_forwards_them() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let [mut a, mut b] = ["lan0:a", "lan0:b"].map(|name| daemon.attach(name).unwrap());
    let to = |last: u8| frame([1, 0x80, 0xc2, 0, 0, last], [2, 0, 0, 0, 0, 1], last);
    let dropped = || daemon.port("a")["drops"]["bridge_reserved"].as_u64().unwrap_or(0);
    // Spanning tree, LACP, EAPOL, LLDP, and a last one that every switch forwards.
    let mut passing = |keys: &str| {
        daemon.ok(&["switch", "set", "lan0", &format!("forward_reserved={keys}")]);
        let before = dropped();
        [0, 2, 3, 14, 0x10].into_iter().for_each(|last| send(&mut a, &to(last)));
        let mut passed = Vec::new();
        while passed.last() != Some(&0x10) {
            passed.push(receive(&mut b, PATIENCE).expect("a frame")[5]);
        }
        assert_eq!(dropped() - before, 5 - passed.len() as u64, "{keys}");
        passed
    };
    assert_eq!(passing("[]"), [0x10]);
    assert_eq!(passing("[\"lldp\"]"), [14, 0x10]);
    assert_eq!(passing("lacp,eapol,lldp"), [2, 3, 14, 0x10]);
    assert_eq!(passing("stp,01:80:c2:00:00:0E"), [0, 14, 0x10]);
    assert_eq!(daemon.status()["switches"][0]["forward_reserved"], serde_json::json!(["stp", "lldp"]));
    for (keys, wanted) in [
        ("rstp", "unknown value \"rstp\"; write a list of \"stp\", \"lacp\", \"eapol\", \"lldp\", and groups like"),
        ("01:80:c2:00:00:10", "unknown value \"01:80:c2:00:00:10\"; write a list"),
        ("01:80:c2:00:00:01", "01:80:c2:00:00:01 has frames for the link itself, as PAUSE: no bridge forwards them"),
    ] {
        let said = daemon.ringway(&["switch", "set", "lan0", &format!("forward_reserved={keys}")]);
        refused(&said, wanted);
    }
}

#[test]
fn fewer_pollers_leave_no_client_port_on_one_that_is_not_there() {
    let daemon = Daemon::start("[engine]\ncores = [0, 1]\n[switch.lan0]\n");
    let _client = daemon.attach("lan0:c1").unwrap();
    assert_eq!(daemon.ringway(&["port", "set", "c1", "poller=1"]).code, Some(0));
    assert_eq!(daemon.port("c1")["poller"], 1);
    daemon.reload("[engine]\ncores = [0]\n[switch.lan0]\n");
    assert_eq!(daemon.line(), "reloaded: changed engine");
    assert_eq!(daemon.port("c1")["poller"], 0);
    assert_eq!(daemon.ok(&["port", "set", "c1", "weight=2"]), changed("lan0", "c1"));
    refused(&daemon.ringway(&["port", "set", "c1", "poller=1"]), "key \"poller\": there is no poller 1");
}

#[test]
fn a_client_port_and_a_configured_one_of_another_switch_may_have_one_name() {
    let config = "[switch.lan0]\n[switch.lan1]\n[port.vm1]\nswitch = \"lan0\"\nkind = \"process\"\n";
    let config = format!("{config}[port.vm2]\nswitch = \"lan0\"\nkind = \"process\"\nallow = [\"vm1\"]\n");
    let daemon = Daemon::start(&config);
    let _client = daemon.attach("lan1:vm1").unwrap();
    assert_eq!(daemon.ok(&["port", "set", "lan1:vm1", "weight=3"]), changed("lan1", "vm1"));
    assert_eq!(daemon.ok(&["port", "set", "lan0:vm1", "weight=2"]), "changed port vm1\n");
}

#[test]
fn a_client_with_the_name_of_a_configured_port_is_in_no_changes_way_and_learns_why_it_ends() {
    let config = "[switch.lan0]\n[port.other]\nswitch = \"lan0\"\nkind = \"process\"\n";
    let daemon = Daemon::start(config);
    let mut first = daemon.attach("lan0:vm1").unwrap();
    let mut second = daemon.attach("lan0:vm2").unwrap();
    let mut bystander = daemon.attach("lan0:other").unwrap();
    let said = daemon.ok(&["port", "add", "lan0:vm1", "kind=vhost-user"]);
    assert_eq!(said, "added port vm1 to switch lan0\ndisplaced a client's port vm1 on switch lan0\n");
    let why = why_ended(&mut first);
    assert!(why.contains("displaced: lan0:vm1 is a vhost-user port now: attach to another name"), "{why}");
    assert_eq!(daemon.port("vm1")["kind"], "vhost-user");
    assert_eq!(daemon.port("vm1")["faults"]["displaced"], 1);
    // A reload is not refused either.
    daemon.reload(&format!("{config}isolated = true\n[port.vm2]\nswitch = \"lan0\"\nkind = \"stream\"\n"));
    until("the new configuration is in force", || daemon.port("other")["isolated"] == true);
    assert!(why_ended(&mut second).contains("displaced"));
    assert_eq!(daemon.port("vm2")["kind"], "stream");
    let refused = daemon.attach("lan0:vm1").expect_err("the name is taken").to_string();
    let wanted = "lan0:vm1 is a vhost-user port: attach to another name, or to mirror:vm1 to see its frames";
    assert!(refused.contains(wanted), "{refused}");
    // A configured process port is the client's: it stays.
    let mut third = daemon.attach("lan0:vm3").unwrap();
    assert_eq!(daemon.ok(&["port", "add", "lan0:vm3", "kind=process"]), "added port vm3 to switch lan0\n");
    for port in [&mut third, &mut bystander] {
        send(port, &frame([0xff; 6], [2, 0, 0, 0, 0, 1], 60));
    }
    until("both are served", || ["vm3", "other"].iter().all(|name| daemon.port(name)["in"]["frames"] == 1));
}

#[test]
fn an_uplink_that_a_client_made_can_be_used_while_it_is_there_and_is_in_nobodys_way_afterwards() {
    let config = "[switch.lan0]\n[port.vm1]\nswitch = \"lan0\"\nkind = \"process\"\n";
    let daemon = Daemon::start(config);
    let client = daemon.attach("lan0:up0").unwrap();
    let uplinks = |names: &str| daemon.ringway(&["port", "set", "vm1", &format!("uplinks={names}")]);
    refused(&uplinks("[\"up0\"]"), "key \"uplinks\": port \"up0\" is no uplink");
    assert_eq!(daemon.ok(&["port", "set", "up0", "uplink=true"]), changed("lan0", "up0"));
    assert_eq!(uplinks("[\"up0\"]").code, Some(0));
    refused(
        &daemon.ringway(&["port", "set", "up0", "uplink=false"]),
        "key \"port.vm1.uplinks\": port \"up0\" is no uplink",
    );
    drop(client);
    until("the port is gone", || daemon.port("up0").is_null());
    for change in [&["port", "set", "vm1", "weight=2"][..], &["port", "add", "vm2", "switch=lan0", "kind=process"]] {
        let said = daemon.ringway(change);
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
    refused(&uplinks("[\"up0\",\"up1\"]"), "there is no port \"up1\"");
    // A port that returns as another kind is not refused, and does not block other changes.
    let _client = daemon.attach("lan0:up0").unwrap();
    assert_eq!(daemon.ok(&["port", "set", "vm1", "weight=3"]), "changed port vm1\n");
    daemon.reload(&config.replace("kind", "isolated = true\nkind"));
    until("the new configuration is in force", || daemon.port("vm1")["isolated"] == true);
}

#[test]
fn what_is_set_of_a_client_port_goes_with_its_client_unless_the_port_is_added() {
    let daemon = Daemon::start("[switch.lan0]\n");
    let client = daemon.attach("lan0:evil").unwrap();
    let keys = ["port", "set", "evil", "ingress={rate=\"1Mbit\"}", "weight=3", "vlan=10"];
    assert_eq!(daemon.ok(&keys), changed("lan0", "evil"));
    drop(client);
    until("the port is gone", || daemon.port("evil").is_null());
    let client = daemon.attach("lan0:evil").unwrap();
    let settings = || {
        let port = daemon.port("evil");
        (
            port["ingress"]["rate"].as_str().map(str::to_owned),
            port["weight"].as_u64(),
            port["identity"]["vlan"].as_u64(),
        )
    };
    assert_eq!(settings(), (None, Some(1), None), "the next client's port has default settings");
    assert_eq!(daemon.ok(&keys), changed("lan0", "evil"));
    // The command adds the port with its present settings, except the keys that the command sets.
    let added = daemon.ok(&["port", "add", "lan0:evil", "kind=process", "weight=2"]);
    assert_eq!(added, "added port evil to switch lan0\n");
    let wanted = (Some("1Mbit".to_owned()), Some(2), Some(10));
    assert_eq!(settings(), wanted);
    drop(client);
    daemon.until_state("evil", "waiting");
    let _client = daemon.attach("lan0:evil").unwrap();
    assert_eq!(settings(), wanted);
    assert_eq!(daemon.ok(&["port", "set", "evil", "weight=1"]), "changed port evil\n");
}

#[test]
fn a_switch_that_a_client_made_is_changed_and_stays_or_is_left_alone() {
    let daemon = Daemon::start("");
    let client = daemon.attach("A:c1").unwrap();
    let there = || daemon.status()["switches"].as_array().unwrap().len();
    assert_eq!(daemon.ok(&["switch", "set", "A", "local=allow"]), "nothing differs\n");
    drop(client);
    until("the switch is gone with its port", || there() == 0);
    let client = daemon.attach("A:c1").unwrap();
    let said = daemon.ok(&["switch", "set", "A", "local=drop"]);
    assert_eq!(said, "changed switch A, which now stays without ports, too\n");
    assert_eq!(daemon.ok(&["switch", "set", "A", "local=allow"]), "changed switch A\n");
    drop(client);
    until("the port is gone", || daemon.port("c1").is_null());
    assert_eq!(there(), 1);
}

#[test]
fn it_is_the_port_of_the_command_that_is_blamed() {
    let config = "[switch.lan0]\nforwarding = \"map\"\n[bucket.ten]\nrate = \"10Mbit\"\n[port.b]\nswitch = \"lan0\"\nkind = \
                  \"stream\"\nmac = \"02:00:00:00:00:01\"\ningress = { bucket = \"ten\", rate = \"10Mbit\" }\n";
    let daemon = Daemon::start(config);
    let add = |keys: &[&str]| daemon.ringway(&[&["port", "add", "a", "switch=lan0"], keys].concat());
    let said = add(&["kind=process", "mac=02:00:00:00:00:01"]);
    refused(&said, "port add: key \"mac\": 02:00:00:00:00:01 is already bound to port \"b\" of the map switch");
    refused(
        &add(&["kind=stream", "socket=b.sock"]),
        "port add: key \"socket\": the socket \"b.sock\" already belongs to port \"b\"",
    );
    let said = add(&["kind=process", "ingress={bucket=\"ten\",rate=\"1Mbit\"}"]);
    refused(&said, "port add: key \"ingress.rate\": the rates of the ports of bucket \"ten\" add up to 11Mbit");
    let top = daemon.ok(&["top", "--once", "--port", "nope", "--port", "lan0:a"]);
    assert!(top.ends_with("there is no port \"nope\", \"lan0:a\"\n"), "{top}");
}

#[test]
fn a_frame_that_left_with_its_buffer_stays_as_it_is_while_the_ring_goes_round() {
    let daemon = Daemon::start("");
    let mut sender = daemon.attach("lan0:a").unwrap();
    let shape = Shape { rx_slots: 8, extra_buffers: 3, ..Shape::default() };
    let (mut receiver, mut spares) = Port::attach_with_buffers(daemon.socket("attach.sock"), "lan0:b", shape).unwrap();
    assert_eq!(spares.len(), 3);
    let mut kept = Vec::new();
    for number in 0..50u8 {
        let frame = [[0xff; 6], [2; 6], [number; 6]].concat();
        assert!(sender.tx().push(&frame));
        sender.flush();
        assert!(receiver.wait_rx(PATIENCE).unwrap());
        let mut buffer = spares.pop().unwrap();
        assert_eq!(receiver.rx().exchange(&mut buffer), Ok(frame.len()));
        assert_eq!(buffer[..frame.len()], frame);
        kept.push((frame, buffer));
        if spares.is_empty() {
            // The oldest but one: buffers come back in any order.
            spares.push(kept.remove(1).1);
        }
    }
    assert_eq!(receiver.rx().exchange(&mut spares[0]), Err(NotExchanged::Empty));
    drop(receiver);
    for (frame, buffer) in kept {
        assert_eq!(buffer[..frame.len()], frame, "also when the port is gone");
    }
}

#[test]
#[should_panic(expected = "the buffer belongs to another port")]
fn a_buffer_of_another_port_is_not_taken() {
    let daemon = Daemon::start("");
    let attach = |name: &str| {
        let shape = Shape { extra_buffers: 1, ..Shape::default() };
        Port::attach_with_buffers(daemon.socket("attach.sock"), name, shape).unwrap()
    };
    let ((mut one, _), (_two, mut foreign)) = (attach("lan0:a"), attach("lan0:b"));
    let _ = one.rx().exchange(&mut foreign[0]);
}
