//! Interrupt causes and what they raise (SDM 13.4.17 to 13.4.21, DS 7.4 and 10.2.4): a machine over the caller's clock,
//! without eventfds. Events go in; interrupts to raise, and the time of the next look, come out.
//!
//! ITR or EITR, the delay timers of both directions and the port's own `call_interval`, which holds for both directions
//! together, are part of the machine. Property tests check three invariants:
//!
//! - No cause is lost: a cause stays until the guest reads it, or a message of its own reports it.
//! - No interval is broken.
//! - A cause that is held back is raised when its time has come, without any other event.
//!
//! A poller that finds that something is due later has that time put into its list of pending calls, which rings the bell
//! then. The port's own thread has no such list: the thread leaves a note for the poller and wakes the poller.
//!
//! RXO is in ICR at once, but raises OTHER at most every 100 ms: Linux's e1000e reads ICR for each, and lost more frames by
//! that under overload.

use super::kept::{Reader, Writer};
use super::moderation::{CompletionDelay, Delay, Delayed, Throttle};
use super::offsets::{ASSERTED, EXT_IAME, LSC, MDAC, OTHER, RXDMT0, RXO, RXQ0, RXQ1, RXT0, TXDW, TXQ0, TXQ1, TXQE};

/// Number of MSI-X messages.
pub(super) const VECTORS: usize = 5;
/// Shortest time in nanoseconds between two "other" causes for lost frames. Linux reads registers for each, and would
/// lose more frames meanwhile.
const OVERRUN_EVERY: u64 = 100_000_000;
/// Causes that belong to no queue. RXO belongs to them, too, but only from time to time ([`OVERRUN_EVERY`]).
const OTHERS: u32 = LSC | MDAC | 1 << 16 | 1 << 17 | 1 << 18;
/// The causes to which IVAR assigns vectors, in the order of its fields.
pub(super) const ALLOCATED: [u32; 5] = [RXQ0, RXQ1, TXQ0, TXQ1, OTHER];

/// How interrupts are signalled to the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Signalling {
    /// The pin, or one message.
    #[default]
    Single,
    /// One message, which clears the causes in EIAC (82540EM with a status block).
    Clearing,
    /// One message for each of several groups of causes (MSI-X).
    PerVector,
}

/// The interrupts to raise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Raise {
    /// The messages to send, one bit each. The pin is bit 0.
    pub(super) vectors: u8,
    /// When to check again, at the latest.
    pub(super) next: Option<u64>,
}

/// Describes transmit descriptors that were completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SentEvent {
    /// The descriptors belong to the second ring.
    pub(super) second: bool,
    /// Some descriptors had "report status" set.
    pub(super) reported: bool,
    /// All descriptors with "report status" allow a delay of the interrupt.
    pub(super) delay: bool,
    /// The ring is empty.
    pub(super) empty: bool,
    /// Number of descriptors, and bytes of their frames.
    pub(super) descriptors: u32,
    pub(super) bytes: u64,
    /// Size of the ring in descriptors; 0 if the guest itself says when it wants an interrupt.
    pub(super) ring: u32,
}

/// Describes frames that were received or lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReceivedEvent {
    pub(super) frames: bool,
    /// Few descriptors are left.
    pub(super) low: bool,
    /// Frames were lost because there were no free descriptors.
    pub(super) overrun: bool,
}

/// One interrupt line to the guest: the pin or a message.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    /// Raised, and its causes are still pending.
    pub(super) up: bool,
    pub(super) throttle: Throttle,
    /// Value of ITR or EITR.
    pub(super) register: u32,
    /// Causes that a clearing message has told of and not cleared. They raise nothing more.
    pub(super) told: u32,
}

/// The interrupt registers of a function.
#[derive(Debug, Default)]
pub(super) struct Causes {
    /// Bits that the cause registers of this model have.
    pub(super) known: u32,
    pub(super) signalling: Signalling,
    pub(super) icr: u32,
    pub(super) ims: u32,
    pub(super) iam: u32,
    pub(super) eiac: u32,
    pub(super) ivar: u32,
    pub(super) ctrl_ext: u32,
    /// The pin or the single message.
    pub(super) one: Line,
    pub(super) several: [Line; VECTORS],
    pub(super) transmit: Delay,
    pub(super) receive: Delay,
    pub(super) sent: CompletionDelay,
    /// Causes of the rings with sent frames whose interrupt is delayed.
    pub(super) unreported: u32,
    /// When RXO was last raised as an "other" cause.
    pub(super) overrun: Option<u64>,
    /// Shortest interval between interrupts that the port's settings ask for, in nanoseconds.
    pub(super) min_interval: u64,
}

