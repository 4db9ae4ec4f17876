//! Messages of the attach dialogue: whatever comes in, decoding it answers, and what was decoded encodes to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_abi::External;
use ringway_abi::attach::{REPLY_BYTES, REQUEST_BYTES, Reply, Request, is_name, split_name};

/// Puts a valid beginning before the input, so that the fuzzer need not find the magic number.
fn framed<const N: usize>(valid: [u8; N], data: &[u8]) -> [u8; N] {
    let mut message = valid;
    let len = data.len().min(N - 6);
    message[6..6 + len].copy_from_slice(&data[..len]);
    message
}

/// Puts the input at the end of a message: a request ends with its memory.
fn ending<const N: usize>(valid: [u8; N], data: &[u8]) -> [u8; N] {
    let mut message = valid;
    let len = data.len().min(32);
    message[N - 32..N - 32 + len].copy_from_slice(&data[..len]);
    message
}

fuzz_target!(|data: &[u8]| {
    let request =
        Request { switch: "lan0".into(), port: "a".into(), shape: Default::default(), external: None }.encode();
    let external = Some(External { bytes: 8 << 20, unit: 4, first: 2 });
    let with_memory = Request { switch: "lan0".into(), port: "a".into(), shape: Default::default(), external }.encode();
    for message in [data, &framed::<REQUEST_BYTES>(request, data), &ending(with_memory, data)] {
        match Request::decode(message) {
            Ok(request) => {
                assert_eq!(request.encode(), message, "a request has one form");
                assert!(is_name(&request.switch) && is_name(&request.port));
                let layout = request.layout(15).expect("a decoded shape can be had");
                let memory = request.external.map_or(layout.bytes as u64, |external| external.bytes);
                let size = u64::from(request.shape.buffer_size);
                assert!(layout.buffer(layout.buffer_count - 1) as u64 + size <= memory);
                let last = layout.first_rx_buffer(request.shape.rx_rings - 1, request.shape.rx_slots - 1);
                assert!(layout.first_tx_buffer(0, 0) >= 2 && last < layout.buffer_count);
                assert!(layout.extra_buffers().all(|extra| last < extra && extra < layout.buffer_count));
                for ring in 0..request.shape.tx_rings.max(request.shape.rx_rings) {
                    assert!(layout.doorbell(ring) + 256 <= layout.tx_ring(0));
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    let reply = Reply::Refused(String::new()).encode();
    for message in [data, &framed::<REPLY_BYTES>(reply, data)] {
        match Reply::decode(message) {
            Ok(reply) => assert_eq!(Reply::decode(&reply.encode()), Ok(reply)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    if let Ok(text) = std::str::from_utf8(data) {
        if let Ok((switch, port)) = split_name(text) {
            assert_eq!(format!("{switch}:{port}"), text);
        }
        let Ok(Reply::Refused(cut)) = Reply::decode(&Reply::Refused(text.into()).encode()) else {
            assert!(text.contains('\0'), "any text but one with NUL in it arrives");
            return;
        };
        assert!(text.starts_with(&cut));
    }
});
