//! What TCP makes of a rate limit: its part of the rate, and the round trip of a small frame beside it.
//!
//! Two hosts, network namespaces, are joined by a switch that limits what the first sends. iperf3 sends from the first to the second, while
//! `ping` asks for an echo each 20 ms. Nothing is pinned: the stack of the hosts, iperf3 and the switch share the two cores.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::child::Program;
use crate::daemon::{Daemon, Settings, TAPS};
use crate::extra_counts::ExtraCounts;
use crate::patience::PATIENCE;
use crate::peers::netns;
use crate::peers::ovs_dpdk::{NEAR, OvsDpdk};
use crate::peers::vhost::VhostSwitch as _;
use crate::placement::unpin;
use crate::report::{Axis, Figure, Heading};
use crate::series::{OVS_DPDK, RINGWAY};
use crate::session::Session;
use crate::trial::Contestant;
use crate::vhost::with_any;

/// Rates in Mbit/s.
const RATES: [usize; 4] = [1, 10, 100, 1000];
/// Seconds of a stream that count, and those before them.
const SECONDS: [u32; 2] = [5, 2];
/// Time between two echo requests, in seconds.
const BETWEEN: f64 = 0.02;
/// The hosts' end of a veth pair.
const FAR: &str = "far";
const HOSTS: [&str; 2] = ["10.81.0.1", "10.81.0.2"];
const SOURCE: &str = "fairness paper, section 4.3";
const DROPS: &str = "ringway, drops";
const AT_RECEIVER: &str = "ringway, egress";
/// Disciplines at the device that leads to the second host: curve, and what `tc` is told. RATE and BURST stand for numbers.
const TC: [(&str, &[&str]); 3] = [
    ("tc tbf", &["qdisc add dev DEVICE root tbf rate RATEkbit burst BURST latency 50ms"]),
    (
        "tc tbf, fq_codel",
        &[
            "qdisc add dev DEVICE root handle 1: tbf rate RATEkbit burst BURST latency 50ms",
            "qdisc add dev DEVICE parent 1:1 fq_codel",
        ],
    ),
    (
        "tc police",
        &[
            "qdisc add dev DEVICE clsact",
            "filter add dev DEVICE egress matchall action police rate RATEkbit burst BURST conform-exceed drop",
        ],
    ),
];

/// Streams of a figure.
#[derive(Clone, Copy)]
struct Streams {
    name: &'static str,
    title: &'static str,
    count: usize,
    control: &'static str,
}

const FIGURES: [Streams; 3] = [
    Streams { name: "shaping-tcp-one", title: "one stream of TCP (cubic)", count: 1, control: "cubic" },
    Streams { name: "shaping-tcp-eight", title: "eight streams of TCP (cubic)", count: 8, control: "cubic" },
    Streams { name: "shaping-tcp-bbr", title: "one stream of TCP (BBR)", count: 1, control: "bbr" },
];

/// What joins the hosts.
enum Switch {
    Ringway(Box<Daemon>),
    /// The kernel's bridge in this namespace.
    Bridge(File),
    Ovs(Box<OvsDpdk>),
}

/// Two hosts and their switch.
struct Joined {
    // The server ends before its namespace, and the switch with its devices.
    _server: Program,
    switch: Switch,
    hosts: [File; 2],
}

impl Joined {
    fn new(
        session: &Session,
        make: impl FnOnce(&[File; 2]) -> io::Result<(Switch, [&'static str; 2])>,
    ) -> io::Result<Self> {
        unpin(session.cores)?;
        let hosts = [netns::inside_new(netns::current)?, netns::inside_new(netns::current)?];
        let (switch, devices) = make(&hosts)?;
        for ((host, device), address) in hosts.iter().zip(devices).zip(HOSTS) {
            netns::inside(host, || {
                netns::run("ip", &format!("addr add {address}/24 dev {device}"))?;
                netns::run("ip", &format!("link set {device} up"))
            })?;
        }
        let server =
            Program::start(in_host(&hosts[1], "iperf3").arg("-s").stdout(Stdio::null()).stderr(Stdio::null()))?;
        let joined = Joined { _server: server, switch, hosts };
        joined.meet()?;
        Ok(joined)
    }

    /// Waits until an echo comes back and iperf3 listens.
    fn meet(&self) -> io::Result<()> {
        let start = Instant::now();
        let is_reached = |program: &str, arguments: &[&str]| {
            let mut command = in_host(&self.hosts[0], program);
            let command = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().map(|status| status.success())
        };
        while !(is_reached("ping", &["-c", "1", "-W", "1", HOSTS[1]])?
            && is_reached("iperf3", &["-c", HOSTS[1], "-n", "1"])?)
        {
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other("the hosts do not reach one another"));
            }
        }
        Ok(())
    }

