//! DPDK's virtio-user as a front end that stays while the daemon is killed and started again.

use ringway_client::Port;
use ringway_scenes::testpmd::Testpmd;
use ringway_scenes::{Daemon, PATIENCE, receive, send, until};

const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const CLIENT: [u8; 6] = [2, 0, 0, 0, 0, 0x01];

/// Frames that the guest has yet to send back when the daemon is killed.
const UNDER_WAY: u64 = 200;

/// Sends frames. The guest sends each one back. Returns how many came back.
fn echoes(client: &mut Port, frames: u8) -> usize {
    for number in 0..frames {
        send(client, &ringway_scenes::frame(GUEST, CLIENT, number));
    }
    let mut heard = 0;
    while heard < usize::from(frames) {
        let Some(frame) = receive(client, PATIENCE) else { break };
        heard += usize::from(frame[..6] == CLIENT && frame[6..12] == GUEST);
    }
    heard
}

#[test]
fn virtio_user_goes_on_when_the_daemon_was_killed_under_it() {
    for packed in [0, 1] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("vm.sock");
        let device = format!(
            "net_virtio_user0,mac=02:00:00:00:00:0a,path={},queue_size=256,server=1,packed_vq={packed}",
            socket.display()
        );
        let config = format!(
            "[switch.lan0]\n[port.vm]\nswitch = \"lan0\"\nkind = \"vhost-user\"\nrole = \"client\"\nsocket = \"{}\"\n",
            socket.display()
        );
        let mut daemon = Daemon::start(&config);
        let mut testpmd = Testpmd::start(&[device], &["--forward-mode=macswap", "--total-num-mbufs=8192"]);
        testpmd.says("Press enter to exit");
        daemon.until_state("vm", "up");
        for times in 0..4 {
            let mut client = daemon.attach("lan0:c").unwrap();
            // More than the rings have, so that positions are not those of a new ring.
            until("the guest answers", || echoes(&mut client, 1) == 1);
            (0..8 + times).for_each(|_| assert_eq!(echoes(&mut client, 100), 100, "packed {packed}, restart {times}"));
            // What was under way may be sent back before the client's address is known again.
            let mut drops = daemon.port("vm")["drops"].clone();
            let unknown =
                drops.as_object_mut().unwrap().remove("no_destination").map_or(0, |count| count.as_u64().unwrap());
            assert!(unknown <= UNDER_WAY, "packed {packed}, restart {times}: {unknown}");
            assert_eq!(drops, serde_json::json!({}), "packed {packed}, restart {times}");
            (0..UNDER_WAY as u8).for_each(|number| send(&mut client, &ringway_scenes::frame(GUEST, CLIENT, number)));
            daemon.replace();
            daemon.until_state("vm", "up");
        }
    }
}
