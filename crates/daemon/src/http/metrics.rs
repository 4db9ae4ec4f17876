//! The status for Prometheus: OpenMetrics text where the request asks for it, the older text format otherwise.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};
use ringway_api::limits::{LimitTally, StormCounts, StormStatus};
use ringway_api::types::{CaptureStatus, PollerStatus, PortStatus, Status};

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text format 0.0.4.
    Text,
}

impl Format {
    /// Returns the format for a client with this `Accept` header.
    pub fn for_client(accept: &str) -> Format {
        if accept.contains("application/openmetrics-text") { Format::OpenMetrics } else { Format::Text }
    }

    /// Returns the `Content-Type` of the format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Returns the status as metrics.
pub fn render(status: Status, format: Format) -> String {
    let mut registry = Registry::with_prefix("ringway");
    registry.register_collector(Box::new(Snapshot(status)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes everything");
    match format {
        Format::OpenMetrics => text,
        Format::Text => text_format(&text),
    }
}

/// Converts OpenMetrics text to the Prometheus text format: a counter is described by the name of its samples, and there are neither
/// units nor an end mark.
fn text_format(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF").collect();
    let mut older = String::with_capacity(text.len());
    for (number, line) in lines.iter().enumerate() {
        // The type follows the help.
        let described = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        let kind = lines[number..].iter().take(2).find_map(|line| line.strip_prefix("# TYPE "));
        match (described.and_then(|rest| rest.split_once(' ')), kind) {
            (Some((name, rest)), Some(kind)) if kind.ends_with(" counter") => {
                older.push_str(&format!("{}{name}_total {rest}", &line[..7]));
            }
            _ => older.push_str(line),
        }
        older.push('\n');
    }
    older
}

/// The forwarding programs of switches.
fn programs(e: &mut DescriptorEncoder<'_>, status: &Status) -> Result<(), fmt::Error> {
    let all = || status.switches.iter().filter_map(|s| Some((&s.name, s.program.as_ref()?)));
    let of = |switch: &String| -> Labels { vec![("switch", switch.clone())] };
    let named =
        |switch: &String, key, name: &String| -> Labels { vec![("switch", switch.clone()), (key, name.clone())] };
    let up = all().map(|(switch, program)| (of(switch), ConstGauge::new(u64::from(program.state == "running"))));
    family(e, "program_up", "Whether the switch's forwarding program runs", None, up)?;
    let batches = all().map(|(switch, program)| (of(switch), counter(program.batches)));
    family(e, "program_batches", "Batches that the program judged", None, batches)?;
    let drops =
        all().flat_map(|(switch, p)| p.drops.iter().map(move |(name, n)| (named(switch, "reason", name), counter(*n))));
    family(e, "program_drops", "Frames that the program dropped, by its own reason", None, drops)?;
    let faults =
        all().flat_map(|(switch, p)| p.faults.iter().map(move |(name, n)| (named(switch, "fault", name), counter(*n))));
    family(e, "program_faults", "Faults of the program", None, faults)?;
    let counters = all()
        .flat_map(|(switch, p)| p.counters.iter().map(move |(name, n)| (named(switch, "name", name), counter(*n))));
    family(e, "program_counter", "The program's own counters", None, counters)?;
    let gauges = all().flat_map(|(switch, p)| {
        p.gauges.iter().map(move |(name, n)| (named(switch, "name", name), ConstGauge::new(*n)))
    });
    family(e, "program_gauge", "The program's own gauges", None, gauges)
}

type Labels = Vec<(&'static str, String)>;

#[derive(Debug)]
struct Snapshot(Status);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let e = &mut encoder;
        let status = &self.0;
        let ports = || status.ports.iter();
        let uptime = ConstGauge::new(status.uptime);
        let help = "Time since the daemon was ready";
        uptime.encode(e.encode_descriptor("uptime", help, Some(&Unit::Seconds), MetricType::Gauge)?)?;
        let version = ConstGauge::new(1u64);
        let version = std::iter::once(([("version", status.version.clone())], version));
        family(e, "build_info", "The daemon's version", None, version)?;
        let lost = counter(status.log_lines_lost);
        let help = "Lines of the log and of standard output that were lost";
        lost.encode(e.encode_descriptor("log_lines_lost", help, None, MetricType::Counter)?)?;
        let deaths = status.deaths.causes.iter().map(|(cause, n)| ([("cause", cause.clone())], counter(*n)));
        let help = "Times that the process of the switch died and another one went on, since the keeper started";
        family(e, "switch_deaths", help, None, deaths)?;
        let switches = status.switches.iter().map(|s| ([("switch", s.name.clone())], ConstGauge::new(s.ports as u64)));
        family(e, "switch_ports", "Ports of the switch", None, switches)?;
        let moved = status.switches.iter().map(|s| ([("switch", s.name.clone())], counter(s.moved)));
        family(e, "switch_address_moves", "Times that an address turned up at another port than before", None, moved)?;
        let held = status.switches.iter().map(|s| ([("switch", s.name.clone())], counter(s.moves_held)));
        let help = "Times that an address turned up at another port and did not move, as it had moved shortly before";
        family(e, "switch_address_moves_held", help, None, held)?;
        programs(e, status)?;
        let up = ports().map(|p| (name_labels(p), ConstGauge::new(u64::from(p.state == "up"))));
        family(e, "port_up", "Whether its client or device is there and works", None, up)?;
        let disabled = ports().map(|p| (name_labels(p), ConstGauge::new(u64::from(p.state == "disabled"))));
        let help = "Whether it is disabled because Ringway failed while it served the port";
        family(e, "port_disabled", help, None, disabled)?;
        let aside = ports().map(|p| (name_labels(p), ConstGauge::new(u64::from(p.state == "set aside"))));
        let help = "Whether it is set aside because the switch died twice while it served the port";
        family(e, "port_set_aside", help, None, aside)?;
        let paused = ports().map(|p| (name_labels(p), ConstGauge::new(u64::from(p.state == "paused"))));
        let help =
            "Whether it pauses because Ringway failed while it gave frames to the port or the port's frames to another";
        family(e, "port_paused", help, None, paused)?;
        let faults =
            ports().flat_map(|p| p.faults.iter().map(move |(reason, n)| (labels(p, "reason", reason), counter(*n))));
        family(e, "port_faults", "Times that its client broke the rules, or Ringway failed at it", None, faults)?;
        let faults = status.fault_counts.iter().map(|of| {
            let place = of.place.as_ref().map(|place| ("place", place.clone()));
            let labels: Labels = [("reason", of.reason.clone())].into_iter().chain(place).collect();
            (labels, counter(of.count))
        });
        family(
            e,
            "faults",
            "The same of all ports since the daemon started, also of those that are gone",
            None,
            faults,
        )?;
        let both = |count: fn(&PortStatus) -> [u64; 2]| {
            ports().flat_map(move |p| {
                let [input, output] = count(p);
                [(labels(p, "direction", "in"), counter(input)), (labels(p, "direction", "out"), counter(output))]
            })
        };
        family(
            e,
            "port_frames",
            "Frames taken from (in) and given to (out) the client",
            None,
            both(|p| [p.input.frames, p.output.frames]),
        )?;
        family(e, "port", "Bytes of these frames", Some(Unit::Bytes), both(|p| [p.input.bytes, p.output.bytes]))?;
        let drops =
            ports().flat_map(|p| p.drops.iter().map(move |(reason, n)| (labels(p, "reason", reason), counter(*n))));
        family(e, "port_drops", "Frames lost because of this port", None, drops)?;
        let plain = |count: fn(&PortStatus) -> u64| ports().map(move |p| (name_labels(p), counter(count(p))));
        family(e, "port_kicks", "Times the client woke the switch", None, plain(|p| p.kicks))?;
        family(e, "port_calls", "Times the switch woke the client", None, plain(|p| p.calls))?;
        let help = "Times that an address did not move to this port, as it had moved shortly before";
        family(e, "port_address_moves_held", help, None, plain(|p| p.moves_held))?;
        let help = "TCP segments that were appended to others: the larger frame counts once";
        family(e, "port_coalesced", help, None, plain(|p| p.coalesced))?;
        encode_slow(e, status)?;
        let pollers = |time: fn(&PollerStatus) -> f64| {
            status
                .pollers
                .iter()
                .enumerate()
                .map(move |(i, p)| ([("poller", i.to_string())], ConstCounter::new(time(p))))
        };
        family(e, "poller_busy", "Time spent on frames", Some(Unit::Seconds), pollers(|p| p.busy))?;
        family(e, "poller_free", "Time spent polling in vain or sleeping", Some(Unit::Seconds), pollers(|p| p.free))?;
        let pollers = |count: fn(&PollerStatus) -> u64| {
            let numbered = status.pollers.iter().enumerate();
            numbered.map(move |(i, p)| ([("poller", i.to_string())], counter(count(p))))
        };
        family(e, "poller_passes", "Rounds that moved frames", None, pollers(|p| p.passes))?;
        family(e, "poller_sleeps", "Times it went to sleep", None, pollers(|p| p.sleeps))?;
        let stuck = status.pollers.iter().enumerate();
        let stuck = stuck.map(|(i, p)| ([("poller", i.to_string())], ConstGauge::new(u64::from(p.stuck))));
        family(e, "poller_stuck", "Whether it is stuck, so that it serves no port", None, stuck)?;
        encode_limits(e, status)?;
        let captures = |count: fn(&CaptureStatus) -> u64| {
            status.captures.iter().map(move |c| (capture_labels(c), counter(count(c))))
        };
        family(e, "capture_frames", "Frames captured", None, captures(|c| c.captured))?;
        family(e, "capture_lost", "Frames that a capture's reader was too slow for", None, captures(|c| c.lost))
    }
}

/// Writes the metrics of ports that were ever over their time budget.
fn encode_slow(e: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let slow = || status.ports.iter().filter_map(|p| Some((name_labels(p), p.slow.as_ref()?)));
    let states = slow().flat_map(|(labels, slow)| {
        let [switch, port] = labels;
        let states = [("slow", slow.slow), ("quarantined", slow.quarantined)];
        states.map(|(state, is)| {
            ([switch.clone(), port.clone(), ("state", state.to_owned())], ConstGauge::new(i64::from(is)))
        })
    });
    family(e, "port_slow", "Whether the port takes its poller too much time and is served less", None, states)?;
    let times = slow().map(|(labels, slow)| (labels, counter(slow.times)));
    family(e, "port_slow_times", "Times that the port became slow (slow_client)", None, times)?;
    let visits = slow().map(|(labels, slow)| (labels, counter(slow.visits)));
    family(e, "port_long_visits", "Visits to the port that took too long", None, visits)?;
    let seconds = slow().map(|(labels, slow)| (labels, ConstCounter::new(slow.seconds)));
    family(e, "port_charged", "What visits to the port took beyond what they may", Some(Unit::Seconds), seconds)
}

/// Writes the fill and the counters of limits, shared buckets and storm control.
fn encode_limits(e: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let limits = || {
        status.ports.iter().flat_map(|p| {
            let both = [("in", &p.ingress), ("out", &p.egress)];
            let labelled = move |way| Labels::from(labels(p, "direction", way));
            both.into_iter().filter_map(move |(way, limit)| Some((labelled(way), limit.as_ref()?)))
        })
    };
    let full = |labels: Labels, bits, frames| {
        let both = [("bits", bits), ("frames", frames)];
        both.into_iter()
            .filter_map(move |(of, fill): (_, Option<f64>)| Some((with(&labels, "of", of), ConstGauge::new(fill?))))
    };
    let fills = limits().flat_map(|(labels, limit)| full(labels, limit.fill, limit.frames_fill));
    family(e, "port_limit_fill_ratio", "How full the buckets of the port's limits are", None, fills)?;
    encode_tallies(e, "port_limit", "the port's limit", || limits().map(|(labels, limit)| (labels, limit.tally)))?;
    let buckets = || status.buckets.iter().map(|bucket| (vec![("bucket", bucket.name.clone())], bucket));
    let fills = buckets().flat_map(|(name, bucket)| full(name, bucket.fill, bucket.frames_fill));
    family(e, "bucket_fill_ratio", "How full the bucket is that ports share", None, fills)?;
    let tallies = || buckets().map(|(name, bucket)| (name, bucket.tally));
    encode_tallies(e, "bucket", "the bucket that ports share", tallies)?;
    let storms = |counts: fn(&StormStatus) -> StormCounts| {
        let storms = status.ports.iter().filter_map(move |p| Some((p, counts(p.storm.as_ref()?))));
        storms.flat_map(|(p, StormCounts { broadcast, multicast, unknown_unicast })| {
            let classes = [("broadcast", broadcast), ("multicast", multicast), ("unknown_unicast", unknown_unicast)];
            classes.map(|(class, count)| (labels(p, "class", class), counter(count)))
        })
    };
    family(e, "port_storm_frames", "Frames to many that passed storm control", None, storms(|storm| storm.passed))?;
    family(e, "port_storm_refused", "Frames to many that storm control refused", None, storms(|storm| storm.refused))
}

/// Writes the counters of limits, each with its labels.
fn encode_tallies<I>(e: &mut DescriptorEncoder<'_>, name: &str, whose: &str, all: impl Fn() -> I) -> fmt::Result
where
    I: Iterator<Item = (Labels, LimitTally)>,
{
    let count = |count: fn(&LimitTally) -> u64| all().map(move |(labels, tally)| (labels, counter(count(&tally))));
    let help = |what: &str| format!("{what} {whose}");
    let passed = count(|tally| tally.passed.frames);
    family(e, &format!("{name}_frames"), &help("Frames that were charged to"), None, passed)?;
    let bytes = count(|tally| tally.passed.bytes);
    family(e, name, &help("Bytes of frames that were charged to"), Some(Unit::Bytes), bytes)?;
    let refused = all().flat_map(|(labels, LimitTally { refused, .. })| {
        let by = [("bits", Some(refused.bits)), ("frames", Some(refused.frames)), ("bucket", refused.bucket)];
        by.into_iter().filter_map(move |(by, count)| Some((with(&labels, "by", by), counter(count?))))
    });
    family(e, &format!("{name}_refused"), &help("Frames that were refused, by what was used up of"), None, refused)?;
    let waits = count(|tally| tally.waits);
    family(e, &format!("{name}_waits"), &help("Times that frames passed that had waited for"), None, waits)?;
    let waited = all().map(|(labels, tally)| (labels, ConstCounter::new(tally.waited)));
    family(
        e,
        &format!("{name}_waited"),
        &help("Time that frames that passed had waited for"),
        Some(Unit::Seconds),
        waited,
    )
}

fn counter(value: u64) -> ConstCounter<u64> {
    ConstCounter::new(value)
}

fn name_labels(port: &PortStatus) -> [(&'static str, String); 2] {
    [("switch", port.switch.clone()), ("port", port.name.clone())]
}

fn with(labels: &Labels, key: &'static str, value: &str) -> Labels {
    labels.iter().cloned().chain([(key, value.to_owned())]).collect()
}

fn capture_labels(capture: &CaptureStatus) -> [(&'static str, String); 3] {
    [("switch", capture.switch.clone()), ("port", capture.port.clone()), ("capture", capture.id.to_string())]
}

fn labels(port: &PortStatus, key: &'static str, value: &str) -> [(&'static str, String); 3] {
    let [switch, name] = name_labels(port);
    [switch, name, (key, value.to_owned())]
}

fn family<L: EncodeLabelSet, M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    samples: impl Iterator<Item = (L, M)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, unit.as_ref(), M::TYPE)?;
    for (labels, metric) in samples {
        metric.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_format_names_counters_as_their_samples_and_leaves_gauges() {
        let text = "# HELP a_seconds Time\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1.5\n\
                    # HELP b Of counter\n# TYPE b gauge\nb{x=\"# EOF\"} 1\n# HELP c C\n# TYPE c counter\n# EOF\n";
        let wanted = "# HELP a_seconds_total Time\n# TYPE a_seconds_total counter\na_seconds_total 1.5\n\
                      # HELP b Of counter\n# TYPE b gauge\nb{x=\"# EOF\"} 1\n# HELP c_total C\n# TYPE c_total counter\n";
        assert_eq!(text_format(text), wanted);
    }

    #[test]
    fn moves_that_were_refused_are_counted_for_the_switch_and_for_the_port_that_did_not_get_the_address() {
        use ringway_api::types::SwitchStatus;

        let switch = SwitchStatus { name: "lan0".to_owned(), moved: 7, moves_held: 5, ..SwitchStatus::default() };
        let (name, lan) = ("vm1".to_owned(), "lan0".to_owned());
        let port = PortStatus { name, switch: lan, moves_held: 3, ..PortStatus::default() };
        let text = render(Status { switches: vec![switch], ports: vec![port], ..Status::default() }, Format::Text);
        for line in [
            "ringway_switch_address_moves_total{switch=\"lan0\"} 7",
            "ringway_switch_address_moves_held_total{switch=\"lan0\"} 5",
            "ringway_port_address_moves_held_total{switch=\"lan0\",port=\"vm1\"} 3",
        ] {
            assert!(text.lines().any(|said| said == line), "{line}: {text}");
        }
    }
}
