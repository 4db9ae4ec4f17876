//! Packed rings with anything in them.
#![no_main]

mod virtqueue;

use libfuzzer_sys::fuzz_target;
use ringway_port_vhost_user::virtqueue::Packed;

fuzz_target!(|data: &[u8]| {
    let size = |byte| 1 + u16::from(byte);
    virtqueue::run(data, size, |memory, choice| {
        Packed::new(memory, choice.addresses, choice.size, choice.base, choice.features)
    });
});
