//! The driver's work at an interrupt, as in the Linux drivers, which then poll with interrupts masked until there is no more
//! work (NAPI).

use ringway_abi::e1000::register as reg;
use ringway_drivers::e1000::Model;

use super::bring_up::CAUSES;
use super::endpoint::E1000Endpoint;
use super::options::{E1000Error, E1000Mode};

impl E1000Endpoint {
    /// Takes the interrupts that have arrived. Returns false if there were none.
    #[inline]
    pub(super) fn take_interrupts(&mut self) -> bool {
        let mut count = [0; 8];
        // Non-blocking: fails if there were none.
        let has_arrived = rustix::io::read(&self.nic.interrupt, &mut count).is_ok();
        if has_arrived {
            self.nic.registers.counting().interrupts += u64::from_ne_bytes(count);
        }
        has_arrived
    }

    /// Handles an interrupt. Afterwards interrupts are masked and the driver polls.
    pub(super) fn handle_interrupt(&mut self) -> Result<(), E1000Error> {
        let registers = &mut self.nic.registers;
        registers.counting().handled += 1;
        let causes = registers.read(reg::ICR)?;
        if self.nic.pin {
            // Hypervisors unmask the pin at the first register access after an interrupt.
            registers.client().unmask()?;
        }
        // With a status block, its words replace masking.
        if causes == 0 || self.csb.is_some() {
            return Ok(());
        }
        // An 82574L has masked its interrupts itself.
        if self.nic.model == Model::Pro1000 {
            registers.write(reg::IMC, u32::MAX)?;
            registers.read(reg::STATUS)?;
        }
        self.polling = true;
        if self.mode == E1000Mode::Combining {
            // The frames that were combined go now and cause another interrupt. If there were none, the next frame must
            // not wait for an interrupt.
            self.expecting = self.tx.positions.has_unpublished();
            if self.expecting {
                self.publish_transmit()?;
            }
        }
        Ok(())
    }

    /// Waits for the interrupt of the frame that was just queued, and handles it: a guest with a single processor does
    /// so before it continues. While received frames wait to be polled, there is no interrupt.
    pub(super) fn take_its_interrupt(&mut self) -> Result<(), E1000Error> {
        if self.polling {
            self.poll_transmit()?;
        }
        if self.polling {
            return Ok(());
        }
        self.nic.await_interrupt()?;
        self.take_interrupts();
        self.handle_interrupt()?;
        if self.polling { self.poll_transmit() } else { Ok(()) }
    }

    /// Ends polling: unmasks interrupts.
    pub(super) fn complete(&mut self) -> Result<(), E1000Error> {
        self.polling = false;
        self.nic.registers.write(reg::IMS, CAUSES)?;
        // Reading a register flushes the write, as drivers do.
        self.nic.registers.read(reg::STATUS)?;
        Ok(())
    }
}
