//! Frames of LWEP: whatever the bytes are, reading ends; what is read is written and read again the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_lwep::wire::header::{self, CHECKSUM};
use ringway_lwep::wire::segmented::{self, Train};
use ringway_lwep::wire::{AcksEntry, Description, Ethernet, Header, checksum};

fn plain(bytes: &[u8]) {
    let Ok((header, data)) = Header::decode(bytes) else { return };
    assert_eq!(data.len(), usize::from(header.length));
    let mut head = [0; header::BYTES];
    header.encode(&mut head);
    let mut again = [&head, data].concat();
    again.extend(checksum::crc(&again));
    assert_eq!(Header::decode(&again), Ok((header, data)));
    for entry in data.as_chunks().0 {
        // The last two bytes say nothing.
        assert_eq!(AcksEntry::decode(entry).encode()[..14], entry[..14]);
    }
    if let Some(description) = Description::decode(data) {
        assert_eq!(Description::decode(&description.encode()), Some(description));
    }
}

fn train(bytes: &[u8], part: Option<usize>) {
    let Ok((train, addresses, data)) = Train::decode(bytes, part, true) else { return };
    assert!(train.part > 0 && train.count > 0);
    assert_eq!(train.count, data.len().div_ceil(train.part).max(1));
    assert!(!train.fragments || usize::from(train.header.remaining) + 1 >= train.count);
    if segmented::BYTES + data.len() > usize::from(u16::MAX) {
        return;
    }
    let mut head = [0; segmented::BYTES];
    let offload = train.encode(&addresses, data.len(), &mut head);
    assert!(offload.needs_csum);
    let again = [&head, data].concat();
    assert_eq!(Train::decode(&again, part, true), Ok((train, addresses, data)));
}

fuzz_target!(|data: &[u8]| {
    let Some((&[version, part], rest)) = data.split_first_chunk::<2>() else { return };
    // The fuzzer does not find a checksum: without the flag, and with the right one.
    if let Some(ethernet) = Ethernet::split(rest) {
        plain(ethernet.rest);
    }
    let mut bytes = rest.to_vec();
    if bytes.len() > header::BYTES {
        bytes[0] = if version > 250 { version } else { 0x10 | bytes[0] & 0xf };
        bytes[1] &= !CHECKSUM;
        plain(&bytes);
    }
    for part in [None, Some(usize::from(part).max(1))] {
        train(rest, part);
    }
});
