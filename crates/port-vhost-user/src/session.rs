//! One connection: what the front end has said, and what follows from that (vhost-user, "Communication", "Ring states").
//!
//! A session owns what the front end sent: the guest's memory, the descriptors, the settings of each queue. A session judges
//! a request before the session changes anything. A request that cannot be followed is answered with a failure where the
//! front end asked for an answer (REPLY_ACK). Without REPLY_ACK such a request ends the connection, because the front end
//! would otherwise assume success.

use std::os::fd::AsFd;
use std::sync::Arc;

use ringway_memory::Quota;
use ringway_port::front_end::{ClientFd, is_eventfd};
use ringway_port::guest::{DirtyLog, GuestMemory, Region, RegionError};

use super::changed::changes;
use super::device::{Device, StartError};
use super::end::SessionEnd;
use super::features::{LOG_ALL, PROTOCOL_FEATURES};
use super::message::{Area, Header, InflightAt, MOST_REGIONS, RegionAt, Request, VringAddress, VringFile, VringState};
use super::reply::Reply;
use super::vring::Vring;
use crate::virtqueue::{ANY_RING, F_RING_PACKED, Inflight, InflightNote};

/// Protocol features (vhost-user, "Protocol features").
pub mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const LOG_SHMFD: u64 = 1 << 1;
    pub const RARP: u64 = 1 << 2;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const NET_MTU: u64 = 1 << 4;
    pub const CONFIG: u64 = 1 << 9;
    pub const INFLIGHT_SHMFD: u64 = 1 << 12;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
    /// The protocol features that this back end always offers.
    pub const ALWAYS: u64 =
        MQ | LOG_SHMFD | RARP | REPLY_ACK | NET_MTU | INFLIGHT_SHMFD | RESET_DEVICE | CONFIGURE_MEM_SLOTS | STATUS;
}

const LARGEST_RING: u32 = 32_768;
/// Least MTU in bytes (virtio 1.3, 5.1.4.1).
const LEAST_MTU: u64 = 68;
/// Greatest value of `flags` of SET_CONFIG: a migration.
const CONFIG_FLAGS: u32 = 1;
/// `FEATURES_OK` (virtio 1.3, 2.1).
const FEATURES_OK: u8 = 8;
/// Bytes of guest memory that one byte of the dirty log covers.
const LOGGED_BY_BYTE: u64 = 8 * 4096;

/// A descriptor that is not dropped yet.
#[derive(Debug)]
#[expect(dead_code, reason = "held until it is dropped")]
pub enum Retired {
    Shared(Arc<ClientFd>),
    Own(ClientFd),
}

/// The state of one connection.
pub struct Session {
    device: Arc<Device>,
    /// Virtio features in use.
    pub(super) features: u64,
    /// True if the last SET_FEATURES was refused.
    pub(super) features_refused: bool,
    /// Protocol features in use.
    pub(super) protocol: u64,
    pub(super) status: u8,
    pub(super) mtu: Option<u16>,
    memory: Arc<GuestMemory>,
    log: Option<Arc<DirtyLog>>,
    inflight: Option<Arc<Inflight>>,
    pub(super) vrings: Vec<Vring>,
    /// True after a region was removed, while the front end may still add others in its place. No queue runs until
    /// then.
    pub(super) unsettled: bool,
    refused: Option<SessionEnd>,
    /// True if the session outlives the switch: it has the files of the memory table, the dirty log and the in-flight memory then.
    is_kept: bool,
    pub(super) region_files: Vec<(RegionAt, ClientFd)>,
    pub(super) log_file: Option<(Area, ClientFd)>,
    pub(super) inflight_file: Option<(InflightAt, ClientFd)>,
    /// What has changed since it was kept (`resume`).
    pub(super) changed: u32,
    /// Descriptors that are of no use since: closed after the keeper's copies, as the keeper must not be the last one.
    pub(super) retired: Vec<Retired>,
    /// Notes of queues that have stopped since.
    pub(super) stopped: Vec<InflightNote>,
}

