//! What commands changed is written, read and applied to the file without loss; a file that was edited at the same place is told.

use proptest::prelude::*;
use ringway_config::changes::{Change, Changes, Id, Merged, Part, Section, StateError, merge, text, toml};
use ringway_config::port::DynamicPorts;
use ringway_config::{Config, Host, parse};

fn host() -> Host {
    Host { cpus: vec![0, 1], runtime_dir: "/run/ringway".into() }
}

fn config(text: &str) -> Config {
    parse("test.toml", text, &host()).unwrap_or_else(|rejected| panic!("{rejected}"))
}

/// Keys of every part and every kind, with values that depend on each other.
const RICH: &str = r#"
[engine]
cores = [1]
idle = "sleep"
spin = "70us"
pacing = "off"
[attach]
create = "ports"
max_memory = "3MiB"
[memory]
mappings = 500
holes = "5GiB"
[sockets]
mode = "0660"
control = { mode = "0600" }
[state]
file = "/var/lib/ringway/state.toml"
conflict = "runtime"
[switch.lan0]
ageing = "90s"
broadcast = "drop"
forward_reserved = ["lldp", "01:80:c2:00:00:08"]
transit = "drop"
[switch."a.b"]
forwarding = "map"
mac_entries = 64
[switch.own]
forwarding = { program = "/a \"b\"\u007f\u0001.wasm", config = "x = 1\n# ' \\ ü", on_fault = "drop" }
[bucket.plain]
rate = "2Gbit"
[bucket.full]
rate = "1234567bit"
burst = "3MiB"
frames = "1Mpps"
frames_burst = 77
[port.vm1]
switch = "lan0"
kind = "vhost-user"
socket = "/run/vm1.sock"
role = "client"
queues = 2
mtu = 1500
offload = false
memory = { size = "1GiB", mappings = 9 }
mac = ["52:54:00:00:00:01", "52:54:00:00:00:02"]
ip = ["10.0.0.0/24", "fd00::5"]
guard = ["mac", "ip", "dhcp"]
trunk = [10, "20-29"]
native = 1
ingress = { rate = "1Gbit", burst = "64KiB", on_excess = "wait" }
egress = { bucket = "full", rate = "1Mbit", ceiling = "1200kbit" }
storm = { broadcast = "1kpps", multicast = "10Mbit", frames_burst = 50 }
call_interval = "20us"
call_above = "10kpps"
weight = 7
poller = 0
[port.vm2]
switch = "lan0"
kind = "e1000"
vlan = 12
link = "down"
csb = true
allow = ["vm1"]
uplinks = []
isolated = true
coalesce = "off"
call_interval = "0s"
[port.vm3]
switch = "lan0"
kind = "e1000"
model = "e1000e"
access = { mode = "0660" }
[port.pr]
switch = "a.b"
kind = "process"
mac = ["02:00:00:00:00:01"]
[port.t]
switch = "lan0"
kind = "tap"
device = "tap9"
netns = "space"
uplink = true
[port.x]
switch = "lan0"
kind = "xdp"
device = "eth7"
queues = 3
host = false
mode = "copy"
[port.pk]
switch = "lan0"
kind = "packet"
device = "eth8"
[port.s]
switch = "lan0"
kind = "stream"
socket = "s.sock"
[port."m.1"]
switch = "lan0"
kind = "process"
mirror = ["vm1", "vm2"]
mirror_direction = "in"
"#;

fn ids(config: &Config) -> Vec<Id> {
    let of = |part, names: Vec<&ringway_config::Name>| {
        names.into_iter().map(move |name| Id { part, name: name.clone() }).collect::<Vec<_>>()
    };
    let switches = of(Part::Switch, config.switches.keys().collect());
    let buckets = of(Part::Bucket, config.buckets.keys().collect());
    [switches, buckets, of(Part::Port, config.ports.keys().collect())].concat()
}

