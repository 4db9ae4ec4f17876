//! Clients of process ports.

use std::time::{Duration, Instant};

use ringway_client::Port;
use ringway_testing::{PATIENCE, until};

use crate::daemon::Daemon;

/// Sends one frame, when the transmit ring has room for it.
///
/// # Panics
/// The switch makes no room within [`PATIENCE`].
#[track_caller]
pub fn send(port: &mut Port, frame: &[u8]) {
    until("there is room", || port.tx().push(frame));
    port.flush();
}

/// Receives one frame, if one comes within `patience`.
///
/// # Panics
/// The switch has ended the port.
pub fn receive(port: &mut Port, patience: Duration) -> Option<Vec<u8>> {
    let mut frame = None;
    if port.wait_rx(patience).expect("the port should stay") {
        port.rx().drain(1, |bytes| frame = Some(bytes.to_vec()));
    }
    frame
}

/// Receives until the switch ends the port; returns the reason.
///
/// # Panics
/// The switch does not end the port within [`PATIENCE`].
pub fn why_ended(port: &mut Port) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Err(why) = port.wait_rx(PATIENCE) {
            return why.to_string();
        }
        port.rx().drain(64, |_| {});
        assert!(Instant::now() < deadline, "the switch should end the port");
    }
}

/// Waits until the switch has taken so many frames of a port in all, and has done everything with them. (Frames are counted as taken
/// before those of the same pass are given to their receivers or counted as dropped.) It sends a runt, which the switch takes in a
/// later pass, counts, and gives to nobody.
///
/// # Panics
/// The switch does not take them within [`PATIENCE`], or has taken more.
pub fn settle(daemon: &Daemon, name: &str, port: &mut Port, frames: u64) {
    let taken = || daemon.port(name)["in"]["frames"].as_u64();
    until("all frames are taken", || taken() == Some(frames));
    until("there is room", || port.tx().push(&[0; 10]));
    port.flush();
    until("a later pass is over", || taken() == Some(frames + 1));
}
