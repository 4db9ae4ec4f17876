//! What the keeper hears: of a switch that a client may have taken over, and of administrators.
#![no_main]

use libfuzzer_sys::fuzz_target;

/// Puts a valid beginning before the input: the kind, the length of the name, and a number.
fn framed(kind: u8, data: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, (data.len().min(9)) as u8, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    message.extend(data);
    message
}

fuzz_target!(|data: &[u8]| {
    for bytes in [data, &framed(data.first().map_or(0, |kind| kind % 12), data)] {
        if let Some(again) = ringway_keeper::fuzzing::message(bytes) {
            assert!(again.len() <= 16 + ringway_keeper::NAME_MOST + ringway_keeper::NOTE_MOST);
        }
        ringway_keeper::fuzzing::answer(bytes);
        ringway_keeper::fuzzing::page(bytes);
        ringway_keeper::fuzzing::ask(bytes);
    }
});
