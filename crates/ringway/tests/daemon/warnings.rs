//! What looks like a mistake in a configuration and may be right later is named where it is written, and refused nowhere.

use ringway_scenes::{Daemon, ringway};
use ringway_testing::until;

const CONFIG: &str = r#"
[switch.lan0]
broadcast = "port:gate"
[switch.map]
forwarding = "map"
[port.gato]
switch = "lan0"
kind = "process"
mac = "52:54:00:00:00:01"
[port.vm1]
switch = "lan0"
kind = "process"
mac = "52:54:00:00:00:01"
allow = ["gato", "vmm1"]
[port.tagged]
switch = "lan0"
kind = "process"
vlan = 7
mac = "52:54:00:00:00:01"
[port.look]
switch = "lan0"
kind = "process"
mirror = ["wm1"]
"#;

/// The warnings of the configuration: line and column, and what they say.
const WARNINGS: [(&str, &str); 4] = [
    (
        "3:13",
        "key \"switch.lan0.broadcast\": there is no port \"gate\" on switch \"lan0\"; did you mean \"gato\"? until there",
    ),
    ("13:7", "key \"port.vm1.mac\": 52:54:00:00:00:01 is an address of port \"gato\", too; give each port its own"),
    (
        "14:9",
        "key \"port.vm1.allow\": there is no port \"vmm1\" on switch \"lan0\"; did you mean \"vm1\"? it has no effect",
    ),
    ("23:10", "key \"port.look.mirror\": there is no port \"wm1\" on switch \"lan0\"; did you mean \"vm1\"? it has no"),
];

#[test]
fn a_check_names_line_and_column_of_names_that_nobody_has_and_accepts_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.toml");
    std::fs::write(&file, CONFIG).unwrap();
    let output = ringway().args(["run", "--check", "--config"]).arg(&file).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), String::from_utf8(output.stdout).unwrap()),
        (Some(0), "valid: 2 switches, 4 ports\n".into())
    );
    let expected: Vec<String> =
        WARNINGS.iter().map(|(place, what)| format!("{}:{place}: warning: {what}", file.display())).collect();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{said}");
    lines.iter().zip(&expected).for_each(|(line, expected)| assert!(line.starts_with(expected.as_str()), "{line}"));
}

#[test]
fn the_status_names_what_leads_nowhere_until_the_port_is_there() {
    let daemon = Daemon::start(CONFIG);
    let warnings = || {
        let status = daemon.status();
        let keys =
            status["warnings"].as_array().unwrap().iter().map(|warning| warning["key"].as_str().unwrap().to_owned());
        keys.collect::<Vec<String>>()
    };
    assert_eq!(warnings(), ["switch.lan0.broadcast", "port.look.mirror", "port.vm1.allow", "port.vm1.mac"]);
    let shown = daemon.ok(&["status"]);
    for (_, what) in WARNINGS {
        assert!(shown.contains(&format!("warning: {what}")), "{shown}");
    }
    // A change says what is doubtful about it, and nothing of what was so before.
    let said = daemon.ok(&["port", "set", "look", "mirror=[\"vm1\", \"vm2\"]"]);
    let wanted = "changed port look\nwarning: key \"port.look.mirror\": there is no port \"vm2\" on switch \"lan0\"; did you mean \"vm1\"? ";
    assert!(said.starts_with(wanted) && said.lines().count() == 2, "{said}");
    assert_eq!(daemon.ok(&["port", "set", "vm1", "allow=[\"gato\"]", "mac=[]"]), "changed port vm1\n");
    // A port of a client is one, too.
    let client = daemon.attach("lan0:vm2").unwrap();
    assert_eq!(warnings(), ["switch.lan0.broadcast"]);
    drop(client);
    until("its port is gone", || daemon.status()["warnings"].as_array().unwrap().len() == 2);
    daemon.ok(&["port", "add", "gate", "switch=lan0", "kind=process"]);
    assert_eq!(warnings(), ["port.look.mirror"]);
    // No address of a client's port is in doubt where the switch refuses two.
    daemon.ok(&["port", "add", "m1", "switch=map", "kind=process", "mac=52:54:00:00:00:02"]);
    let refused = daemon.ringway(&["port", "add", "m2", "switch=map", "kind=process", "mac=52:54:00:00:00:02"]);
    assert!(refused.code == Some(2) && refused.err.contains("is already bound to port \"m1\""), "{}", refused.err);
}
