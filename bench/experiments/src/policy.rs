//! Cost of policy for frames that it passes: one sender to one receiver without policy, with each part, and with all parts.

use std::io;

use ringway_traffic::Mac;

use crate::daemon::{Daemon, RingwayNetwork, Settings, VhostUser};
use crate::network::{Forwarding, Load, SENDER};
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::RINGWAY;
use crate::session::{Session, one_to_one};

const SIZES: [usize; 2] = [60, 1514];
/// Numbers of flows with which a guard is measured, and the size of their frames in bytes.
const FLOWS: [usize; 3] = [1, 64, 1024];
const GUARDED_SIZE: usize = 64;
/// A local experimental Ethernet type: neither IP nor ARP (IEEE 802-2014, section 9.2.4).
const OTHER: [u8; 2] = [0x88, 0xb5];

/// Limits that no load reaches.
const LIMITS: &str = r#"
ingress = { rate = "400Gbit", frames = "900Mpps" }
egress = { rate = "400Gbit", frames = "900Mpps" }
storm = { broadcast = "900Mpps", multicast = "900Mpps", unknown_unicast = "900Mpps" }
"#;
const VLAN: &str = "vlan = 10\n";

/// Keys of the two ports: those of the guard, and `others`. All frames have the same IP source address.
fn keys(guard: bool, others: &str) -> Vec<String> {
    let port = |number| match guard {
        true => {
            let mac = Mac::local(SENDER + number);
            format!("mac = [\"{mac}\"]\nip = [\"198.18.0.1\"]\nguard = \"all\"\n{others}")
        }
        false => others.to_owned(),
    };
    vec![port(0), port(1)]
}

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    Ok(vec![
        figure::<Daemon>(session)?,
        figure::<VhostUser>(session)?,
        guard::<Daemon>(session)?,
        guard::<VhostUser>(session)?,
    ])
}

/// Measures the cost of a source guard by the kind of frame: IPv4 of few and of many flows, and neither IP nor ARP. The curve
/// "ringway" has `guard = "all"`.
fn guard<N: RingwayNetwork>(session: &mut Session) -> io::Result<Figure> {
    let (mut lineup, cores) = (session.lineup(), session.cores);
    let guards = [("no guard", None), ("guard = [\"mac\"]", Some("[\"mac\"]")), (RINGWAY, Some("\"all\""))];
    for flows in FLOWS {
        for (ethernet_type, kind) in [(None, ""), (Some(OTHER), ", 0x88b5")] {
            // Frames of that type have no flows.
            if ethernet_type.is_some() && flows > 1 {
                continue;
            }
            for (series, guard) in guards {
                let port = |number| match guard {
                    None => String::new(),
                    Some(guard) => {
                        let mac = Mac::local(SENDER + number);
                        format!("mac = [\"{mac}\"]\nip = [\"198.18.0.1\"]\nguard = {guard}\n")
                    }
                };
                let settings = Settings { keys: vec![port(0), port(1)], ..session.settings() };
                let load = Load { flows, ethernet_type, ..one_to_one(GUARDED_SIZE) };
                let network = N::with_ports(cores, &settings, 2);
                let forwarding = network.and_then(|network| Forwarding::new(network, cores, load));
                lineup.add(&format!("{series}{kind}"), flows, forwarding);
            }
        }
    }
    let heading = Heading {
        name: format!("guard{}", N::SUFFIX),
        title: format!("Frames of {GUARDED_SIZE} bytes past a source guard that refuses none of them, {}", N::PORTS),
        source: "fairness paper, section 4",
        x: Axis { label: "flows", unit: "flows", logarithmic: true },
        y: RATE,
    };
    session.measure("policy", heading, lineup)
}

fn figure<N: RingwayNetwork>(session: &mut Session) -> io::Result<Figure> {
    let (mut lineup, cores) = (session.lineup(), session.cores);
    for frame_len in SIZES {
        lineup.anchor(frame_len, frame_len);
        for (series, keys) in [
            ("no policy", Vec::new()),
            ("source guard", keys(true, "")),
            ("limits both ways", keys(false, LIMITS)),
            ("a VLAN", keys(false, VLAN)),
            (RINGWAY, keys(true, &format!("{LIMITS}{VLAN}"))),
        ] {
            let network = N::with_ports(cores, &Settings { keys, ..session.settings() }, 2);
            let forwarding = |network| Forwarding::new(network, cores, one_to_one(frame_len));
            lineup.add(series, frame_len, network.and_then(forwarding));
        }
    }
    let heading = Heading {
        name: format!("policy{}", N::SUFFIX),
        title: format!(
            "One sender to one receiver with source guard, limits and a VLAN, none of which refuses anything, {}",
            N::PORTS
        ),
        source: "fairness paper, section 6",
        x: Axis { label: "frame size", unit: "bytes", logarithmic: false },
        y: RATE,
    };
    session.measure("policy", heading, lineup)
}