    /// Sends for some seconds. Returns the rate in bits per second, and the 99th percentile of an echo in milliseconds.
    fn send(&self, streams: Streams, [seconds, before]: [u32; 2]) -> io::Result<(f64, f64)> {
        let mut ping = in_host(&self.hosts[0], "ping");
        let echoes = (f64::from(seconds + before) / BETWEEN) as u32;
        ping.args(["-i", &BETWEEN.to_string(), "-c", &echoes.to_string(), "-W", "2", HOSTS[1]]);
        let mut ping = Program::start(ping.stdout(Stdio::piped()).stderr(Stdio::null()))?;
        let mut iperf = in_host(&self.hosts[0], "iperf3");
        iperf.args(["-c", HOSTS[1], "-J", "-P", &streams.count.to_string(), "-C", streams.control]);
        iperf.args(["-t", &seconds.to_string(), "-O", &before.to_string()]);
        let said = iperf.stdin(Stdio::null()).output()?;
        let report: Value = serde_json::from_slice(&said.stdout).map_err(io::Error::other)?;
        let mut text = String::new();
        if let Some(out) = ping.child().stdout.as_mut() {
            io::Read::read_to_string(out, &mut text)?;
        }
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64();
        let rate = rate.ok_or_else(|| io::Error::other(format!("iperf3 gives no rate: {}", report["error"])))?;
        Ok((rate, percentile(&text, echoes as usize)))
    }
}

/// Returns a program to be run in a namespace.
fn in_host(host: &File, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", netns::path(host).display())).arg(program);
    command
}