impl Causes {
    pub(super) fn new(known: u32) -> Causes {
        Causes { known, ..Causes::default() }
    }

    /// Restores the state after power-on. Keeps how the guest is reached and when it was last interrupted.
    pub(super) fn reset(&mut self) {
        let keep = |line: &Line| Line { throttle: line.throttle, ..Line::default() };
        *self = Causes {
            known: self.known,
            signalling: self.signalling,
            min_interval: self.min_interval,
            one: keep(&self.one),
            several: self.several.each_ref().map(keep),
            sent: self.sent,
            overrun: self.overrun,
            ..Causes::default()
        };
        self.sent.stop();
    }

    /// Appends the registers. Times, and which lines are up, are not for a successor: it raises what is pending again.
    pub(super) fn save(&self, to: &mut Writer) {
        let Causes { icr, ims, iam, eiac, ivar, ctrl_ext, one, several, .. } = self;
        to.u32s(&[*icr, *ims, *iam, *eiac, *ivar, *ctrl_ext, one.register]);
        several.iter().for_each(|line| to.u32(line.register));
    }

    /// Reads what [`Causes::save`] has written.
    pub(super) fn restore(&mut self, from: &mut Reader<'_>) -> Option<()> {
        let mut words = [0; 7 + VECTORS];
        from.u32s(&mut words)?;
        let [icr, ims, iam, eiac, ivar, ctrl_ext, itr, rest @ ..] = words;
        self.reset();
        (self.icr, self.ims, self.ctrl_ext) = (icr & self.known, ims & self.known, ctrl_ext);
        self.set_iam(iam);
        self.set_eiac(eiac);
        self.set_ivar(ivar);
        self.set_itr(itr);
        rest.into_iter().enumerate().for_each(|(vector, value)| self.set_eitr(vector, value));
        Some(())
    }

    /// What rings may have caused since the last record: all of it is pending.
    pub(super) fn assume_ring_causes(&mut self) {
        let rings = if self.signalling == Signalling::PerVector { RXQ0 | TXQ0 | TXQ1 } else { 0 };
        self.set(TXDW | RXT0 | rings);
    }

    /// Sets how interrupts are signalled. Pending causes are raised again.
    #[inline]
    pub(super) fn set_signalling(&mut self, signalling: Signalling) {
        if self.signalling != signalling {
            self.signalling = signalling;
            self.raise_again();
        }
    }

    /// Pending causes are raised again.
    pub(super) fn raise_again(&mut self) {
        (self.one.up, self.one.told) = (false, 0);
        self.several.iter_mut().for_each(|line| line.up = false);
    }

    pub(super) fn set_min_interval(&mut self, nanoseconds: u64) {
        self.min_interval = nanoseconds;
    }

    /// Sets the longest delay of the interrupt for sent frames, in nanoseconds.
    pub(super) fn set_completion_delay(&mut self, within: u64) {
        self.sent.set_within(within);
        if within == 0 {
            self.end_completion_delay();
        }
    }

    /// Adds causes: a write to ICS, or an event.
    pub(super) fn set(&mut self, causes: u32) {
        self.icr |= causes & self.known;
        if self.known & OTHER != 0 && self.icr & OTHERS != 0 {
            self.icr |= OTHER;
        }
    }

    /// A clearing message tells of these causes again, if they are pending: the one that was sent may have come before the guest could know
    /// that it has to read ICR.
    pub(super) fn tell_again(&mut self, causes: u32) {
        self.one.told &= !causes;
    }

    /// A write to IMS.
    pub(super) fn unmask(&mut self, causes: u32) {
        self.ims |= causes & self.known;
    }

    /// A write to IMC.
    pub(super) fn mask(&mut self, causes: u32) {
        self.ims &= !causes;
        self.settle_lines();
    }

    pub(super) fn ims(&self) -> u32 {
        self.ims
    }

    /// A read of ICR. On an 82540EM it clears all causes (SDM 13.4.17). On an 82574L it clears them only if no cause is
    /// unmasked, or if an unmasked cause is pending. (DS 10.2.4.1 does not define the case in which automatic masking
    /// is off; the 8257x manual, 13.3.27, and drivers do.)
    pub(super) fn read(&mut self) -> u32 {
        self.end_completion_delay();
        self.sent.seen();
        if self.known & OTHER == 0 {
            let causes = std::mem::take(&mut self.icr);
            self.settle_lines();
            return causes;
        }
        let asserted = self.icr & self.ims != 0;
        let causes = self.icr | if asserted { ASSERTED } else { 0 };
        if asserted && self.ctrl_ext & EXT_IAME != 0 {
            self.ims &= !self.iam;
        }
        if asserted || self.ims == 0 {
            self.icr = 0;
        }
        self.settle_lines();
        causes
    }

