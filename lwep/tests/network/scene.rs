//! Two endpoints and what is between them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ringway_link::memory::{InFlight, MemoryLink, MemoryOptions, pair};
use ringway_lwep::{Connection, Endpoint, Event, Nanos, Options, Reason, SendError};
use ringway_testing::random::Random;

/// The service that servers listen for.
pub const SERVICE: u32 = 7;
pub const MICROSECOND: Nanos = 1_000;
pub const SECOND: Nanos = 1_000_000_000;

/// How bad a network is: chances in a hundred.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub lost: u64,
    pub repeated: u64,
    pub swapped: u64,
    pub delayed: u64,
    pub corrupted: u64,
}

/// A network with this weather that can be cut.
fn network(weather: Weather, seed: u64, is_cut: Rc<Cell<bool>>) -> impl FnMut(InFlight, &mut VecDeque<InFlight>) {
    let mut random = Random::new(seed);
    let mut delayed: VecDeque<(u64, InFlight)> = VecDeque::new();
    let mut count = 0;
    move |mut frame, queue| {
        count += 1;
        while delayed.front().is_some_and(|(until, _)| *until <= count) {
            queue.extend(delayed.pop_front().map(|(_, frame)| frame));
        }
        let mut chance = |of: u64| random.below(100) < of;
        if is_cut.get() || chance(weather.lost) {
            return;
        }
        if chance(weather.corrupted) {
            let at = random.below(frame.bytes.len() as u64) as usize;
            frame.bytes[at] ^= 1 << random.below(8);
        }
        let mut chance = |of: u64| random.below(100) < of;
        if chance(weather.delayed) {
            let until = count + 1 + random.below(20);
            let at = delayed.partition_point(|(other, _)| *other <= until);
            return delayed.insert(at, (until, frame));
        }
        if chance(weather.repeated) {
            queue.push_back(frame.clone());
        }
        let swaps = chance(weather.swapped);
        queue.push_back(frame);
        let len = queue.len();
        if swaps && len > 1 {
            queue.swap(len - 1, len - 2);
        }
    }
}

/// One end with what it has heard.
pub struct End {
    pub endpoint: Endpoint<MemoryLink>,
    pub connections: Vec<Connection>,
    pub heard: Vec<Vec<u8>>,
    pub rooms: usize,
    pub finished: Vec<Connection>,
    pub ended: Vec<(Connection, Reason, u64, u64)>,
}

impl End {
    fn new(link: MemoryLink, options: Options) -> Self {
        let endpoint = Endpoint::new(link, options);
        Self { endpoint, connections: vec![], heard: vec![], rooms: 0, finished: vec![], ended: vec![] }
    }

    /// Takes everything that has happened.
    pub fn poll(&mut self, now: Nanos) {
        while let Some(event) = self.endpoint.poll(now) {
            match event {
                Event::Connected { connection } | Event::Accepted { connection, .. } => {
                    self.connections.push(connection)
                }
                Event::Message { data, .. } => self.heard.push(data.to_vec()),
                Event::Room { .. } => self.rooms += 1,
                Event::Finished { connection } => self.finished.push(connection),
                Event::Ended { connection, reason, acknowledged, received } => {
                    self.ended.push((connection, reason, acknowledged, received));
                }
            }
        }
    }
}

/// A client and a server that listens.
pub struct Scene {
    pub client: End,
    pub server: End,
    pub now: Nanos,
    pub is_cut: Rc<Cell<bool>>,
}

impl Scene {
    pub fn new(weather: Weather, seed: u64, options: &Options) -> Self {
        Self::with(weather, seed, options, options, &MemoryOptions::default())
    }

    pub fn with(weather: Weather, seed: u64, client: &Options, server: &Options, links: &MemoryOptions) -> Self {
        let (mut left, mut right) = pair(links).expect("memory");
        let is_cut = Rc::new(Cell::new(false));
        left.set_network(network(weather, seed, is_cut.clone()));
        right.set_network(network(weather, seed + 1, is_cut.clone()));
        let mut server = End::new(right, server.clone());
        server.endpoint.listen(SERVICE);
        Self { client: End::new(left, client.clone()), server, now: SECOND, is_cut }
    }

    /// Both ends look, and time passes.
    pub fn step(&mut self, passes: Nanos) {
        self.client.poll(self.now);
        self.server.poll(self.now);
        self.now += passes;
    }

    /// Lets time pass until something is so.
    #[track_caller]
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let end = self.now + 1_000 * SECOND;
        for _ in 0..10_000_000 {
            if is_so(self) {
                return;
            }
            self.step(10 * MICROSECOND);
            assert!(self.now < end, "not within 1,000 s: {what}: {:?}", self.client.endpoint.counters());
        }
        panic!("not within ten million steps: {what}: {:?}", self.client.endpoint.counters());
    }

    /// Connects. Returns the client's connection.
    pub fn connect(&mut self) -> Connection {
        let (mac, now) = (self.server.endpoint.mac(), self.now);
        let connection = self.client.endpoint.connect(mac, SERVICE, now).expect("room");
        self.until("connected", |scene| !scene.client.connections.is_empty() && !scene.server.connections.is_empty());
        connection
    }

    /// Sends these messages from the client as there is room, until all that was ever sent is acknowledged.
    pub fn send_all(&mut self, connection: Connection, messages: &[Vec<u8>]) {
        let mut sent = 0;
        self.until("all arrived", |scene| {
            while let Some(message) = messages.get(sent) {
                match scene.client.endpoint.send(connection, message, scene.now) {
                    Ok(()) => sent += 1,
                    Err(SendError::Full) => break,
                    Err(error) => panic!("{error}: {:?}", scene.client.ended),
                }
            }
            let Some(status) = scene.client.endpoint.status(connection) else {
                panic!("{:?} {:?}", scene.client.ended, scene.server.ended)
            };
            let queued = status.queued;
            sent == messages.len() && queued == 0
        });
    }
}

/// Returns messages of all lengths up to `longest`, each of which tells its number.
pub fn messages(count: u32, longest: usize, seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let message = |number: u32| {
        let len = random.below(longest as u64 + 1) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|at| (at as u32 ^ number) as u8).collect();
        bytes.splice(..len.min(4), number.to_be_bytes().into_iter().take(len));
        bytes
    };
    (0..count).map(message).collect()
}

thread_local! {
    static NEXT: RefCell<u64> = const { RefCell::new(0x9e37_79b9_7f4a_7c15) };
}

/// Random numbers that are the same in each run of a test. The first numbers of connections are about to wrap.
pub fn wrapping() -> u64 {
    NEXT.with_borrow_mut(|next| {
        *next = next.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        0xffff_fff0 << 32 | *next >> 32
    })
}
