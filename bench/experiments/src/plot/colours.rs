//! One colour for each contestant, the same in every plot.

use plotters::style::RGBColor;

const GREY: RGBColor = RGBColor(90, 90, 90);
const BLUE: RGBColor = RGBColor(0, 90, 180);
const ORANGE: RGBColor = RGBColor(225, 100, 0);
const GREEN: RGBColor = RGBColor(0, 130, 80);
const PURPLE: RGBColor = RGBColor(140, 60, 170);
const RED: RGBColor = RGBColor(200, 20, 50);
const OLIVE: RGBColor = RGBColor(130, 120, 0);
const TEAL: RGBColor = RGBColor(0, 160, 170);
const BROWN: RGBColor = RGBColor(110, 60, 20);
const SKY: RGBColor = RGBColor(100, 170, 240);
const PINK: RGBColor = RGBColor(235, 110, 180);
const BLACK: RGBColor = RGBColor(0, 0, 0);
const GOLD: RGBColor = RGBColor(215, 170, 0);
const NAVY: RGBColor = RGBColor(20, 20, 120);
const LIME: RGBColor = RGBColor(120, 200, 40);
const WINE: RGBColor = RGBColor(120, 0, 50);
const LILAC: RGBColor = RGBColor(180, 150, 230);
const SALMON: RGBColor = RGBColor(250, 140, 110);
const MINT: RGBColor = RGBColor(110, 215, 170);
const SAND: RGBColor = RGBColor(200, 170, 120);
const SILVER: RGBColor = RGBColor(170, 170, 170);

/// Colours for curves that the list below does not name.
const OTHERS: [RGBColor; 6] = [PINK, BLACK, SKY, BROWN, OLIVE, GREEN];

