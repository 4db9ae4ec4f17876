//! Each example in a switch.

use ringway_testing::frame::{BROADCAST, between, short, station};

use super::kit::{built, examples};
use super::packets::{self, End, TCP, UDP, arp, ipv4, vxlan};
use super::scene::Scene;

const NOBODY: [&str; 0] = [];

#[test]
fn every_example_runs_in_a_switch() {
    for example in examples() {
        for module in built(&example) {
            let scene = Scene::start(&module, super::offline::config(&example), &["a"]);
            assert_eq!(scene.program()["state"], "running", "{}", module.display());
        }
    }
}

#[test]
fn the_null_program_is_the_built_in_function() {
    for module in built("null") {
        let mut scene = Scene::start(&module, "", &["a", "b", "c"]);
        assert_eq!(scene.send("a", &between(2, 1, 60, 0)), ["b", "c"]);
        assert_eq!(scene.send("b", &between(1, 2, 60, 0)), ["a"]);
        assert_eq!(scene.send("a", &between(2, 1, 1514, 0)), ["b"]);
        assert_eq!(scene.send("c", &short(BROADCAST, station(3_u8), 0)), ["a", "b"]);
        let known = scene.daemon.ok(&["fdb", "lan0"]);
        assert_eq!(known.matches("02:00:00:00:00:0").count(), 3, "{known}");
    }
}

#[test]
fn the_learning_bridge_learns_and_follows_stations_that_move() {
    for module in built("learning_bridge") {
        let mut scene = Scene::start(&module, "", &["a", "b", "c"]);
        assert_eq!(scene.send("a", &between(2, 1, 60, 0)), ["b", "c"]);
        assert_eq!(scene.send("b", &between(1, 2, 60, 0)), ["a"]);
        assert_eq!(scene.send("a", &between(2, 1, 1514, 0)), ["b"]);
        assert_eq!(scene.send("c", &short(BROADCAST, station(3_u8), 0)), ["a", "b"]);
        // To its own port.
        assert_eq!(scene.send("a", &between(1, 1, 60, 0)), NOBODY);
        // Station 2 moves to port c.
        assert_eq!(scene.send("c", &between(1, 2, 60, 0)), ["a"]);
        assert_eq!(scene.send("a", &between(2, 1, 60, 0)), ["c"]);
        let mut group = between(2, 1, 60, 0);
        group[6] = 1;
        assert_eq!(scene.send("a", &group), NOBODY);
        assert_eq!(scene.dropped("group_source"), 1);
        scene.leave("c");
        assert_eq!(scene.send("a", &between(3, 1, 60, 0)), ["b"]);
    }
}

#[test]
fn the_access_list_lets_answers_pass_and_follows_its_rules_when_they_change() {
    let (client, server, other) = (End(1, 1, 40_000), End(2, 2, 80), End(2, 2, 81));
    for module in built("access_list") {
        let mut scene = Scene::start(&module, "allow tcp from 10.0.0.1 to 10.0.0.2 port 80", &["a", "b"]);
        assert_eq!(scene.send("a", &arp(1)), ["b"]);
        assert_eq!(scene.send("b", &ipv4(TCP, server, client, &[])), NOBODY, "an answer before the question");
        assert_eq!(scene.send("a", &ipv4(TCP, client, server, &[])), ["b"]);
        assert_eq!(scene.send("b", &ipv4(TCP, server, client, &[])), ["a"]);
        assert_eq!(scene.send("a", &ipv4(TCP, client, other, &[])), NOBODY);
        assert_eq!(scene.send("b", &ipv4(TCP, other, client, &[])), NOBODY);
        assert_eq!(scene.send("a", &ipv4(UDP, client, server, &[])), NOBODY);
        assert_eq!(
            (scene.dropped("denied"), scene.daemon.port("a")["drops"]["program_dropped"].as_u64()),
            (4, Some(2))
        );
        scene.daemon.ok(&["switch", "set", "lan0", "forwarding.config=allow udp"]);
        assert_eq!(scene.send("a", &ipv4(UDP, client, server, &[])), ["b"]);
        assert_eq!(scene.send("b", &ipv4(UDP, server, client, &[])), ["a"]);
        assert_eq!(scene.send("a", &ipv4(TCP, client, server, &[])), NOBODY);
        let said = scene.daemon.ringway(&["switch", "set", "lan0", "forwarding.config=permit udp"]);
        assert!(said.code != Some(0) && said.err.contains("rule 1 has not the form"), "{}", said.err);
        assert_eq!(scene.send("a", &ipv4(UDP, client, server, &[])), ["b"], "a refused change changes nothing");
    }
}

#[test]
fn answers_pass_the_access_list_at_another_poller() {
    let (client, server) = (End(1, 1, 40_000), End(2, 2, 80));
    for module in built("access_list") {
        let engine = "[engine]\ncores = [0, 1]\n";
        let mut scene = Scene::with(engine, &module, "allow tcp from 10.0.0.1", &["a", "b"]);
        scene.daemon.ok(&["port", "set", "a", "poller=0"]);
        scene.daemon.ok(&["port", "set", "b", "poller=1"]);
        assert_eq!(scene.send("b", &ipv4(TCP, server, client, &[])), NOBODY);
        assert_eq!(scene.send("a", &ipv4(TCP, client, server, &[])), ["b"]);
        assert_eq!(scene.send("b", &ipv4(TCP, server, client, &[])), ["a"]);
    }
}

