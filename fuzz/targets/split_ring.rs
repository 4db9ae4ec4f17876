//! Split rings with anything in them.
#![no_main]

mod virtqueue;

use libfuzzer_sys::fuzz_target;
use ringway_port_vhost_user::virtqueue::Split;

fuzz_target!(|data: &[u8]| {
    let size = |byte| 1u16 << (byte % 9);
    virtqueue::run(data, size, |memory, choice| {
        Split::new(memory, choice.addresses, choice.size, choice.base as u16, choice.features)
    });
});