    /// A write to ICR, which clears the written causes.
    pub(super) fn acknowledge(&mut self, causes: u32) {
        if self.known & OTHER != 0 && self.icr & self.ims != 0 && self.ctrl_ext & EXT_IAME != 0 {
            self.ims &= !self.iam;
        }
        self.icr &= !causes;
        self.settle_lines();
    }

    pub(super) fn set_ctrl_ext(&mut self, value: u32) {
        self.ctrl_ext = value;
    }

    /// Returns IAM, EIAC and IVAR.
    pub(super) fn automatic(&self) -> [u32; 3] {
        [self.iam, self.eiac, self.ivar]
    }

    pub(super) fn set_iam(&mut self, value: u32) {
        self.iam = value;
    }

    pub(super) fn set_eiac(&mut self, value: u32) {
        let queues =
            if self.known & OTHER == 0 { TXDW | TXQE | RXDMT0 | RXO | RXT0 } else { RXQ0 | RXQ1 | TXQ0 | TXQ1 | OTHER };
        self.eiac = value & queues;
    }

    pub(super) fn set_ivar(&mut self, value: u32) {
        self.ivar = value & 0x800f_ffff;
    }

    pub(super) fn itr(&self) -> u32 {
        self.one.register
    }

    pub(super) fn set_itr(&mut self, value: u32) {
        self.one.register = value & 0xffff;
    }

    pub(super) fn eitr(&self, vector: usize) -> u32 {
        self.several.get(vector).map_or(0, |line| line.register)
    }

    pub(super) fn set_eitr(&mut self, vector: usize, value: u32) {
        if let Some(line) = self.several.get_mut(vector) {
            line.register = value & 0xffff;
        }
    }

    /// Notes completed transmit descriptors. `tidv` and `tadv` are the present values of the registers. `now` is called
    /// only if the time matters.
    pub(super) fn sent(&mut self, news: SentEvent, tidv: u32, tadv: u32, now: impl Fn() -> u64) {
        if news.reported {
            self.unreported |= if news.second { TXQ1 } else { TXQ0 };
            let delayed = match news.delay && tidv & 0xffff != 0 {
                true => self.transmit.event(now(), tidv, tadv),
                false => Delayed::No,
            };
            let held = self.sent.event(now, news.descriptors, news.bytes, news.ring);
            match delayed {
                Delayed::Yes => {}
                Delayed::No if held == Delayed::Yes => self.transmit.stop(),
                Delayed::No => self.report_sent(),
            }
        }
        if news.empty {
            self.set(TXQE);
        }
    }

    /// Notes received frames. `rdtr` and `radv` are the present values of the registers. `now` is called only if the
    /// time matters.
    pub(super) fn received(&mut self, news: ReceivedEvent, rdtr: u32, radv: u32, now: impl Fn() -> u64) {
        if news.frames {
            let delayed = match rdtr & 0xffff != 0 {
                true => self.receive.event(now(), rdtr, radv),
                false => Delayed::No,
            };
            if delayed == Delayed::No {
                self.receive.stop();
                self.set(self.receive_cause());
            }
        }
        self.set(if news.low { RXDMT0 } else { 0 });
        if news.overrun {
            self.overrun(now());
        }
    }

    /// Frames were lost: sets RXO at once, and OTHER from time to time.
    #[cold]
    fn overrun(&mut self, now: u64) {
        self.set(RXO);
        if self.overrun.is_none_or(|last| now.saturating_sub(last) >= OVERRUN_EVERY) {
            self.overrun = Some(now);
            self.set(OTHER);
        }
    }

    /// Makes the sent frames a cause.
    pub(super) fn report_sent(&mut self) {
        self.transmit.stop();
        self.sent.stop();
        let rings = std::mem::take(&mut self.unreported);
        self.set(if self.signalling == Signalling::PerVector { TXDW | rings } else { TXDW });
    }

    /// The guest reads the causes, or gets an interrupt anyway: ends the device's own delay for sent frames.
    pub(super) fn end_completion_delay(&mut self) {
        if self.sent.is_running() && !self.transmit.is_running() {
            self.report_sent();
        }
    }

    /// TIDV was written with its flush bit.
    pub(super) fn flush_transmit(&mut self) {
        if self.transmit.is_running() || self.sent.is_running() {
            self.report_sent();
        }
    }

    /// RDTR was written with its flush bit.
    pub(super) fn flush_receive(&mut self) {
        if self.receive.is_running() {
            self.receive.stop();
            self.set(self.receive_cause());
        }
    }

    pub(super) fn receive_cause(&self) -> u32 {
        if self.signalling == Signalling::PerVector { RXQ0 | RXT0 } else { RXT0 }
    }
}