impl Session {
    /// A new session. The device has been reset.
    pub fn new(device: Arc<Device>) -> Session {
        let vrings = (0..device.queues()).map(|_| Vring::default()).collect();
        Session {
            device,
            features: 0,
            features_refused: false,
            protocol: 0,
            status: 0,
            memory: Arc::default(),
            log: None,
            inflight: None,
            vrings,
            unsettled: false,
            refused: None,
            mtu: None,
            is_kept: false,
            region_files: Vec::new(),
            log_file: None,
            inflight_file: None,
            changed: 0,
            stopped: Vec::new(),
            retired: Vec::new(),
        }
    }

    /// The same, of a connection that outlives the switch (`resume`).
    pub fn kept(device: Arc<Device>) -> Session {
        Session { is_kept: true, ..Self::new(device) }
    }

    /// Handles a request. Returns the answer, if the request has one.
    ///
    /// # Errors
    /// The reason why the connection has to end.
    pub fn handle(&mut self, header: Header, request: Request) -> Result<Option<Reply>, SessionEnd> {
        if !matches!(request, Request::AddMemReg(..) | Request::RemMemReg(_)) {
            self.settle()?;
        }
        // Only an answer that says nothing but success or failure can report a failure.
        let answered = matches!(request, Request::GetVringBase(_) | Request::GetInflightFd(_) | Request::SetLogBase(_));
        self.changed |= changes(&request);
        let result = self.apply(request);
        let acknowledge = header.need_reply && self.protocol & protocol::REPLY_ACK != 0;
        match result {
            Ok(None) if acknowledge => Ok(Some(Reply::Number(0))),
            Err(refusal) if acknowledge && !answered && refusal.changed_nothing() => {
                self.refused.get_or_insert(refusal);
                Ok(Some(Reply::Number(1)))
            }
            result => result,
        }
    }

    /// Returns the first request that was answered with a failure, once.
    pub fn take_refusal(&mut self) -> Option<SessionEnd> {
        self.refused.take()
    }

    /// Returns true if queues are stopped until the memory table is complete.
    pub fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Treats the memory table as complete: starts the queues that were stopped while it changed.
    ///
    /// # Errors
    /// A queue cannot be started.
    pub fn settle(&mut self) -> Result<(), SessionEnd> {
        if !std::mem::take(&mut self.unsettled) {
            return Ok(());
        }
        self.resume_where_possible()
    }

    fn retire(&mut self, old: Option<Arc<ClientFd>>) {
        self.retired.extend(old.filter(|_| self.is_kept).map(Retired::Shared));
    }

    fn retire_own(&mut self, old: impl IntoIterator<Item = ClientFd>) {
        if self.is_kept {
            self.retired.extend(old.into_iter().map(Retired::Own));
        }
    }

    /// Goes on where a predecessor was, after all that the front end has said was applied: starts the queues, unless the memory table is
    /// incomplete (`unsettled`), and calls each one's driver once, as the predecessor may have died before it did.
    ///
    /// # Errors
    /// A queue cannot be started.
    pub(super) fn go_on(&mut self, unsettled: bool) -> Result<(), SessionEnd> {
        for queue in 0..self.device.queues() {
            // A predecessor may have died before it did this.
            if !self.vrings[usize::from(queue)].started
                && let Some(taken) = self.taken(queue)
            {
                taken.clear();
            }
        }
        self.unsettled = unsettled;
        if !unsettled {
            self.resume_where_possible()?;
        }
        for call in self.vrings.iter().filter(|vring| vring.running).filter_map(|vring| vring.call.as_ref()) {
            ringway_runtime::call(call.as_fd(), self.device.account());
        }
        Ok(())
    }

