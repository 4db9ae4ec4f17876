//! What a server and its clients say to each other, beyond LWEP. Numbers are in network byte order.

/// Sends every message back.
pub const ECHO: u32 = 0x5257_0001;
/// Counts messages. When the client has finished, the server answers with a [`Tally`] and finishes, too.
pub const SINK: u32 = 0x5257_0002;
/// Takes a file. The client sends its size, 8 bytes, and its name; the server answers with a [`Verdict`]. If that is good, the client
/// sends the contents and finishes; the server answers with another one and finishes, too.
pub const FILE: u32 = 0x5257_0003;

/// Most bytes of a message that is longer than a frame.
pub const LONG: u32 = 1 << 20;

/// Most characters of a reason that are shown.
const LONGEST_REASON: usize = 500;

/// What a sink has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Nanoseconds from the first one to the last one.
    pub time: u64,
}

impl Tally {
    /// Returns the message.
    pub fn encode(&self) -> [u8; 24] {
        let mut message = [0; 24];
        let fields = [self.messages, self.bytes, self.time];
        message.chunks_exact_mut(8).zip(fields).for_each(|(place, field)| place.copy_from_slice(&field.to_be_bytes()));
        message
    }

    /// Reads a message.
    pub fn decode(message: &[u8]) -> Option<Self> {
        let [messages, bytes, time] = <&[u8; 24]>::try_from(message).ok()?.as_chunks::<8>().0 else { return None };
        let number = |bytes: &[u8; 8]| u64::from_be_bytes(*bytes);
        Some(Self { messages: number(messages), bytes: number(bytes), time: number(time) })
    }
}

/// What becomes of a file: `Err` says why it is not taken.
pub type Verdict = Result<(), String>;

/// Returns the message of a verdict: a byte, 0 for good, and a reason.
pub fn encode(verdict: &Verdict) -> Vec<u8> {
    match verdict {
        Ok(()) => vec![0],
        Err(why) => [&[1], why.as_bytes()].concat(),
    }
}

/// Reads a verdict. Its reason can be shown on a terminal, whatever the server has sent.
pub fn decode(message: &[u8]) -> Verdict {
    let shown = |sign: char| if sign.is_control() { char::REPLACEMENT_CHARACTER } else { sign };
    match message {
        [0] => Ok(()),
        [1, why @ ..] => Err(String::from_utf8_lossy(why).chars().take(LONGEST_REASON).map(shown).collect()),
        _ => Err("the server answers in another way: it is of another version".to_owned()),
    }
}

/// Returns the first message of a file.
pub fn offer(size: u64, name: &str) -> Vec<u8> {
    [&size.to_be_bytes(), name.as_bytes()].concat()
}

/// Reads the first message of a file.
pub fn offered(message: &[u8]) -> Option<(u64, &str)> {
    let (size, name) = message.split_first_chunk()?;
    Some((u64::from_be_bytes(*size), std::str::from_utf8(name).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_they_were_written_and_others_are_refused() {
        let tally = Tally { messages: 1, bytes: 2 << 40, time: 3 };
        assert_eq!(Tally::decode(&tally.encode()), Some(tally));
        assert_eq!(Tally::decode(&tally.encode()[1..]), None);
        for verdict in [Ok(()), Err("no".to_owned())] {
            assert_eq!(decode(&encode(&verdict)), verdict);
        }
        assert!(decode(&[]).is_err());
        assert_eq!(decode(b"\x01no\x1b[2J\n").unwrap_err(), "no\u{fffd}[2J\u{fffd}");
        let long = decode(&[1; 1 << 20]).unwrap_err();
        assert_eq!(long.chars().count(), LONGEST_REASON);
        assert_eq!(offered(&offer(7, "a")), Some((7, "a")));
        assert_eq!(offered(&offer(7, "a")[..7]), None);
        assert_eq!(offered(&[0, 0, 0, 0, 0, 0, 0, 7, 0xff]), None);
    }
}
