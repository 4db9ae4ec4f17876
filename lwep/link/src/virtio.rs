//! A virtio-net device as a link (virtio 1.3, 4.1 and 5.1).
//!
//! One queue pair. A frame and the 12-byte header before it have one buffer, one descriptor and no copy. Notifications are suppressed
//! in both directions while both sides work. What the device writes is checked: an impossible buffer or length ends the link.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ringway_abi::Offload;
use ringway_abi::offload::Gso;
use ringway_drivers::pci::{Dma, HUGE_PAGE, PciDevice, PciError, Registers, Sleep};
use ringway_drivers::virtio::buffer::HEADER;
use ringway_drivers::virtio::feature;
use ringway_drivers::virtio::pci::Transport;
use ringway_drivers::virtio::{AnyRing, Direction, Receive, Shape, Transmit};
use ringway_lwep::link::{Counts, Interface, Link, Received};
use ringway_memory::{Buffer, prefetch_read};

pub use ringway_drivers::virtio::Misuse;

const VENDOR: u16 = 0x1af4;
/// A modern network device, and one that is also a legacy one (virtio 1.3, 4.1.2).
const MODELS: [u16; 2] = [0x1041, 0x1000];
const RX: u16 = 0;
const TX: u16 = 1;
/// Offsets in the device's configuration (virtio 1.3, 5.1.4).
const CONFIG_MTU: usize = 10;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// How a device is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VirtioOptions {
    /// Descriptors of each ring; fewer if the device has fewer, and rounded down to a power of two.
    pub ring: u16,
    /// Bytes of a buffer, with the header of 12 bytes: a multiple of 64 from 128 to 65,536.
    pub buffer: u32,
    /// Buffers that the program gets.
    pub buffers: u32,
    /// Most bytes of a frame without its Ethernet header, if it is not segmented. Default: what the device says, or 1,500.
    pub mtu: Option<u16>,
    /// Takes checksums and segmentation from the device, if it offers them: received frames may lack a checksum.
    pub offload: bool,
    /// With `offload`, received frames may be unsegmented.
    pub unsegmented: bool,
}

impl Default for VirtioOptions {
    fn default() -> Self {
        Self { ring: 256, buffer: 2112, buffers: 1024, mtu: None, offload: false, unsegmented: false }
    }
}

/// A link at a virtio-net device that this program drives.
#[derive(Debug)]
pub struct VirtioLink {
    // Dropped first: the device is reset before the memory goes.
    device: Transport,
    interface: Interface,
    features: u64,
    tx: Transmit,
    rx: Receive,
    /// The registers that wake the device.
    doorbells: [Registers; 2],
    dma: Dma,
    buffers: Vec<Buffer>,
    sleep: Sleep,
    /// The interrupt line is held back, as an interrupt has come.
    is_line_masked: bool,
    /// Why the link has ended, if it has.
    ended: Option<String>,
    counts: Counts,
}

impl VirtioLink {
    /// Drives the device at a PCI address, `0000:00:04.0` or `00:04.0`.
    ///
    /// # Errors
    /// See [`PciError`].
    pub fn open(address: &str, options: &VirtioOptions) -> Result<VirtioLink, PciError> {
        VirtioLink::start(PciDevice::open(address)?, options)
    }

    /// Returns true if a function is such a device.
    #[must_use]
    pub fn drives(pci: &PciDevice) -> bool {
        pci.id().vendor == VENDOR && MODELS.contains(&pci.id().device)
    }