#[test]
fn every_section_reads_back_as_it_was() {
    let rich = config(RICH);
    let mut again = Config { engine: rich.engine.clone(), ..rich.clone() };
    (again.switches, again.buckets, again.ports) = Default::default();
    for id in ids(&rich) {
        let section = Section::of(&rich, &id).expect("a section");
        section.put(&id, &mut again).unwrap_or_else(|mistakes| panic!("{id}: {mistakes:?}"));
        assert_eq!(Section::of(&again, &id), Some(section));
    }
    assert_eq!(again, rich);
}

#[test]
fn the_running_configuration_can_be_pasted_into_the_file() {
    for text in [RICH, ""] {
        let rich = config(text);
        let printed = toml::running(&rich, &Changes::default(), &[]);
        assert_eq!(config(&printed), rich, "{printed}");
        // With marks of changes, too.
        let changes = Changes::between(&Config { state: rich.state.clone(), ..Config::default() }, &rich);
        let printed = toml::running(&rich, &changes, &[]);
        assert_eq!(config(&printed), rich, "{printed}");
    }
}

#[test]
fn a_state_file_has_all_that_commands_changed_and_nothing_else() {
    let (rich, file) =
        (config(RICH), config("[switch.lan0]\n[switch.gone]\n[port.old]\nswitch = \"gone\"\nkind = \"tap\"\n"));
    let changes = Changes::between(&file, &rich);
    assert_eq!(
        text::read(&text::write(&changes, "\"/etc/a\n.toml\"")),
        Ok((changes.clone(), "\"/etc/a\n.toml\"".to_owned()))
    );
    let Merged { config, set_aside, contradictions } = merge(&file, &changes, &DynamicPorts::new(), &host());
    assert_eq!((set_aside, contradictions), (vec![], vec![]));
    let expected = Config { switches: rich.switches, buckets: rich.buckets, ports: rich.ports, ..file.clone() };
    assert_eq!(config, expected);
    assert!(Changes::between(&file, &file).is_empty());
    assert_eq!(text::read(&text::write(&Changes::default(), "")), Ok((Changes::default(), String::new())));
}

const FILE: &str = "[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\nweight = 2\nisolated = true\n";

/// What runs, what is said and what is set aside, if commands made `now` of `before`, and the file is `after` now.
fn merged(before: &str, now: &str, after: &str, conflict: &str) -> (Config, Vec<String>, Vec<String>) {
    let state = format!("\n[state]\nconflict = \"{conflict}\"\n");
    let changes = Changes::between(&config(before), &config(now));
    let merged = merge(&config(&format!("{after}{state}")), &changes, &DynamicPorts::new(), &host());
    let said = merged.contradictions.iter().map(ToString::to_string).collect();
    let aside = merged.set_aside.iter().map(|aside| format!("{}: {}", aside.id, aside.why)).collect();
    (merged.config, said, aside)
}

fn of(config: &Config, port: &str) -> Option<(u32, bool)> {
    config.ports.get(&port.parse().unwrap()).map(|port| (port.weight, port.isolated))
}

#[test]
fn a_key_that_a_command_changed_stays_unless_the_file_changed_the_same_key() {
    let now = FILE.replace("weight = 2", "weight = 3");
    for conflict in ["file", "runtime"] {
        let (config, said, aside) = merged(FILE, &now, &FILE.replace("isolated = true\n", ""), conflict);
        assert_eq!((of(&config, "a"), said.len(), aside.len()), (Some((3, false)), 0, 0), "another key was edited");
        let (config, said, _) = merged(FILE, &now, &now, conflict);
        assert_eq!((of(&config, "a"), said.len()), (Some((3, true)), 0), "the file has the change");
    }
    let edited = FILE.replace("weight = 2", "weight = 5");
    let (config, said, _) = merged(FILE, &now, &edited, "file");
    assert_eq!(of(&config, "a"), Some((5, true)));
    let what = "port \"a\": weight: a command made it 3, and the file was changed to 5 since: ";
    assert_eq!(said, [format!("{what}the file holds ([state] conflict = \"file\")")]);
    let (config, said, _) = merged(FILE, &now, &edited, "runtime");
    assert_eq!(of(&config, "a"), Some((3, true)));
    assert_eq!(said, [format!("{what}the command holds ([state] conflict = \"runtime\")")]);
    let (config, said, _) = merged(FILE, &now, &FILE.replace("weight = 2\n", ""), "file");
    assert_eq!(of(&config, "a"), Some((1, true)));
    assert!(said[0].contains("the file was changed to the default since"), "{said:?}");
}

