//! Storms of broadcasts, multicasts and frames to unknown addresses: each class is limited to its rate, and costs other
//! ports no frame.

use std::time::Instant;

use ringway_scenes::{frame, settle};

use crate::attacker::EVIL;
use crate::scene::Scene;

/// Frames of a storm.
const FRAMES: u64 = 250_000;
/// Frames of a storm that pass at once, which is the smallest burst, and then each second.
const BURST: u64 = 32;
const RATE: u64 = 100;

#[test]
fn storms_of_every_kind_are_held_to_their_rate_and_take_nothing_from_others() {
    let each = format!("\"{RATE}pps\"");
    let storm = format!("storm = {{ broadcast = {each}, multicast = {each}, unknown_unicast = {each} }}");
    let scene =
        Scene::start_with(&format!("[switch.lan0]\n[port.evil]\nswitch = \"lan0\"\nkind = \"process\"\n{storm}\n"));
    let mut evil = scene.attach("evil");
    let taken = || scene.daemon.port("evil")["in"]["frames"].as_u64().expect("a count");
    for destination in [[0xff; 6], [1, 0, 0x5e, 0, 0, 251], [2, 0xdd, 0, 0, 0, 7]] {
        let (before, dropped, began) = (taken(), scene.drops("evil", "storm_limited"), Instant::now());
        let frame = frame(destination, EVIL, 0);
        for _ in 0..FRAMES {
            while !evil.port.tx().push(&frame) {
                evil.port.flush();
                std::thread::yield_now();
            }
        }
        evil.port.flush();
        settle(&scene.daemon, "evil", &mut evil.port, before + FRAMES);
        let passed = FRAMES - (scene.drops("evil", "storm_limited") - dropped);
        let most = BURST + RATE * (began.elapsed().as_secs() + 1);
        assert!((BURST..=most).contains(&passed), "{destination:02x?}: {passed} passed, {most} may");
        scene.bystanders.go_on(2000);
    }
    drop(evil);
    scene.end();
}