    /// Drives a device.
    ///
    /// # Errors
    /// It is no virtio-net device, or see [`PciError`].
    pub fn start(pci: PciDevice, options: &VirtioOptions) -> Result<VirtioLink, PciError> {
        if !Self::drives(&pci) {
            let what = format!("is no virtio network device but {:04x}:{:04x}", pci.id().vendor, pci.id().device);
            return Err(PciError::Lacks { address: pci.address().to_owned(), what });
        }
        let mut device = Transport::open(pci)?;
        let name = device.pci().address().to_owned();
        let wish = |wanted: bool, bits: u64| if wanted { bits } else { 0 };
        let offload = wish(options.offload, feature::CSUM | feature::GUEST_CSUM | feature::HOST_TSO4)
            | wish(options.offload && options.unsegmented, feature::GUEST_TSO4);
        let needed = feature::VERSION_1 | feature::MAC;
        let rings = feature::EVENT_IDX | feature::RING_PACKED | feature::IN_ORDER;
        let features = device.negotiate(needed, offload | rings | feature::MTU | feature::ACCESS_PLATFORM)?;
        let has = |feature| features & feature != 0;

        let size = |queue| match device.queue_size(queue).min(options.ring) {
            most if most >= 2 => Ok(1 << most.ilog2()),
            most => Err(device.lacks(format!("has a ring of {most} descriptors: at least 2 are needed"))),
        };
        let (tx_size, rx_size): (u16, u16) = (size(TX)?, size(RX)?);
        let buffer = options.buffer as usize;
        let count = options.buffers as usize + usize::from(rx_size);
        // A ring has less than 48 bytes for each descriptor, and its three parts begin at lines.
        let mut dma = device.pci().dma(Dma::bytes_of(count, buffer) + HUGE_PAGE)?;
        let kernel = |error| PciError::of("memory for the device")(error);
        let shape = |size: u16, direction| Shape { size: size.into(), direction, event_idx: has(feature::EVENT_IDX) };
        let packed = has(feature::RING_PACKED);
        let tx = AnyRing::new(&mut dma, &shape(tx_size, Direction::Tx), packed).map_err(kernel)?;
        let rx = AnyRing::new(&mut dma, &shape(rx_size, Direction::Rx), packed).map_err(kernel)?;
        let doorbells = [device.start(RX, rx_size, rx.parts())?, device.start(TX, tx_size, tx.parts())?];
        let received = dma.buffers(rx_size.into(), options.buffer).map_err(kernel)?;
        let buffers = dma.buffers(options.buffers, options.buffer).map_err(kernel)?;

        let mac = device.read_config(|config| std::array::from_fn(|at| config.read8(at)));
        let told = device.read_config(|config| config.read16(CONFIG_MTU));
        let mtu = options.mtu.unwrap_or(if has(feature::MTU) { told } else { 1500 });
        let most = buffer - HEADER;
        let segments = has(feature::CSUM) && has(feature::HOST_TSO4);
        let interface = Interface {
            name,
            mac,
            longest: most.min(usize::from(mtu) + ETHERNET),
            segmented: if segments { most } else { 0 },
            checksums: has(feature::CSUM),
            front: HEADER,
            buffer,
            places: 0,
            holds: 0,
        };
        let in_order = has(feature::IN_ORDER);
        let mut link = VirtioLink {
            device,
            interface,
            features,
            tx: Transmit::new(tx, in_order),
            rx: Receive::new(rx, in_order, received, &dma),
            doorbells,
            dma,
            buffers,
            sleep: Sleep::new().map_err(PciError::of("a timer"))?,
            is_line_masked: false,
            ended: None,
            counts: Counts::default(),
        };
        link.device.pci().unmask().map_err(kernel)?;
        link.device.run();
        link.publish_received();
        link.counts = Counts::default();
        Ok(link)
    }

    /// Returns the feature bits that driver and device have agreed on.
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features
    }

    #[cold]
    fn end(&mut self, misuse: Misuse) {
        self.ended.get_or_insert_with(|| misuse.to_string());
    }

    /// Gives received buffers back to the device.
    fn publish_received(&mut self) {
        if self.rx.ring().publish() {
            self.kick(RX);
        }
    }

    fn kick(&mut self, queue: u16) {
        self.counts.kicks += 1;
        self.doorbells[usize::from(queue)].write16(0, queue);
    }

    /// Returns true if a frame is received, with `room` also if one can be queued, or if the link has ended.
    fn is_ready(&mut self, room: bool) -> bool {
        let received = self.rx.first().map(|first| first.is_some());
        let has_room = received.and_then(|received| Ok(received || (room && self.tx.room()? > 0)));
        has_room.unwrap_or_else(|misuse| {
            self.end(misuse);
            true
        }) || self.ended.is_some()
    }

    /// Lets interrupts through to the descriptor. This comes after the answer to what the last one has told, which has waited long enough.
    fn open_line(&mut self) {
        if !std::mem::take(&mut self.is_line_masked) {
            return;
        }
        // Clears the cause first, as it would come again at once.
        self.counts.calls += u64::from(self.device.acknowledge());
        self.counts.accesses += 2;
        if let Err(error) = self.device.pci().unmask() {
            self.ended.get_or_insert_with(|| error.to_string());
        }
    }

    /// Finds the next received frame: its buffer, the offload header's request, and the bytes written.
    fn find(&mut self) -> Option<(Option<Offload>, usize)> {
        if self.ended.is_some() {
            return None;
        }
        // As many frames as a ring has places may be dropped, then the caller has its turn.
        for _ in 0..self.rx.ring().size() {
            match self.rx.first() {
                Ok(Some((buffer, written))) => {
                    let header = buffer.first_chunk().map(Offload::decode);
                    if let Some(Ok(offload)) = header {
                        return Some((offload, written));
                    }
                }
                Ok(None) => {
                    self.publish_received();
                    return None;
                }
                Err(misuse) => {
                    self.end(misuse);
                    return None;
                }
            }
            self.counts.dropped += 1;
            self.release();
        }
        None
    }
}

