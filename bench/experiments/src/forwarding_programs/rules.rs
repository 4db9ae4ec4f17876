//! One list of rules in two languages: that of the example `access_list`, and OpenFlow's.
//!
//! Every second rule allows UDP to one address: frames of the generator fit these. The others are about TCP and ICMP, by prefixes of
//! both addresses, so that a list has four shapes. No two rules fit the same packet, so that their order, and priorities, decide nothing.

use std::fmt::Write as _;

/// Most flows of the generator.
const MOST_FLOWS: usize = 4096;
/// The generator's UDP port.
const PORT: u16 = 9;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// Allows UDP to an address (198.19.0.0/16) at the generator's port.
    AllowUdp { to: usize },
    /// Denies TCP from a network (10.0.0.0/8) to an address of the same servers.
    DenyTcp { from: usize, to: usize },
    /// Allows TCP from a network (172.16.0.0/12) at a port.
    AllowTcp { from: usize, port: usize },
    /// Denies ICMP from an address (100.64.0.0/10).
    DenyIcmp { from: usize },
}

/// Returns the two lower bytes of an address.
fn bytes(number: usize) -> String {
    format!("{}.{}", number >> 8 & 255, number & 255)
}

/// The rules of a list of `count`.
fn rules(count: usize) -> impl Iterator<Item = Rule> {
    let servers = servers(count);
    (0..count).map(move |place| {
        let number = place / 2;
        match place % 6 {
            // The rules of neighbouring addresses are far from each other.
            0 | 2 | 4 => Rule::AllowUdp { to: number * 7919 % servers },
            1 => Rule::DenyTcp { from: number, to: number % servers },
            3 => Rule::AllowTcp { from: number % 4096, port: 1 + number / 4096 },
            _ => Rule::DenyIcmp { from: number },
        }
    })
}

/// Number of addresses to which a list of `count` rules allows UDP: 198.19.0.0 and those after it.
fn servers(count: usize) -> usize {
    count.div_ceil(2)
}

/// Number of addresses among which `flows` flows are divided so that a list of `count` rules allows all of them: a power of two.
pub(super) fn addresses(count: usize, flows: usize) -> usize {
    (1 << servers(count).ilog2()).min(flows).min(MOST_FLOWS)
}

/// The list as `config` of the example.
pub(super) fn access_list(count: usize) -> String {
    let mut text = String::new();
    for rule in rules(count) {
        let _ = match rule {
            Rule::AllowUdp { to } => write!(text, "allow udp to 198.19.{} port {PORT}; ", bytes(to)),
            Rule::DenyTcp { from, to } => {
                write!(text, "deny tcp from 10.{}.0/24 to 198.19.{}; ", bytes(from), bytes(to))
            }
            Rule::AllowTcp { from, port } => {
                write!(text, "allow tcp from 172.{}.{}.0/24 port {port}; ", 16 + (from >> 8), from & 255)
            }
            Rule::DenyIcmp { from } => write!(text, "deny icmp from 100.64.{}; ", bytes(from)),
        };
    }
    text.truncate(text.trim_end_matches([';', ' ']).len());
    text
}

/// The list as OpenFlow rules. What is allowed goes where a learning bridge sends it.
pub(super) fn open_flow(count: usize) -> String {
    open_flow_with(count, "", "", "NORMAL")
}

/// The list as OpenFlow rules with a table of connections, as the example has one: answers to what was allowed pass.
pub(super) fn open_flow_with_connections(count: usize) -> String {
    let rules = open_flow_with(count, "table=1,", "ct_state=+trk+new,", "ct(commit),NORMAL");
    format!("ip,actions=ct(table=1)\ntable=1,priority=40000,ip,ct_state=+trk+est,actions=NORMAL\n{rules}")
}

fn open_flow_with(count: usize, table: &str, state: &str, allow: &str) -> String {
    let mut text = String::from("priority=0,actions=drop\narp,actions=NORMAL\n");
    for rule in rules(count) {
        let _ = match rule {
            Rule::AllowUdp { to } => {
                writeln!(text, "{table}{state}udp,nw_dst=198.19.{},tp_dst={PORT},actions={allow}", bytes(to))
            }
            Rule::DenyTcp { from, to } => writeln!(
                text,
                "{table}{state}tcp,nw_src=10.{}.0/24,nw_dst=198.19.{},actions=drop",
                bytes(from),
                bytes(to)
            ),
            Rule::AllowTcp { from, port } => {
                let (high, low) = (16 + (from >> 8), from & 255);
                writeln!(text, "{table}{state}tcp,nw_src=172.{high}.{low}.0/24,tp_dst={port},actions={allow}")
            }
            Rule::DenyIcmp { from } => {
                writeln!(text, "{table}{state}icmp,nw_src=100.64.{},actions=drop", bytes(from))
            }
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const COUNTS: [usize; 3] = [10, 1000, 100_000];

    #[test]
    fn both_languages_have_as_many_rules_as_asked_for_and_none_twice() {
        for count in COUNTS {
            let list = access_list(count);
            let rules: BTreeSet<&str> = list.split(';').map(str::trim).collect();
            assert_eq!(rules.len(), count);
            for text in [open_flow(count), open_flow_with_connections(count)] {
                let matches = |line: &'_ str| line.split(",actions=").next().unwrap_or_default().to_owned();
                let rules: BTreeSet<String> = text.lines().map(matches).filter(|rule| rule.contains("_")).collect();
                let further = usize::from(text.contains("+est"));
                assert_eq!(rules.len() - further, count, "{}", &text[..500.min(text.len())]);
            }
        }
    }

    #[test]
    fn every_address_of_the_generator_is_allowed() {
        for (count, flows, wanted) in [(10, 1, 1), (10, 4096, 4), (1000, 4096, 256), (100_000, 4096, 4096)] {
            assert_eq!(addresses(count, flows), wanted);
            let list = access_list(count);
            let rules: BTreeSet<&str> = list.split("; ").collect();
            for address in 0..wanted {
                assert!(rules.contains(&format!("allow udp to 198.19.{} port 9", bytes(address))[..]), "{address}");
            }
        }
    }

    #[test]
    fn a_thousand_rules_fit_into_the_configuration_itself() {
        assert!(access_list(1000).len() <= 64 << 10);
    }
}
