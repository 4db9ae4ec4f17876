//! Why a connection ended.

use ringway_port::front_end::End;

use super::framing::MOST_BYTES;

/// Why a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer disconnected.
    Gone,
    /// The peer sent an invalid length.
    NoLength(u32),
    /// The peer sent files.
    Files,
}

impl From<Ended> for End {
    fn from(ended: Ended) -> End {
        match ended {
            Ended::Gone => End::Disconnected,
            Ended::NoLength(length) => End::Fault(
                "bad_length",
                format!("a frame of {length} bytes was announced; none has more than {MOST_BYTES}"),
            ),
            Ended::Files => End::Fault("unexpected_descriptors", "files came with frames".into()),
        }
    }
}
