//! Experiments: the papers' tables and figures, with their peers and plots.
//!
//! Every figure consists of short interleaved windows (A B A B …), each between two probes of the distance of the two cores
//! ([`placement`]). Each round has a window of a bare ring ([`anchor`], [`trial`]). [`EXPERIMENTS`] lists the experiments.

pub mod anchor;
mod ancs;
pub mod child;
mod counted;
mod critical;
mod daemon;
mod drop_rate;
mod e1000_forwarding;
mod e1000_guests;
mod e1000_instructions;
mod e1000_polls;
mod e1000_tcp;
pub mod extra_counts;
mod fig06_07_destinations;
mod fig08_switch_batch;
mod fig09_receive_batch;
mod fig10_send_batch;
mod fig11_frame_size;
mod fig12_round_trip;
mod flooded;
mod forwarding_programs;
mod headline;
mod hosts;
mod idle_ports;
pub mod interrupt;
mod isolation;
mod limits;
pub mod list;
mod lwep;
mod lwep_binding;
mod lwep_connections;
mod lwep_fairness;
mod lwep_guard;
mod lwep_guests;
mod lwep_hosts;
mod lwep_segmentation;
mod lwep_utilisation;
pub mod machine;
pub mod markdown;
pub mod messages;
pub mod network;
mod number;
mod owned_nics;
pub mod peers;
pub mod placement;
pub mod plot;
mod policy;
mod programs;
pub mod report;
pub mod report_file;
pub mod scratch;
pub mod series;
pub mod session;
mod shaping;
mod shares;
pub mod stats;
mod table;
pub mod trial;
mod vale_table_1;
pub mod vhost;
mod vhost_forwarding;
mod vhost_latency;
mod vhost_neighbours;
mod vhost_notifications;
mod vhost_utilisation;
mod vhost_virtio_user;
pub mod vm;
mod vm_alone;
mod vm_host;
mod vm_intervals;
mod vm_nics;
mod vm_pacing;
mod vm_receive;
pub mod vm_switch;
mod vm_tcp;
mod wire;

pub use list::{EXPERIMENTS, Experiment, find};

/// Longest wait for a program, a guest or a frame: what takes longer hangs. It is no measure of the machine, which may be busy.
pub(crate) const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);
