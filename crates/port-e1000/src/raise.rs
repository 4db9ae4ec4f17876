//! The interrupts that causes raise, and their times.

use super::interrupt::{ALLOCATED, Causes, Raise, Signalling, VECTORS};
use super::moderation::throttle_interval;
use super::offsets::EXT_EIAME;

impl Causes {
    /// Returns true if there is nothing to raise now or later, so that the clock need not be read.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let raised = match self.signalling {
            Signalling::Single => self.one.up,
            Signalling::Clearing => self.icr & self.ims & !self.one.told == 0,
            Signalling::PerVector => false,
        };
        let delayed = self.transmit.is_running() || self.receive.is_running() || self.sent.is_running();
        (self.icr & self.ims == 0 || raised) && !delayed
    }

    /// Returns true if the pin is raised. Asked when a front end unmasks it.
    pub(super) fn pin(&self) -> bool {
        self.signalling == Signalling::Single && self.one.up
    }

    /// Decides what to raise now and when to check again. The caller then reports the time of the interrupts by
    /// [`Causes::raised`].
    pub(super) fn settle(&mut self, now: u64) -> Raise {
        let ended = [self.transmit.expire(now), self.sent.expire(now)].contains(&true);
        if ended && !self.transmit.is_running() && !self.sent.is_running() {
            self.report_sent();
        }
        if self.receive.expire(now) {
            self.set(self.receive_cause());
        }
        let mut raise = match self.signalling {
            Signalling::Single => self.settle_one(now),
            Signalling::Clearing => self.settle_clearing(now),
            Signalling::PerVector => self.settle_several(now),
        };
        let timers = [raise.next, self.transmit.due(), self.receive.due(), self.sent.due()];
        raise.next = timers.into_iter().flatten().min();
        raise
    }

    fn settle_one(&mut self, now: u64) -> Raise {
        let wanted = self.icr & self.ims != 0;
        if !wanted || self.one.up {
            self.one.up = wanted;
            return Raise::default();
        }
        match self.one.throttle.held_until(now, throttle_interval(self.one.register).max(self.min_interval)) {
            Some(open) => Raise { vectors: 0, next: Some(open) },
            None => {
                self.one.up = true;
                self.one.throttle.raised(now);
                self.end_completion_delay();
                Raise { vectors: 1, next: None }
            }
        }
    }

    fn settle_clearing(&mut self, now: u64) -> Raise {
        if self.icr & self.ims & !self.one.told == 0 {
            return Raise::default();
        }
        match self.one.throttle.held_until(now, throttle_interval(self.one.register).max(self.min_interval)) {
            Some(open) => Raise { vectors: 0, next: Some(open) },
            None => {
                self.one.throttle.raised(now);
                self.end_completion_delay();
                self.icr &= !(self.eiac & self.ims);
                self.one.told = self.icr & self.ims;
                Raise { vectors: 1, next: None }
            }
        }
    }

    fn settle_several(&mut self, now: u64) -> Raise {
        let mut raise = Raise::default();
        for vector in 0..VECTORS {
            let mine = self.causes_of(vector);
            let wanted = self.icr & self.ims & mine != 0;
            let line = &mut self.several[vector];
            if !wanted || line.up {
                line.up = wanted;
                continue;
            }
            if let Some(open) = line.throttle.held_until(now, throttle_interval(line.register).max(self.min_interval)) {
                raise.next = Some(raise.next.map_or(open, |next| next.min(open)));
                continue;
            }
            line.throttle.raised(now);
            raise.vectors |= 1 << vector;
            let told = self.icr & self.ims & mine;
            if self.ctrl_ext & EXT_EIAME != 0 {
                self.ims &= !(self.iam & told);
            }
            self.icr &= !(self.eiac & told);
            self.several[vector].up = self.icr & self.ims & mine != 0;
        }
        raise
    }

    /// Returns the causes that are assigned to a vector.
    fn causes_of(&self, vector: usize) -> u32 {
        (0..).zip(ALLOCATED).fold(0, |causes, (place, cause)| {
            let entry = self.ivar >> (4 * place) & 0xf;
            if entry & 8 != 0 && (entry & 7) as usize == vector { causes | cause } else { causes }
        })
    }

    /// Notes that the interrupts which [`Causes::settle`] returned were raised, at `now` at the latest.
    pub(super) fn raised(&mut self, vectors: u8, now: u64) {
        match self.signalling {
            Signalling::Single | Signalling::Clearing if vectors != 0 => self.one.throttle.raised(now),
            Signalling::Single | Signalling::Clearing => {}
            Signalling::PerVector => {
                let sent = self.several.iter_mut().enumerate().filter(|(vector, _)| vectors >> vector & 1 != 0);
                sent.for_each(|(_, line)| line.throttle.raised(now));
            }
        }
    }

    /// Lowers the lines without pending causes. The next cause raises them again.
    pub(super) fn settle_lines(&mut self) {
        let there = self.icr & self.ims;
        self.one.up &= there != 0;
        self.one.told &= there;
        for vector in 0..VECTORS {
            self.several[vector].up &= there & self.causes_of(vector) != 0;
        }
    }
}
