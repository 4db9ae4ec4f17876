//! For tests: in-memory ports, a switch of such ports, and frames: complete ones (`samples`), those of hostile senders (`hostile`), and what
//! another library reads of them (`reading`).

pub(crate) mod hostile;
pub(crate) mod reading;
pub(crate) mod samples;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use ringway_memory::Mapping;

pub(crate) use crate::Mac;
use crate::{
    Accepts, Armed, Batch, Bell, CallReason, CallResult, Counters, CountersReading, DetourRoom, Discarded, DropReason,
    FloodPolicy, Forward, Frame, Frames, Input, InputCapabilities, Learning, MacMap, MacTable, Member, Offload, Output,
    OutputCapabilities, Owner, Passed, Port, PortFault, Switch, Time, WaitingPlace, WakeOn, Workspace, pass,
    prepare_detours,
};

/// Begins a port's detour with memory, whatever other tests take of it.
pub(crate) fn begin_detour(port: &Port, waker: Waker) {
    assert!(prepare_detours(), "memory");
    assert!(port.begin_detour(waker, DetourRoom::Spare, || ()));
}

/// Station `n`'s address.
pub(crate) fn mac(n: u32) -> Mac {
    let [a, b, c, d] = n.to_be_bytes();
    Mac::new([2, 0, a, b, c, d])
}

pub(crate) fn group(n: u8) -> Mac {
    Mac::new([0x01, 0x00, 0x5e, 0, 0, n])
}

/// A frame of `len` bytes (14 or more) with a number in its payload, as far as there is room, and a pattern after it.
pub(crate) fn frame(to: Mac, from: Mac, len: usize, number: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> = to.octets().into_iter().chain(from.octets()).chain([0x88, 0xb5]).collect();
    bytes.extend(number.to_be_bytes());
    bytes.extend((18..len.max(18)).map(|at| (at as u32).wrapping_mul(31).wrapping_add(number) as u8));
    bytes.truncate(len);
    bytes
}

/// The number that [`frame`] put there.
pub(crate) fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[14], frame[15], frame[16], frame[17]])
}

/// Offset and length of each piece of a frame, and its offload.
type Waiting = (Vec<(usize, usize)>, Option<Offload>);

/// Frames waiting in a client's memory.
pub(crate) struct Offer {
    pub(crate) memory: Arc<Mapping>,
    waiting: VecDeque<Waiting>,
    end: usize,
    taken: usize,
    /// Reasons that the port refuses frames for with the next batch.
    pub(crate) refuse: Vec<DropReason>,
    /// The fault that the next collect returns.
    pub(crate) fault: Option<PortFault>,
    pub(crate) releases: usize,
    /// True if frames can be left in the ring.
    pub(crate) keeps: bool,
    /// Where they wait.
    pub(crate) place: WaitingPlace,
    /// True if frames can be dropped by their addresses.
    pub(crate) alike: bool,
    pub(crate) dropped_alike: u64,
    /// An event other than a frame is pending.
    pub(crate) news: bool,
    /// Offset and bytes that the client changes right after the next collect.
    pub(crate) changes: Option<(usize, [u8; 4])>,
}

impl Offer {
    pub(crate) fn new(bytes: usize) -> Offer {
        let memory = Arc::new(Mapping::private(bytes).expect("memory"));
        Offer {
            memory,
            waiting: VecDeque::new(),
            end: 0,
            taken: 0,
            refuse: Vec::new(),
            fault: None,
            releases: 0,
            keeps: true,
            place: WaitingPlace::Ring,
            alike: true,
            dropped_alike: 0,
            news: false,
            changes: None,
        }
    }

    /// Puts a frame into memory, in pieces of these lengths and one more piece with the rest. Each piece begins on a
    /// cache line of its own, with a gap after the piece before.
    pub(crate) fn put(&mut self, frame: &[u8], pieces: &[usize]) {
        self.put_offloaded(frame, pieces, None);
    }

