//! The clock that the 82574L keeps for time stamps (DS 7.7). The clock counts, but no frame is stamped.

use super::kept::{Reader, Writer};

/// Nanoseconds of one tick of the 25 MHz clock.
const TICK: u64 = 40;

/// The system time SYSTIM. Every so many ticks, TIMINCA adds an increment to it.
#[derive(Debug, Default)]
pub(super) struct SystemTime {
    /// The value written to TIMINCA.
    increment: u32,
    /// A value of SYSTIM, and the time at which it was valid, in nanoseconds.
    base: (u64, u64),
    /// The high word that belongs to the low word that was read last.
    high: u32,
}

impl SystemTime {
    fn at(&self, now: u64) -> u64 {
        let (value, period) = (u64::from(self.increment & 0xff_ffff), u64::from(self.increment >> 24));
        let ticks = now.saturating_sub(self.base.1) / TICK;
        match ticks.checked_div(period) {
            Some(steps) => self.base.0.wrapping_add(steps.wrapping_mul(value)),
            None => self.base.0,
        }
    }

    pub(super) fn save(&self, to: &mut Writer, now: u64) {
        to.u32(self.increment);
        to.u64(self.at(now));
        to.u32(self.high);
    }

    /// Reads what [`SystemTime::save`] has written. The time stood still meanwhile: each process has a clock of its own.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>, now: u64) -> Option<()> {
        self.increment = from.u32()?;
        self.base = (from.u64()?, now);
        self.high = from.u32()?;
        Some(())
    }

    pub(super) fn increment(&self) -> u32 {
        self.increment
    }

    pub(super) fn set_increment(&mut self, value: u32, now: u64) {
        self.base = (self.at(now), now);
        self.increment = value;
    }

    pub(super) fn low(&mut self, now: u64) -> u32 {
        let time = self.at(now);
        self.high = (time >> 32) as u32;
        time as u32
    }

    pub(super) fn high(&self) -> u32 {
        self.high
    }

    pub(super) fn set_low(&mut self, value: u32, now: u64) {
        self.base = (self.at(now) & !0xffff_ffff | u64::from(value), now);
    }

    pub(super) fn set_high(&mut self, value: u32, now: u64) {
        self.base = (self.at(now) & 0xffff_ffff | u64::from(value) << 32, now);
    }
}

#[cfg(test)]
mod tests {
    use super::SystemTime;

    #[test]
    fn time_passes_at_the_rate_that_was_set_and_goes_on_when_that_changes() {
        let mut time = SystemTime::default();
        time.set_increment(2 << 24 | 80, 1_000);
        assert_eq!((time.low(1_079), time.low(1_080)), (0, 80));
        time.set_increment(1 << 24 | 1, 1_080);
        assert_eq!(time.low(1_120), 81);
        time.set_high(1, 1_120);
        assert_eq!((time.low(1_120), time.high()), (81, 1));
    }
}
