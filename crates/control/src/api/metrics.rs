//! The status as Prometheus reads it (OpenMetrics text).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

use super::types::{PortStatus, Status};

/// What `Content-Type` says about the text of [`render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics of one moment.
pub fn render(status: Status) -> String {
    let mut registry = Registry::with_prefix("ringway");
    registry.register_collector(Box::new(Snapshot(status)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes everything");
    text
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
        family(e, "poller_free", "Time spent polling in vain or sleeping", Some(Unit::Seconds), pollers(|p| p.free))
    }
}

fn counter(value: u64) -> ConstCounter<u64> {
    ConstCounter::new(value)
}

fn name_labels(port: &PortStatus) -> [(&'static str, String); 2] {
    [("switch", port.switch.clone()), ("port", port.name.clone())]
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
