//! The registers of a virtio device on a PCI bus (virtio 1.3, 4.1).

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::pci::{PciDevice, PciError, Registers};

// Capabilities (virtio 1.3, 4.1.4).
const VENDOR_CAPABILITY: u8 = 9;
const COMMON: u8 = 1;
const NOTIFY: u8 = 2;
const ISR: u8 = 3;
const DEVICE: u8 = 4;

// Offsets in the common configuration (virtio 1.3, 4.1.4.3).
const FEATURE_SELECT: usize = 0;
const FEATURES: usize = 4;
const OWN_FEATURE_SELECT: usize = 8;
const OWN_FEATURES: usize = 12;
const STATUS: usize = 20;
const GENERATION: usize = 21;
const QUEUE_SELECT: usize = 22;
const QUEUE_SIZE: usize = 24;
const QUEUE_ENABLE: usize = 28;
const QUEUE_NOTIFY: usize = 30;
const QUEUE_PARTS: [usize; 3] = [32, 40, 48];
const COMMON_BYTES: usize = 56;

// Device status (virtio 1.3, 2.1).
const ACKNOWLEDGE: u8 = 1;
const DRIVER: u8 = 2;
const DRIVER_OK: u8 = 4;
const FEATURES_OK: u8 = 8;
const NEEDS_RESET: u8 = 64;

/// Time within which a device resets itself.
const RESET: Duration = Duration::from_secs(1);

/// A virtio device.
#[derive(Debug)]
pub struct Transport {
    pci: PciDevice,
    common: Registers,
    notify: Registers,
    notify_stride: usize,
    isr: Registers,
    /// The device configuration.
    pub config: Registers,
}

impl Transport {
    /// Finds the device's registers, and resets it.
    pub fn open(pci: PciDevice) -> Result<Transport, PciError> {
        let (mut found, mut notify_stride) = ([None, None, None, None], 0);
        let kernel = |error| PciError::of("configuration space")(error);
        for capability in pci.capabilities().map_err(kernel)? {
            let mut bytes = [0; 20];
            if capability.id != VENDOR_CAPABILITY || pci.config_read(capability.at, &mut bytes).is_err() {
                continue;
            }
            let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let (kind, bar, at, len) = (bytes[3], bytes[4], word(8), word(12));
            // The first of a kind is the one that the device prefers.
            let Some(place) = found.get_mut(usize::from(kind).wrapping_sub(1)).filter(|place| place.is_none()) else {
                continue;
            };
            *place = pci.bar(bar.into()).ok().and_then(|bar| bar.part(at as usize, len as usize));
            if kind == NOTIFY {
                notify_stride = word(16) as usize;
            }
        }
        let mut part = |kind: u8, what: &str| {
            let lacks = || PciError::Lacks {
                address: pci.address().to_owned(),
                what: format!("has no {what} of virtio 1: is it a virtio device, not with disable-modern=on?"),
            };
            found[usize::from(kind) - 1].take().ok_or_else(lacks)
        };
        let common = part(COMMON, "registers")?;
        if common.bytes() < COMMON_BYTES {
            return Err(PciError::Lacks { address: pci.address().to_owned(), what: "has too few registers".into() });
        }
        let notify = part(NOTIFY, "notification registers")?;
        let isr = part(ISR, "interrupt status")?;
        let config = part(DEVICE, "device configuration")?;
        let transport = Transport { pci, common, notify, notify_stride, isr, config };
        if !transport.reset() {
            return Err(transport.lacks("does not reset itself".to_owned()));
        }
        Ok(transport)
    }

    /// Returns the function.
    pub fn pci(&mut self) -> &mut PciDevice {
        &mut self.pci
    }