    /// Puts a frame with an offload into memory, in pieces as [`Offer::put`] does.
    pub(crate) fn put_offloaded(&mut self, frame: &[u8], pieces: &[usize], offload: Option<Offload>) {
        if self.waiting.is_empty() {
            self.end = 0;
        }
        let mut places = Vec::new();
        let mut left = frame;
        for len in pieces.iter().copied().chain([usize::MAX]) {
            let (piece, others) = left.split_at(len.min(left.len()));
            if !piece.is_empty() {
                let at = self.end.next_multiple_of(64);
                let place = self.memory.view(at, piece.len()).expect("room in the test's memory");
                assert!(place.write(piece));
                places.push((at, piece.len()));
                self.end = at + piece.len() + 64;
            }
            left = others;
        }
        self.waiting.push_back((places, offload));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Input for Offer {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let Self { memory, waiting, taken, refuse, fault, changes, .. } = self;
        refuse.drain(..).for_each(|reason| batch.refuse(reason));
        for (places, offload) in waiting.iter() {
            if batch.room() == 0 {
                break;
            }
            let view = |&(at, len): &(usize, usize)| memory.view(at, len).expect("a place in memory");
            match (places.as_slice(), *offload) {
                ([whole], None) => batch.push(view(whole), whole.1),
                ([whole], Some(offload)) => batch.push_offloaded(view(whole), whole.1, offload),
                (pieces, None) => batch.push_pieces(pieces.iter().map(view)),
                (pieces, Some(offload)) => batch.push_pieces_offloaded(pieces.iter().map(view), offload),
            }
            *taken += 1;
        }
        if let Some((at, bytes)) = changes.take() {
            assert!(memory.view(at, bytes.len()).is_some_and(|view| view.write(&bytes)));
        }
        fault.take().map_or(Ok(()), Err)
    }

    fn capabilities(&self) -> InputCapabilities {
        InputCapabilities { rewind: self.keeps, discard_like: self.alike, waiting: self.place }
    }

    fn rewind(&mut self, frames: usize) {
        self.taken = frames;
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        let frames = most.min(self.waiting.len());
        let dropped = self.waiting.drain(..frames);
        let bytes = dropped.flat_map(|(places, _)| places).map(|(_, len)| len as u64).sum();
        Ok(Discarded { frames: frames as u64, bytes })
    }

    fn discard_like(&mut self, addresses: &[u8; 12], most: usize) -> Result<Discarded, PortFault> {
        let mut discarded = Discarded::default();
        while let Some((places, None)) = self.waiting.front()
            && let &[(at, len)] = places.as_slice()
            && (discarded.frames as usize) < most
        {
            let mut both = [0; 12];
            assert!(self.memory.view(at, 12).is_some_and(|view| view.read(&mut both)));
            if both != *addresses {
                break;
            }
            self.waiting.pop_front();
            discarded.frames += 1;
            discarded.bytes += len as u64;
        }
        self.dropped_alike += discarded.frames;
        Ok(discarded)
    }

    fn release(&mut self) {
        self.waiting.drain(..self.taken);
        self.taken = 0;
        self.releases += 1;
    }

    fn pending(&mut self) -> bool {
        !self.waiting.is_empty()
    }

    fn take_event(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::with_kick(self.pending())
    }

    fn disarm(&mut self) {}
}

/// A client that stores the frames delivered to it, up to a number of frames.
#[derive(Clone)]
pub(crate) struct Sink {
    kept: Arc<Mutex<Kept>>,
    picks: Vec<u8>,
}

pub(crate) struct Kept {
    pub(crate) frames: Vec<Vec<u8>>,
    /// The offload of each frame.
    pub(crate) offloads: Vec<Option<Offload>>,
    pub(crate) accepts: Accepts,
    /// Room of each queue, in frames.
    pub(crate) room: usize,
    /// Number of queues. A frame goes to queue `number % queues`.
    pub(crate) queues: u32,
    pub(crate) fault: Option<PortFault>,
    /// With this many frames stored, the next delivery panics.
    pub(crate) panics_at: usize,
    /// Frames that came from a sender that waits for a limit.
    pub(crate) waited: usize,
    /// True if it reports which frames it loses.
    pub(crate) names_losses: bool,
    /// Frames per delivery.
    pub(crate) deliveries: Vec<usize>,
    pub(crate) rings: usize,
    /// True if each ring calls the client.
    pub(crate) calls: bool,
    /// The ring's size, if it differs from `room`.
    pub(crate) size: Option<usize>,
    /// Bytes of a buffer: a longer frame takes several of the room.
    pub(crate) buffer: usize,
    /// Longest frame that fits its buffers, in bytes.
    pub(crate) longest: usize,
    /// Longest frame that it says it takes.
    pub(crate) told_longest: usize,
    /// The number of lost frames that it was told last.
    pub(crate) told_lost: u64,
}

impl Sink {
    fn new() -> Sink {
        let (frames, offloads, deliveries) = (Vec::new(), Vec::new(), Vec::new());
        let (accepts, room) = (Accepts::NOTHING, usize::MAX);
        let kept = Kept {
            frames,
            offloads,
            accepts,
            room,
            queues: 1,
            waited: 0,
            names_losses: false,
            fault: None,
            panics_at: usize::MAX,
            deliveries,
            rings: 0,
            calls: false,
            size: None,
            buffer: usize::MAX,
            longest: usize::MAX,
            told_longest: usize::MAX,
            told_lost: 0,
        };
        Sink { kept: Arc::new(Mutex::new(kept)), picks: Vec::new() }
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> T {
        look(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    /// The queue of a frame.
    pub(crate) fn queue(&self, frame: &[u8]) -> u32 {
        if self.queues == 1 { 0 } else { number(frame) % self.queues }
    }

    /// Free slots of the queue that a frame goes to.
    fn free(&self, frame: &[u8]) -> usize {
        let same = |other: &&Vec<u8>| self.queue(other) == self.queue(frame);
        let used = match (self.queues, self.buffer) {
            (1, usize::MAX) => self.frames.len(),
            _ => self.frames.iter().filter(same).map(|frame| frame.len().div_ceil(self.buffer)).sum(),
        };
        self.room.saturating_sub(used)
    }
}

impl Output for Sink {
    fn capabilities(&self) -> OutputCapabilities {
        self.with(|kept| OutputCapabilities {
            accepts: kept.accepts,
            names_losses: kept.names_losses,
            longest: kept.told_longest,
        })
    }

    fn queues(&mut self, frames: Frames<'_, '_>) -> Option<&[u8]> {
        let queue = |frame: Frame<'_, '_>| self.with(|kept| kept.queue(&frame.head().0) as u8);
        self.picks = frames.map(queue).collect();
        self.with(|kept| kept.queues > 1).then_some(&self.picks)
    }

    fn room(&mut self, mut frames: Frames<'_, '_>) -> Option<(usize, usize)> {
        let first = frames.next()?;
        self.with(|kept| (kept.room < usize::MAX).then(|| (kept.free(&first.head().0), kept.size.unwrap_or(kept.room))))
    }

    fn buffer(&mut self) -> usize {
        self.with(|kept| kept.buffer)
    }

    fn note_losses(&mut self, counters: &Counters) {
        self.with(|kept| kept.told_lost = counters.lost_by_receiver());
    }

    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        self.with(|kept| {
            let before = kept.frames.len();
            for frame in frames {
                if frame.len() > kept.longest {
                    counters.drop_out(DropReason::ReceiverTooSmall, 1);
                    continue;
                }
                if kept.room < usize::MAX && kept.free(&frame.head().0) < frame.len().div_ceil(kept.buffer) {
                    counters.drop_out(DropReason::ReceiverFull, 1);
                    frame.lose(DropReason::ReceiverFull);
                    continue;
                }
                let mut bytes = frame.head().0[..frame.head_len()].to_vec();
                for rest in frame.rest() {
                    let at = bytes.len();
                    bytes.resize(at + rest.len(), 0);
                    assert!(rest.read(&mut bytes[at..]));
                }
                assert_eq!(bytes.len(), frame.len(), "head and rest are together the frame's length");
                assert!(kept.frames.len() < kept.panics_at, "injected");
                counters.add_out(1, frame.len() as u64);
                kept.waited += usize::from(frame.has_waited());
                kept.frames.push(bytes);
                kept.offloads.push(frame.offload().copied());
            }
            kept.deliveries.push(kept.frames.len() - before);
            kept.fault.map_or(Ok(()), Err)
        })
    }
}

impl Bell for Sink {
    fn ring(&self, _: CallReason) -> CallResult {
        self.with(|kept| {
            kept.rings += 1;
            if kept.calls { CallResult::Called } else { CallResult::Unwanted }
        })
    }
}

/// A switch with in-memory ports only.
pub(crate) struct Lan {
    pub(crate) switch: Switch,
    pub(crate) offers: Vec<Offer>,
    sinks: Vec<Sink>,
    pub(crate) work: Workspace,
    pub(crate) now: u32,
}

/// How to make a [`Lan`].
pub(crate) struct Plan {
    pub(crate) ports: u16,
    pub(crate) batch: usize,
    pub(crate) flood_policy: FloodPolicy,
    pub(crate) isolated: Vec<u16>,
    /// Bytes of each port's memory.
    pub(crate) bytes: usize,
    pub(crate) port_limit: u32,
    /// Changes each member before the switch is built.
    pub(crate) change: Box<dyn Fn(Member) -> Member>,
}

impl Plan {
    pub(crate) fn new(ports: u16) -> Plan {
        let (flood_policy, isolated) = (FloodPolicy::default(), Vec::new());
        Plan {
            ports,
            batch: 256,
            flood_policy,
            isolated,
            bytes: 1 << 20,
            port_limit: u32::MAX,
            change: Box::new(|member| member),
        }
    }

    pub(crate) fn learning(self) -> Lan {
        self.build(|_| Box::new(Learning))
    }

    /// Station `n` is bound to port `n`.
    pub(crate) fn map(self) -> Lan {
        self.build(|members| Box::new(MacMap::new(members)))
    }

    pub(crate) fn build(self, forward: impl FnOnce(&[Member]) -> Box<dyn Forward>) -> Lan {
        let sinks: Vec<Sink> = (0..self.ports).map(|_| Sink::new()).collect();
        let members: Vec<Member> = (0..self.ports)
            .zip(&sinks)
            .map(|(index, sink)| {
                let port = Port::new(format!("p{index}"), Box::new(sink.clone()), Box::new(sink.clone()));
                (self.change)(Member {
                    isolated: self.isolated.contains(&index),
                    macs: vec![mac(index.into())],
                    ..Member::new(Owner::new(index, 0), Arc::new(port))
                })
            })
            .collect();
        let table = Arc::new(MacTable::new(8192, self.port_limit, [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344]));
        let forward = forward(&members);
        Lan {
            switch: Switch::new("lan0", members, table, forward, self.flood_policy),
            // Most ports of a large switch never send.
            offers: (0..self.ports).map(|port| Offer::new(if port < 8 { self.bytes } else { 4096 })).collect(),
            sinks,
            work: Workspace::new(self.batch),
            now: 1,
        }
    }
}

impl Lan {
    /// Runs one pass of port `from`.
    pub(crate) fn pass(&mut self, from: u16) -> Passed {
        let member = self.switch.member(from).expect("a port");
        pass(&self.switch, member, &mut self.offers[usize::from(from)], &mut self.work, &Time::at_second(self.now))
    }

    /// Sends frames, each in one piece, in as many passes as needed.
    pub(crate) fn send(&mut self, from: u16, frames: &[Vec<u8>]) {
        for frame in frames {
            self.offers[usize::from(from)].put(frame, &[]);
        }
        while !self.offers[usize::from(from)].is_empty() {
            assert_eq!(self.pass(from).fault, None);
        }
    }

    pub(crate) fn sink<T>(&self, port: u16, look: impl FnOnce(&mut Kept) -> T) -> T {
        self.sinks[usize::from(port)].with(look)
    }

    /// The frames that were delivered to a port since the last call.
    pub(crate) fn received(&self, port: u16) -> Vec<Vec<u8>> {
        self.received_offloaded(port).into_iter().map(|(frame, _)| frame).collect()
    }

    /// The frames that were delivered to a port since the last call, each with its offload.
    pub(crate) fn received_offloaded(&self, port: u16) -> Vec<(Vec<u8>, Option<Offload>)> {
        self.sink(port, |kept| kept.frames.drain(..).zip(kept.offloads.drain(..)).collect())
    }

    /// The ports that received a frame since the last call.
    pub(crate) fn hearers(&self) -> Vec<u16> {
        (0..self.sinks.len() as u16).filter(|&port| !self.received(port).is_empty()).collect()
    }

    pub(crate) fn counters(&self, port: u16) -> CountersReading {
        self.switch.member(port).expect("a port").port.counters().read()
    }

    pub(crate) fn dropped(&self, port: u16, reason: DropReason) -> u64 {
        self.counters(port).dropped(reason)
    }
}