    /// Returns the eventfd (SET_VRING_ERR) that reports an error of this queue to the front end.
    pub fn error_descriptor(&self, queue: u16) -> Option<&ClientFd> {
        self.vrings.get(usize::from(queue))?.error.as_ref()
    }

    pub(super) fn apply(&mut self, request: Request) -> Result<Option<Reply>, SessionEnd> {
        match request {
            Request::GetFeatures => return Ok(Some(Reply::Number(self.device.offered()))),
            Request::SetFeatures(features) => self.set_features(features)?,
            // SET_OWNER only marks the beginning of a session. RESET_OWNER may be ignored or may disable all rings (the
            // specification allows both); front ends that send it have stopped their rings before.
            Request::SetOwner | Request::ResetOwner => {}
            Request::GetProtocolFeatures => return Ok(Some(Reply::Number(self.offered_protocol()))),
            Request::SetProtocolFeatures(features) => match features & !self.offered_protocol() {
                0 => self.protocol = features,
                others => return Err(SessionEnd::ProtocolFeatures(others)),
            },
            Request::GetQueueNum => return Ok(Some(Reply::Number(self.device.queues().into()))),
            Request::GetMaxMemSlots => return Ok(Some(Reply::Number(MOST_REGIONS as u64))),
            Request::SetMemTable(table) => self.set_memory(table)?,
            Request::AddMemReg(region, file) => self.add_region(region, file)?,
            Request::RemMemReg(region) => self.remove_region(region)?,
            Request::SetLogBase(log) => return self.set_log(log).map(Some),
            // A back end may signal this eventfd when it has marked pages. No front end waits for that.
            Request::SetLogFd(file) => drop(eventfd("SET_LOG_FD", file)?),
            Request::SetVringNum(state) => self.set_size(state)?,
            Request::SetVringAddr(address) => {
                let queue = self.queue("SET_VRING_ADDR", address.queue)?;
                self.change(queue, |vring| vring.address = Some(address))?;
            }
            Request::SetVringBase(VringState { queue, number }) => {
                let queue = self.queue("SET_VRING_BASE", queue)?;
                self.change(queue, |vring| vring.base = number)?;
            }
            Request::GetVringBase(VringState { queue, .. }) => {
                let number = self.queue("GET_VRING_BASE", queue)?;
                let number = self.stop(number);
                return Ok(Some(Reply::State(VringState { queue, number })));
            }
            Request::SetVringKick(VringFile { queue, file }) => {
                let queue = self.queue("SET_VRING_KICK", queue)?;
                let file = file.map(|file| eventfd("SET_VRING_KICK", file).map(Arc::new)).transpose()?;
                let may_log = self.protocol & protocol::LOG_SHMFD != 0;
                self.retire(self.vrings[usize::from(queue)].kick.clone());
                self.change(queue, |vring| {
                    (vring.kick, vring.started, vring.waits_for_log) = (file, true, may_log);
                })?;
            }
            Request::SetVringCall(VringFile { queue, file }) => {
                let queue = self.queue("SET_VRING_CALL", queue)?;
                let file = file.map(|file| eventfd("SET_VRING_CALL", file).map(Arc::new)).transpose()?;
                let vring = &mut self.vrings[usize::from(queue)];
                if vring.running {
                    self.device.set_call(queue, file.clone());
                    // The guest may have missed the last call on the old eventfd. An extra call is harmless.
                    if let Some(file) = &file {
                        ringway_runtime::call(file.as_fd(), self.device.account());
                    }
                }
                let old = std::mem::replace(&mut vring.call, file);
                self.retire(old);
            }
            Request::SetVringErr(VringFile { queue, file }) => {
                let queue = self.queue("SET_VRING_ERR", queue)?;
                let file = file.map(|file| eventfd("SET_VRING_ERR", file)).transpose()?;
                let old = std::mem::replace(&mut self.vrings[usize::from(queue)].error, file);
                self.retire_own(old);
            }
            Request::SetVringEnable(VringState { queue, number }) => {
                let queue = self.queue("SET_VRING_ENABLE", queue)?;
                if number > 1 {
                    return Err(SessionEnd::Enable(number));
                }
                self.enable(queue, number == 1)?;
            }
            Request::SendRarp(mac) => {
                if mac[0] & 1 != 0 || mac == [0; 6] {
                    return Err(SessionEnd::Rarp);
                }
                self.device.announce(mac);
            }
            Request::NetSetMtu(mtu) => match u16::try_from(mtu) {
                Ok(fits) if mtu >= LEAST_MTU && self.device.set_mtu(fits) => self.mtu = Some(fits),
                _ => return Err(SessionEnd::Mtu(mtu)),
            },
            Request::GetConfig(range) => {
                let config = self.device.config().ok_or(SessionEnd::Unsupported(24))?;
                let bytes = config.read(range).unwrap_or_default().to_vec();
                return Ok(Some(Reply::Config(range, bytes)));
            }
            // A driver of today can write no field; a legacy driver the address, which the port does not use.
            Request::SetConfig(range) => {
                let config = self.device.config().ok_or(SessionEnd::Unsupported(25))?;
                if range.flags > CONFIG_FLAGS || config.read(range).is_none() {
                    return Err(SessionEnd::Config(range));
                }
            }
            Request::GetInflightFd(at) => {
                let (area, file) = Inflight::create(at.queues.clamp(1, self.device.queues()))?;
                return Ok(Some(Reply::Inflight(InflightAt { area, ..at }, file)));
            }
            Request::SetInflightFd(at, file) => {
                let queues = at.queues.clamp(1, self.device.queues());
                self.inflight = Some(Arc::new(Inflight::map(self.device.quota(), &file, at.area, queues)?));
                let old = self.inflight_file.take();
                self.retire_own(old.map(|(_, file)| file));
                self.inflight_file = self.is_kept.then_some((at, file));
            }
            Request::ResetDevice => self.reset(),
            Request::SetStatus(status) => self.set_status(status)?,
            Request::GetStatus => return Ok(Some(Reply::Number(self.status.into()))),
            Request::Unknown(request) => return Err(SessionEnd::Unsupported(request)),
        }
        Ok(None)
    }