#[test]
fn sections_that_commands_added_or_deleted_stay_so_unless_the_file_was_edited_there() {
    let added = format!("{FILE}[port.b]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let deleted = "[switch.lan0]\n";
    let edited = FILE.replace("weight = 2", "weight = 5");
    for conflict in ["file", "runtime"] {
        let holds = |file: Option<(u32, bool)>, command| if conflict == "file" { file } else { command };
        let (config, said, _) = merged(FILE, &added, &edited, conflict);
        assert_eq!((of(&config, "a"), of(&config, "b"), said.len()), (Some((5, true)), Some((1, false)), 0));
        let (config, said, _) = merged(FILE, deleted, FILE, conflict);
        assert_eq!((of(&config, "a"), said.len()), (None, 0), "a deleted port stays deleted");
        let (config, said, _) = merged(FILE, deleted, &edited, conflict);
        assert_eq!(of(&config, "a"), holds(Some((5, true)), None));
        assert!(said[0].contains("port \"a\": a command deleted it, and the file has changed it since"), "{said:?}");
        let own = format!("{FILE}[port.b]\nswitch = \"lan0\"\nkind = \"process\"\nweight = 9\n");
        let (config, said, _) = merged(FILE, &added, &own, conflict);
        assert_eq!(of(&config, "b"), holds(Some((9, false)), Some((1, false))));
        assert!(said[0].contains("port \"b\": a command added it, and the file has got another one since"), "{said:?}");
        let (config, said, _) = merged(FILE, &FILE.replace("weight = 2", "weight = 3"), deleted, conflict);
        assert_eq!(of(&config, "a"), holds(None, Some((3, true))));
        assert!(said[0].contains("port \"a\": a command changed it, and the file has lost it since"), "{said:?}");
        // Another kind is another port.
        let other = FILE.replace("process", "tap");
        let (config, said, _) = merged(FILE, &other, &edited, conflict);
        assert_eq!(
            config.ports[&"a".parse().unwrap()].kind().as_str(),
            if conflict == "file" { "process" } else { "tap" }
        );
        assert!(said[0].contains("port \"a\": a command changed it, and the file has changed it since"), "{said:?}");
    }
}

#[test]
fn what_cannot_be_in_force_is_set_aside_and_the_rest_is_applied() {
    let port = |name: &str, switch: &str, keys: &str| {
        format!("[port.{name}]\nswitch = \"{switch}\"\nkind = \"process\"\n{keys}")
    };
    let before = "[switch.lan0]\n[switch.lan1]\n";
    let now = [
        before.to_owned(),
        port("a", "lan1", ""),
        port("b", "lan0", "mirror = [\"c\"]\n"),
        port("c", "lan0", ""),
        port("d", "lan1", "mirror = [\"a\"]\n"),
        port("e", "lan0", ""),
    ]
    .concat();
    let (config, said, aside) = merged(before, &now, "[switch.lan0]\n", "file");
    assert_eq!(config.ports.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["b", "c", "e"]);
    assert!(said.is_empty(), "{said:?}");
    assert_eq!(aside.len(), 2, "{aside:?}");
    assert!(aside[0].starts_with("port \"a\": key \"port.a.switch\": there is no switch \"lan1\""), "{aside:?}");
    // What a state file of another time has, and this version does not know.
    let id = Id { part: Part::Port, name: "z".parse().unwrap() };
    let keys = [("switch", "lan0"), ("kind", "teleport")].map(|(key, value)| (key.to_owned(), value.into()));
    let changes = Changes([(id, Change { file: None, now: Some(Section(keys.into())) })].into());
    let merged = merge(&Config { ..crate::config(before) }, &changes, &DynamicPorts::new(), &host());
    assert!(merged.set_aside[0].why.contains("unknown value \"teleport\""), "{:?}", merged.set_aside);
    assert_eq!(merged.config, crate::config(before));
    let shown = toml::changed(&Changes::default(), &merged.set_aside);
    assert!(
        shown.contains("# not in force: a command added [port.z]: ") && shown.contains("\n# kind = \"teleport\"\n"),
        "{shown}"
    );
}

#[test]
fn a_switch_and_all_that_used_it_can_be_deleted_together() {
    let before = "[switch.lan0]\n[switch.lan1]\n[bucket.t]\nrate = \"1Gbit\"\n\
        [port.a]\nswitch = \"lan1\"\nkind = \"process\"\ningress = { bucket = \"t\" }\n";
    let (config, said, aside) = merged(before, "[switch.lan0]\n", before, "file");
    assert_eq!((config.ports.len(), config.switches.len(), config.buckets.len()), (0, 1, 0));
    assert_eq!((said, aside), (vec![], vec![]));
    // The file has another port there now.
    let more = format!("{before}[port.b]\nswitch = \"lan1\"\nkind = \"process\"\n");
    let (config, _, aside) = merged(before, "[switch.lan0]\n", &more, "file");
    assert_eq!((config.ports.len(), config.switches.len(), config.buckets.len()), (1, 2, 0));
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(aside[0].starts_with("switch \"lan1\": "), "{aside:?}");
}

#[test]
fn marks_say_what_commands_changed() {
    let now = config(
        "[switch.lan0]\n[port.a]\nswitch = \"lan0\"\nkind = \"process\"\nweight = 3\nmac = [\"02:00:00:00:00:01\"]\n[port.b]\nswitch = \"lan0\"\nkind = \"process\"\n",
    );
    let file = config(&format!("{FILE}[port.c]\nswitch = \"lan0\"\nkind = \"process\"\n"));
    let shown = toml::changed(&Changes::between(&file, &now), &[]);
    let expected = r#"# What commands changed. A section replaces that of the file.

[port.a] # changed by a command
switch = "lan0"
kind = "process"
mac = ["02:00:00:00:00:01"] # not in the file
weight = 3 # in the file: 2
# the default; in the file: isolated = true

[port.b] # added by a command
switch = "lan0"
kind = "process"

# [port.c] of the file was deleted by a command
"#;
    assert_eq!(shown, expected);
    assert_eq!(toml::changed(&Changes::default(), &[]), "# No command has changed what the file says.\n");
}

#[test]
fn other_files_and_other_versions_are_refused_by_name() {
    let whole = text::write(&Changes::between(&Config::default(), &config(RICH)), "it");
    assert_eq!(text::read(""), Err(StateError::NotState));
    assert_eq!(text::read(RICH), Err(StateError::NotState));
    assert_eq!(text::read(&whole.replacen("state 1 ", "state 2 ", 1)), Err(StateError::Version(2)));
    assert!(matches!(text::read(&whole[..whole.len() - 1]), Err(StateError::Cut { .. })));
    assert_eq!(text::read(&format!("{whole}\n")), Err(StateError::Altered));
    assert_eq!(text::read(&" ".repeat(text::STATE_MAX + 1)), Err(StateError::TooLarge));
    let named = text::sections_named(&whole[..whole.len() / 2]);
    assert!(named.contains(&"switch.lan0".to_owned()), "{named:?}");
    for section in ["port.vm1]", "switch.\"a.b\"]"] {
        assert!(whole.contains(&format!("[runtime.{section}")), "{whole}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_state_file_that_was_cut_or_altered_is_refused(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let whole = text::write(&Changes::between(&config(FILE), &config(RICH)), "it").into_bytes();
        let at = at.index(whole.len());
        let mut other = whole.clone();
        if cut { other.truncate(at) } else { other[at] = byte }
        prop_assume!(other != whole);
        // What is no UTF-8 never gets here.
        if let Ok(text) = String::from_utf8(other) {
            prop_assert!(text::read(&text).is_err());
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*", sections in any::<bool>()) {
        let _ = text::read(&text);
        let body = if sections { format!("[runtime.port.a]\n{text}") } else { text };
        let _ = text::sections_named(&body);
    }
}