/// Every contestant's colour. Two contestants that meet in a figure have different ones.
const CONTESTANTS: &[(&str, RGBColor)] = &[
    ("anchor", GREY),
    ("ringway", BLUE),
    // Peers.
    ("linux-bridge", ORANGE),
    ("qemu tap, linux bridge", ORANGE),
    ("qemu e1000", ORANGE),
    ("qemu e1000, linux bridge", ORANGE),
    ("qemu e1000, unmoderated", BROWN),
    ("qemu virtio-net", RED),
    ("qemu virtio-net, linux bridge", RED),
    ("vde", GREEN),
    // Replaced switches.
    ("start of the executable", GREY),
    ("ringway, upgraded", SKY),
    ("ringway, vhost-user, upgraded", ORANGE),
    ("ovs-dpdk", PURPLE),
    ("testpmd io", RED),
    ("tc tbf", OLIVE),
    ("tc htb", BROWN),
    ("tc tbf, fq_codel", BROWN),
    ("tc police", PINK),
    ("ringway, drops", SKY),
    ("ringway, egress", TEAL),
    ("tcp, linux bridge", ORANGE),
    ("udp, linux bridge", RED),
    ("unix seqpacket", GREEN),
    ("tcp, loopback", PURPLE),
    ("lwep", TEAL),
    ("lwep, copied", SKY),
    // Guests' NICs that programs drive.
    ("tcp", ORANGE),
    ("tcp, guest spins", BROWN),
    ("udp", RED),
    ("ringway, guest spins", TEAL),
    ("ringway, both spin", SKY),
    ("ringway e1000", GREEN),
    ("ringway e1000, guest spins", OLIVE),
    ("ringway, asleep", SKY),
    ("ringway, segmented", TEAL),
    ("ringway e1000, asleep", OLIVE),
    ("ringway e1000, segmented", BLACK),
    ("ringway, no guest", TEAL),
    ("linux bridge, no guest", BROWN),
    // Ringway, used or configured otherwise.
    ("ringway, every frame written", TEAL),
    ("ringway, receives one", TEAL),
    ("two ports only", TEAL),
    ("ringway, half of its own", TEAL),
    ("ringway, pacing off", TEAL),
    ("ringway, spin", TEAL),
    ("ringway, sleep", SKY),
    ("ringway, 64 KiB frames", TEAL),
    ("ringway, not pinned", SKY),
    ("ringway, 64 KiB frames, not pinned", GREEN),
    ("beside one that stands still", TEAL),
    ("beside one that is broken", RED),
    ("ringway, vhost-user", PURPLE),
    ("ringway, mapped", TEAL),
    ("ringway, combining", SKY),
    ("ringway, moderated", GREEN),
    ("ringway, base", OLIVE),
    ("ringway, each", BROWN),
    ("ringway, unmoderated", SKY),
    ("ringway e1000e, mapped", TEAL),
    ("ringway e1000e, trapped", GREEN),
    ("ringway e1000e, mapped, unmoderated", OLIVE),
    ("ringway e1000e, mapped, to fill", BLACK),
    ("ringway e1000e, mapped, to fill, switch stopped", GREY),
    ("ringway virtio-net", PURPLE),
    ("ringway virtio-net, moderated", PINK),
    ("own driver, registers", GOLD),
    ("own driver, registers, unmoderated", SAND),
    ("own driver, combining", LIME),
    ("own driver, combining, unmoderated", MINT),
    ("own driver, auto", WINE),
    ("own driver, status block", NAVY),
    ("own driver, status block, unmoderated", LILAC),
    ("own driver, status block, adaptive", SILVER),
    ("own driver on qemu e1000, combining", SALMON),
    ("kernel's driver", ORANGE),
    ("itr=0 BASE", BROWN),
    ("itr=100", OLIVE),
    ("itr=100 SC", GREEN),
    ("itr=0 CSB", TEAL),
    ("itr=100 CSB", SKY),
    ("qemu e1000, SC", GREEN),
    ("qemu e1000e", OLIVE),
    ("qemu rtl8139", PURPLE),
    ("ringway, TSO", TEAL),
    ("ringway, no event index", GREEN),
    ("ringway, no mergeable buffers", OLIVE),
    ("ringway, packed", SKY),
    ("qemu virtio-net, TSO", ORANGE),
    ("qemu virtio-net, no event index", BROWN),
    // Programs.
    ("client library", GREEN),
    ("packet sockets, veth", ORANGE),
    ("client library, receives one", OLIVE),
    ("copies", ORANGE),
    // Forwarding programs.
    ("ringway, no program", TEAL),
    ("null program", GREEN),
    ("learning bridge program", TEAL),
    ("access list, 10 rules", OLIVE),
    ("access list, 1000 rules", ORANGE),
    ("access list, 100000 rules", RED),
    ("ovs-dpdk, connections", BROWN),
    ("nothing loaded", GREEN),
    // Limits.
    ("ringway, waits", TEAL),
    ("waits at the sender", TEAL),
    ("ringway, drops at the receiver", SKY),
    ("dropped at the sender", SKY),
    ("sent by itself as the limit is", OLIVE),
    ("without limit", RED),
    ("flooded without limit", RED),
    ("slow receiver without limit", RED),
    ("receiver's bucket", GREEN),
    ("senders' bucket", OLIVE),
    ("the port that got most", TEAL),
    ("alone", GREEN),
    ("neighbour within its limit", OLIVE),
    ("drops: above a limit", RED),
    ("drops: above the receiver's limit", SKY),
    ("drops: isolated", GREEN),
    ("drops: unknown in map", TEAL),
    // Policy.
    ("no policy", BROWN),
    ("source guard", GREEN),
    ("limits both ways", TEAL),
    ("a VLAN", OLIVE),
    ("no guard", BROWN),
    ("guard = [\"mac\"]", GREEN),
    ("no guard, 0x88b5", PINK),
    ("guard = [\"mac\"], 0x88b5", OLIVE),
    ("ringway, 0x88b5", TEAL),
];

