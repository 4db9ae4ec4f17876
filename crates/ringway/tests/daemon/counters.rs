//! Counters of a configured port stay while clients come and go.

use ringway_scenes::flood::count;
use ringway_scenes::{Daemon, PATIENCE, frame, receive, send, until};

#[test]
fn a_configured_port_counts_on_when_its_client_goes_and_comes_again() {
    let port = |name: &str| format!("[port.{name}]\nswitch = \"lan0\"\nkind = \"process\"\n");
    let daemon = Daemon::start(&format!("[switch.lan0]\n{}{}", port("a"), port("b")));
    let mut b = daemon.attach("lan0:b").unwrap();
    let runt = |port: &str| daemon.port(port)["drops"]["runt"].as_u64().unwrap_or(0);
    let taken = |port: &str, frames: u64| {
        until("the port's frames are taken", || count(&daemon.port(port), "in", "frames") == frames)
    };
    for times in 1..=3 {
        for port in ["a", "made"] {
            let mut client = daemon.attach(&format!("lan0:{port}")).unwrap();
            send(&mut client, &frame([0xff; 6], [2, 0, 0, 0, 0, 1], 1));
            assert!(receive(&mut b, PATIENCE).is_some());
            send(&mut client, &[0; 10]);
            let so_often = if port == "a" { times } else { 1 };
            taken(port, 2 * so_often);
            until("the short frame is counted", || runt(port) == so_often);
            until("the frame's bytes are counted", || count(&daemon.port(port), "in", "bytes") == 60 * so_often);
        }
        until("the clients are gone", || daemon.port("made").is_null() && daemon.port("a")["state"] == "waiting");
        assert_eq!(
            (count(&daemon.port("a"), "in", "frames"), runt("a")),
            (2 * times, times),
            "counters stay without a client"
        );
    }
}
