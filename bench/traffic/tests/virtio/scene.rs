//! A driver and its device, both held by one test.

use std::os::unix::net::UnixListener;
use std::thread;

use ringway_testing::PATIENCE;
use ringway_traffic::{Endpoint, Ring, VirtioEndpoint, VirtioOptions};

use crate::backend::Session;
use crate::device::{Buffer, Queue};

/// Bytes of the header in front of each frame.
pub const HEADER: u32 = 12;

/// Returns options with no other time limit than that of tests.
pub fn patient() -> VirtioOptions {
    VirtioOptions { within: ringway_testing::PATIENCE, ..VirtioOptions::default() }
}

/// Returns the options that tests use with both ring formats.
pub fn variants() -> Vec<VirtioOptions> {
    let variant = |in_order, event_idx, mergeable| VirtioOptions {
        tx_ring: 8,
        rx_ring: 16,
        buffer_size: 192,
        in_order,
        event_idx,
        mergeable,
        ..patient()
    };
    vec![
        variant(false, false, false),
        variant(true, false, false),
        variant(false, true, true),
        variant(true, true, true),
    ]
}

/// Runs a test for each ring format and each variant of the options.
macro_rules! everywhere {
    ($test:ident) => {
        for options in $crate::scene::variants() {
            $test::<ringway_traffic::Split>(&options);
            $test::<ringway_traffic::Packed>(&options);
        }
    };
}
pub(crate) use everywhere;

/// Returns a driver and its back end's session.
pub fn attach<R: Ring>(options: &VirtioOptions) -> (VirtioEndpoint<R>, Session) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let served = thread::spawn(move || Session::serve(&listener));
    let endpoint = VirtioEndpoint::attach(&path, options).expect("a device");
    (endpoint, served.join().expect("a session"))
}

/// Returns both queues of a session, the receive queue first.
pub fn queues(session: &Session) -> [Queue<'_>; 2] {
    [0, 1].map(|queue| Queue::new(session, queue))
}

/// Returns the bytes of a buffer.
pub fn read(session: &Session, buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len as usize];
    assert!(session.guest(buffer.address, buffer.len).read(&mut bytes));
    bytes
}

/// Writes a frame with its header. `num_buffers` in the header is `buffers`.
pub fn write(session: &Session, buffer: &Buffer, frame: &[u8], buffers: u8) -> u32 {
    assert!(buffer.writable, "the device may write here");
    let bytes = [&[0; 10], &[buffers, 0][..], frame].concat();
    assert!(session.guest(buffer.address, buffer.len).write(&bytes), "a buffer of {} bytes", buffer.len);
    bytes.len() as u32
}

/// Returns a frame that differs from all others.
pub fn frame(number: u32, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number.wrapping_mul(31) as usize + at * 7) as u8).collect()
}

/// Returns the received frames.
pub fn received(endpoint: &mut impl Endpoint, max: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let taken = endpoint.rx_batch(max, |frame| frames.push(frame.to_vec()));
    assert_eq!(taken, frames.len());
    frames
}

/// Returns the driver's error.
pub fn driver_error(endpoint: &mut impl Endpoint) -> String {
    endpoint.wait(true, PATIENCE).expect_err("an error of the driver").to_string()
}
