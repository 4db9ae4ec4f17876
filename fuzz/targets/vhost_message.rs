//! vhost-user messages, right and wrong, to a session over a real device while its queues are worked on: nothing panics,
//! nothing is read or written outside the guest's memory (run it with the address sanitizer for that), no descriptor is
//! lost.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_port_vhost_user::fuzzing::connections;

fuzz_target!(|data: &[u8]| connections(data));
