//! Keys on the command line: with a dot, in the help, and for shell completion.

use ringway_scenes::{Daemon, ringway};

const CONFIG: &str = "
[switch.lan0]
[bucket.t]
rate = \"10Gbit\"
[port.p]
switch = \"lan0\"
kind = \"process\"
ingress = { rate = \"1Gbit\", burst = \"64KiB\" }
[port.v]
switch = \"lan0\"
kind = \"vhost-user\"
memory = { mappings = 9 }
";

#[test]
fn a_key_of_a_table_is_changed_alone_with_a_dot_and_no_quotes() {
    let daemon = Daemon::start(CONFIG);
    assert_eq!(daemon.ok(&["port", "set", "p", "ingress.rate=2Gbit"]), "changed port p\n");
    let limit = |key: &str| daemon.port("p")["ingress"][key].clone();
    assert_eq!((limit("rate"), limit("burst")), ("2Gbit".into(), "64KiB".into()), "other keys stay");
    daemon.ok(&["port", "set", "p", "ingress.bucket=t", "ingress.ceiling=3Gbit", "weight=2"]);
    assert_eq!((limit("bucket"), limit("ceiling"), limit("rate")), ("t".into(), "3Gbit".into(), "2Gbit".into()));
    daemon.ok(&["port", "set", "p", "ingress={rate=\"1Gbit\"}"]);
    assert_eq!(
        (limit("rate"), limit("burst")),
        ("1Gbit".into(), "2500000B".into()),
        "a table replaces the whole limit"
    );
    daemon.ok(&["port", "set", "p", "storm.broadcast=1kpps"]);
    daemon.ok(&["port", "set", "p", "storm.multicast=10Mbit"]);
    let storm = daemon.port("p")["storm"].clone();
    assert_eq!((&storm["broadcast"], &storm["multicast"]), (&"1kpps".into(), &"10Mbit".into()));
    daemon.ok(&["port", "add", "q", "switch=lan0", "kind=process", "egress.rate=1Gbit", "egress.on_excess=wait"]);
    assert_eq!(daemon.port("q")["egress"]["on_excess"], "wait");
    for (words, wanted) in [
        (&["ingress.rte=1Gbit"][..], "key \"ingress.rte\": unknown key; did you mean \"rate\"?"),
        (&["ingres.rate=1Gbit"], "key \"ingres.rate\": unknown key; did you mean \"ingress.rate\"?"),
        (&["ingress.rate=2Gbps"], "key \"ingress.rate\": \"2Gbps\" is not a rate in bits per second; write a number"),
        (&["ingress.ceiling=2Gbit"], "key \"ingress.ceiling\": there is no bucket to lend it; write rate, or name"),
        (&["rate=1Gbit"], "key \"rate\": unknown key; did you mean \"ingress.rate\" or \"egress.rate\"?"),
        (
            &["ingress.bucket=nope"],
            "key \"ingress.bucket\": there is no bucket \"nope\"; make it with [bucket.nope] in the file, or \"ringway bucket set",
        ),
        (&["weight.x=1"], "key \"weight.x\": weight is one value and has no keys; write weight=VALUE"),
        (&["ingress={}", "ingress.rate=1Gbit"], "key \"ingress\": given twice; give it whole, or its keys with a dot"),
        (&["ingress.rate=1Gbit", "ingress.rate=2Gbit"], "key \"ingress.rate\": given twice; give it once"),
        (&["memory.mappings=9"], "key \"memory\": a process port has no memory; leave it out, or write kind ="),
    ] {
        let said = daemon.ringway(&[&["port", "set", "p"], words].concat());
        assert_eq!(said.code, Some(2), "{words:?}: {}", said.err);
        assert!(said.err.contains(wanted), "{words:?}: {}", said.err);
    }
    // The value is unchanged, and other keys stay.
    assert_eq!(daemon.ok(&["port", "set", "v", "memory.mappings=9"]), "nothing differs\n");
    let said = daemon.ringway(&["port", "set", "v", "memory.mappings=10"]);
    assert!(said.err.contains("key \"memory\": cannot change while the port exists"), "{}", said.err);
}

#[test]
fn help_lists_the_keys_that_can_be_given_with_what_they_mean() {
    let help = |args: &[&str]| {
        let output = ringway().args(args).arg("--help").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (add, set) = (help(&["port", "add"]), help(&["port", "set"]));
    for line in [
        "  weight=1..64",
        "  ingress.rate=RATE",
        "Of tap, xdp, packet ports:",
        "  device=NAME",
        "Of e1000 ports:",
        "  link=up|down",
    ] {
        assert!(add.lines().any(|said| said.starts_with(line)), "{line}:\n{add}");
    }
    assert!(set.contains("  link=up|down") && set.contains("  ingress.rate=RATE"), "{set}");
    assert!(!set.contains("  device=NAME") && !set.contains("  kind="), "these cannot change:\n{set}");
    let (bucket, switch) = (help(&["bucket", "set"]), help(&["switch", "set"]));
    assert!(bucket.contains("  rate=RATE") && switch.contains("  local=allow|drop"), "{bucket}{switch}");
}

#[test]
fn shells_complete_keys_behind_port_set() {
    for shell in ["bash", "zsh", "fish"] {
        let output = ringway().args(["completions", shell]).output().unwrap();
        let script = String::from_utf8(output.stdout).unwrap();
        for word in ["weight=", "ingress.rate=", "mac_entries="] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
    // bash itself shows its completions.
    let script = ringway().args(["completions", "bash"]).output().unwrap().stdout;
    let ask =
        "COMP_WORDS=(ringway port set vm1 wei); COMP_CWORD=4; _ringway_keys ringway wei vm1; echo \"${COMPREPLY[*]}\"";
    let script = format!("{}\n{ask}", String::from_utf8(script).unwrap());
    let offered = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&offered.stdout), "weight=\n", "{}", String::from_utf8_lossy(&offered.stderr));
}
