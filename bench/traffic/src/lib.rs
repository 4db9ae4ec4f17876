//! Traffic: frames made, sent, received and checked, over anything that is an [`Endpoint`].
//!
//! | wanted | use |
//! |---|---|
//! | synthetic frames | [`FrameSpec`], [`Frames`] |
//! | frames from a capture file | [`Replay`] |
//! | send, at a [`Rate`] | [`transmit`] |
//! | receive and check for loss, order, duplicates, corruption | [`receive`] with a [`Checker`] |
//! | write what is received to a file | [`Recorder`] |
//! | round trips | [`ping`] and [`pong`], or [`ping_pair`] in one thread |
//! | source and sink in one thread, as fast as can be | [`Pump`] |
//!
//! ```
//! use ringway_traffic::*;
//! use std::time::Duration;
//!
//! let (mut left, mut right) = memory::pair(1024);
//! let spec = FrameSpec { size: 1514, flows: 4, ..FrameSpec::default() };
//! let options = TxOptions { limits: Limits { frames: Some(1000), duration: None }, ..TxOptions::default() };
//! let sent = transmit(&mut left, &mut Frames::new(&spec)?, &options, &mut Watch::none())?;
//!
//! let mut checker = Checker::new(Level::Full, Origin::Zero);
//! let options = RxOptions { idle: Some(Duration::from_millis(1)), ..RxOptions::default() };
//! let received = receive(&mut right, &mut checker, None, &options, &mut Watch::none())?;
//! assert_eq!(received.check.frames, sent.sent.frames);
//! assert!(received.check.is_clean());
//! println!("{received}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]

mod check;
pub mod e1000;
mod endpoint;
mod frame;
mod latency;
mod link;
mod mac;
pub mod memory;
mod pace;
pub mod pcap;
mod process;
mod pump;
pub mod report;
mod run;
mod rx;
mod source;
mod tap;
mod tx;
mod virtio;
mod wire;

pub use check::{Checker, Level, MAX_TRACKED, Origin, WINDOW};
pub use e1000::{E1000Endpoint, E1000Error, E1000Mode, E1000Options};
pub use endpoint::Endpoint;
pub use frame::{FrameSpec, FrameSpecError, Frames, MAX_FLOWS, Payload};
pub use latency::{MIN_PING, PingOptions, PongOptions, ping, ping_pair, pong};
pub use link::{LinkCounters, LinkEndpoint};
pub use mac::{Mac, MacError};
pub use pace::{Pacer, Rate, RateError};
pub use pcap::{Recorder, Replay, ReplayOptions, Timing};
pub use process::ProcessEndpoint;
pub use pump::{Fill, Pump, PumpOptions, Station};
pub use report::{CheckReport, Ended, LatencyReport, PongReport, Progress, PumpReport, RxReport, Throughput, TxReport};
pub use ringway_drivers::area::MAX_RING;
pub use run::{Limits, WaitMode, Watch};
pub use rx::{RxOptions, receive};
pub use source::Source;
pub use tap::{Tap, open_device};
pub use tx::{TxOptions, transmit};
pub use virtio::{Packed, Ring, SocketRole, Split, VhostUserError, VirtioEndpoint, VirtioOptions};
pub use wire::{MAX_FRAME, MIN_FRAME};
