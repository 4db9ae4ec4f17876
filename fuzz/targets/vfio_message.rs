//! vfio-user messages, right and wrong, to a session over a card: nothing panics, every question is answered once and in order,
//! what the card may use is there and never twice, no descriptor is lost.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringway_port_e1000::vfio_user::fuzzing::connections;

fuzz_target!(|data: &[u8]| connections(data));