#[test]
fn the_load_balancer_keeps_flows_at_their_server() {
    const SHARED: [u8; 6] = [2, 0, 0, 0, 0, 0x80];
    const FLOWS: u16 = 60;
    for module in built("load_balancer") {
        let mut scene = Scene::start(&module, "02:00:00:00:00:80 web1 web2 web3", &["client", "web1", "web2", "web3"]);
        let request =
            |flow: u16| packets::between(SHARED, station(1_u8), TCP, End(1, 1, 1000 + flow), End(9, 9, 80), &[]);
        let servers = |scene: &mut Scene| -> Vec<String> {
            let server = |flow| scene.send("client", &request(flow)).concat();
            (0..FLOWS).map(server).collect()
        };
        let before = servers(&mut scene);
        for server in ["web1", "web2", "web3"] {
            let flows = before.iter().filter(|of| *of == server).count();
            assert!((8..40).contains(&flows), "{server} has {flows} of {FLOWS} flows: {before:?}");
        }
        assert_eq!(servers(&mut scene), before);
        // The servers' answers, from an address that is at three ports.
        let answer = packets::between(station(1_u8), SHARED, TCP, End(9, 9, 80), End(1, 1, 1000), &[]);
        for server in ["web1", "web3"] {
            assert_eq!(scene.send(server, &answer), ["client"]);
        }
        scene.leave("web2");
        let after = servers(&mut scene);
        for (flow, (before, after)) in before.iter().zip(&after).enumerate() {
            assert!(if before == "web2" { after != "web2" && !after.is_empty() } else { before == after }, "{flow}");
        }
        scene.attach("web2");
        assert_eq!(servers(&mut scene), before, "its flows return");
        ["web1", "web2", "web3"].iter().for_each(|server| scene.leave(server));
        assert_eq!(scene.send("client", &request(0)), NOBODY);
        assert_eq!(scene.dropped("no_server"), 1);
    }
}

#[test]
fn the_packet_broker_keeps_flows_at_their_probe() {
    for module in built("packet_broker") {
        let mut scene = Scene::start(&module, "tap probe1 probe2", &["tap", "probe1", "probe2"]);
        let frame = |flow: u16| ipv4(UDP, End(1, 1, flow), End(2, 2, 53), &[]);
        let probes: Vec<String> = (0..40).map(|flow| scene.send("tap", &frame(flow)).concat()).collect();
        assert!(probes.iter().all(|probe| probe.starts_with("probe")), "{probes:?}");
        let first = probes.iter().filter(|probe| *probe == "probe1").count();
        assert!((8..32).contains(&first), "{probes:?}");
        let again: Vec<String> = (0..40).map(|flow| scene.send("tap", &frame(flow)).concat()).collect();
        assert_eq!(again, probes);
        assert_eq!(scene.send("probe2", &frame(0)), ["tap"]);
        scene.leave("probe1");
        assert!((0..40).all(|flow| scene.send("tap", &frame(flow)) == ["probe2"]));
    }
}

#[test]
fn the_port_knocker_opens_for_who_knocks_until_it_is_told_to_close() {
    let knock = |client: u8, port: u16| ipv4(TCP, End(client, client, 999), End(9, 9, port), &[]);
    for module in built("port_knocker") {
        let mut scene = Scene::start(&module, "10.0.0.9 22 7000 8000", &["a", "b", "server"]);
        scene.send("server", &between(1, 9, 60, 0));
        assert_eq!(scene.send("a", &knock(1, 22)), NOBODY);
        assert_eq!(scene.send("a", &knock(1, 80)), ["server"], "other ports are not its business");
        for port in [8000, 7000] {
            scene.send("a", &knock(1, port));
        }
        assert_eq!(scene.send("a", &knock(1, 22)), NOBODY, "the wrong order");
        scene.send("a", &knock(1, 8000));
        assert_eq!(scene.send("a", &knock(1, 22)), ["server"]);
        assert_eq!(scene.send("b", &knock(2, 22)), NOBODY, "another client");
        assert_eq!((scene.dropped("closed"), scene.program()["counters"]["opened"].as_u64()), (3, Some(1)));
        let said = scene.daemon.ringway(&["switch", "tell", "lan0", "open"]);
        assert!(said.code != Some(0) && said.err.contains("\"open\" is no message of this program"), "{}", said.err);
        scene.daemon.ok(&["switch", "tell", "lan0", "close"]);
        assert_eq!(scene.send("a", &knock(1, 22)), NOBODY);
    }
}

#[test]
fn the_demultiplexer_gives_each_network_its_port() {
    for module in built("vxlan_demultiplexer") {
        let mut scene = Scene::start(&module, "up 10=t1 16777215=t2", &["up", "t1", "t2"]);
        assert_eq!(scene.send("up", &vxlan(1, 2, 10)), ["t1"]);
        assert_eq!(scene.send("up", &vxlan(1, 2, 16_777_215)), ["t2"]);
        assert_eq!(scene.send("up", &vxlan(1, 2, 11)), NOBODY);
        assert_eq!(scene.send("up", &ipv4(UDP, End(1, 1, 4789), End(2, 2, 4790), &[8; 8])), NOBODY);
        assert_eq!(scene.send("t1", &vxlan(2, 1, 10)), ["up"]);
        assert_eq!(scene.send("t1", &vxlan(2, 1, 16_777_215)), NOBODY, "another tenant's network");
        let drops = ["unknown_vni", "no_vxlan", "foreign_vni"].map(|reason| scene.dropped(reason));
        assert_eq!(drops, [1, 1, 1]);
        scene.leave("t2");
        assert_eq!(scene.send("up", &vxlan(1, 2, 16_777_215)), NOBODY);
        scene.attach("t2");
        assert_eq!(scene.send("up", &vxlan(1, 2, 16_777_215)), ["t2"]);
    }
}
