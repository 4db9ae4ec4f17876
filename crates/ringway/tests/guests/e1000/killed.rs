//! The switch is killed under traffic: the NICs go on, and their drivers do not notice.

use super::long::{answered, under_load};
use super::*;

/// Kills of the switch for each NIC.
const KILLS: usize = 4;

/// What drivers say about a NIC that does not work.
const SAYS: &str =
    "dmesg | grep -c -i -e 'reset adapter' -e 'unit hang' -e 'timed out' -e 'link is down' -e 'hardware error'";

#[test]
fn nics_go_on_without_a_reset_when_the_switch_is_killed_under_traffic() {
    let Some(_turn) = turn() else { return };
    let (daemon, guests) = scene();
    let said = || guests.each_ref().map(|guest| guest.ok(&format!("{SAYS} || true")).unwrap());
    let before = said();
    with_each("killed under load", |nic| {
        under_load(&guests, nic, || {
            for _ in 0..KILLS {
                daemon.kill_switch();
                answered(&guests[0], &address(1, nic))?;
                answered(&guests[1], &address(0, nic))?;
            }
            Ok(())
        })?;
        talk(&guests, nic)
    });
    assert_eq!(said(), before, "no driver has reset its NIC");
    for (guest, nic) in (0..2).flat_map(|guest| (0..NICS.len()).map(move |nic| (guest, nic))) {
        daemon.until_state(&port(guest, nic), "up");
    }
    assert_eq!(daemon.status()["faults"], serde_json::json!([]));
}
