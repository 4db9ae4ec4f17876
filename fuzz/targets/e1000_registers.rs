//! A guest and a front end at an e1000, doing anything: nothing panics, no work is without end, nothing costs the port its place,
//! and nothing outlasts the front end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_ports::e1000::fuzzing::guest;

fuzz_target!(|data: &[u8]| guest(data));
