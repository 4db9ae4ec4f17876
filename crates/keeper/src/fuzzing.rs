//! Messages of the switch and of administrators, and the page that a dead switch has left, for the fuzzer.

use crate::message::Message;
use crate::opener::Ask;
use crate::page::{Left, VERSION};
use crate::request::Answer;

/// Decodes both, and encodes what was decoded once more. Returns the message's second form.
#[must_use]
pub fn message(bytes: &[u8]) -> Option<Vec<u8>> {
    let message = Message::decode(bytes)?;
    let again = message.encode();
    assert_eq!(Message::decode(&again), Some(message), "a message is read as it was written");
    Some(again)
}

/// Decodes an answer.
pub fn answer(bytes: &[u8]) {
    if let Some(answer) = Answer::decode(bytes) {
        let again = Answer::decode(&answer.encode()).expect("an answer has a first byte");
        assert!(
            answer.text.starts_with(&again.text) || again.text.ends_with('\u{fffd}'),
            "an answer is cut at its end only"
        );
    }
}

/// Reads a page of this version that begins with these bytes, behind the version.
pub fn page(bytes: &[u8]) {
    let left = Left::of([&VERSION.to_ne_bytes(), bytes].concat());
    for end in ["signal 11", "status 70", "hang"] {
        let _ = left.blame(end, true);
    }
    let _ = left.watched().count();
}

/// Decodes a question to the opener, and encodes what was decoded once more.
pub fn ask(bytes: &[u8]) {
    if let Ok(ask) = serde_json::from_slice::<Ask>(bytes) {
        let again = serde_json::to_vec(&ask).expect("a question is written");
        assert_eq!(serde_json::from_slice::<Ask>(&again).ok(), Some(ask), "a question is read as it was written");
    }
}
