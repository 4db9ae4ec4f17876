//! Two guests with NICs of many kinds, of two kernels and two QEMUs, for the tests that only exchange frames.
//!
//! NIC `n` of the guests `a` and `b` is at the ports `an` and `bn` of the switch `lann`.

use ringway_guests::{Builder, Guest, Nic, Release};
use ringway_scenes::Daemon;

use crate::features::{self, CASES};
use crate::scene::{addresses, boot, mac, nic, port};
use crate::shared::Shared;
use crate::{streams, vlans};

/// The guests and their switches.
pub struct Pair {
    pub daemon: Daemon,
    pub guests: [Guest; 2],
}

pub static PAIR: Shared<Pair> = Shared::new(TESTS, pair);
pub const TESTS: &[&str] = &[
    "coalescing::segments_that_a_guest_cuts_itself_reach_the_other_one_joined",
    "events::guests_talk_after_new_settings_a_stop_a_move_a_new_driver_a_reboot_and_a_new_qemu",
    "features::frames_without_room_in_the_smallest_ring_are_named_and_others_pass_again",
    "features::guests_talk_whatever_features_they_refuse",
    "rings::a_guest_of_qemu_that_wants_other_rings_keeps_its_nic",
    "streams::any_model_of_nic_talks_over_a_stream",
    "vlans::vlan_devices_of_linux_reach_the_ports_of_their_vlan_with_segments",
];

/// NICs 0 to `CASES.len()` are those of `features`. The next ones are those of `rings`, of `streams`, and the last ones of `vlans`.
pub const RINGS: usize = CASES.len();
pub const STREAMS: usize = RINGS + 1;
pub const VLANS: usize = STREAMS + streams::MODELS.len();

/// Returns the name of a guest's port.
pub fn name(guest: usize, nic: usize) -> String {
    format!("{}{nic}", ["a", "b"][guest])
}

impl Pair {
    /// Checks that no port has a fault.
    pub fn no_faults(&self) {
        let status = self.daemon.status();
        assert!(status["faults"].as_array().is_none_or(Vec::is_empty), "{}", self.daemon.ok(&["status"]));
    }
}

fn config() -> String {
    let both = |nic: usize, port: &dyn Fn(&str, &str, usize) -> String| -> String {
        let switch = format!("lan{nic}");
        let ports = [0, 1].map(|guest| port(&name(guest, nic), &switch, guest));
        format!("[switch.{switch}]\n{}", ports.concat())
    };
    let features = (0..RINGS).map(|nic| both(nic, &|name, switch, _| port(name, switch, "")));
    let rings = both(RINGS, &|name, switch, guest| port(name, switch, &format!("mac = [\"{}\"]", mac(guest, RINGS))));
    // The second guest's QEMU listens.
    let role = |guest: usize| ["server", "client"][guest];
    let streams =
        (STREAMS..VLANS).map(|nic| both(nic, &|name, switch, guest| streams::port(name, switch, role(guest))));
    features.chain([rings]).chain(streams).chain([vlans::config()]).collect()
}

fn builder(daemon: &Daemon, guest: usize) -> Builder {
    let virtio = |number: usize| nic(daemon, &name(guest, number)).mac(&mac(guest, number));
    let stream = |number: usize| {
        let nic = Nic::stream(daemon.socket(&format!("{}.sock", name(guest, number)))).mac(&mac(guest, number));
        let nic = nic.model(streams::MODELS[number - STREAMS]);
        if guest == 1 { nic.listen() } else { nic }
    };
    let nics = (0..RINGS).map(|number| features::card(virtio(number), guest, number));
    let nics = nics.chain([virtio(RINGS).option("rx_queue_size=1024,tx_queue_size=1024")]);
    let nics = nics.chain((STREAMS..VLANS).map(stream));
    let nics = nics.chain((0..vlans::NICS[guest]).map(|at| vlans::nic(daemon, guest, at)));
    // The host's QEMU and the newest.
    let builder = Guest::builder(["a", "b"][guest]).kernel([Release::Bookworm, Release::Backports][guest]);
    let builder = nics.fold(builder.cpus(guest as u16 + 1).memory_mib(384), Builder::nic);
    if guest == 1 { builder.vfio_user_qemu() } else { builder }
}

fn pair() -> Pair {
    let daemon = Daemon::start(&config());
    let guests = boot([builder(&daemon, 0), builder(&daemon, 1)]);
    for (number, guest) in guests.iter().enumerate() {
        streams::name(guest);
        addresses(guest, number, VLANS);
    }
    Pair { daemon, guests }
}
