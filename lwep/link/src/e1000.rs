//! An e1000 or e1000e as a link.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ringway_abi::Offload;
use ringway_drivers::e1000::{self, Card, Driver, Model, Nic, RECEIVED, SENT};
use ringway_drivers::pci::{PciDevice, PciError, PciId, Sleep};
use ringway_lwep::link::{Counts, Interface, Link, Received};
use ringway_memory::Buffer;

pub use ringway_drivers::e1000::E1000Options;

/// Subsystem of a NIC that offers a communication status block.
const PARAVIRTUAL: u16 = 0x1101;
/// Subsystem vendor of QEMU's own NICs.
const QEMU: u16 = 0x1af4;

/// A link by an 82540EM (e1000) or an 82574L (e1000e) that this program drives.
///
/// While the program only polls, the device makes no interrupts. [`Counts::kicks`] are writes of the transmit tail.
#[derive(Debug)]
pub struct E1000Link {
    /// Before the driver, whose memory the device must not reach when it is freed.
    device: PciDevice,
    driver: Driver,
    interface: Interface,
    sleep: Sleep,
    /// The interrupt line is held back.
    is_line_masked: bool,
    /// Causes that the device interrupts for.
    causes: u32,
}

impl E1000Link {
    /// Returns true if this drives such a PCI function.
    #[must_use]
    pub fn drives(id: PciId) -> bool {
        Model::of(id.vendor, id.device).is_some()
    }

    /// Resets a device and sets it up.
    ///
    /// # Errors
    /// The device is of another kind, does not do its part, or there is too little memory.
    pub fn start(mut device: PciDevice, options: &E1000Options) -> Result<E1000Link, PciError> {
        let (name, id) = (device.address().to_owned(), device.id());
        options.check(&name)?;
        let Some(model) = Model::of(id.vendor, id.device) else {
            let what = format!(
                "is {:04x}:{:04x}: 8086:100e (82540EM, e1000) or 8086:10d3 (82574L, e1000e) is needed",
                id.vendor, id.device
            );
            return Err(PciError::Lacks { address: name, what });
        };
        let mut nic = Nic::new(device.bar(0)?, model, name.clone());
        nic.reset()?;
        let mac = nic.address()?;
        let dma = device.dma(Driver::memory(options))?;
        let csb = options.csb && model == Model::Pro1000 && id.subsystem == PARAVIRTUAL;
        // QEMU's sends a segment without data after those of a frame whose data are a multiple of the segment size (up to QEMU 11, at least).
        let segments = options.offload && !(model == Model::Pro1000 && id.subsystem_vendor == QEMU);
        let card = Card { csb, segments };
        let driver = Driver::new(nic, dma, mac, options, card).map_err(PciError::of(&name))?;
        // From here on the device reaches the driver's memory: the link ends that before it frees the memory, also after an error.
        let sleep = Sleep::new().map_err(PciError::of("a timer"))?;
        let abilities = *driver.abilities();
        let interface = Interface {
            name: name.clone(),
            mac: abilities.mac,
            longest: abilities.longest,
            segmented: abilities.segmented,
            checksums: abilities.checksums,
            front: 0,
            buffer: abilities.buffer,
            places: 0,
            holds: 0,
        };
        let mut link = E1000Link { device, driver, interface, sleep, is_line_masked: true, causes: 0 };
        link.driver.nic.await_link()?;
        *link.driver.nic.counts() = Default::default();
        link.device.mask().map_err(PciError::of(name))?;
        Ok(link)
    }

    /// Returns true if a communication status block is used.
    #[must_use]
    pub fn has_csb(&self) -> bool {
        self.driver.has_csb()
    }

    /// Notes an interrupt that has come: the kernel holds the line back since.
    fn take_interrupt(&mut self) {
        if self.device.take_interrupt() {
            self.driver.nic.counts().calls += 1;
            self.is_line_masked = true;
        }
    }

    /// Lets interrupts through to the descriptor.
    ///
    /// Causes are cleared or masked only while the line is held back. Otherwise an interrupt can be under way (with vfio-user it takes
    /// its time), and the kernel, which finds no cause in the device, would not hold its line back: it would get it again and again,
    /// until the next register access or cause.
    fn arm(&mut self, room: bool) {
        self.driver.want(true, room);
        // With a status block, its words decide.
        let wanted = RECEIVED | if room || self.driver.has_csb() { SENT } else { 0 };
        if !self.is_line_masked {
            self.driver.nic.unmask(wanted & !self.causes);
            self.causes |= wanted;
            return;
        }
        // This order: QEMU does not wait for writes, but for reads. An interrupt under way for what is masked here is over afterwards.
        self.driver.nic.mask(self.causes & !wanted);
        self.driver.nic.clear();
        self.driver.nic.unmask(wanted & !self.causes);
        (self.causes, self.is_line_masked) = (wanted, false);
        if let Err(error) = self.device.unmask() {
            self.driver.fail(format!("makes no interrupts: {error}"));
        }
    }
}

impl Drop for E1000Link {
    fn drop(&mut self) {
        // See `arm`. If the kernel refuses, the device has gone.
        let _ = self.device.mask();
        self.driver.nic.stop();
    }
}

impl Link for E1000Link {
    #[inline]
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn take_buffers(&mut self) -> Vec<Buffer> {
        self.driver.take_buffers()
    }

    #[inline]
    fn room(&mut self) -> usize {
        self.driver.room()
    }

    #[inline]
    fn send(&mut self, buffer: &mut Buffer, len: usize, offload: Option<&Offload>) -> bool {
        self.driver.send(buffer, len, offload)
    }

    #[inline]
    fn flush(&mut self) {
        self.driver.flush();
    }

    #[inline]
    fn sent(&mut self) -> u64 {
        self.driver.sent()
    }

    #[inline]
    fn peek(&mut self) -> Option<Received<'_>> {
        self.driver.peek().map(|bytes| Received { bytes, offload: None })
    }

    #[inline]
    fn release(&mut self) {
        self.driver.release();
    }

    #[inline]
    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        self.driver.exchange(spare)
    }

    fn want(&mut self, room: bool) -> bool {
        if self.driver.is_ready(room) {
            return true;
        }
        self.take_interrupt();
        self.arm(room);
        self.driver.is_ready(room)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.device.interrupt()
    }

    fn awake(&mut self) {
        self.take_interrupt();
        self.driver.want(false, false);
    }

    fn wait(&mut self, room: bool, timeout: Duration) -> io::Result<()> {
        if timeout.is_zero() {
            // The caller polls: an interrupt that it has asked for would come later.
            return self.check();
        }
        if self.want(room) {
            self.awake();
            return self.check();
        }
        let slept = self.sleep.until_readable(self.device.interrupt(), timeout);
        self.awake();
        if !slept? && !self.driver.nic.answers() {
            self.driver.fail("is gone: its registers read as ones".to_owned());
        }
        self.check()
    }

    fn check(&mut self) -> io::Result<()> {
        self.driver.check()
    }

    fn counts(&self) -> Counts {
        let e1000::Counts { kicks, calls, accesses, dropped } = self.driver.counts();
        Counts { kicks, calls, accesses, dropped, ..Counts::default() }
    }
}
