//! Experiments: the papers' tables and figures, with their peers and plots.
//!
//! Every figure consists of short interleaved windows (A B A B …), each between two probes of the distance of the two cores
//! ([`placement`]). Each round has a window of a bare ring ([`anchor`], [`trial`]). [`EXPERIMENTS`] lists the experiments.

pub mod anchor;
pub mod beside;
pub mod child;
mod counted;
mod critical;
mod daemon;
mod drop_rate;
mod e1000_forwarding;
mod e1000_guests;
mod e1000_polls;
mod e1000_tcp;
mod fig06_07_destinations;
mod fig08_switch_batch;
mod fig09_receive_batch;
mod fig10_send_batch;
mod fig11_frame_size;
mod fig12_round_trip;
mod flooded;
mod headline;
mod idle_ports;
pub mod interrupt;
mod isolation;
mod limits;
pub mod machine;
pub mod markdown;
pub mod network;
pub mod peers;
pub mod placement;
pub mod plot;
mod policy;
pub mod report;
pub mod scratch;
pub mod session;
mod shaping;
mod shares;
pub mod stats;
mod table;
pub mod trial;
pub mod vhost;
mod vhost_forwarding;
mod vhost_latency;
mod vhost_neighbours;
mod vhost_notifications;
mod vhost_utilisation;
mod vhost_virtio_user;
pub mod vm;
mod vm_alone;
mod vm_nics;
mod vm_pacing;
mod vm_receive;
mod vm_tcp;

use std::io;

use report::Figure;
use session::Session;

/// An experiment of `ringway bench`.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Paper and section that it comes from.
    pub source: &'static str,
    /// What it shows, for `ringway bench --list`.
    pub about: &'static str,
    /// Measures it.
    pub run: fn(&mut Session) -> io::Result<Vec<Figure>>,
}

