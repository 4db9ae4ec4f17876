//! The Rust code of the pages, run against a daemon.

use std::time::Duration;

use ringway_client::{ExternalMemory, Port, Shape};

use ringway_scenes::{Daemon, frame, until};

#[test]
fn the_program_of_the_guide_sends_and_receives() -> Result<(), Box<dyn std::error::Error>> {
    let daemon = Daemon::start("");
    let socket = daemon.runtime_dir().join("attach.sock");
    let mut other = daemon.attach("lan0:other")?;
    let frame = frame([0xff; 6], [2, 0, 0, 0, 0, 1], 7);
    let peer = std::thread::spawn(move || {
        let mut received = 0;
        until("frames of the program arrive", || {
            other.tx().push(&frame);
            other.flush();
            other.rx().drain(64, |_| received += 1);
            received > 0
        });
    });

    let mut port = Port::attach(&socket, "lan0:probe", Shape::default())?;
    while port.tx().push(&frame) {} // queue a batch ...
    port.flush(); // ... and publish it
    port.wait_rx(Duration::from_secs(1))?; // sleep until something comes
    port.rx().drain(64, |frame| println!("{} bytes", frame.len()));

    peer.join().expect("the other port receives");
    Ok(())
}

#[test]
fn the_program_of_the_guide_sends_from_its_own_memory() -> Result<(), Box<dyn std::error::Error>> {
    let daemon = Daemon::start("");
    let socket = daemon.runtime_dir().join("attach.sock");
    let mut other = daemon.attach("lan0:other")?;
    let frame = frame([0xff; 6], [2, 0, 0, 0, 0, 1], 7);

    let mut memory = ExternalMemory::new(8 << 20, 64)?; // or from_file(memfd, unit)
    let (mut port, _) = Port::attach_with_memory(&socket, "lan0:probe", Shape::default(), &mut memory)?;
    let mut packets = memory.take(1 << 20).unwrap();
    packets[64..124].copy_from_slice(&frame);
    port.tx().push_from(&packets, 64..124); // sent from where it is
    port.flush();

    let mut received = Vec::new();
    until("the frame arrives", || other.rx().drain(1, |bytes| received = bytes.to_vec()) == 1);
    assert_eq!(received, frame);
    Ok(())
}