/// The 99th percentile of the times that `ping` wrote, in milliseconds. An echo that did not come took as long as ping waits.
fn percentile(text: &str, echoes: usize) -> f64 {
    let time = |line: &str| line.split_once("time=")?.1.split(' ').next()?.parse().ok();
    let mut times: Vec<f64> = text.lines().filter_map(time).collect();
    times.resize(times.len().max(echoes), 2000.0);
    times.sort_by(f64::total_cmp);
    let rank = (times.len() as f64 * 0.99).ceil() as usize;
    times.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn ringway(session: &Session) -> io::Result<Joined> {
    Joined::new(session, |hosts| {
        let taps = hosts.iter().map(|host| format!("netns = \"{}\"", netns::path(host).display())).collect();
        let settings = Settings { core: None, idle: "adaptive", taps, ..session.settings() };
        Ok((Switch::Ringway(Box::new(Daemon::start(session.cores, &settings)?)), TAPS))
    })
}

fn bridge(session: &Session) -> io::Result<Joined> {
    Joined::new(session, |hosts| {
        let inside = cables(hosts)?;
        netns::inside(&inside, || {
            netns::run("ip", "link add bridge type bridge stp_state 0 forward_delay 0")?;
            netns::run("ip", "link set bridge up")?;
            NEAR.iter().try_for_each(|near| netns::run("ip", &format!("link set {near} master bridge")))
        })?;
        Ok((Switch::Bridge(inside), [FAR; 2]))
    })
}

fn ovs(session: &Session) -> io::Result<Joined> {
    Joined::new(session, |hosts| {
        let inside = cables(hosts)?;
        // A packet socket of DPDK knows neither unsegmented frames nor checksums that are still to be made.
        for host in hosts {
            netns::inside(host, || netns::run("ethtool", &format!("-K {FAR} tx off")))?;
        }
        Ok((Switch::Ovs(Box::new(OvsDpdk::inside(session.cores, &inside)?)), [FAR; 2]))
    })
}

/// Makes a namespace with an end of a veth pair to each host.
fn cables(hosts: &[File; 2]) -> io::Result<File> {
    let inside = netns::inside_new(netns::current)?;
    netns::inside(&inside, || {
        for (near, host) in NEAR.iter().zip(hosts) {
            netns::run("ip", &format!("link add {near} type veth peer name {FAR}"))?;
            netns::run("ip", &format!("link set {FAR} netns {}", netns::path(host).display()))?;
            netns::run("ip", &format!("link set {near} up"))?;
        }
        Ok(())
    })?;
    Ok(inside)
}

/// Hosts with a limit.
struct Limited {
    joined: Rc<RefCell<Joined>>,
    series: &'static str,
    /// In kbit/s.
    rate: usize,
    streams: Streams,
    seconds: [u32; 2],
    echoes: ExtraCounts,
}

impl Limited {
    /// Sets the limit. A burst is what 20 ms bring and at least 64 KiB, as by default in Ringway.
    fn limit(&self) -> io::Result<()> {
        let (rate, series) = (self.rate, self.series);
        let burst = (rate * 1000 / 8 / 50).max(64 << 10);
        match &self.joined.borrow().switch {
            Switch::Ringway(daemon) => {
                let keys = match series {
                    DROPS => [format!("ingress={{rate=\"{rate}kbit\",on_excess=\"drop\"}}"), "egress={}".into()],
                    AT_RECEIVER => ["ingress={}".into(), "egress={}".into()],
                    _ => [format!("ingress={{rate=\"{rate}kbit\"}}"), "egress={}".into()],
                };
                keys.iter().try_for_each(|key| daemon.set_tap(TAPS[0], key))?;
                let far =
                    if series == AT_RECEIVER { format!("egress={{rate=\"{rate}kbit\"}}") } else { "egress={}".into() };
                daemon.set_tap(TAPS[1], &far)
            }
            Switch::Bridge(inside) => netns::inside(inside, || {
                let device = NEAR[1];
                for what in [format!("qdisc del dev {device} root"), format!("qdisc del dev {device} clsact")] {
                    // There is none at first.
                    let _ = netns::run("tc", &what);
                }
                let commands = TC.iter().find(|(name, _)| *name == series).map_or(&[][..], |(_, all)| *all);
                commands.iter().try_for_each(|command| {
                    let command = command.replace("DEVICE", device).replace("RATE", &rate.to_string());
                    netns::run("tc", &command.replace("BURST", &burst.to_string()))
                })
            }),
            Switch::Ovs(ovs) => ovs.meter(rate, burst * 8 / 1000),
        }
    }
}

impl Contestant for Limited {
    fn resume(&mut self) -> io::Result<()> {
        match &mut self.joined.borrow_mut().switch {
            Switch::Ringway(daemon) => crate::network::Network::resume(daemon.as_mut()),
            Switch::Ovs(ovs) => ovs.resume(),
            Switch::Bridge(_) => Ok(()),
        }
    }

    fn hold(&mut self) -> io::Result<()> {
        match &mut self.joined.borrow_mut().switch {
            Switch::Ringway(daemon) => crate::network::Network::hold(daemon.as_mut()),
            Switch::Ovs(ovs) => ovs.hold(),
            Switch::Bridge(_) => Ok(()),
        }
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, _: Duration) -> io::Result<f64> {
        self.limit()?;
        let (rate, echo) = self.joined.borrow().send(self.streams, self.seconds)?;
        self.echoes.note(0, self.series, self.rate as f64 / 1000.0, echo);
        Ok(rate / (self.rate as f64 * 1000.0))
    }
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let wants = |all: &[&str]| all.iter().any(|series| session.options.wants(series));
    let shared = |is_wanted: bool, make: fn(&Session) -> io::Result<Joined>| {
        if is_wanted {
            make(session).map(|joined| Rc::new(RefCell::new(joined)))
        } else {
            Err(io::Error::other("not asked for"))
        }
    };
    let ours = [RINGWAY, AT_RECEIVER, DROPS];
    let theirs = TC.map(|(series, _)| series);
    let (ringway, bridge, ovs) =
        (shared(wants(&ours), ringway), shared(wants(&theirs), bridge), shared(wants(&[OVS_DPDK]), ovs));
    let seconds = if session.options.quick { [1, 0] } else { SECONDS };
    let figures = if session.options.quick { &FIGURES[..1] } else { &FIGURES[..] };
    let mut done = Vec::new();
    for &streams in figures {
        let (mut lineup, echoes) = (session.lineup(), ExtraCounts::default());
        for megabits in session.places(&RATES) {
            let all = ours.iter().map(|series| (*series, &ringway));
            let all = all.chain(theirs.iter().map(|series| (*series, &bridge))).chain([(OVS_DPDK, &ovs)]);
            for (series, joined) in all {
                let rate = megabits * 1000;
                lineup.add(
                    series,
                    megabits,
                    with_any(joined, |joined| Limited {
                        joined,
                        series,
                        rate,
                        streams,
                        seconds,
                        echoes: echoes.clone(),
                    }),
                );
            }
        }
        let x = Axis { label: "limit", unit: "Mbit/s", logarithmic: true };
        let heading = |name: String, title: String, y| Heading { name, title, source: SOURCE, x, y };
        let y = Axis { label: "part of the limit", unit: "times", logarithmic: false };
        let title = format!("What {} gets of a limit", streams.title);
        let figure = session.measure("shaping-tcp", heading(streams.name.into(), title, y), lineup)?;
        let y = Axis { label: "99th percentile", unit: "ms", logarithmic: true };
        let title = format!("Echo beside {}", streams.title);
        let echo = echoes.figure(0, heading(format!("{}-echo", streams.name), title, y), &figure);
        done.extend([figure, echo]);
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_that_did_not_come_counts_as_long_as_ping_waits() {
        let line = |time: f64| format!("64 bytes from 10.81.0.2: icmp_seq=1 ttl=64 time={time} ms\n");
        let text: String = (1..=99).map(|time| line(f64::from(time))).collect();
        assert_eq!(percentile(&text, 99), 99.0);
        assert_eq!(percentile(&text, 100), 99.0);
        assert_eq!(percentile(&text, 110), 2000.0);
        assert_eq!(percentile("", 0), 0.0);
    }
}