/// All experiments, in the order of a run.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "headline",
        source: "VALE, section 5.1",
        about: "rate of one sender to one receiver, 60 and 1514 bytes",
        run: headline::run,
    },
    Experiment {
        name: "destinations",
        source: "VALE, figures 6 and 7",
        about: "rate and time per frame against number of destinations",
        run: fig06_07_destinations::run,
    },
    Experiment {
        name: "switch-batch",
        source: "VALE, figure 8",
        about: "rate against batch size of the switch",
        run: fig08_switch_batch::run,
    },
    Experiment {
        name: "receive-batch",
        source: "VALE, figure 9",
        about: "rate against batch size of the receiver",
        run: fig09_receive_batch::run,
    },
    Experiment {
        name: "send-batch",
        source: "VALE, figure 10",
        about: "rate against batch size of the sender",
        run: fig10_send_batch::run,
    },
    Experiment {
        name: "frame-size",
        source: "VALE, figure 11",
        about: "time per frame against frame size",
        run: fig11_frame_size::run,
    },
    Experiment {
        name: "round-trip",
        source: "VALE, figure 12",
        about: "round trip against frame size, sleeping and spinning",
        run: fig12_round_trip::run,
    },
    Experiment {
        name: "drop-rate",
        source: "VALE, section 5.1, footnote 6",
        about: "frames dropped at the switch against frames forwarded",
        run: drop_rate::run,
    },
    Experiment {
        name: "idle-ports",
        source: "VPE, hierarchical flags",
        about: "rate against number of idle ports, 1 to 1,024",
        run: idle_ports::run,
    },
    Experiment {
        name: "vhost-forwarding",
        source: "VPE, section 5.1",
        about: "rate between two virtual machines' ports against frame size, split and packed rings",
        run: vhost_forwarding::run,
    },
    Experiment {
        name: "virtio-user",
        source: "VPE, section 5.1",
        about: "rate between two virtual machines' ports with testpmd's drivers as generator",
        run: vhost_virtio_user::run,
    },
    Experiment {
        name: "vhost-latency",
        source: "VPE, figure 5",
        about: "median, 99th and 99.9th percentile of the round trip, alone and under half load",
        run: vhost_latency::run,
    },
    Experiment {
        name: "neighbours",
        source: "VPE, section 3",
        about: "rate between two virtual machines' ports beside one that stands still, and beside one that is broken",
        run: vhost_neighbours::run,
    },
    Experiment {
        name: "utilisation",
        source: "VPE, figures 8, 10 and 11",
        about: "share of the poller's time that is busy against load, with and without segmentation offload and pinning",
        run: vhost_utilisation::run,
    },
    Experiment {
        name: "notifications",
        source: "VPE, figure 4",
        about: "calls and kicks per frame under each idle policy, from a trickle to saturation",
        run: vhost_notifications::run,
    },
    Experiment {
        name: "e1000-forwarding",
        source: "Maffione, tables 3.1 and 4.1; ANCS 2013, figure 1",
        about: "rate, messages and interrupts per frame of e1000 drivers by when they touch registers, beside vhost-user",
        run: e1000_forwarding::run,
    },
    Experiment {
        name: "e1000-transmit",
        source: "Maffione, tables 3.1 and 4.1; ANCS 2013, figure 1",
        about: "frames, interrupts, tail writes and register accesses of guests that send, beside QEMU's own NICs",
        run: e1000_guests::transmit,
    },
    Experiment {
        name: "e1000-receive",
        source: "Maffione, tables 3.2 and 4.3",
        about: "the same of guests that receive, at the highest rate without loss",
        run: e1000_guests::receive,
    },
    Experiment {
        name: "e1000-polls",
        source: "Maffione, table 3.3",
        about: "frames that a guest's driver takes each time it polls its NIC",
        run: e1000_polls::run,
    },
    Experiment {
        name: "e1000-overload",
        source: "Maffione, figure 3.3",
        about: "what guests receive of ever more frames",
        run: e1000_guests::overload,
    },
    Experiment {
        name: "e1000-moderation",
        source: "Maffione, figure 3.4",
        about: "rate of guests that send against the most interrupts per second",
        run: e1000_guests::moderation,
    },
    Experiment {
        name: "e1000-critical",
        source: "Maffione, figure 3.5",
        about: "highest rate that guests receive without loss against the most interrupts per second",
        run: e1000_guests::critical,
    },
    Experiment {
        name: "e1000-tcp",
        source: "ANCS 2013, figure 1",
        about: "TCP and UDP between two guests with e1000s against QEMU's own e1000 on a Linux bridge",
        run: e1000_tcp::run,
    },
    Experiment {
        name: "vm-tcp",
        source: "VPE, section 5.1",
        about: "TCP between two virtual machines against QEMU's TAP devices on a Linux bridge, and the poller when they are silent",
        run: vm_tcp::run,
    },
    Experiment {
        name: "vm-pacing",
        source: "VPE, section 4.2",
        about: "small frames and TCP between two virtual machines with adaptive pacing and without",
        run: vm_pacing::run,
    },
    Experiment {
        name: "shaping",
        source: "fairness paper, section 4.3",
        about: "error of a rate limit against rate, 1 Mbit/s to 4 Gbit/s, beside tc and Open vSwitch",
        run: shaping::run,
    },
    Experiment {
        name: "shaping-slow",
        source: "fairness paper, section 4.3",
        about: "the same of 8 and 64 kbit/s",
        run: shaping::slow,
    },
    Experiment {
        name: "shaping-fast",
        source: "fairness paper, section 4.3",
        about: "the same of 10 to 100 Gbit/s",
        run: shaping::fast,
    },
    Experiment {
        name: "shaping-counted",
        source: "fairness paper, section 4.3",
        about: "the same of 100 to 400 Gbit/s, counted by the limit: nothing is delivered",
        run: shaping::counted,
    },
    Experiment {
        name: "shaping-sizes",
        source: "fairness paper, section 4.3",
        about: "error of a rate limit against frame size",
        run: shaping::sizes,
    },
    Experiment {
        name: "shaping-ports",
        source: "fairness paper, section 4.3",
        about: "error of rate limits against the number of limited ports, 1 to 1,024",
        run: shaping::ports,
    },
    Experiment {
        name: "shaping-burst",
        source: "fairness paper, section 4.3",
        about: "what passes of a sudden flood beyond the rate and the burst",
        run: shaping::bursts,
    },
    Experiment {
        name: "shares",
        source: "fairness paper, figures 6 and 7",
        about: "fairness among 2 to 64 ports that flood one that is limited or slow, with frames of all sizes and by weight",
        run: shares::run,
    },
    Experiment {
        name: "shares-vhost",
        source: "fairness paper, figures 6 and 7",
        about: "the same among vhost-user ports",
        run: shares::run_vhost,
    },
    Experiment {
        name: "flooded",
        source: "fairness paper, figures 6 to 9",
        about: "rates of 1 to 64 flooded ports; calls and the poller's time with 1 Gbit/s to one, with and without a limit",
        run: flooded::run,
    },
    Experiment {
        name: "flooded-vhost",
        source: "fairness paper, figures 6 to 9",
        about: "the same between vhost-user ports",
        run: flooded::run_vhost,
    },
    Experiment {
        name: "isolation",
        source: "fairness paper, section 6.2",
        about: "round trips of a victim, their number and 99.9th percentile, alone and while a neighbour floods, within its limit, above it and without one",
        run: isolation::run,
    },
    Experiment {
        name: "policy",
        source: "fairness paper, section 6",
        about: "rate with source guard, limits both ways, a VLAN and all of it, none refusing anything, against none of it",
        run: policy::run,
    },
];

/// Finds an experiment by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}