    /// Returns the descriptor that becomes readable after an interrupt.
    pub fn interrupt(&self) -> BorrowedFd<'_> {
        self.pci.interrupt()
    }

    /// Makes an error about this device.
    pub fn lacks(&self, what: String) -> PciError {
        PciError::Lacks { address: self.pci.address().to_owned(), what }
    }

    /// Agrees on features: all of `wanted` that the device offers, and all of `needed`. Returns them.
    pub fn negotiate(&self, needed: u64, wanted: u64) -> Result<u64, PciError> {
        self.add_status(ACKNOWLEDGE);
        self.add_status(DRIVER);
        let half = |number: u32| {
            self.common.write32(FEATURE_SELECT, number);
            u64::from(self.common.read32(FEATURES))
        };
        let offered = half(0) | half(1) << 32;
        if offered & needed != needed {
            let what = format!("offers the features {offered:#x} and not {:#x}, which are needed", needed & !offered);
            return Err(self.lacks(what));
        }
        let agreed = offered & (needed | wanted);
        for number in 0..2 {
            self.common.write32(OWN_FEATURE_SELECT, number);
            self.common.write32(OWN_FEATURES, (agreed >> (32 * number)) as u32);
        }
        self.add_status(FEATURES_OK);
        if self.common.read8(STATUS) & FEATURES_OK == 0 {
            return Err(self.lacks(format!("refuses the features {agreed:#x}")));
        }
        Ok(agreed)
    }

    /// Reads device configuration while it does not change (virtio 1.3, 2.5.3).
    pub fn read_config<T>(&self, read: impl Fn(&Registers) -> T) -> T {
        let mut last = None;
        // A device that changes it all the time is read as it is.
        for _ in 0..16 {
            let (before, value) = (self.common.read8(GENERATION), read(&self.config));
            if self.common.read8(GENERATION) == before {
                return value;
            }
            last = Some(value);
        }
        last.unwrap_or_else(|| read(&self.config))
    }

    /// Returns the most descriptors of a queue.
    pub fn queue_size(&self, queue: u16) -> u16 {
        self.common.write16(QUEUE_SELECT, queue);
        self.common.read16(QUEUE_SIZE)
    }

    /// Sets up a queue. Returns the register for its notifications.
    pub fn start(&self, queue: u16, size: u16, parts: [u64; 3]) -> Result<Registers, PciError> {
        self.common.write16(QUEUE_SELECT, queue);
        self.common.write16(QUEUE_SIZE, size);
        for (at, part) in QUEUE_PARTS.into_iter().zip(parts) {
            self.common.write64(at, part);
        }
        let at = usize::from(self.common.read16(QUEUE_NOTIFY)) * self.notify_stride;
        let doorbell = self.notify.part(at, 2);
        let doorbell = doorbell.ok_or_else(|| self.lacks(format!("has no notification register of queue {queue}")))?;
        self.common.write16(QUEUE_ENABLE, 1);
        Ok(doorbell)
    }

    /// Lets the device work.
    pub fn run(&self) {
        self.add_status(DRIVER_OK);
    }

    /// Returns why the device has stopped, if it has. Reads one register.
    pub fn trouble(&self) -> Option<&'static str> {
        match self.common.read8(STATUS) {
            _ if self.common.is_lost() => Some("the device has gone"),
            0xff => Some("the device has gone"),
            status if status & NEEDS_RESET != 0 => Some("the device met an error and needs a reset"),
            status if status & DRIVER_OK == 0 => Some("the device was reset"),
            _ => None,
        }
    }

    /// Clears the cause of an interrupt. Returns false if it was another device's.
    pub fn acknowledge(&self) -> bool {
        self.isr.read8(0) != 0
    }

    /// Ends all access of the device to memory. Returns false if it does not.
    fn reset(&self) -> bool {
        let deadline = Instant::now() + RESET;
        self.common.write8(STATUS, 0);
        while self.common.read8(STATUS) != 0 {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn add_status(&self, bit: u8) {
        self.common.write8(STATUS, self.common.read8(STATUS) | bit);
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // If the device does not answer, the end of bus mastering, which follows, still keeps it from memory.
        self.reset();
    }
}