    /// Returns the protocol features that the port offers.
    fn offered_protocol(&self) -> u64 {
        if self.device.config().is_some() { protocol::ALWAYS | protocol::CONFIG } else { protocol::ALWAYS }
    }

    /// Checks the number of a queue.
    fn queue(&self, name: &'static str, queue: u32) -> Result<u16, SessionEnd> {
        let queues = self.device.queues();
        u16::try_from(queue).ok().filter(|&queue| queue < queues).ok_or(SessionEnd::NoQueue { name, queue, queues })
    }

    fn set_features(&mut self, features: u64) -> Result<(), SessionEnd> {
        let result = self.check_features(features);
        self.features_refused = result.is_err();
        result?;
        self.features = features;
        self.device.note_connection(true, features);
        self.device.set_log(self.log_in_use());
        // vhost-user, SET_FEATURES: without VHOST_USER_F_PROTOCOL_FEATURES all rings are enabled at once.
        if features & PROTOCOL_FEATURES == 0 {
            for queue in 0..self.device.queues() {
                self.enable(queue, true)?;
            }
        }
        self.resume()
    }

    fn check_features(&self, features: u64) -> Result<(), SessionEnd> {
        let others = features & !self.device.offered();
        if others != 0 {
            return Err(SessionEnd::Features(others));
        }
        let (from, to) = (self.features, features);
        if (from ^ to) & !LOG_ALL != 0 && self.vrings.iter().any(|vring| vring.running) {
            return Err(SessionEnd::FeaturesChange { from, to });
        }
        Ok(())
    }

