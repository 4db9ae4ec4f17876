//! The manual page ringway.toml(5), made from the tables of keys. `docs/man/ringway.toml.5` is a copy; `tests/manual.rs` compares both.

use super::attach::Attach;
use super::engine::Engine;
use super::limit::BucketKeys;
use super::port::{PortKey, port_keys};
use super::privileged::Privileged;
use super::state::State;
use super::switch::Switch;
use crate::keys::{Class, Key, Mutability, Shape, Table};
use crate::kinds::Kind;
use crate::kinds::access::Sockets;
use crate::kinds::memory::Memory;

/// The example of the page. A test parses it as a configuration.
pub const EXAMPLE: &str = r#"[engine]
cores = [0]

[switch.lan0]
ageing = "300s"

[bucket.tenant]
rate = "2Gbit"

[port.vm1]
switch = "lan0"
kind = "vhost-user"
mac = ["52:54:00:00:00:01"]
ingress = { rate = "1Gbit", burst = "1MiB" }
egress = { bucket = "tenant", rate = "500Mbit" }

[port.tap0]
switch = "lan0"
kind = "tap"
uplink = true
"#;

const DESCRIPTION: &str = "\
The file is TOML. \"ringway run --config FILE\" reads it when it starts, and again on SIGHUP; \"ringway run --check --config FILE\"
only checks it, and warns of what is missing on this machine. A mistake is reported with file, line, column and what would be right.
.PP
The keys of [port.NAME] are also those of \"ringway port add\" and \"ringway port set\", those of [switch.NAME] of \"ringway switch
set\", and those of [bucket.NAME] of \"ringway bucket set\". There a key of a table can be given alone, with a dot:
\"ringway port set vm1 ingress.rate=2Gbit\" changes the rate and nothing else, while \"ingress={...}\" replaces all of the limit. The
same holds in the JSON of the API.
.PP
A key that is marked \"fixed\" cannot change while its port exists. Reading the file again removes such a port and adds it.";

const UNITS: &str = "\
A duration is a number and one of ns, us, ms, s, min, h. A size is a number and one of B, kB, MB, GB, KiB, MiB, GiB, TiB. A rate in
bits per second is a number and one of bit, kbit, Mbit, Gbit; in frames per second, one of pps, kpps, Mpps, Gpps. The number can have
a fraction (1.5Gbit). All of them are strings: \"300s\".";

