//! The communication status block, as the two sides use it: in its mode, tails and the wish for interrupts are words in the
//! guest's memory (Maffione 2012, 4.4.2; FreeBSD's if_lem).
//!
//! The device asks for tail writes only while its poller sleeps, and not even then while frames are frequent: on a processor that others
//! want, too, a poller sleeps after every frame, and so looks for the next ones by itself. The device never asks for receive buffers,
//! which it sees when it needs them. A block that is not in memory, or shares memory with a ring, is refused.

use std::sync::atomic::{Ordering, fence};

use ringway_abi::csb::Csb;

use super::data_path::{InputState, OutputState, ring_location};
use super::device::Device;
use super::interrupt::{ReceivedEvent, SentEvent};
use super::offsets::{CSBAH, CSBAL, RDBAL, RDH, RDT, TDBAL, TDH, TDT};
use super::rings::CsbLocation;
use crate::vfio_user::Dma;

/// Returns the status block, if the guest uses it.
#[inline]
fn in_use(csb: Option<CsbLocation>, memory: &Dma) -> Option<Csb<'_>> {
    csb?.block(&memory.writable).filter(|block| block.is_on())
}

impl InputState {
    /// Returns the transmit tail, from the block or the register. (A NIC with a block has one transmit ring.)
    #[inline]
    pub(super) fn tail(&self) -> u32 {
        self.tail_at(self.queue)
    }

    /// Returns the tail of the ring whose registers are at offset `queue` from those of the first ring.
    #[inline]
    pub(super) fn tail_at(&self, queue: u32) -> u32 {
        match in_use(self.csb, &self.memory) {
            Some(block) => block.transmit_tail(),
            None => self.page.get(TDT + queue) & 0xffff,
        }
    }

    /// Returns true if the guest uses a status block.
    pub(super) fn uses_block(&self) -> bool {
        in_use(self.csb, &self.memory).is_some()
    }

    /// Asks the guest to write the tail register (`on`), or not to.
    pub(super) fn ask(&mut self, on: bool) {
        self.asks = on;
        let block = self.csb.and_then(|csb| csb.block(&self.memory.writable));
        block.inspect(|block| if on { block.ask() } else { block.decline() });
    }

    /// Tells the guest that ICR has causes that no message clears.
    pub(super) fn tell_causes(&self) {
        in_use(self.csb, &self.memory).inspect(|block| block.has_causes());
    }

    /// Returns the news for the guest about the descriptors completed from `before` up to `head`.
    #[inline]
    pub(super) fn news(&self, news: SentEvent, before: u32, head: u32, count: u32) -> SentEvent {
        let Some(block) = in_use(self.csb, &self.memory) else { return news };
        block.sent(head);
        fence(Ordering::SeqCst);
        SentEvent { reported: block.wants_sent(before, head, count), ..SentEvent::default() }
    }
}

impl OutputState {
    /// Returns the receive tail, from the block or the register.
    #[inline]
    pub(super) fn tail(&self) -> u32 {
        match in_use(self.csb, &self.memory) {
            Some(block) => block.receive_tail(),
            None => self.page.get(RDT) & 0xffff,
        }
    }

    /// Returns the news for the guest about frames received up to the descriptor `head`.
    #[inline]
    pub(super) fn news(&self, news: ReceivedEvent, head: u32) -> ReceivedEvent {
        let Some(block) = in_use(self.csb, &self.memory) else { return news };
        block.received(head);
        fence(Ordering::SeqCst);
        if block.wants_received() { news } else { ReceivedEvent::default() }
    }
}

impl Device {
    /// Finds the block after the guest wrote its address; 0 means none.
    pub(super) fn find_block(&self) {
        let (mut input, mut output) = (self.input.lock(), self.output.lock());
        let address = u64::from(input.page.get(CSBAL)) | u64::from(input.page.get(CSBAH)) << 32;
        let found = match address {
            0 => Ok(None),
            _ => CsbLocation::new(address, &input.memory.writable).map(Some),
        };
        let csb = found.and_then(|csb| {
            let on = [(input.ring.is_on(), TDBAL), (output.ring.is_on(), RDBAL)];
            for (_, low) in on.into_iter().filter(|(on, _)| *on) {
                let (base, count, _) = ring_location(&input.page, low);
                csb.map_or(Ok(()), |csb: CsbLocation| csb.check(base, count))?;
            }
            Ok(csb)
        });
        (input.csb, output.csb) = match csb {
            Ok(csb) => (csb, csb),
            Err(fault) => {
                self.report("status block of the", fault);
                (None, None)
            }
        };
        // This writes to guest memory, which may block. Other threads wait for the lock of the output, but none waits
        // for that of the input.
        drop(output);
        self.begin_block(&mut input);
    }

    /// Finds the block that a predecessor of this process has used, before the rings go on.
    pub(super) fn find_block_again(&self) {
        let (mut input, mut output) = (self.input.lock(), self.output.lock());
        let address = u64::from(input.page.get(CSBAL)) | u64::from(input.page.get(CSBAH)) << 32;
        let found = if address == 0 { None } else { CsbLocation::new(address, &input.memory.writable).ok() };
        (input.csb, output.csb) = (found, found);
    }

    /// Forgets the block.
    pub(super) fn forget_block(&self) {
        self.input.lock().csb = None;
        self.output.lock().csb = None;
    }

    /// Writes to the block how far both rings are, and whether the device watches the tail by itself.
    pub(super) fn begin_block(&self, input: &mut InputState) {
        if let Some(block) = input.csb.and_then(|csb| csb.block(&input.memory.writable)) {
            block.begin(input.page.get(TDH), input.page.get(RDH));
        }
        input.ask(self.is_armed());
    }
}
