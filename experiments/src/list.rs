//! The experiments of `ringway bench`.

use std::io;

use crate::report::Figure;
use crate::session::Session;
use crate::{
    drop_rate, e1000_forwarding, e1000_guests, e1000_polls, e1000_tcp, fig06_07_destinations, fig08_switch_batch,
    fig09_receive_batch, fig10_send_batch, fig11_frame_size, fig12_round_trip, flooded, headline, hosts, idle_ports,
    isolation, lwep, lwep_guests, policy, programs, shaping, shares, vale_table_1, vhost_forwarding, vhost_latency,
    vhost_neighbours, vhost_notifications, vhost_utilisation, vhost_virtio_user, vm_intervals, vm_pacing, vm_tcp, wire,
};

/// An experiment of `ringway bench`.
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Paper and section that it comes from.
    pub source: &'static str,
    /// What it shows, for `ringway bench --list`.
    pub about: &'static str,
    /// What a reader of its tables has to know; may be empty.
    pub reading: &'static str,
    /// Measures it.
    pub run: fn(&mut Session) -> io::Result<Vec<Figure>>,
}

/// All experiments, in the order of a run.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "headline",
        source: "VALE, section 5.1",
        about: "rate of one sender to one receiver, 60 and 1514 bytes",
        reading: "The generator fills its buffers once, as `pkt-gen` does. In the row \"every frame written\" it writes each byte of each frame.",
        run: headline::run,
    },
    Experiment {
        name: "destinations",
        source: "VALE, figures 6 and 7",
        about: "rate and time per frame against number of destinations",
        reading: "",
        run: fig06_07_destinations::run,
    },
    Experiment {
        name: "switch-batch",
        source: "VALE, figure 8",
        about: "rate against batch size of the switch",
        reading: "",
        run: fig08_switch_batch::run,
    },
    Experiment {
        name: "receive-batch",
        source: "VALE, figure 9",
        about: "rate against batch size of the receiver",
        reading: "",
        run: fig09_receive_batch::run,
    },
    Experiment {
        name: "send-batch",
        source: "VALE, figure 10",
        about: "rate against batch size of the sender",
        reading: "",
        run: fig10_send_batch::run,
    },
    Experiment {
        name: "frame-size",
        source: "VALE, figure 11",
        about: "time per frame against frame size",
        reading: "",
        run: fig11_frame_size::run,
    },
    Experiment {
        name: "round-trip",
        source: "VALE, figure 12",
        about: "round trip against frame size, sleeping and spinning",
        reading: "One frame is under way at a time. A round trip of a line is the time in which a cache line crosses between the two cores and back.",
        run: fig12_round_trip::run,
    },
    Experiment {
        name: "drop-rate",
        source: "VALE, section 5.1, footnote 6",
        about: "frames dropped at the switch against frames forwarded",
        reading: "The row of Ringway has the frames that are forwarded; the other rows have the frames that are dropped.",
        run: drop_rate::run,
    },
    Experiment {
        name: "idle-ports",
        source: "VPE, hierarchical flags",
        about: "rate against number of idle ports, 1 to 1,024",
        reading: "The row \"two ports only\" is measured without idle ports.",
        run: idle_ports::run,
    },
    Experiment {
        name: "wire",
        source: "VALE, section 4.1; VPE, section 4.2",
        about: "rate between a process port and a network device by an XDP port, both ways, beside testpmd, Open vSwitch and TAP with a Linux bridge",
        reading: "The device is one end of a veth pair without segmentation offload; the other end is in a network namespace of its own. To the wire, frames count that the other end has received, where the stack drops them. From the wire, frames count that the receiver has taken: at the other end an XDP program gives the pair 32 copies of each frame that the generator's core sends, so that the source does not limit the rate. The kernel's work of receiving is on the generator's core, with each frame; for the Linux bridge, which does not spin, a thread of the kernel on the switch's core does it. `testpmd af_xdp` does not switch and has no client: it makes the frames (`txonly`) or takes them (`rxonly`) on the switch's core, with `net_af_xdp`. `testpmd af_xdp io` passes frames between the device and a vhost-user port, which the generator drives: the same work as Ringway's, without switching. `ovs-dpdk af_xdp` has a vhost-user port and the device (`type=afxdp`). The Linux bridge has the device as a port, and a TAP device for the generator. All XDP sockets copy.",
        run: wire::run,
    },
    Experiment {
        name: "vhost-forwarding",
        source: "VPE, section 5.1",
        about: "rate between two virtual machines' ports against frame size, split and packed rings",
        reading: "The generator is a lean driver of our own with rings of 256 descriptors. testpmd in `io` mode does not switch: every frame of one port goes to the other.",
        run: vhost_forwarding::run,
    },
    Experiment {
        name: "virtio-user",
        source: "VPE, section 5.1",
        about: "rate between two virtual machines' ports with testpmd's drivers as generator",
        reading: "The generator is testpmd with two `virtio_user` drivers, which limit the rate.",
        run: vhost_virtio_user::run,
    },
    Experiment {
        name: "vhost-latency",
        source: "VPE, figure 5",
        about: "median, 99th and 99.9th percentile of the round trip, alone and under half load",
        reading: "Half load is half of the highest rate of testpmd, or, in the row \"half of its own\", of Ringway.",
        run: vhost_latency::run,
    },
    Experiment {
        name: "neighbours",
        source: "VPE, section 3",
        about: "rate between two virtual machines' ports beside one that stands still, and beside one that is broken",
        reading: "One frame of sixteen is a broadcast, which the third port receives too.",
        run: vhost_neighbours::run,
    },
    Experiment {
        name: "utilisation",
        source: "VPE, figures 8, 10 and 11",
        about: "share of the poller's time that is busy against load, with and without segmentation offload and pinning",
        reading: "",
        run: vhost_utilisation::run,
    },
    Experiment {
        name: "notifications",
        source: "VPE, figure 4",
        about: "calls and kicks per frame under each idle policy, from a trickle to saturation",
        reading: "",
        run: vhost_notifications::run,
    },
    Experiment {
        name: "e1000-forwarding",
        source: "Maffione, tables 3.1 and 4.1; ANCS 2013, figure 1",
        about: "rate, messages and interrupts per frame of e1000 drivers by when they touch registers, beside vhost-user",
        reading: "The generator is a driver of our own with rings of 256 descriptors. The rows differ in when the driver touches registers; interrupts are at least 250 us apart except in the rows \"base\" and \"each\".",
        run: e1000_forwarding::run,
    },
    Experiment {
        name: "e1000-transmit",
        source: "Maffione, tables 3.1 and 4.1; ANCS 2013, figure 1",
        about: "frames, interrupts, tail writes and register accesses of guests that send, beside QEMU's own NICs",
        reading: "Guests run Debian's kernel with unmodified drivers, emulated by QEMU (`accel=tcg`). QEMU's own NICs are on TAP devices and a Linux bridge. Unmoderated: `InterruptThrottleRate=0`. The rows \"to fill\" send 200 frames into an empty ring.",
        run: e1000_guests::transmit,
    },
    Experiment {
        name: "e1000-receive",
        source: "Maffione, tables 3.2 and 4.3",
        about: "frames, interrupts and register accesses of guests that receive, at the highest rate without loss",
        reading: "Guests as in [e1000-transmit](#e1000-transmit). The value is the highest rate of UDP frames of which 99 % arrive.",
        run: e1000_guests::receive,
    },
    Experiment {
        name: "e1000-polls",
        source: "Maffione, table 3.3",
        about: "frames that a guest's driver takes each time it polls its NIC",
        reading: "Conditions as in [e1000-transmit](#e1000-transmit).",
        run: e1000_polls::run,
    },
    Experiment {
        name: "e1000-overload",
        source: "Maffione, figure 3.3",
        about: "what guests receive of ever more frames",
        reading: "Conditions as in [e1000-transmit](#e1000-transmit).",
        run: e1000_guests::overload,
    },
    Experiment {
        name: "e1000-moderation",
        source: "Maffione, figure 3.4",
        about: "rate of guests that send against the most interrupts per second",
        reading: "Conditions as in [e1000-transmit](#e1000-transmit).",
        run: e1000_guests::moderation,
    },
    Experiment {
        name: "e1000-critical",
        source: "Maffione, figure 3.5",
        about: "highest rate that guests receive without loss against the most interrupts per second",
        reading: "Conditions as in [e1000-transmit](#e1000-transmit).",
        run: e1000_guests::critical,
    },
    Experiment {
        name: "e1000-tcp",
        source: "ANCS 2013, figure 1",
        about: "TCP and UDP between two guests with e1000s against QEMU's own e1000 on a Linux bridge",
        reading: "Guests as in [e1000-transmit](#e1000-transmit). Guests, QEMU and switches share two cores.",
        run: e1000_tcp::run,
    },
    Experiment {
        name: "vm-tcp",
        source: "VPE, section 5.1",
        about: "TCP between two virtual machines against QEMU's TAP devices on a Linux bridge, and the poller when they are silent",
        reading: "Two emulated guests with virtio-net. The peer is QEMU's `-netdev tap` with the offload header on a Linux bridge, without vhost-net.",
        run: vm_tcp::run,
    },
    Experiment {
        name: "vale-table-1",
        source: "VALE, table 1",
        about: "rate of a source and a sink in a guest that drive the guest's NIC themselves, as pkt-gen does, on a Linux bridge and on Ringway",
        reading: "An emulated guest, in which `gen tx` or `gen rx` drives the NIC (`--pci`) without a pause: virtio-net or e1000, of Ringway (the e1000 with the communication status block) or of QEMU on a TAP device and a Linux bridge. Sent frames count when they arrive at the other port; received ones are those that the guest takes of a flood. The rows without a guest have the generator of [headline](#headline) and a switch's core.",
        run: vale_table_1::run,
    },
    Experiment {
        name: "hosts",
        source: "VPE, figures 2 to 5, 10 and 11",
        about: "TCP and pings between virtual machines on two hosts, against QEMU's TAP devices and a Linux bridge on each host",
        reading: "Guests as in [vm-tcp](#vm-tcp). The hosts are network namespaces, joined by a veth pair without segmentation offload. Ringway has its end by an XDP port, the bridge as a port of its own. The veth pair keeps its checksum offload, so no way computes checksums between the guests: an XDP port leaves them to the veth device from Linux 6.11 on. All share two cores.",
        run: hosts::run,
    },
    Experiment {
        name: "vm-intervals",
        source: "Maffione, section 4.3.4 and chapter 5",
        about: "rates between two guests with fixed intervals between calls and with one that follows the traffic",
        reading: "",
        run: vm_intervals::run,
    },
    Experiment {
        name: "vm-pacing",
        source: "VPE, section 4.2",
        about: "small frames and TCP between two virtual machines with adaptive pacing and without",
        reading: "Pacing tries waits only above 200,000 frames a second on one ring. An emulated guest does not send so many.",
        run: vm_pacing::run,
    },
    Experiment {
        name: "shaping",
        source: "fairness paper, section 4.3",
        about: "error of a rate limit against rate, 1 Mbit/s to 4 Gbit/s, beside tc and Open vSwitch",
        reading: "The sender floods. The burst is 10 ms of the rate, at least 16 KiB, also for the peers. An error of one frame cannot be avoided: it is 1.2 % of a second of 1 Mbit/s in frames of 1514 bytes. Open vSwitch counts frames without their Ethernet header: 0.93 % of 1514 bytes, 30.4 % of 60. A TAP device takes about 400,000 frames a second, so tc has no values beyond. A window without a frame for as long as a burst lasts, or one that ended 2 ms late, does not count, for any contestant. What is left in a bucket before a window can pass in the window, up to a burst (1 % of a second).",
        run: shaping::run,
    },
    Experiment {
        name: "shaping-slow",
        source: "fairness paper, section 4.3",
        about: "error of a rate limit of 8 and 64 kbit/s",
        reading: "Conditions as in [shaping](#shaping).",
        run: shaping::slow,
    },
    Experiment {
        name: "shaping-fast",
        source: "fairness paper, section 4.3",
        about: "error of a rate limit of 10 to 100 Gbit/s",
        reading: "Conditions as in [shaping](#shaping).",
        run: shaping::fast,
    },
    Experiment {
        name: "shaping-counted",
        source: "fairness paper, section 4.3",
        about: "error of a rate limit of 100 to 400 Gbit/s, counted by the limit: nothing is delivered",
        reading: "Conditions as in [shaping](#shaping).",
        run: shaping::counted,
    },
    Experiment {
        name: "shaping-sizes",
        source: "fairness paper, section 4.3",
        about: "error of a rate limit against frame size",
        reading: "Conditions as in [shaping](#shaping).",
        run: shaping::sizes,
    },
    Experiment {
        name: "shaping-ports",
        source: "fairness paper, section 4.3",
        about: "error of rate limits against the number of limited ports, 1 to 1,024",
        reading: "Conditions as in [shaping](#shaping).",
        run: shaping::ports,
    },
    Experiment {
        name: "shaping-burst",
        source: "fairness paper, section 4.3",
        about: "what passes of a sudden flood beyond the rate and the burst",
        reading: "Frames that pass of a flood of 40 ms at 10 Mbit/s, beyond rate and burst. A sender that waits is served every 5 ms, so 5 ms of the rate (4.1 frames) come after the window.",
        run: shaping::bursts,
    },
    Experiment {
        name: "shares",
        source: "fairness paper, figures 6 and 7",
        about: "fairness among 2 to 64 ports that flood one that is limited or slow, with frames of all sizes and by weight",
        reading: "Ports flood one that takes 200 Mbit/s: by a limit of its own (\"ringway\"; \"ringway, waits\"), by a bucket that lends all of it, by a bucket that the senders share, or by a client that takes no more (\"slow receiver\"). Frames have 60 to 1514 bytes, from four senders on one has frames of 64 KiB. A share is the bytes of a sender of 60-byte frames with this weight for each byte of a sender of 1514-byte frames with weight 1.",
        run: shares::run,
    },
    Experiment {
        name: "shares-vhost",
        source: "fairness paper, figures 6 and 7",
        about: "fairness among vhost-user ports that flood one that is limited or slow",
        reading: "Conditions as in [shares](#shares).",
        run: shares::run_vhost,
    },
    Experiment {
        name: "flooded",
        source: "fairness paper, figures 6 to 9",
        about: "rates of 1 to 64 flooded ports; calls and the poller's time with 1 Gbit/s to one, with and without a limit",
        reading: "One sender of 60-byte frames to several ports by turns; then 1 Gbit/s to one client that sleeps until it is called, limited to 24,000 frames a second; then other limits.",
        run: flooded::run,
    },
    Experiment {
        name: "flooded-vhost",
        source: "fairness paper, figures 6 to 9",
        about: "rates of flooded vhost-user ports; calls and the poller's time, with and without a limit",
        reading: "Conditions as in [flooded](#flooded).",
        run: flooded::run_vhost,
    },
    Experiment {
        name: "isolation",
        source: "fairness paper, section 6.2",
        about: "round trips of a victim, their number and 99.9th percentile, alone and while a neighbour floods, within its limit, above it and without one",
        reading: "The victim sends a frame every 2 us and gets each back while a neighbour sends to a fourth port. Slices of a millisecond in which the generator or the poller lost its core do not count.",
        run: isolation::run,
    },
    Experiment {
        name: "policy",
        source: "fairness paper, section 6",
        about: "rate with source guard, limits both ways, a VLAN and all of it, none refusing anything, against none of it",
        reading: "The row of Ringway has all of the policy, and in the tables of the guard `guard = \"all\"`. Rows with 0x88b5 have frames of that EtherType, which is neither IP nor ARP.",
        run: policy::run,
    },
    Experiment {
        name: "programs",
        source: "VALE, section 3.1",
        about: "rate of a netmap sender and receiver beside the client library and packet sockets",
        reading: "The row of Ringway is a netmap program that `ringway exec` runs; \"client library\" is what `ringway gen loop` does. The peer is the same program with packet sockets (`sendmmsg`, `recvmmsg`) at the ends of a veth pair.",
        run: programs::run,
    },
    Experiment {
        name: "programs-batch",
        source: "VALE, figures 9 and 10",
        about: "rate of netmap programs against batch size of the receiver and of the sender",
        reading: "As [receive-batch](#receive-batch) and [send-batch](#send-batch), by netmap programs.",
        run: programs::batches,
    },
    Experiment {
        name: "programs-forwarder",
        source: "VALE, section 3.1",
        about: "rate and instructions of a netmap forwarder that swaps buffers, beside one that copies",
        reading: "A frame passes a switch, the forwarder and a second switch. Instructions are those of the forwarder's own work, with the synchronisation of its rings, counted by callgrind.",
        run: programs::forwarder,
    },
    Experiment {
        name: "programs-bridge",
        source: "VALE, section 7",
        about: "rate of a libpcap bridge of two ports, beside the same program on packet sockets",
        reading: "Frames come from a source and go to a sink in the bridge's own thread: netmap ports on the two switches, or packet sockets at the other ends of two veth pairs.",
        run: programs::bridge,
    },
    Experiment {
        name: "lwep-latency",
        source: "VPE, figure 6",
        about: "round trip of a message of LWEP against its size, beside bare frames, TCP, UDP and Unix sockets",
        reading: "One message is under way at a time; both ends are in one thread that does not sleep. The row of Ringway has bare frames as long as LWEP's. The sockets' kernel work is on the generator's core; LWEP's switch has the other core.",
        run: lwep::latency,
    },
    Experiment {
        name: "lwep-bandwidth",
        source: "VPE, figure 7",
        about: "rate of LWEP's messages against their size, beside bare frames, TCP, UDP and Unix sockets",
        reading: "Every message is written by its sender. Sockets copy each to its receiver; LWEP's receiver copies it in the row \"lwep, copied\" only. TCP has its messages in writes of up to 256 KiB. Of UDP, messages count that have arrived.",
        run: lwep::bandwidth,
    },
    Experiment {
        name: "lwep-guests",
        source: "VPE, figures 6 and 7",
        about: "round trip of a message between a program that drives its guest's NIC and one on the host, or in another guest, beside TCP and UDP of the guest's kernel",
        reading: "Emulated guests with a NIC of their kernel and NICs that programs drive (`pci:`): virtio-net, and an e1000 with the communication status block. The rows of Ringway have LWEP's messages, by virtio-net or by the e1000. Frames of all pass the same switch; those of the host's sockets have a TAP port of it. The program on the host spins and that in the guest sleeps, unless a row says otherwise. Guests, QEMU, the switch and the programs share two cores: when both programs spin the switch waits for one of them to lose its core, and in the second figure all sleep.",
        run: lwep_guests::latency,
    },
    Experiment {
        name: "lwep-guests-bandwidth",
        source: "VPE, figures 6 and 7",
        about: "rate of messages between a program that drives its guest's NIC and one on the host, beside TCP and UDP of the guest's kernel, with register accesses and interrupts",
        reading: "Guests as in [lwep-guests](#lwep-guests). The program in the guest spins, unless its row says that it is asleep; that on the host sleeps. The poller never sleeps, so that nobody has to wake it. In the rows \"segmented\" the NIC, or the switch, cuts buffers of many messages. Of UDP, messages count that have arrived; TCP and UDP have one message in each write.",
        run: lwep_guests::bandwidth,
    },
];

/// Finds an experiment by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.name == name)
}
