//! The Rust code of the pages, run against a daemon.

use std::time::{Duration, Instant};

use ringway_client::{ExternalMemory, Port, Shape};

use ringway_link::{AnyLink, AnyOptions};
use ringway_lwep::{Endpoint, Event, Options};
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
fn the_program_of_the_guide_gets_an_answer_by_lwep() -> Result<(), Box<dyn std::error::Error>> {
    let daemon = Daemon::start("");
    let socket = daemon.runtime_dir().join("attach.sock");
    let server = [2, 0, 0, 0, 0, 8];
    let far = AnyLink::open("lan0:far", &socket, &AnyOptions { mac: Some(server), ..AnyOptions::default() })?;
    let mut far = Endpoint::new(far, Options::default());
    far.listen(7);
    let peer = std::thread::spawn(move || {
        let began = Instant::now();
        until("the connection has ended", || {
            let now = began.elapsed().as_nanos() as u64;
            match far.poll(now) {
                Some(Event::Message { connection, data }) => {
                    let data = data.to_vec();
                    far.send(connection, &data, now).unwrap();
                    false
                }
                event => matches!(event, Some(Event::Ended { .. })),
            }
        });
    });

    let options = AnyOptions { mac: Some([2, 0, 0, 0, 0, 7]), ..AnyOptions::default() };
    let link = AnyLink::open("lan0:worker", &socket, &options)?;
    let mut endpoint = Endpoint::new(link, Options::default());
    let began = Instant::now();
    let connection = endpoint.connect(server, 7, 0)?; // service 7 at the address `server`
    endpoint.send(connection, b"hello", 0)?;
    let answer = loop {
        let now = began.elapsed().as_nanos() as u64;
        match endpoint.poll(now) {
            Some(Event::Message { data, .. }) => break data.to_vec(), // in place until the next `poll`
            Some(Event::Ended { reason, .. }) => return Err(reason.into()),
            Some(_) => {}
            None => endpoint.sleep(now, Duration::from_secs(1))?,
        }
    };

    assert_eq!(answer, b"hello");
    let now = began.elapsed().as_nanos() as u64;
    endpoint.abort(connection, now);
    while endpoint.poll(now).is_some() {}
    peer.join().expect("the other end has ended");
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