    fn set_status(&mut self, status: u64) -> Result<(), SessionEnd> {
        let status = u8::try_from(status).map_err(|_| SessionEnd::Status(status))?;
        if status == 0 {
            for queue in 0..self.device.queues() {
                self.stop(queue);
            }
        }
        // FEATURES_OK stays clear if the features were refused (virtio 1.3, 3.1.1, step 6).
        self.status = if self.features_refused { status & !FEATURES_OK } else { status };
        Ok(())
    }

    /// Resets all state except for the memory table and the call and error eventfds: the front end does not send those
    /// again.
    fn reset(&mut self) {
        for queue in 0..self.device.queues() {
            self.stop(queue);
            let Vring { call, error, .. } = std::mem::take(&mut self.vrings[usize::from(queue)]);
            self.vrings[usize::from(queue)] = Vring { call, error, ..Vring::default() };
        }
        (self.features, self.features_refused, self.status, self.inflight) = (0, false, 0, None);
        let old = self.inflight_file.take();
        self.retire_own(old.map(|(_, file)| file));
        self.device.note_connection(true, 0);
    }

    fn set_size(&mut self, state: VringState) -> Result<(), SessionEnd> {
        let queue = self.queue("SET_VRING_NUM", state.queue)?;
        let size = state.number;
        let odd = !size.is_power_of_two() && self.features & F_RING_PACKED == 0 && self.features != 0;
        if size == 0 || size > LARGEST_RING || odd {
            return Err(SessionEnd::RingSize { queue, size });
        }
        self.change(queue, |vring| vring.size = size as u16)
    }

    fn enable(&mut self, queue: u16, on: bool) -> Result<(), SessionEnd> {
        let vring = &mut self.vrings[usize::from(queue)];
        (vring.enabled, vring.waits_for_log) = (on, vring.waits_for_log && !on);
        if vring.running {
            self.device.enable(queue, on);
        }
        self.start(queue)
    }

    /// Stops a queue until the front end starts it again. Returns the base at which the queue can continue.
    fn stop(&mut self, queue: u16) -> u32 {
        self.pause(queue);
        match self.taken(queue) {
            // Once a successor knows that the queue has stopped.
            Some(taken) if self.is_kept => self.stopped.push(taken),
            Some(taken) => taken.clear(),
            None => {}
        }
        let vring = &mut self.vrings[usize::from(queue)];
        vring.started = false;
        let (old, base) = (vring.kick.take(), vring.base);
        self.retire(old);
        base
    }

    /// Changes the state of a queue. Stops a running queue meanwhile, and restarts it at the same base.
    fn change(&mut self, queue: u16, change: impl FnOnce(&mut Vring)) -> Result<(), SessionEnd> {
        self.pause(queue);
        change(&mut self.vrings[usize::from(queue)]);
        self.start(queue)
    }

    fn pause(&mut self, queue: u16) {
        let vring = &mut self.vrings[usize::from(queue)];
        if std::mem::take(&mut vring.running)
            && let Some(base) = self.device.stop(queue)
        {
            vring.base = base;
        }
    }

    /// Starts a queue that the front end has started, unless it runs already or something is still unknown.
    fn start(&mut self, queue: u16) -> Result<(), SessionEnd> {
        let log = self.log_in_use().cloned();
        let taken = self.taken(queue);
        let vring = &mut self.vrings[usize::from(queue)];
        let must_wait = vring.waits_for_log && self.features & LOG_ALL != 0 && log.is_none();
        if vring.running || self.unsettled || must_wait || self.memory.regions().is_empty() {
            return Ok(());
        }
        let Some(mut setup) = vring.setup()? else { return Ok(()) };
        (setup.log, setup.taken) = (log, taken);
        self.device.start(queue, setup, &self.memory, self.features)?;
        vring.running = true;
        Ok(())
    }

    fn resume(&mut self) -> Result<(), SessionEnd> {
        (0..self.device.queues()).try_for_each(|queue| self.start(queue))
    }