/// Returns the page in roff(7), for man(1).
pub fn manual() -> String {
    let mut page =
        String::from(".\\\" Made of the tables of keys in crates/config: see crates/config/tests/manual.rs.\n");
    page.push_str(&format!(".TH RINGWAY.TOML 5 \"\" \"Ringway {}\" \"File Formats\"\n", env!("CARGO_PKG_VERSION")));
    page.push_str(".SH NAME\nringway.toml \\- configuration of the Ringway virtual Ethernet switch\n");
    page.push_str(&format!(".SH DESCRIPTION\n{}\n", escaped(DESCRIPTION)));
    page.push_str(&format!(".SH UNITS\n{}\n", escaped(UNITS)));
    section(&mut page, "[engine]", "The pollers that move frames.", &Engine::default().keys());
    section(&mut page, "[attach]", "What clients may make by attaching to SWITCH:PORT.", &Attach::default().keys());
    let memory = "Bounds of the memory that the front ends of virtual machines give, all ports together.";
    section(&mut page, "[memory]", memory, &live(Memory::TOTAL.keys()));
    let sockets = "Who may connect to the sockets that Ringway makes: owner, group and mode of ports that have no such access of their own, \
                   and of Ringway's own two sockets. A change holds for sockets that are made afterwards.";
    section(&mut page, "[sockets]", sockets, &live(Sockets::default().keys()));
    let state = "What is kept of the changes that commands make: \"ringway config\" shows them, and \"ringway config reset\" drops them.";
    section(&mut page, "[state]", state, &State::default().keys());
    let privileged = "The switch itself has no privileges, and no access to files. A process beside it, the opener, opens what this file names.";
    section(&mut page, "[privileged]", privileged, &Privileged::default().keys());
    section(&mut page, "[switch.NAME]", "A broadcast domain; VLANs divide it further.", &Switch::default().keys());
    let bucket = "A limit that several ports share: ingress = { bucket = \"NAME\" }. A command that sets a bucket sets all of it: a \
                  key that is left out has its default again.";
    section(&mut page, "[bucket.NAME]", bucket, &BucketKeys::default().keys());

    let ports = port_keys();
    let of = |kinds: &[Kind]| -> Vec<Key> {
        ports.iter().filter(|known: &&PortKey| known.kinds == kinds).map(|known| known.key.clone()).collect()
    };
    section(&mut page, "[port.NAME]", "A port. These are the keys of every port.", &of(&[]));
    page.push_str(".SH KINDS OF PORTS\n");
    for (word, kind) in Kind::WORDS {
        page.push_str(&format!(".TP\n.B kind = \"{}\"\n{}\n", escaped(word), escaped(kind.about())));
    }
    let mut groups: Vec<&[Kind]> = Vec::new();
    for known in ports.iter().filter(|known| !known.kinds.is_empty()) {
        if !groups.contains(&known.kinds.as_slice()) {
            groups.push(&known.kinds);
        }
    }
    for kinds in groups {
        let words: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        page.push_str(&format!(".SS Keys of {} ports\n", escaped(&words.join(", "))));
        of(kinds).iter().for_each(|key| entry(&mut page, "", key));
    }
    page.push_str(&format!(".SH EXAMPLE\n.EX\n{}.EE\n", escaped(EXAMPLE)));
    page.push_str(".SH SEE ALSO\n.BR ringway (1)\n");
    page
}

/// Returns the keys as live ones: a section can change, unlike the same keys of a port.
fn live(keys: Vec<Key>) -> Vec<Key> {
    let shape = |shape: Shape| match shape.class {
        Class::Table(inner) => Shape { class: Class::Table(live(inner)), ..shape },
        _ => shape,
    };
    keys.into_iter().map(|key| Key { mutability: Mutability::Live, shape: shape(key.shape), ..key }).collect()
}

fn section(page: &mut String, name: &str, about: &str, keys: &[Key]) {
    page.push_str(&format!(".SH {}\n{}\n", escaped(name), escaped(about)));
    keys.iter().for_each(|key| entry(page, "", key));
}

/// Writes a key: its name, meaning, values and default; then the keys of a table.
fn entry(page: &mut String, before: &str, key: &Key) {
    let name = format!("{before}{}", key.name);
    page.push_str(&format!(".TP\n.B {}\n{}\n", escaped(&name), escaped(key.about)));
    if !key.more.is_empty() {
        page.push_str(&format!("{}\n", escaped(key.more)));
    }
    let mut facts = Vec::new();
    if !matches!(key.shape.class, Class::Table(_)) {
        facts.push(format!("Value: {}.", key.shape.text));
    }
    facts.extend(key.toml().map(|default| format!("Default: {default}.")));
    if key.mutability == Mutability::Fixed {
        facts.push("Fixed.".to_owned());
    }
    if !facts.is_empty() {
        page.push_str(&format!(".br\n{}\n", escaped(&facts.join(" "))));
    }
    if let Class::Table(inner) = &key.shape.class {
        inner.iter().for_each(|inner| entry(page, &format!("{name}."), inner));
    }
}

/// Escapes text for roff. Lines with `.PP` alone stay commands.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let text = line.replace('\\', "\\e").replace('-', "\\-");
        let is_command = text.starts_with(['.', '\'']) && text != ".PP";
        if is_command { format!("\\&{text}") } else { text }
    };
    let ends = if text.ends_with('\n') { "\n" } else { "" };
    text.lines().map(line).collect::<Vec<_>>().join("\n") + ends
}
