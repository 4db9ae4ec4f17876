//! The status as Prometheus reads it: OpenMetrics text for those who ask for it, the older text format for all others.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

use super::types::{CaptureStatus, PortStatus, Status};

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text format 0.0.4.
    Text,
}

impl Format {
    /// The format for a client that says this in `Accept`.
    pub fn for_client(accept: &str) -> Format {
        if accept.contains("application/openmetrics-text") { Format::OpenMetrics } else { Format::Text }
    }

    /// What `Content-Type` says about it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The metrics of one moment.
pub fn render(status: Status, format: Format) -> String {
    let mut registry = Registry::with_prefix("ringway");
    registry.register_collector(Box::new(Snapshot(status)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes everything");
    match format {
        Format::OpenMetrics => text,
        Format::Text => older(&text),
    }
}

/// OpenMetrics text as the older format has it: a counter is described by the name of its samples, and units and the end
/// are not told.
fn older(text: &str) -> String {
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
        let switches = status.switches.iter().map(|s| ([("switch", s.name.clone())], ConstGauge::new(s.ports as u64)));
        family(e, "switch_ports", "Ports of the switch", None, switches)?;
        let up = ports().map(|p| (name_labels(p), ConstGauge::new(u64::from(p.state == "up"))));
        family(e, "port_up", "Whether its client or device is there and works", None, up)?;
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
        let pollers = |time: fn(&super::types::PollerStatus) -> f64| {
            status
                .pollers
                .iter()
                .enumerate()
                .map(move |(i, p)| ([("poller", i.to_string())], ConstCounter::new(time(p))))
        };
        family(e, "poller_busy", "Time spent on frames", Some(Unit::Seconds), pollers(|p| p.busy))?;
        family(e, "poller_free", "Time spent polling in vain or sleeping", Some(Unit::Seconds), pollers(|p| p.free))?;
        let pollers = |count: fn(&super::types::PollerStatus) -> u64| {
            let numbered = status.pollers.iter().enumerate();
            numbered.map(move |(i, p)| ([("poller", i.to_string())], counter(count(p))))
        };
        family(e, "poller_passes", "Rounds that moved frames", None, pollers(|p| p.passes))?;
        family(e, "poller_sleeps", "Times it went to sleep", None, pollers(|p| p.sleeps))?;
        let limits = ports().flat_map(|p| {
            let both = [("in", &p.ingress), ("out", &p.egress)];
            let limits = both.into_iter().filter_map(|(direction, limit)| Some((direction, limit.as_ref()?)));
            limits.flat_map(move |(direction, limit)| {
                fills(limit.fill, limit.frames_fill).map(move |(of, fill)| {
                    let [switch, name] = name_labels(p);
                    ([switch, name, ("direction", direction.to_owned()), of], ConstGauge::new(fill))
                })
            })
        });
        family(e, "port_limit_fill_ratio", "How full the buckets of the port's limits are", None, limits)?;
        let buckets = status.buckets.iter().flat_map(|bucket| {
            fills(bucket.fill, bucket.frames_fill)
                .map(|(of, fill)| ([("bucket", bucket.name.clone()), of], ConstGauge::new(fill)))
        });
        family(e, "bucket_fill_ratio", "How full the bucket is that ports share", None, buckets)?;
        let captures = |count: fn(&CaptureStatus) -> u64| {
            status.captures.iter().map(move |c| (capture_labels(c), counter(count(c))))
        };
        family(e, "capture_frames", "Frames captured", None, captures(|c| c.captured))?;
        family(e, "capture_lost", "Frames that a capture's reader was too slow for", None, captures(|c| c.lost))
    }
}

fn counter(value: u64) -> ConstCounter<u64> {
    ConstCounter::new(value)
}

fn name_labels(port: &PortStatus) -> [(&'static str, String); 2] {
    [("switch", port.switch.clone()), ("port", port.name.clone())]
}

/// How full a bucket is, of what.
fn fills(bits: Option<f64>, frames: Option<f64>) -> impl Iterator<Item = ((&'static str, String), f64)> {
    let both = [("bits", bits), ("frames", frames)];
    both.into_iter().filter_map(|(of, fill)| Some((("of", of.to_owned()), fill?)))
}

fn capture_labels(capture: &CaptureStatus) -> [(&'static str, String); 3] {
    [("switch", capture.switch.clone()), ("port", capture.port.clone()), ("capture", capture.id.to_string())]
}

fn labels(port: &PortStatus, key: &'static str, value: &str) -> [(&'static str, String); 3] {
    let [switch, name] = name_labels(port);
    [switch, name, (key, value.to_owned())]
}

fn family<const N: usize, M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<Unit>,
    samples: impl Iterator<Item = ([(&'static str, String); N], M)>,
) -> fmt::Result
where
    [(&'static str, String); N]: EncodeLabelSet,
{
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
        assert_eq!(older(text), wanted);
    }
}