    /// Starts all queues that can run. A queue whose ring is in no region waits for further regions.
    fn resume_where_possible(&mut self) -> Result<(), SessionEnd> {
        (0..self.device.queues()).try_for_each(|queue| match self.start(queue) {
            Err(SessionEnd::Start(StartError::NotInMemory { .. })) => Ok(()),
            result => result,
        })
    }

    fn taken(&self, queue: u16) -> Option<InflightNote> {
        match &self.inflight {
            Some(memory) => InflightNote::of(memory, queue, ANY_RING),
            None => InflightNote::of(self.device.record()?, queue, self.ring_name(queue)),
        }
    }

    /// A hash that identifies a ring across processes: of the file that holds the ring's memory, of the ring's
    /// addresses and of its size.
    fn ring_name(&self, queue: u16) -> u64 {
        let vring = &self.vrings[usize::from(queue)];
        let Some(VringAddress { descriptors, available, used, .. }) = vring.address else { return ANY_RING };
        let is_there =
            |region: &&Arc<Region>| descriptors.checked_sub(region.user()).is_some_and(|offset| offset < region.size());
        let (device, inode, offset) = self.memory.regions().iter().find(is_there).map_or((0, 0, 0), |at| at.file());
        let packed = u64::from(self.features & F_RING_PACKED != 0);
        let words = [device, inode, offset, descriptors, available, used, vring.size.into(), packed];
        // FNV-1a: a hash that is the same in every build, as a successor may be another build.
        let bytes = words.iter().flat_map(|word| word.to_le_bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)).max(1)
    }

    fn set_memory(&mut self, table: Vec<(RegionAt, ClientFd)>) -> Result<(), SessionEnd> {
        let stays = |region: &&Arc<Region>| table.iter().any(|(at, file)| is_same(region, at, file));
        let old = self.memory.regions();
        let regions = match map_table(self.device.quota(), &table, old) {
            // Old regions count against the limit until they are unmapped. If some old regions are not in the new
            // table, unmap them first and try again.
            Err(SessionEnd::Region(RegionError::Limit(_))) if !old.iter().all(|region| stays(&region)) => {
                let stay: Vec<_> = old.iter().filter(stays).cloned().collect();
                self.replace_memory(stay);
                let mapped = map_table(self.device.quota(), &table, self.memory.regions());
                mapped.map_err(|end| match end {
                    SessionEnd::Region(RegionError::Limit(over)) => SessionEnd::MemoryLimit(over),
                    other => other,
                })?
            }
            result => result?,
        };
        self.replace_memory(regions);
        if self.is_kept {
            let old = std::mem::replace(&mut self.region_files, table);
            self.retire_own(old.into_iter().map(|(_, file)| file));
        }
        self.resume()
    }

    /// QEMU 7.2 adds and removes a region once for each queue pair. All but the first message have no effect.
    fn add_region(&mut self, at: RegionAt, file: ClientFd) -> Result<(), SessionEnd> {
        let mut regions = self.memory.regions().to_vec();
        if regions.iter().any(|region| is_same(region, &at, &file)) {
            return Ok(());
        }
        if regions.len() >= MOST_REGIONS {
            return Err(SessionEnd::TooManyRegions);
        }
        let region = map_region(self.device.quota(), &at, &file, &regions)?;
        regions.push(region);
        if self.is_kept {
            self.region_files.push((at, file));
        }
        self.replace_memory(regions);
        self.resume_where_possible()
    }

    /// A front end that changes its memory table first removes regions and then adds others, one message each.
    /// Meanwhile no region may hold the buffers, so all queues stop until the last of these messages has arrived
    /// ([`Session::settle`]).
    fn remove_region(&mut self, at: RegionAt) -> Result<(), SessionEnd> {
        let RegionAt { guest, size, user, .. } = at;
        let mut regions = self.memory.regions().to_vec();
        let here = |region: &Arc<Region>| (region.guest(), region.size(), region.user()) == (guest, size, user);
        let Some(place) = regions.iter().position(here) else { return Ok(()) };
        regions.remove(place);
        let is_it = |(at, _): &mut (RegionAt, ClientFd)| (at.guest, at.size, at.user) == (guest, size, user);
        let old: Vec<_> = self.region_files.extract_if(.., is_it).map(|(_, file)| file).collect();
        self.retire_own(old);
        self.unsettled = true;
        self.replace_memory(regions);
        Ok(())
    }

    /// Replaces the memory table while no queue runs.
    fn replace_memory(&mut self, regions: Vec<Arc<Region>>) {
        for queue in 0..self.device.queues() {
            self.pause(queue);
        }
        self.memory = Arc::new(GuestMemory::new(regions));
    }

    /// Returns the dirty log, if VHOST_F_LOG_ALL is in use.
    fn log_in_use(&self) -> Option<&Arc<DirtyLog>> {
        self.log.as_ref().filter(|_| self.features & LOG_ALL != 0)
    }

    fn set_log(&mut self, log: Option<(Area, ClientFd)>) -> Result<Reply, SessionEnd> {
        let Some((area, file)) = log.filter(|_| self.protocol & protocol::LOG_SHMFD != 0) else {
            return Err(SessionEnd::LogFile);
        };
        let ends = self.memory.regions().iter().map(|region| region.guest().saturating_add(region.size()));
        let end = ends.max().unwrap_or(0);
        let right = end.div_ceil(LOGGED_BY_BYTE);
        if area.size < right {
            return Err(SessionEnd::LogSize { size: area.size, right });
        }
        let log = Arc::new(DirtyLog::map_within(self.device.quota(), &file, area.size, area.offset)?);
        // The old log is unmapped by the last queue that drops it, or here by the port's own thread. A poller must not
        // wait for that: the file may be large.
        let _old = self.log.replace(log);
        let old = self.log_file.take();
        self.retire_own(old.map(|(_, file)| file));
        self.log_file = self.is_kept.then_some((area, file));
        // From here on no queue writes to the old log.
        self.device.set_log(self.log_in_use());
        self.resume()?;
        Ok(Reply::Log(area))
    }
}

