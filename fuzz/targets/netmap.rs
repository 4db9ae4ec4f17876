//! Messages of the netmap dialogue: whatever comes in, decoding it answers, and what was decoded encodes to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_abi::Layout;
use ringway_abi::attach::{REPLY_BYTES, REQUEST_BYTES, is_name};
use ringway_abi::netmap::{Reply, Request, is_netmap, tag_of, tagged};

/// Puts a valid beginning before the input, so that the fuzzer need not find the magic number.
fn framed<const N: usize>(valid: [u8; N], data: &[u8]) -> [u8; N] {
    let mut message = valid;
    let len = data.len().min(N - 6);
    message[6..6 + len].copy_from_slice(&data[..len]);
    message
}

fn check_request(message: &[u8]) {
    match Request::decode(message) {
        Ok(request) => {
            assert!(is_netmap(message));
            assert_eq!(tagged(request.encode(), tag_of(message)), message, "a request has one form");
            if let Request::Register(register) = &request {
                assert!(is_name(&register.name.switch) && is_name(&register.name.port));
                for rings in [register.tx, register.rx] {
                    for count in [0, 1, 16] {
                        assert!(rings.of(count).is_none_or(|rings| rings.end <= count));
                    }
                }
                Layout::new(register.wish.shape(2112), 15).expect("a decoded wish can be had");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_reply(message: &[u8]) {
    match Reply::decode(message) {
        Ok(reply) => {
            assert_eq!(Reply::decode(&reply.encode()), Ok(reply.clone()));
            if let Reply::Granted(granted) = reply {
                let layout = granted.layout().expect("a decoded reply has a layout");
                let shape = layout.shape;
                assert!(layout.doorbell(shape.tx_rings.max(shape.rx_rings)) <= layout.tx_ring(0));
                assert!(layout.rx_ring(shape.rx_rings) == layout.end && layout.end <= layout.buffers);
                assert!(layout.buffer(granted.buffer_count) <= layout.bytes);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fuzz_target!(|data: &[u8]| {
    check_request(data);
    check_request(&framed::<REQUEST_BYTES>(Request::Recall.encode(), data));
    check_reply(data);
    check_reply(&framed::<REPLY_BYTES>(Reply::Done.encode(), data));
});
