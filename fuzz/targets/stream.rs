//! A stream that a peer writes as it likes, and one that another reads as it likes: what comes out is frames of the first,
//! whole and in order, and all that counts as delivered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_port_stream::fuzzing::streams;

fuzz_target!(|data: &[u8]| streams(data));