fn eventfd(name: &'static str, file: ClientFd) -> Result<ClientFd, SessionEnd> {
    if is_eventfd(&file)? { Ok(file) } else { Err(SessionEnd::NotEventfd(name)) }
}

fn is_same(region: &Region, at: &RegionAt, file: &ClientFd) -> bool {
    region.is_same(file, at.guest, at.size, at.user, at.offset)
}

/// Maps the regions of a table. Regions that are among `old` are kept.
fn map_table(
    quota: &Arc<Quota>,
    table: &[(RegionAt, ClientFd)],
    old: &[Arc<Region>],
) -> Result<Vec<Arc<Region>>, SessionEnd> {
    let mut regions: Vec<Arc<Region>> = Vec::with_capacity(table.len());
    for (at, file) in table {
        let region = match old.iter().find(|region| is_same(region, at, file)) {
            Some(same) => check_overlap(Arc::clone(same), &regions)?,
            None => map_region(quota, at, file, &regions)?,
        };
        regions.push(region);
    }
    Ok(regions)
}

fn map_region(
    quota: &Arc<Quota>,
    at: &RegionAt,
    file: &ClientFd,
    others: &[Arc<Region>],
) -> Result<Arc<Region>, SessionEnd> {
    let region = Region::map_within(quota, file, at.guest, at.size, at.user, at.offset)?;
    check_overlap(Arc::new(region), others)
}

/// Returns the region if it shares no addresses with `others`.
fn check_overlap(region: Arc<Region>, others: &[Arc<Region>]) -> Result<Arc<Region>, SessionEnd> {
    match others.iter().any(|other| other.overlaps(&region)) {
        false => Ok(region),
        true => Err(SessionEnd::Overlap(region.guest())),
    }
}