impl Link for VirtioLink {
    #[inline]
    fn interface(&self) -> &Interface {
        &self.interface
    }

    fn take_buffers(&mut self) -> Vec<Buffer> {
        std::mem::take(&mut self.buffers)
    }

    #[inline]
    fn room(&mut self) -> usize {
        if self.ended.is_some() {
            return 0;
        }
        self.tx.room().unwrap_or_else(|misuse| {
            self.end(misuse);
            0
        })
    }

    #[inline]
    fn send(&mut self, buffer: &mut Buffer, len: usize, offload: Option<&Offload>) -> bool {
        let is_segmented = offload.is_some_and(|offload| offload.gso != Gso::None);
        let most = if is_segmented { self.interface.segmented } else { self.interface.longest };
        if self.ended.is_some() || len > most || (offload.is_some() && !self.interface.checksums) {
            return false;
        }
        let address = self.dma.bus(buffer.start().as_ptr()).filter(|_| buffer.len() >= HEADER + len);
        let (Some(address), Some(header)) = (address, buffer.first_chunk_mut::<HEADER>()) else { return false };
        *header = [0; HEADER];
        header[..Offload::BYTES].copy_from_slice(&Offload::encode(offload));
        match self.tx.queue(address, (HEADER + len) as u32) {
            Ok(is_queued) => is_queued,
            Err(misuse) => {
                self.end(misuse);
                false
            }
        }
    }

    #[inline]
    fn flush(&mut self) {
        if self.tx.ring().publish() {
            self.kick(TX);
        }
    }

    #[inline]
    fn sent(&mut self) -> u64 {
        if let Err(misuse) = self.tx.reclaim() {
            self.end(misuse);
        }
        self.tx.sent()
    }

    #[inline]
    fn peek(&mut self) -> Option<Received<'_>> {
        let (offload, written) = self.find()?;
        let (buffer, _) = self.rx.first().ok()??;
        prefetch_read(buffer.as_ptr());
        let bytes = buffer.get(HEADER..written)?;
        Some(Received { bytes, offload })
    }

    #[inline]
    fn release(&mut self) {
        if self.rx.give_back(&self.dma) {
            self.publish_received();
        }
    }

    #[inline]
    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        let is_own = spare.is_of(self.dma.mapping());
        let Ok(Some((buffer, written))) = self.rx.first() else { return (HEADER, 0) };
        let len = written.min(spare.len());
        if is_own && spare.len() == buffer.len() {
            std::mem::swap(buffer, spare);
        } else {
            spare[..len].copy_from_slice(&buffer[..len]);
        }
        self.release();
        (HEADER, len.saturating_sub(HEADER))
    }

    fn want(&mut self, room: bool) -> bool {
        self.publish_received();
        if self.is_ready(room) {
            return true;
        }
        self.open_line();
        self.rx.ring().want_call();
        if room {
            self.tx.ring().want_call();
        }
        self.is_ready(room)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.device.interrupt()
    }

    fn awake(&mut self) {
        self.rx.ring().want_no_call();
        self.tx.ring().want_no_call();
        self.is_line_masked |= self.device.pci().take_interrupt();
    }

    fn wait(&mut self, room: bool, timeout: Duration) -> io::Result<()> {
        if timeout.is_zero() {
            // The caller polls: an interrupt that it has asked for would come later.
            return self.check();
        }
        if !self.want(room) {
            self.sleep.until_readable(self.device.interrupt(), timeout)?;
        }
        self.awake();
        match &self.ended {
            None => Ok(()),
            Some(_) => self.check(),
        }
    }

    fn check(&mut self) -> io::Result<()> {
        if self.ended.is_none() {
            self.counts.accesses += 1;
            self.ended = self.device.trouble().map(str::to_owned);
        }
        match &self.ended {
            None => Ok(()),
            Some(why) => {
                let what = format!("{}: {why}", self.interface.name);
                Err(io::Error::new(io::ErrorKind::ConnectionReset, what))
            }
        }
    }

    fn counts(&self) -> Counts {
        self.counts
    }
}
