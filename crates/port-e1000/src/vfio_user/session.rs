//! One connection: what the front end has said, and what follows from that.
//!
//! A session judges a request before the session changes anything. A request that cannot be had is answered by errno, and the
//! front end may go on. Only bytes that are no message, or a message out of order, end the connection.
//!
//! Unmapping is answered when no poller uses the memory any more (see `dma`).

use std::io;
use std::sync::Arc;

use ringway_port::front_end::{ClientFd, is_eventfd};
use ringway_port::guest::RegionError;

use super::dma::DmaTable;
use super::function::{Dma, Function, Irqs, Mode, REGIONS, RegionInfo};
use super::interrupts::Interrupts;
use super::limits::{MOST_DATA, MOST_MAPS};
use super::message::{self, Access, Header, MapAt, MessageError, Query, Request, SetIrqs, Writes};
use super::refusal::Refusal;
use super::reply::{self, IRQ_KINDS, Outgoing, REGION_INFO_BYTES, Reply};
use super::unmask::Unmask;

/// Why a session ends. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum SessionEnd {
    /// A malformed message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A message before VERSION.
    #[error("{0} before VERSION: the version is agreed on first")]
    NoVersion(&'static str),
}

impl SessionEnd {
    /// The name of the reason in status and metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Message(_) => "bad_message",
            Self::NoVersion(_) => "out_of_order",
        }
    }
}

/// Most answers that are withheld.
const MOST_WITHHELD: usize = 2 * MOST_MAPS;

/// The state of one connection. Dropping it removes its memory and interrupts from the function.
pub struct Session {
    function: Arc<dyn Function>,
    interrupts: Arc<Interrupts>,
    regions: [RegionInfo; REGIONS],
    irqs: Irqs,
    dma: DmaTable,
    agreed: bool,
    /// Answers withheld because the device still uses memory that was unmapped. They are sent when it does not.
    withheld: Vec<Outgoing>,
    unmask: Unmask,
    refused: Option<Refusal>,
}

