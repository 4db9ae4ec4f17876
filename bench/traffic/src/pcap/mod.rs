//! Capture files: replayed as a [`crate::Source`], read frame by frame, and written.
//!
//! Both formats that tcpdump and Wireshark write, pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng), in either
//! byte order and with any resolution of time. The reader is strict where leniency would send wrong frames: a file cut short or damaged
//! is an error that names the file, the byte and the frame.

mod format;
mod read;
mod replay;
mod write;

pub use format::MAX_SNAP;
pub use read::{CaptureError, CaptureProblem, CaptureReader, Record};
pub use replay::{Replay, ReplayOptions, Timing};
pub use write::{Format, Recorder};

#[cfg(test)]
mod tests;
