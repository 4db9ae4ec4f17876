//! What the daemon answers to the library for libpcap programs: a list of ports, and captures. Whatever it says, the program lives.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_pcap::fuzzing::{capture, list};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\n";
const CHUNKED: &[u8] = b"transfer-encoding: chunked\r\n\r\n";
/// A section of pcapng with one interface.
const PCAPNG: &[u8] = &[
    0x0a, 0x0d, 0x0d, 0x0a, 28, 0, 0, 0, 0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
    0xff, 28, 0, 0, 0, 1, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 0, 20, 0, 0, 0,
];

/// An answer of known length.
fn whole(parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    [HEAD, format!("content-length: {length}\r\n\r\n").as_bytes(), &parts.concat()].concat()
}

/// An answer in chunks of so many bytes.
fn in_chunks(bytes: &[u8], size: usize) -> Vec<u8> {
    let mut answer = [HEAD, CHUNKED].concat();
    for chunk in bytes.chunks(size) {
        answer.extend([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    answer.extend(b"0\r\n\r\n");
    answer
}

fuzz_target!(|data: &[u8]| {
    let choice = data.first().copied().unwrap_or(0);
    let mut turn = 0u32;
    let mut is_selected = || {
        turn += 1;
        choice >> (turn % 8) & 1 == 1
    };
    let answers = [
        data.to_vec(),
        [HEAD, data].concat(),
        [HEAD, CHUNKED, data].concat(),
        whole(&[data]),
        whole(&[PCAPNG, data]),
        in_chunks(&[PCAPNG, data].concat(), usize::from(choice) + 1),
        [&in_chunks(PCAPNG, 7)[..], data].concat(),
    ];
    for answer in answers {
        list(&answer);
        capture(&answer, &mut is_selected);
    }
});