/// Returns the colour of the curve `series`.
pub(super) fn of(series: &str) -> RGBColor {
    let known = CONTESTANTS.iter().find(|(name, _)| *name == series).map(|(_, colour)| *colour);
    // FNV-1a: the same colour in every run, for a name that the list does not have.
    let hash = series
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    known.unwrap_or(OTHERS[(hash % OTHERS.len() as u64) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Curves that meet in one figure.
    const FIGURES: &[&[&str]] = &[
        &["anchor", "ringway", "ringway, every frame written", "linux-bridge", "vde"],
        &["anchor", "ringway", "two ports only"],
        &["anchor", "ringway", "ringway, receives one", "client library", "client library, receives one"],
        &["anchor", "ringway", "client library", "packet sockets, veth"],
        &["anchor", "ringway", "copies"],
        &["anchor", "ringway", "testpmd io", "ovs-dpdk", "ringway, half of its own"],
        &[
            "anchor",
            "ringway",
            "ringway, vhost-user",
            "ringway, mapped",
            "ringway, combining",
            "ringway, moderated",
            "ringway, base",
            "ringway, each",
        ],
        &[
            "ringway",
            "ringway, unmoderated",
            "ringway e1000e, mapped",
            "ringway e1000e, trapped",
            "ringway virtio-net",
            "ringway virtio-net, moderated",
            "qemu e1000",
            "qemu e1000, unmoderated",
            "qemu virtio-net",
            "ringway e1000e, mapped, unmoderated",
            "ringway e1000e, mapped, to fill",
            "ringway e1000e, mapped, to fill, switch stopped",
            "own driver, registers",
            "own driver, registers, unmoderated",
            "own driver, combining",
            "own driver, combining, unmoderated",
            "own driver, auto",
            "own driver, status block",
            "own driver, status block, unmoderated",
            "own driver, status block, adaptive",
            "own driver on qemu e1000, combining",
        ],
        &[
            "ringway",
            "itr=0 BASE",
            "itr=100",
            "itr=100 SC",
            "itr=0 CSB",
            "itr=100 CSB",
            "ringway virtio-net",
            "qemu e1000",
            "qemu virtio-net",
        ],
        &[
            "ringway",
            "qemu e1000",
            "qemu e1000, SC",
            "qemu e1000, unmoderated",
            "qemu e1000e",
            "qemu rtl8139",
            "qemu virtio-net",
        ],
        &[
            "ringway",
            "ringway, TSO",
            "ringway, no event index",
            "ringway, no mergeable buffers",
            "ringway, packed",
            "qemu virtio-net",
            "qemu virtio-net, TSO",
            "qemu virtio-net, no event index",
        ],
        &["ringway", "own driver, registers", "own driver, combining", "own driver, auto", "kernel's driver"],
        &[
            "ringway",
            "ringway e1000e, mapped",
            "ringway virtio-net",
            "qemu e1000, linux bridge",
            "qemu virtio-net, linux bridge",
        ],
        &["ringway", "ringway, 64 KiB frames", "ringway, not pinned", "ringway, 64 KiB frames, not pinned"],
        &["ringway", "ringway, waits", "ringway, drops at the receiver", "tc tbf", "tc htb", "ovs-dpdk"],
        &["ringway", "ringway, waits", "receiver's bucket", "senders' bucket", "slow receiver without limit"],
        &[
            "anchor",
            "ringway",
            "dropped at the sender",
            "waits at the sender",
            "sent by itself as the limit is",
            "without limit",
        ],
        &["anchor", "alone", "ringway", "ringway, waits", "neighbour within its limit", "flooded without limit"],
        &[
            "anchor",
            "ringway",
            "drops: above a limit",
            "drops: above the receiver's limit",
            "drops: isolated",
            "drops: unknown in map",
        ],
        &["anchor", "ringway", "no policy", "source guard", "limits both ways", "a VLAN"],
        &[
            "anchor",
            "ringway",
            "no guard",
            "guard = [\"mac\"]",
            "no guard, 0x88b5",
            "guard = [\"mac\"], 0x88b5",
            "ringway, 0x88b5",
        ],
    ];

    #[test]
    fn curves_that_meet_in_a_figure_have_different_colours() {
        for figure in FIGURES {
            for (index, series) in figure.iter().enumerate() {
                let same = figure[..index].iter().find(|other| of(other) == of(series));
                assert_eq!(same, None, "{series} has the colour of another");
            }
        }
    }

    #[test]
    fn every_contestant_of_the_list_is_named_once() {
        for (index, (name, _)) in CONTESTANTS.iter().enumerate() {
            assert!(CONTESTANTS[..index].iter().all(|(other, _)| other != name), "{name} is named twice");
        }
    }

    #[test]
    fn every_curve_of_the_stored_results_has_a_colour_of_its_own() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks/run.json");
        for run in crate::report_file::read(&file).unwrap() {
            for figure in &run.figures {
                let series = figure.series();
                for (index, name) in series.iter().enumerate() {
                    assert!(CONTESTANTS.iter().any(|(known, _)| known == name), "{name} is not in the list");
                    let same = series[..index].iter().find(|other| of(other) == of(name));
                    assert_eq!(same, None, "{name} has the colour of another in {}", figure.heading.name);
                }
            }
        }
    }
}
