//! A virtual machine's driver and a client of a process port, which exchange frames.
// Every function is for tests: whatever goes wrong is a panic.
#![allow(clippy::missing_panics_doc)]

use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use ringway_client::Port;
use ringway_testing::PATIENCE;
use ringway_testing::frame::Address;
use ringway_traffic::Endpoint;

use ringway_testing::frame::short as frame;

use crate::port::{receive, send};

/// Address of the driver's machine.
pub const VM: Address = [2, 0, 0, 0, 0, 0xa];
/// Address of the client.
pub const CLIENT: Address = [2, 0, 0, 0, 0, 0xb];

/// Sends a frame from the guest; it must arrive at the client.
pub fn to_client(guest: &mut impl Endpoint, client: &mut Port, number: u8) {
    let sent = frame(CLIENT, VM, number);
    assert!(guest.tx_push(sent.len(), |bytes| bytes.copy_from_slice(&sent)));
    guest.tx_flush();
    assert_eq!(receive(client, PATIENCE).as_deref(), Some(&sent[..]));
}

/// Sends a frame from the client; it must arrive at the guest.
pub fn to_guest(client: &mut Port, guest: &mut impl Endpoint, number: u8) {
    let sent = frame(VM, CLIENT, number);
    send(client, &sent);
    let (deadline, mut got) = (Instant::now() + PATIENCE, None);
    while got.is_none() {
        let left = deadline.checked_duration_since(Instant::now()).expect("the guest should receive");
        guest.wait(true, left).expect("the port stays");
        guest.rx_batch(1, |bytes| got = Some(bytes.to_vec()));
    }
    assert_eq!(got.as_deref(), Some(&sent[..]));
}

/// A frame each way between the guest and the client.
pub fn both_ways(guest: &mut impl Endpoint, client: &mut Port, number: u8) {
    to_client(guest, client, number);
    to_guest(client, guest, number.wrapping_add(1));
}

/// Waits until the port ends this connection, to which it sends nothing before.
pub fn ends(mut connection: &UnixStream) {
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reads = std::iter::repeat_with(|| connection.read(&mut [0]).map_err(|error| error.kind()));
    let end = reads.find(|read| *read != Err(ErrorKind::Interrupted));
    assert!(matches!(end, Some(Ok(0) | Err(ErrorKind::ConnectionReset))), "the connection should just end: {end:?}");
}
