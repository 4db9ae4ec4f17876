//! Answers to the messages of a vfio-user front end.

use std::io;
use std::os::fd::OwnedFd;

use super::function::{Irqs, REGIONS, RegionInfo};
use super::message::{Access, HEADER_BYTES, Header, Query, UnmapAt};
use crate::kept::{Reader, Writer};

/// Number of supported kinds of interrupt in VFIO's numbering: pin, MSI, MSI-X. The further kinds, error and request,
/// are not supported.
pub const IRQ_KINDS: u32 = 3;
/// Length in bytes of the shortest answer about a region, and offset of the capabilities in a longer one.
pub const REGION_INFO_BYTES: usize = 32;
/// Length in bytes of a sparse mmap capability without its areas, and of one area.
const SPARSE_BYTES: usize = 16;
const AREA_BYTES: usize = 16;

/// An answer to be sent.
#[derive(Debug)]
pub struct Outgoing {
    /// Header and body.
    pub bytes: Vec<u8>,
    /// The descriptor to send with them.
    pub file: Option<OwnedFd>,
}

/// Appends answers. Of a descriptor, only that it is there.
pub fn save_all(answers: &[Outgoing], to: &mut Writer) {
    to.u32(answers.len() as u32);
    for Outgoing { bytes, file } in answers {
        to.bool(file.is_some());
        to.bytes(bytes);
    }
}

/// Reads what [`save_all`] has written, without descriptors: answers that wait have none.
pub fn restore_all(from: &mut Reader<'_>) -> Option<Vec<Outgoing>> {
    (0..from.u32()?).map(|_| restore(from).map(|(bytes, _)| Outgoing { bytes, file: None })).collect()
}

/// Reads one of the answers that [`save_all`] has written, and whether it had a descriptor.
pub fn restore(from: &mut Reader<'_>) -> Option<(Vec<u8>, bool)> {
    let has_file = from.bool()?;
    Some((from.bytes()?.to_vec(), has_file))
}

/// An answer: room for the header, the body, and the descriptor to send with it.
#[derive(Debug)]
pub struct Reply(Outgoing);

impl Reply {
    fn new() -> Reply {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 32);
        bytes.resize(HEADER_BYTES, 0);
        Reply(Outgoing { bytes, file: None })
    }

    fn u32s(mut self, words: &[u32]) -> Reply {
        words.iter().for_each(|word| self.0.bytes.extend_from_slice(&word.to_ne_bytes()));
        self
    }

    fn u64s(mut self, words: &[u64]) -> Reply {
        words.iter().for_each(|word| self.0.bytes.extend_from_slice(&word.to_ne_bytes()));
        self
    }

    fn raw(mut self, bytes: &[u8]) -> Reply {
        self.0.bytes.extend_from_slice(bytes);
        self
    }

    /// An answer without a body: success.
    pub fn empty() -> Reply {
        Reply::new()
    }

    /// The negotiated version and its capabilities.
    pub fn version(answer: &[u8]) -> Reply {
        Reply::new().raw(answer)
    }

    /// The mapping that was removed.
    pub fn unmapped(at: UnmapAt) -> Reply {
        Reply::new().u32s(&[at.argsz, at.flags]).u64s(&[at.address, at.size])
    }

    /// Information about the device: a PCI function with reset.
    pub fn info() -> Reply {
        const RESET: u32 = 1 << 0;
        const PCI: u32 = 1 << 1;
        Reply::new().u32s(&[16, RESET | PCI, REGIONS as u32, IRQ_KINDS])
    }

    /// Information about a region. If `argsz` leaves no room for the mappable areas, the answer states the size that it
    /// would need, and lists none.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn region(query: Query, info: &RegionInfo) -> io::Result<Reply> {
        const READ: u32 = 1 << 0;
        const WRITE: u32 = 1 << 1;
        const MMAP: u32 = 1 << 2;
        const CAPABILITIES: u32 = 1 << 3;
        const SPARSE_MMAP: u16 = 1;
        let access = if info.access { READ | WRITE } else { 0 };
        let file = info.memory.as_ref().filter(|_| !info.areas.is_empty());
        let areas = info.areas.len().saturating_mul(AREA_BYTES);
        let capability = if file.is_some() { areas.saturating_add(SPARSE_BYTES) } else { 0 };
        let size = REGION_INFO_BYTES.saturating_add(capability) as u32;
        let Some(file) = file.filter(|_| query.argsz >= size) else {
            return Ok(Reply::new().u32s(&[size, access, query.index, 0]).u64s(&[info.size, 0]));
        };
        let words = [size, access | MMAP | CAPABILITIES, query.index, REGION_INFO_BYTES as u32];
        let mut reply = Reply::new().u32s(&words).u64s(&[info.size, 0]);
        reply = reply.raw(&SPARSE_MMAP.to_ne_bytes()).raw(&1u16.to_ne_bytes()).u32s(&[0, info.areas.len() as u32, 0]);
        for area in &info.areas {
            reply = reply.u64s(&[area.offset, area.size]);
        }
        reply.0.file = Some(file.try_clone()?);
        Ok(reply)
    }

    /// Information about I/O eventfds: there are none.
    pub fn no_io_fds(query: Query) -> Reply {
        Reply::new().u32s(&[16, 0, query.index, 0])
    }

    /// Information about a kind of interrupt.
    pub fn irq(query: Query, irqs: Irqs) -> Reply {
        const EVENTFD: u32 = 1 << 0;
        const MASKABLE: u32 = 1 << 1;
        const AUTOMASKED: u32 = 1 << 2;
        const NORESIZE: u32 = 1 << 3;
        let flags = match query.index {
            0 => EVENTFD | MASKABLE | AUTOMASKED,
            1 => EVENTFD | NORESIZE,
            _ => EVENTFD,
        };
        Reply::new().u32s(&[16, flags, query.index, count(irqs, query.index)])
    }

    /// An answer with data: `read` fills them.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn read<E>(access: Access, read: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Reply, E> {
        let mut reply = Reply::written(access);
        let start = reply.0.bytes.len();
        reply.0.bytes.resize(start.saturating_add(access.count as usize), 0);
        read(&mut reply.0.bytes[start..])?;
        Ok(reply)
    }

    /// The range that was written.
    pub fn written(access: Access) -> Reply {
        Reply::new().u64s(&[access.offset]).u32s(&[access.region, access.count])
    }

    /// The number of writes that were done.
    pub fn all_written(count: u64) -> Reply {
        Reply::new().u64s(&[count])
    }

    /// Returns the answer, with its header, to the message with header `to`.
    pub fn encode(mut self, to: Header) -> Outgoing {
        let header = to.answer(self.0.bytes.len().saturating_sub(HEADER_BYTES), None);
        self.0.bytes[..HEADER_BYTES].copy_from_slice(&header);
        self.0
    }
}

/// Returns the number of interrupts of a kind.
pub fn count(irqs: Irqs, index: u32) -> u32 {
    match index {
        0 => irqs.intx,
        1 => irqs.msi,
        2 => irqs.msi_x,
        _ => 0,
    }
}
