//! One connection: what the front end has said, and what follows from that.
//!
//! A session judges a request before the session changes anything. A request that cannot be had is answered by errno, and the
//! front end may go on. Only bytes that are no message, or a message out of order, end the connection.
//!
//! Unmapping is answered when no poller uses the memory any more (see `dma`).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringway_port::front_end::{ClientFd, Left, Process, is_eventfd};
use ringway_port::guest::RegionError;

use super::dma::DmaTable;
use super::function::{Dma, Function, Irqs, Mode, REGIONS, RegionInfo};
use super::interrupts::Interrupts;
use super::kept_files::{KeptFiles, take_left};
use super::limits::{MOST_DATA, MOST_MAPS};
use super::message::{self, Access, Header, MapAt, MessageError, Query, Request, SetIrqs, Writes};
use super::refusal::Refusal;
use super::reply::{self, IRQ_KINDS, Outgoing, REGION_INFO_BYTES, Reply};
use super::unmask::Unmask;
use crate::kept::{NotUsable, Reader, Writer};

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
pub struct Session<'k> {
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
    files: KeptFiles<'k>,
    /// The numbers under which the eventfds of the interrupts are kept, and that of the unmask eventfd; 0: none.
    calls: Vec<u64>,
    unmask_call: u64,
    /// The function goes on where a predecessor of this process has left it, when it gets its memory.
    resumes: bool,
}

