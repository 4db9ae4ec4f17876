//! Counters of a kernel's network stack, as `/proc/net/snmp` (RFC 2011, RFC 2012) and `/proc/net/snmp6` show them.

/// Returns a counter of one protocol: `counter(text, "Icmp", "InEchoReps")`. The file has two lines a protocol, names and values.
#[must_use]
pub fn counter(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol)?.strip_prefix(':'));
    let (names, values) = (lines.next()?, lines.next()?);
    let (_, value) = names.split_whitespace().zip(values.split_whitespace()).find(|(other, _)| *other == name)?;
    value.parse().ok()
}

/// Returns a counter of `/proc/net/snmp6`, which has a line for each: `counter6(text, "Icmp6InEchoReplies")`.
#[must_use]
pub fn counter6(text: &str, name: &str) -> Option<u64> {
    let mut rows = text.lines().map(str::split_whitespace);
    rows.find_map(|mut row| if row.next() == Some(name) { row.next()?.parse().ok() } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_protocol_and_its_name() {
        let text =
            "Icmp: InMsgs InEchoReps\nIcmp: 7 3\nIcmpMsg: InType0\nIcmpMsg: 3\nTcp: MaxConn InCsumErrors\nTcp: -1 2\n";
        assert_eq!(counter(text, "Icmp", "InEchoReps"), Some(3));
        assert_eq!(counter(text, "Tcp", "InCsumErrors"), Some(2));
        assert_eq!(counter(text, "IcmpMsg", "InType0"), Some(3));
        assert_eq!((counter(text, "Icmp", "InType0"), counter(text, "Udp", "InMsgs")), (None, None));
    }

    #[test]
    fn a_counter_of_ipv6_is_found_by_its_name() {
        let text = "Ip6InReceives                   \t7\nIcmp6InEchos\t2\nIcmp6InEchoReplies              \t6\n";
        assert_eq!((counter6(text, "Icmp6InEchoReplies"), counter6(text, "Icmp6")), (Some(6), None));
    }
}
