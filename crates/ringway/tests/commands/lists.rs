//! `ringway bucket list` and `ringway switch list`: tables and JSON.

use ringway_scenes::Daemon;
use serde_json::Value;

const CONFIG: &str = "
[switch.lan0]
local = \"drop\"
transit = \"drop\"
ageing = \"60s\"
[switch.lan1]
forwarding = \"map\"
broadcast = \"port:p\"
[bucket.bits]
rate = \"80Mbit\"
burst = \"64KiB\"
[bucket.frames]
rate = \"1Gbit\"
frames = \"10kpps\"
[port.p]
switch = \"lan1\"
kind = \"process\"
ingress = { bucket = \"bits\" }
[port.waits]
switch = \"lan0\"
kind = \"process\"
";

/// Returns the rows of a table, column by column.
fn rows(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect()
}

#[test]
fn buckets_and_switches_are_listed_with_what_is_set_of_them() {
    let daemon = Daemon::start(CONFIG);
    let _client = daemon.attach("lan1:p").unwrap();
    let buckets = daemon.ok(&["bucket", "list"]);
    let wanted = [
        ["BUCKET", "RATE", "BURST", "FRAMES", "PORTS", "FILL", "PASSED", "REFUSED"],
        ["bits", "80Mbit", "64KiB", "-", "1", "100%", "0", "0"],
        ["frames", "1Gbit", "1250000B", "10kpps", "0", "100%", "0", "0"],
    ];
    assert_eq!(rows(&buckets), wanted, "{buckets}");
    let switches = daemon.ok(&["switch", "list"]);
    let wanted = [
        ["SWITCH", "FORWARDING", "PORTS", "AGEING", "MOVED", "BROADCAST", "MULTICAST", "UNKNOWN UNICAST", "DROPPED"],
        ["lan0", "learning", "1", "60s", "0", "flood", "flood", "flood", "local transit"],
        ["lan1", "map", "1", "300s", "0", "port:p", "flood", "drop", "-"],
    ];
    assert_eq!(rows(&switches), wanted, "{switches}");
    let status = daemon.status();
    for (list, part) in [("bucket", "buckets"), ("switch", "switches")] {
        let listed: Value = serde_json::from_str(&daemon.ok(&[list, "list", "--json"])).unwrap();
        assert_eq!(listed, status[part]);
    }
}
