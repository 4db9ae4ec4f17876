//! Keys that would do nothing, or not what they say, are refused with what would be right.

use ringway_config::{Host, parse};

/// What is said of a port's keys.
fn said_of(keys: &str) -> String {
    report(&format!("[switch.a]\n[port.p]\nswitch = \"a\"\n{keys}\n"))
}

/// What is said of a process port's keys, on a switch that has these.
fn said(switch: &str, keys: &str) -> String {
    let text = format!(
        "[switch.a]\n{switch}\n[port.q]\nswitch = \"a\"\nkind = \"process\"\n[port.p]\nswitch = \"a\"\nkind = \"process\"\n{keys}\n"
    );
    report(&text)
}

fn report(text: &str) -> String {
    let host = Host { cpus: vec![0, 1], runtime_dir: "/run/ringway".into() };
    parse("r", text, &host).map_or_else(|rejected| rejected.to_string(), |_| String::new())
}

fn refused(switch: &str, keys: &str, wanted: &str) {
    let said = said(switch, keys);
    assert!(said.contains(wanted) && said.lines().count() == 1, "{switch} {keys}: {wanted} is not: {said}");
}

fn accepted(switch: &str, keys: &str) {
    assert_eq!(said(switch, keys), "", "{switch} {keys}");
}

#[test]
fn ageing_is_in_whole_seconds_and_less_is_not_never() {
    refused(
        "ageing = \"500ms\"",
        "",
        "r:2:10: key \"switch.a.ageing\": 500ms is not whole seconds; write 1s or more, or 0s",
    );
    refused("ageing = \"1.5s\"", "", "key \"switch.a.ageing\": 1500ms is not whole seconds; write 1s or 2s");
    for time in ["0s", "1s", "3000ms", "5min"] {
        accepted(&format!("ageing = \"{time}\""), "");
    }
}

#[test]
fn a_mirror_is_no_uplink_and_nowhere_that_frames_are_sent() {
    let right = "leave it out, or \"mirror\"";
    for forwarding in ["learning", "map"] {
        let forwarding = format!("forwarding = \"{forwarding}\"");
        let keys = "mirror = [\"q\"]\nuplink = true";
        refused(
            &forwarding,
            keys,
            &format!("key \"port.p.uplink\": a mirror leads nowhere: it is given copies and nothing else; {right}"),
        );
    }
    let what = "key \"switch.a.multicast\": port \"p\" is a mirror: it is given copies and nothing else; name a port that is none";
    refused("multicast = \"port:p\"", "mirror = [\"q\"]", what);
    accepted("multicast = \"port:q\"", "mirror = [\"q\"]");
}

#[test]
fn what_changes_nothing_for_a_mirror_is_refused_there() {
    for key in [
        "vlan = 10",
        "trunk = [10]",
        "guard = \"all\"",
        "isolated = true",
        "allow = []",
        "uplinks = []",
        "ip = \"10.0.0.1\"",
    ] {
        let (name, _) = key.split_once(' ').unwrap();
        let what = format!("key \"port.p.{name}\": it changes nothing for a mirror, which is given copies");
        refused("", &format!("mirror = [\"q\"]\n{key}"), &what);
        accepted("", key);
    }
    refused("", "mirror = [\"q\"]\nstorm = { broadcast = \"1kpps\" }", "key \"port.p.storm\": a mirror has no limits");
    accepted("", "mirror = [\"q\"]\nweight = 2\ncall_interval = \"1ms\"\nmirror_direction = \"in\"");
}

#[test]
fn what_belongs_to_a_key_that_is_not_there_is_refused() {
    for direction in ["both", "in", "out"] {
        let keys = format!("mirror_direction = \"{direction}\"");
        refused(
            "",
            &keys,
            "key \"port.p.mirror_direction\": the port is no mirror; write mirror = [\"PORT\"], or leave it out",
        );
        refused("", &format!("mirror = []\n{keys}"), "the port is no mirror");
    }
    refused(
        "",
        "call_above = \"10kpps\"",
        "key \"port.p.call_above\": there is no call_interval that it belongs to; write call_interval",
    );
    refused("", "call_interval = \"0s\"\ncall_above = \"10kpps\"", "there is no call_interval");
    refused("", "call_interval = 1\ncall_above = \"10kpps\"", "key \"port.p.call_interval\": expected a duration");
    accepted("", "call_above = \"0pps\"");
    accepted("", "call_interval = \"1ms\"\ncall_above = \"10kpps\"");
    accepted("", "call_interval = \"auto\"");
    refused("", "call_interval = \"auto\"\ncall_above = \"10kpps\"", "there is no call_interval");
    refused(
        "",
        "trunk = []",
        "key \"port.p.trunk\": the port is then in no VLAN; write trunk = [10, \"20-29\"], native = 1, or vlan",
    );
    refused("", "trunk = []\nnative = \"none\"", "the port is then in no VLAN");
    accepted("", "trunk = []\nnative = 1");
}

#[test]
fn several_addresses_or_ports_in_one_text_are_separated_by_commas() {
    accepted("", "mac = \"02:00:00:00:00:01,02:00:00:00:00:02\"");
    accepted("", "ip = \"10.0.0.1, fd00::/64\"\nmac = \"02:00:00:00:00:01\"\nguard = \"mac, ip\"");
    refused("", "ip = \"10.0.0.1,10.0.0.1\"", "key \"port.p.ip\": 10.0.0.1 is listed twice");
    refused("", "allow = \"q, a b\"", "key \"port.p.allow\": \"a b\" is not a name");
    refused("", "mac = \"02:00:00:00:00:01,\"", "key \"port.p.mac\": \"\" is not an Ethernet address");
}

#[test]
fn a_key_of_a_table_that_is_written_beside_it_is_shown_in_its_place() {
    refused(
        "",
        "rate = \"1Gbit\"",
        "key \"port.p.rate\": unknown key; did you mean \"ingress.rate\" or \"egress.rate\"?",
    );
    refused("", "broadcast = \"1kpps\"", "key \"port.p.broadcast\": unknown key; did you mean \"storm.broadcast\"?");
}

#[test]
fn no_control_character_gets_into_what_is_said_or_into_a_path() {
    refused("", "\"we\\u001b[31m\\\"ight\" = 1", "key \"port.p.we\\u{1b}[31m\\\"ight\": unknown key");
    let tap = "kind = \"tap\"\n";
    for netns in ["a\\u001b[2J", "/run/a\\nb"] {
        let said = said_of(&format!("{tap}netns = \"{netns}\""));
        assert!(said.contains("is not a network namespace") && !said.contains(char::is_control), "{said:?}");
    }
    let said = said_of("kind = \"stream\"\nsocket = \"a\\u001b]0;x\\u0007.sock\"");
    assert!(said.contains("is not a socket's path") && !said.contains(char::is_control), "{said:?}");
}