impl Session {
    /// A session for a new connection.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn new(function: Arc<dyn Function>, interrupts: Arc<Interrupts>) -> io::Result<Session> {
        let unmask = Unmask::new()?;
        function.connected()?;
        let (regions, irqs) = (function.regions(), function.irqs());
        let dma = DmaTable::new(function.quota());
        let withheld = Vec::new();
        Ok(Session { function, interrupts, regions, irqs, dma, agreed: false, withheld, unmask, refused: None })
    }

    /// Handles a message. Appends to `out` its answer, and the answers withheld before it, unless they must wait.
    ///
    /// # Errors
    /// The reason why the connection has to end.
    pub fn handle(
        &mut self,
        header: Header,
        body: &[u8],
        fds: Vec<ClientFd>,
        out: &mut Vec<Outgoing>,
    ) -> Result<(), SessionEnd> {
        let request = Request::decode(header, body, fds)?;
        if !self.agreed && !matches!(request, Request::Version(_)) {
            return Err(SessionEnd::NoVersion(message::name(header.command)));
        }
        if !matches!(request, Request::DmaMap(..) | Request::DmaUnmap(_)) {
            self.settle(out);
        }
        let answer = match self.apply(request) {
            Ok(reply) => reply.encode(header),
            Err(refusal) => {
                let answer = Outgoing { bytes: header.answer(0, Some(refusal.errno())).to_vec(), file: None };
                self.refuse(refusal);
                answer
            }
        };
        if !self.is_unsettled() {
            out.append(&mut self.withheld);
        }
        if !header.no_reply {
            if self.is_unsettled() { self.withheld.push(answer) } else { out.push(answer) }
        }
        if self.withheld.len() >= MOST_WITHHELD {
            self.settle(out);
        }
        Ok(())
    }

    fn refuse(&mut self, refusal: Refusal) {
        if refusal.name().is_some() {
            self.refused.get_or_insert(refusal);
        }
    }

    /// Returns the first refusal that users should know of, once.
    pub fn take_refusal(&mut self) -> Option<Refusal> {
        self.refused.take()
    }

    /// Adds memory. Unmapped memory counts against the limit until the device stops using it. If the limit has no room,
    /// the device stops using it now.
    fn map(&mut self, at: MapAt, file: Option<&ClientFd>) -> Result<(), Refusal> {
        let file = file.map(|file| &**file);
        let result = self.dma.map(at, file);
        if !matches!(result, Err(Refusal::Region(RegionError::Limit(_)))) || !self.is_unsettled() {
            return result;
        }
        if let Some(dma) = self.dma.take_change() {
            self.function.set_memory(dma);
        }
        self.dma.map(at, file)
    }

    /// Returns true if memory was unmapped and its replacement may follow. A front end that splits memory first unmaps
    /// the whole and then maps the parts, without waiting for answers. If the device applied the first change at once,
    /// it would not find its rings.
    pub fn is_unsettled(&self) -> bool {
        self.dma.has_gap()
    }

    /// Called when no further message is there: gives the function the memory tables, and appends the withheld answers
    /// to `out`.
    pub fn settle(&mut self, out: &mut Vec<Outgoing>) {
        if let Some(dma) = self.dma.take_change() {
            self.function.set_memory(dma);
        }
        out.append(&mut self.withheld);
    }

    /// Returns the set that becomes readable when the pin may have been unmasked by eventfd.
    pub fn unmask(&self) -> &Unmask {
        &self.unmask
    }

    /// Unmasks the pin if the eventfd was written.
    pub fn look_at_unmask(&self) {
        if self.unmask.take() {
            self.unmasked();
        }
    }

    fn unmasked(&self) {
        self.interrupts.mask(false);
        self.function.unmasked();
    }

    fn apply(&mut self, request: Request<'_>) -> Result<Reply, Refusal> {
        Ok(match request {
            Request::Version(_) if self.agreed => return Err(Refusal::Again),
            Request::Version(version) => {
                self.agreed = true;
                Reply::version(&version.answer())
            }
            Request::DmaMap(at, file) => {
                self.map(at, file.as_ref())?;
                Reply::empty()
            }
            Request::DmaUnmap(at) => {
                self.dma.unmap(at)?;
                Reply::unmapped(at)
            }
            Request::GetInfo if self.dma.is_without_files() => return Err(Refusal::NotShared),
            Request::GetInfo => Reply::info(),
            Request::GetRegionInfo(query) => {
                let right = REGION_INFO_BYTES as u32;
                index("DEVICE_GET_REGION_INFO", query, REGIONS as u32, right)?;
                Reply::region(query, &self.regions[query.index as usize])?
            }
            Request::GetRegionIoFds(query) => {
                index("DEVICE_GET_REGION_IO_FDS", query, REGIONS as u32, 16)?;
                Reply::no_io_fds(query)
            }
            Request::GetIrqInfo(query) => {
                index("DEVICE_GET_IRQ_INFO", query, IRQ_KINDS, 16)?;
                Reply::irq(query, self.irqs)
            }
            Request::SetIrqs(set) => {
                self.set_irqs(set)?;
                Reply::empty()
            }
            Request::RegionRead(access) => {
                let region = self.place(access)?;
                Reply::read(access, |data| self.function.read(region, access.offset, data))?
            }
            Request::RegionWrite(access, data) => {
                self.write(access, data)?;
                Reply::written(access)
            }
            Request::RegionWriteMulti(writes) => Reply::all_written(self.write_all(writes)),
            Request::Reset => {
                self.function.reset();
                Reply::empty()
            }
            Request::DeviceFeature => return Err(Refusal::NoFeature),
            Request::Unknown(command) => return Err(Refusal::Unsupported(command)),
        })
    }

    /// Returns the region of an access, if the access is inside the region.
    fn place(&self, access: Access) -> Result<usize, Refusal> {
        let Access { offset, region, count } = access;
        let nowhere = Refusal::Access { region, offset, count };
        let Some((at, info)) = usize::try_from(region).ok().and_then(|at| Some((at, self.regions.get(at)?))) else {
            return Err(nowhere);
        };
        let inside = offset.checked_add(count.into()).is_some_and(|end| end <= info.size);
        let fits = usize::try_from(count).is_ok_and(|count| (1..=MOST_DATA).contains(&count));
        if info.access && inside && fits { Ok(at) } else { Err(nowhere) }
    }

    fn write(&self, access: Access, data: &[u8]) -> Result<(), Refusal> {
        let region = self.place(access)?;
        Ok(self.function.write(region, access.offset, data)?)
    }

    /// Executes the valid ones of the writes, as if each were a separate message. Returns how many were executed.
    fn write_all(&mut self, writes: Writes<'_>) -> u64 {
        let mut done = 0u64;
        for (access, data) in writes.iter() {
            let result = match usize::try_from(access.count) {
                Ok(count) if count == data.len() => self.write(access, data),
                _ => Err(Refusal::Access { region: access.region, offset: access.offset, count: access.count }),
            };
            match result {
                Ok(()) => done = done.saturating_add(1),
                Err(refusal) => self.refuse(refusal),
            }
        }
        done
    }

    fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), Refusal> {
        let SetIrqs { flags, index, start, count, .. } = set;
        let data = flags & (SetIrqs::NONE | SetIrqs::BOOL | SetIrqs::EVENTFD);
        let action = flags & (SetIrqs::MASK | SetIrqs::UNMASK | SetIrqs::TRIGGER);
        if data.count_ones() != 1 || action.count_ones() != 1 || flags != data | action {
            return Err(Refusal::IrqFlags(flags));
        }
        let has = reply::count(self.irqs, index);
        let nowhere = Refusal::NoIrq { index, start, count, has };
        let mode = match index {
            0 => Mode::Intx,
            1 => Mode::Msi,
            2 => Mode::MsiX,
            _ => return Err(nowhere),
        };
        let used = self.interrupts.mode();
        if (data, action, start, count) == (SetIrqs::NONE, SetIrqs::TRIGGER, 0, 0) {
            if used == mode {
                self.unmask.set(None)?;
                self.interrupts.clear();
            }
            return Ok(());
        }
        if count == 0 || start.checked_add(count).is_none_or(|end| end > has) || (used != mode && used != Mode::None) {
            return Err(nowhere);
        }
        let mut vectors = chosen(&set);
        match (data, action) {
            (SetIrqs::EVENTFD, SetIrqs::TRIGGER) => return self.set_calls(mode, has, set),
            (SetIrqs::EVENTFD, SetIrqs::UNMASK) if mode == Mode::Intx => {
                set.fds.iter().try_for_each(eventfd)?;
                self.unmask.set(set.fds.into_iter().next())?;
            }
            (SetIrqs::NONE | SetIrqs::BOOL, SetIrqs::TRIGGER) if used == mode => {
                for vector in vectors {
                    self.interrupts.trigger(vector);
                }
            }
            (SetIrqs::NONE | SetIrqs::BOOL, SetIrqs::MASK) if mode == Mode::Intx => {
                if vectors.next().is_some() {
                    self.interrupts.mask(true);
                }
            }
            (SetIrqs::NONE | SetIrqs::BOOL, SetIrqs::UNMASK) if mode == Mode::Intx => {
                if vectors.next().is_some() {
                    self.unmasked();
                }
            }
            _ => return Err(Refusal::IrqAction { index, flags }),
        }
        Ok(())
    }

    /// Sets the eventfds of a range of interrupts; without eventfds, removes those of the range.
    fn set_calls(&mut self, mode: Mode, has: u32, set: SetIrqs<'_>) -> Result<(), Refusal> {
        set.fds.iter().try_for_each(eventfd)?;
        let (start, count, given) = (set.start as usize, set.count as usize, !set.fds.is_empty());
        let calls = set.fds.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        self.interrupts.set(mode, has as usize, start, calls.take(count));
        if given {
            // Triggers interrupts that became pending before there was an eventfd.
            self.function.unmasked();
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.interrupts.clear();
        // Disconnects first, so that no poller finds a ring without its memory.
        self.function.disconnected();
        self.function.set_memory(Dma::default());
    }
}

/// Returns the interrupts that a request without eventfds applies to.
fn chosen<'a>(set: &SetIrqs<'a>) -> impl Iterator<Item = usize> + use<'a> {
    let (bools, all) = (set.bools, set.flags & SetIrqs::NONE != 0);
    let (start, count) = (set.start as usize, set.count as usize);
    let range = start..start.saturating_add(count);
    range.enumerate().filter(move |(at, _)| all || bools.get(*at).is_some_and(|&on| on != 0)).map(|(_, vector)| vector)
}

/// Checks that an index is below `indices`, and that `argsz` leaves room for an answer of `right` bytes.
fn index(name: &'static str, query: Query, indices: u32, right: u32) -> Result<(), Refusal> {
    let Query { argsz, index } = query;
    if index >= indices {
        return Err(Refusal::NoIndex { name, index });
    }
    if argsz < right {
        return Err(Refusal::Argsz { name, argsz, right });
    }
    Ok(())
}

fn eventfd(file: &ClientFd) -> Result<(), Refusal> {
    if is_eventfd(file)? { Ok(()) } else { Err(Refusal::NotEventfd) }
}
