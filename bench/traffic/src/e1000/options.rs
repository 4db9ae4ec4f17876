//! Options of the driver for a NIC, and the reasons for refusing them.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use ringway_drivers::area::MAX_RING;
use ringway_drivers::vfio_user::VfioUserError;

/// When the driver accesses registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum E1000Mode {
    /// Like the Linux driver without moderation: a tail write for each frame, and an interrupt for each event.
    #[default]
    Base,
    /// Like [`Base`](E1000Mode::Base), on a guest with a single processor: the interrupt of each sent frame is handled
    /// before the next frame (Maffione 2012, table 3.1).
    Each,
    /// Like [`Base`](E1000Mode::Base), with moderated interrupts (ITR).
    Moderated,
    /// Moderated, with combined tail writes: while an interrupt is expected, frames wait for it, and one tail write
    /// covers all (Maffione 2012, section 3.3; Rizzo 2013, section 3.2).
    Combining,
    /// Moderated, with a communication status block: no register is accessed while the device works (section 4.4.2).
    Csb,
    /// Moderated, with mapped ring registers and message-signalled interrupts: a tail write is a store.
    Mapped,
}

impl E1000Mode {
    /// All modes.
    pub const ALL: [E1000Mode; 6] = [
        E1000Mode::Base,
        E1000Mode::Each,
        E1000Mode::Moderated,
        E1000Mode::Combining,
        E1000Mode::Csb,
        E1000Mode::Mapped,
    ];
}

impl E1000Mode {
    /// Returns true if the device raises an interrupt for each event.
    fn is_unmoderated(self) -> bool {
        matches!(self, E1000Mode::Base | E1000Mode::Each)
    }
}

impl fmt::Display for E1000Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            E1000Mode::Base => "base",
            E1000Mode::Each => "each",
            E1000Mode::Moderated => "moderated",
            E1000Mode::Combining => "combining",
            E1000Mode::Csb => "csb",
            E1000Mode::Mapped => "mapped",
        })
    }
}

impl FromStr for E1000Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<E1000Mode, String> {
        let found = E1000Mode::ALL.into_iter().find(|mode| mode.to_string() == text);
        found.ok_or_else(|| "write base, each, moderated, combining, csb or mapped".to_owned())
    }
}

/// Settings of the driver.
#[derive(Debug, Clone)]
pub struct E1000Options {
    /// When the driver accesses registers.
    pub mode: E1000Mode,
    /// Shortest time between two interrupts, unless the mode is `Base` or `Each`. The papers use 250 us and 25 us.
    pub interval: Duration,
    /// Time limit for each answer, and for reset and link of the device.
    pub within: Duration,
    /// Descriptors of the transmit ring: a power of two from 8 to [`MAX_RING`].
    pub tx_ring: u32,
    /// Descriptors of the receive ring: a power of two from 8 to [`MAX_RING`].
    pub rx_ring: u32,
    /// Bytes of a receive buffer: a power of two from 256 to 16,384. With more than 2,048, long frames are accepted.
    pub buffer_size: u32,
    /// True to receive frames for all addresses.
    pub promiscuous: bool,
}

impl Default for E1000Options {
    fn default() -> E1000Options {
        E1000Options {
            mode: E1000Mode::Base,
            interval: Duration::from_micros(250),
            within: Duration::from_secs(60),
            tx_ring: 256,
            rx_ring: 256,
            buffer_size: 2048,
            promiscuous: true,
        }
    }
}

/// Nanoseconds of a unit of the interval register (8254x manual, 13.4.18).
const ITR_UNIT: u128 = 256;
const ITR_MOST: u128 = 0xffff;

impl E1000Options {
    /// Returns the value of the interval register.
    pub(super) fn throttle(&self) -> u32 {
        if self.mode.is_unmoderated() { 0 } else { (self.interval.as_nanos() / ITR_UNIT) as u32 }
    }

    pub(super) fn check(&self) -> Result<(), E1000Error> {
        let wrong = |what: String| Err(E1000Error::Options(what));
        for ring in [self.tx_ring, self.rx_ring] {
            if !ring.is_power_of_two() || !(8..=MAX_RING).contains(&ring) {
                return wrong(format!(
                    "an e1000 ring of {ring} descriptors: a power of two from 8 to {MAX_RING} is needed"
                ));
            }
        }
        let size = self.buffer_size;
        if !size.is_power_of_two() || !(256..=16_384).contains(&size) {
            return wrong(format!("an e1000 buffer of {size} bytes: a power of two from 256 to 16384 is needed"));
        }
        if self.interval.as_nanos() > ITR_MOST * ITR_UNIT {
            return wrong(format!("an interval of {:?}: at most 16.7 ms fit into the register", self.interval));
        }
        Ok(())
    }
}

/// Why a device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum E1000Error {
    /// Invalid options.
    #[error("{0}")]
    Options(String),
    /// The device does not support the options.
    #[error("the device at {} {what}", path.display())]
    Lacks {
        /// Path of the socket.
        path: PathBuf,
        /// What it lacks.
        what: String,
    },
    /// The device does not behave like a NIC of its model.
    #[error("the device at {} {what}", path.display())]
    Device {
        /// Path of the socket.
        path: PathBuf,
        /// What it does.
        what: String,
    },
    /// The server cannot be used.
    #[error(transparent)]
    Server(#[from] VfioUserError),
    /// The kernel refuses memory, an eventfd or the like.
    #[error("cannot make the driver's memory: {0}")]
    Memory(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_they_are_written() {
        for mode in E1000Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("bas".parse::<E1000Mode>().is_err());
    }

    #[test]
    fn mistakes_are_told_with_what_would_be_right() {
        let said = |options: E1000Options| options.check().unwrap_err().to_string();
        let default = E1000Options::default;
        assert!(default().check().is_ok());
        assert!(said(E1000Options { tx_ring: 100, ..default() }).contains("a power of two from 8 to 32768"));
        assert!(said(E1000Options { rx_ring: 4, ..default() }).contains("a power of two from 8 to 32768"));
        assert!(said(E1000Options { buffer_size: 2304, ..default() }).contains("a power of two from 256 to 16384"));
        assert!(said(E1000Options { interval: Duration::from_millis(17), ..default() }).contains("at most 16.7 ms"));
    }

    #[test]
    fn an_interval_is_rounded_to_what_the_register_holds() {
        let throttle = |mode| E1000Options { mode, ..E1000Options::default() }.throttle();
        assert_eq!(throttle(E1000Mode::Moderated), 976);
        assert_eq!([E1000Mode::Base, E1000Mode::Each].map(throttle), [0, 0]);
    }
}
