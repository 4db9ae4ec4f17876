//! The result of `ping`: its summary, and the answers that the kernel has counted.

use std::time::{Duration, Instant};

use super::live::Live;
use super::outcome::{NotDone, Outcome, Stop};
use super::patience::PATIENCE;

/// Interval at which the answers to pings are counted.
const LOOK: Duration = Duration::from_millis(100);
/// Counters of the kernel's network stack.
pub const SNMP: &str = "/proc/net/snmp";

/// Result of `ping`.
#[derive(Debug, PartialEq)]
pub struct Ping {
    pub sent: u64,
    /// Answers that the kernel has received. `ping` may count fewer: it stops waiting for the last one after two round-trip times,
    /// and its socket overflows while it has no processor.
    pub received: u64,
    /// Shortest, mean and longest round trip in milliseconds.
    pub ms: [f64; 3],
}

/// Reads the summary of `ping`, and waits until the kernel has received an answer to each request. An answer that does not come counts
/// as lost. `counters` returns the content of [`SNMP`] where `ping` ran, for the first time since the network came up.
pub fn await_answers(said: &str, live: &Live, stop: &Stop, counters: impl Fn() -> Outcome<String>) -> Outcome<Ping> {
    let not_understood = || NotDone::Failed(format!("ping says what is not understood: {said}"));
    let mut ping = read_ping(said).ok_or_else(not_understood)?;
    let start = Instant::now();
    loop {
        let text = counters()?;
        ping.received = read_answers(&text)
            .ok_or_else(|| NotDone::Failed(format!("the kernel's counters are not understood: {text}")))?;
        if ping.received >= ping.sent || start.elapsed() >= PATIENCE {
            return Ok(ping);
        }
        live.pause(LOOK, stop)?;
    }
}

/// Returns the echo replies that the kernel has received, from the content of [`SNMP`]: a line of names, and one of values.
fn read_answers(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Icmp:"));
    let mut pairs = lines.next()?.split_whitespace().zip(lines.next()?.split_whitespace());
    pairs.find(|(name, _)| *name == "InEchoReps")?.1.parse().ok()
}

/// Reads the summary of `ping`, of iputils or of busybox.
fn read_ping(text: &str) -> Option<Ping> {
    let counts = text.lines().find(|line| line.contains("packets transmitted"))?;
    let number = |what: &str| -> Option<u64> {
        let part = counts.split(", ").find(|part| part.contains(what))?;
        part.split_whitespace().next()?.parse().ok()
    };
    let of_times = |line: &&str| line.starts_with("rtt") || line.starts_with("round-trip");
    let (_, times) = text.lines().find(of_times)?.split_once("= ")?;
    let mut times = times.trim_end_matches(" ms").split('/').map(|time| time.parse().ok());
    let ms = [times.next()??, times.next()??, times.next()??];
    Some(Ping { sent: number("transmitted")?, received: number("received")?, ms })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_ping_are_read() {
        let text = "PING 10.77.0.2 (10.77.0.2) 56(84) bytes of data.\n\n--- 10.77.0.2 ping statistics ---\n\
                    320 packets transmitted, 319 received, 0.3125% packet loss, time 3250ms\n\
                    rtt min/avg/max/mdev = 0.021/0.045/0.310/0.020 ms\n";
        assert_eq!(read_ping(text), Some(Ping { sent: 320, received: 319, ms: [0.021, 0.045, 0.31] }));
        let text = "PING 10.77.1.2 (10.77.1.2): 56 data bytes\n\n--- 10.77.1.2 ping statistics ---\n\
                    30 packets transmitted, 30 packets received, 0% packet loss\n\
                    round-trip min/avg/max = 0.301/0.42/1.5 ms\n";
        assert_eq!(read_ping(text), Some(Ping { sent: 30, received: 30, ms: [0.301, 0.42, 1.5] }));
        assert_eq!(read_ping("ping: unknown host"), None);
    }

    #[test]
    fn the_kernels_answers_to_pings_are_read() {
        let text =
            "Ip: Forwarding\nIp: 1\nIcmp: InMsgs InEchos InEchoReps\nIcmp: 52 2 50\nIcmpMsg: InType0\nIcmpMsg: 50\n";
        assert_eq!(read_answers(text), Some(50));
        assert_eq!(read_answers("Icmp: InMsgs\nIcmp: 52\n"), None);
    }
}
