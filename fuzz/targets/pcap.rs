//! Capture files: whatever is in them, reading ends, and no frame is longer than the file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use ringway_traffic::pcap::{CaptureReader, MAX_SNAP};

/// Beginnings of a file that the fuzzer need not find: none, pcap, and pcapng with one interface.
const PCAP: &[u8] = &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
const PCAPNG: &[u8] = &[
    0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 28, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 0, 20, 0, 0, 0,
];

fuzz_target!(|data: &[u8]| {
    for start in [&[], PCAP, PCAPNG] {
        let file = [start, data].concat();
        let mut reader = match CaptureReader::new(&file[..], Path::new("fuzz")) {
            Ok(reader) => reader,
            Err(error) => {
                assert!(error.position <= file.len() as u64, "{error}");
                continue;
            }
        };
        let mut bytes = 0;
        loop {
            match reader.next_frame() {
                Ok(Some(record)) => {
                    assert!(record.data.len() <= MAX_SNAP);
                    bytes += record.data.len();
                    assert!(bytes <= file.len(), "more bytes of frames than bytes of file");
                }
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    break;
                }
            }
        }
    }
});