impl<'k> Session<'k> {
    /// A session for a new connection. `files`: its files with the keeper.
    ///
    /// # Errors
    /// The kernel has no descriptors left.
    pub fn new(
        function: Arc<dyn Function>,
        interrupts: Arc<Interrupts>,
        files: KeptFiles<'k>,
    ) -> io::Result<Session<'k>> {
        let unmask = Unmask::new()?;
        function.connected()?;
        Ok(Session::of(function, interrupts, files, unmask))
    }

    fn of(
        function: Arc<dyn Function>,
        interrupts: Arc<Interrupts>,
        files: KeptFiles<'k>,
        unmask: Unmask,
    ) -> Session<'k> {
        let (regions, irqs) = (function.regions(), function.irqs());
        let dma = DmaTable::new(function.quota());
        Session {
            function,
            interrupts,
            regions,
            irqs,
            dma,
            agreed: false,
            withheld: Vec::new(),
            unmask,
            refused: None,
            files,
            calls: Vec::new(),
            unmask_call: 0,
            resumes: false,
        }
    }

    /// Goes on with a connection of a predecessor of this process. `from`: what [`Session::save`] has written. `left`: the files. `owner`: whose
    /// closes they count among. `memory`: of the function. The function goes on when it gets its memory.
    ///
    /// # Errors
    /// What was left cannot be used.
    pub fn adopt(
        function: Arc<dyn Function>,
        interrupts: Arc<Interrupts>,
        files: KeptFiles<'k>,
        from: &mut Reader<'_>,
        (left, owner): (&mut Left, Process),
        memory: Option<OwnedFd>,
    ) -> Result<Session<'k>, NotUsable> {
        let saved = from.bytes().ok_or(NotUsable::Altered)?;
        let unmask = Unmask::new().map_err(|_| NotUsable::File)?;
        if !function.restore(saved, memory) {
            function.disconnected();
            return Err(NotUsable::Settings);
        }
        // From here on, dropping the session brings the function back to the state after power-on.
        let mut session = Session::of(function, interrupts, files, unmask);
        session.restore(from, left, owner)?;
        session.resumes = true;
        Ok(session)
    }

    fn restore(&mut self, from: &mut Reader<'_>, left: &mut Left, owner: Process) -> Result<(), NotUsable> {
        const ALTERED: NotUsable = NotUsable::Altered;
        self.agreed = from.bool().ok_or(ALTERED)?;
        self.files.go_on_after(from.u64().ok_or(ALTERED)?, left.len());
        let mut file = |number| take_left(left, number, owner).ok_or(NotUsable::Missing);
        let gap = from.bool().ok_or(ALTERED)?;
        for _ in 0..from.u32().filter(|count| *count <= MOST_MAPS as u32).ok_or(ALTERED)? {
            let (flags, number) = (from.u32().ok_or(ALTERED)?, from.u64().ok_or(ALTERED)?);
            let [offset, address, size] = [from.u64(), from.u64(), from.u64()].map(|value| value.ok_or(ALTERED));
            let at = MapAt { flags, offset: offset?, address: address?, size: size? };
            let memory = if number == 0 { None } else { Some(file(number)?) };
            self.dma.map(at, memory.as_deref(), number).map_err(|_| NotUsable::File)?;
        }
        self.dma.set_gap(gap);
        let (mode, masked) = (from.u8().ok_or(ALTERED)?, from.bool().ok_or(ALTERED)?);
        let (mode, most) = match mode {
            0 => (Mode::None, 0),
            1 => (Mode::Intx, self.irqs.intx),
            2 => (Mode::Msi, self.irqs.msi),
            3 => (Mode::MsiX, self.irqs.msi_x),
            _ => return Err(ALTERED),
        };
        let mut eventfd = |number| match number {
            0 => Ok(None),
            number => file(number).and_then(|file| match is_eventfd(&file) {
                Ok(true) => Ok(Some(file)),
                _ => Err(NotUsable::File),
            }),
        };
        let count = from.u32().filter(|count| *count <= most).ok_or(ALTERED)?;
        let mut calls = Vec::new();
        for _ in 0..count {
            let number = from.u64().ok_or(ALTERED)?;
            calls.push(eventfd(number)?);
            self.calls.push(number);
        }
        self.unmask_call = from.u64().ok_or(ALTERED)?;
        self.unmask.set(eventfd(self.unmask_call)?).map_err(|_| NotUsable::File)?;
        if mode != Mode::None {
            self.interrupts.set(mode, most as usize, 0, calls.into_iter());
            self.interrupts.mask(masked);
        }
        self.withheld = reply::restore_all(from).ok_or(ALTERED)?;
        if from.0.is_empty() { Ok(()) } else { Err(ALTERED) }
    }

    /// Appends what a successor of this process needs for [`Session::adopt`].
    pub fn save(&self, to: &mut Writer) {
        // The length is written when it is known.
        let at = to.0.len();
        to.u32(0);
        let start = to.0.len();
        self.function.save(&mut to.0);
        let len = to.0.len().saturating_sub(start) as u32;
        to.0[at..start].copy_from_slice(&len.to_ne_bytes());
        to.bool(self.agreed);
        to.u64(self.files.last());
        to.bool(self.dma.has_gap());
        let mappings = self.dma.mappings();
        to.u32(mappings.len() as u32);
        for (MapAt { flags, offset, address, size }, number) in mappings {
            to.u32(flags);
            [number.unwrap_or(0), offset, address, size].into_iter().for_each(|value| to.u64(value));
        }
        to.u8(self.interrupts.mode() as u8);
        to.bool(self.interrupts.is_masked());
        to.u32(self.calls.len() as u32);
        self.calls.iter().for_each(|number| to.u64(*number));
        to.u64(self.unmask_call);
        reply::save_all(&self.withheld, to);
    }

    /// A record was written with what [`Session::save`] has written.
    pub fn saved(&mut self) {
        self.files.settle();
    }

    /// Returns true if what [`Session::save`] would write has changed, as far as the function is concerned.
    pub fn is_changed(&self) -> bool {
        self.function.is_changed()
    }

    /// Returns the memory that an answer to a question about a region comes with.
    pub fn file_of_answers(&self) -> Option<OwnedFd> {
        self.regions.iter().find_map(|region| region.memory.as_ref())?.try_clone().ok()
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
        let kept = file.map_or(Ok(0), |file| self.files.keep(file.as_fd()))?;
        let result = self.map_kept(at, file.map(|file| &**file), kept);
        if result.is_err() {
            self.files.release([kept]);
        }
        result
    }

    fn map_kept(&mut self, at: MapAt, file: Option<&OwnedFd>, kept: u64) -> Result<(), Refusal> {
        let result = self.dma.map(at, file, kept);
        if !matches!(result, Err(Refusal::Region(RegionError::Limit(_)))) || !self.is_unsettled() {
            return result;
        }
        if let Some(dma) = self.dma.take_change() {
            self.function.set_memory(dma);
        }
        self.dma.map(at, file, kept)
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
        if std::mem::take(&mut self.resumes) {
            self.function.resume();
        }
        out.append(&mut self.withheld);
    }

    /// Returns true if [`Session::settle`] has something to do.
    pub fn has_unsettled(&self) -> bool {
        self.dma.has_gap() || self.resumes || !self.withheld.is_empty()
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
                let numbers = self.dma.unmap(at)?;
                self.files.release(numbers);
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
                self.files.release(self.calls.drain(..));
                self.files.release([std::mem::take(&mut self.unmask_call)]);
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
                let file = set.fds.into_iter().next();
                let kept = file.as_ref().map_or(Ok(0), |file| self.files.keep(file.as_fd()))?;
                self.files.release([std::mem::replace(&mut self.unmask_call, kept)]);
                self.unmask.set(file)?;
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
        if self.interrupts.mode() != mode {
            self.files.release(self.calls.drain(..));
        }
        self.calls.resize(has as usize, 0);
        for (index, call) in (start..start.saturating_add(count)).enumerate() {
            let kept = set.fds.get(index).map_or(Ok(0), |file| self.files.keep(file.as_fd()))?;
            if let Some(number) = self.calls.get_mut(call) {
                self.files.release([std::mem::replace(number, kept)]);
            }
        }
        let calls = set.fds.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        self.interrupts.set(mode, has as usize, start, calls.take(count));
        if given {
            // Triggers interrupts that became pending before there was an eventfd.
            self.function.unmasked();
        }
        Ok(())
    }
}

impl Drop for Session<'_> {
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
