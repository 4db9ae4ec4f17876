//! Cross-check of the forwarding figures with another generator: testpmd's pair of virtio-net drivers, whose frames of 64 bytes
//! circulate.

use std::io;

use crate::daemon::Daemon;
use crate::peers::ovs_dpdk::OvsDpdk;
use crate::peers::testpmd::Testpmd;
use crate::peers::virtio_user::{Rings, VirtioUser};
use crate::report::{Axis, Figure, Heading, RATE};
use crate::series::{OVS_DPDK, RINGWAY, TESTPMD};
use crate::session::Session;

/// Descriptors of each ring.
const RING: usize = 1024;
/// Packet buffers that a cache may hold.
const BUFFERS: usize = 16_384;

/// Measures the figures.
///
/// # Errors
/// The cores cannot be used.
pub fn run(session: &mut Session) -> io::Result<Vec<Figure>> {
    let cores = session.cores;
    let mut figures = Vec::new();
    for packed in [false, true] {
        for buffers in [Some(BUFFERS), None] {
            let mut lineup = session.lineup();
            for in_order in [false, true] {
                let (x, rings) = (usize::from(in_order), Rings { packed, in_order, size: RING, buffers });
                let ringway = Daemon::start(cores, &session.vhost_settings());
                lineup.add(RINGWAY, x, ringway.and_then(|switch| VirtioUser::start(cores, switch, rings)));
                let testpmd = Testpmd::start(cores);
                lineup.add(TESTPMD, x, testpmd.and_then(|switch| VirtioUser::start(cores, switch, rings)));
                let ovs = OvsDpdk::start(cores);
                lineup.add(OVS_DPDK, x, ovs.and_then(|switch| VirtioUser::start(cores, switch, rings)));
            }
            let rings = if packed { "packed" } else { "split" };
            let (suffix, pool) = match buffers {
                Some(_) => ("", "16,384 packet buffers"),
                None => ("-cold", "its own number of packet buffers, about 165,000"),
            };
            let heading = Heading {
                name: format!("virtio-user-{rings}{suffix}"),
                title: format!("Frames of 64 bytes that testpmd's virtio-user pair circulates, {rings} rings, {pool}"),
                source: "VPE, section 5.1, between virtual machines",
                x: Axis { label: "in order", unit: "1: accepted, the default", logarithmic: false },
                y: RATE,
            };
            figures.push(session.measure("virtio-user", heading, lineup)?);
        }
    }
    Ok(figures)
}
