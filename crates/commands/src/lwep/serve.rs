//! `ringway lwep serve`: answers `ping`, counts for `bandwidth`, takes files of `send`, for many clients at once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringway_link::Link;
use ringway_lwep::{Connection, Endpoint, Event, Nanos, SendError, Status, share};
use ringway_traffic::Mac;
use serde::Serialize;
use signal_hook::consts::SIGXFSZ;

use super::files::{Store, check_name};
use super::port::PortArgs;
use super::report::{Counted, report};
use super::services::{self, ECHO, FILE, SINK, Tally, Verdict};
use super::station::Station;
use super::writer::{Done, Job, Writer};
use crate::context::Context;
use crate::r#gen::{GenError, Stop};

/// A client that is silent for so long is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Most files on their way at once. One station gets a part.
const MOST_FILES: usize = 64;
/// Bytes of a file that are written together.
const CHUNK: usize = 64 << 10;
/// With so many bytes of a file that are not written, its sender waits.
const MOST_AHEAD: usize = 1 << 20;
/// Most bytes of answers that wait for buffers. One station gets a part.
const MOST_WAITING: usize = 64 << 20;
/// How often clients are looked at that hold things of the server, and how often one may have done nothing for it since the last time.
const LOOK: Nanos = 1_000_000_000;
const MOST_IDLE: u32 = 10;
/// Events that are taken before other things get a turn: signals, files, the clock.
const MOST_EVENTS: usize = 64;

/// Serve "lwep ping", "lwep bandwidth" and "lwep send" until Ctrl-C
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples, with \"ringway run\" in another terminal:
  ringway lwep serve lan0:b
  ringway lwep serve lan0:b --save /srv/incoming --address 10.99.0.2")]
pub struct Args {
    /// The port to serve at; it is made if need be
    #[arg(value_name = "PORT")]
    port: String,
    /// Take files of "lwep send" into this directory
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// A file replaces one of the same name
    #[arg(long, requires = "save")]
    overwrite: bool,
    /// Most connections of one station (address) at once; there is room for half as many more
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: u32,
    #[command(flatten)]
    common: PortArgs,
}

/// What a connection is for.
enum Service {
    Echo,
    Sink { tally: Tally, first: Nanos },
    File(Option<Upload>),
}

/// A file on its way to the writer.
struct Upload {
    /// The writer's name for it.
    key: u64,
    /// Bytes that the writer has not got yet.
    pending: Vec<u8>,
    /// Bytes that the writer has not written yet.
    ahead: usize,
    /// The sender has heard that the file is taken.
    has_begun: bool,
    /// The sender waits for the writer.
    is_held: bool,
}

/// A connection.
struct Peer {
    /// The station's address.
    mac: [u8; 6],
    service: Service,
    /// Messages for which there was no room yet. No further ones are taken meanwhile.
    waiting: VecDeque<Vec<u8>>,
    /// The client sends nothing any more.
    is_finished: bool,
    /// Nothing follows what waits.
    is_over: bool,
    /// How far it was when it was last looked at, and how often that was the same.
    progress: Option<u64>,
    idle: u32,
}

impl Peer {
    /// Returns how far a client is that holds things of the server until it goes on: buffers of answers, or a file.
    fn progress(&self, status: &Status) -> Option<u64> {
        // An answer may also wait for buffers that others hold.
        let takes = !self.waiting.is_empty() && status.queued > 0;
        let sends = matches!(&self.service, Service::File(Some(upload)) if upload.has_begun && !upload.is_held);
        let sends = sends && !self.is_finished;
        if takes { Some(status.acknowledged) } else { sends.then_some(status.received) }
    }
}

/// What a server has done.
#[derive(Debug, Default, Serialize)]
struct Served {
    connections: u64,
    echoed: u64,
    sunk: Sunk,
    files: u64,
    /// Files that were offered: the key of the last one.
    #[serde(skip)]
    offered: u64,
}

#[derive(Debug, Default, Serialize)]
struct Sunk {
    messages: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    served: Served,
    #[serde(flatten)]
    counted: Counted,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Served { connections, echoed, sunk: Sunk { messages, bytes }, files, .. } = &self.served;
        writeln!(
            f,
            "{connections} connections, {echoed} messages sent back, {messages} messages of {bytes} bytes counted, {files} files"
        )?;
        write!(f, "{}", self.counted)
    }
}

/// A running server.
struct Server<'s, L> {
    station: Station<'s, L>,
    peers: BTreeMap<Connection, Peer>,
    writer: Option<Writer>,
    /// Files of clients that are gone which the writer has yet to remove, by key: the stations that they count against.
    leaving: BTreeMap<u64, [u8; 6]>,
    served: Served,
    /// A message on its way from the endpoint to a service.
    message: Vec<u8>,
    /// When clients were last looked at.
    looked: Nanos,
}

/// Runs the command.
pub fn run(args: &Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    let store = args.save.as_deref().map(|directory| Store::open(directory, args.overwrite)).transpose();
    let store = store.map_err(|why| GenError::Usage(format!("--save {why}")))?;
    // Taken, the signal does not end the server: the file is refused with the kernel's reason.
    signal_hook::flag::register(SIGXFSZ, Arc::default())
        .map_err(|error| GenError::Failed(format!("a handler of SIGXFSZ: {error}")))?;
    let writer = store.map(|store| Writer::start(move |name, size, key| store.begin(name, size, key))).transpose();
    let writer = writer.map_err(|error| GenError::Failed(format!("a thread that writes files: {error}")))?;
    let mut station = args.common.open(&args.port, context, stop, |options| {
        options.connections = args.connections;
        options.keep_alive = Some(KEEP_ALIVE.as_nanos() as Nanos);
    })?;
    [ECHO, SINK, FILE].into_iter().for_each(|service| station.endpoint.listen(service));
    // A client that asks the daemon finds the address of a port. That of another interface has to be told.
    eprintln!("ringway lwep serve: at {}, address {}", args.port, Mac(station.endpoint.mac()));
    let mut server = Server::new(station, writer);
    server.serve()?;
    let counted = Counted::of(&mut server.station.endpoint);
    report(&Report { served: server.served, counted }, args.common.json);
    Ok(())
}

impl<'s, L: Link> Server<'s, L> {
    fn new(station: Station<'s, L>, writer: Option<Writer>) -> Self {
        let (peers, leaving, served) = (BTreeMap::new(), BTreeMap::new(), Served::default());
        Self { station, peers, writer, leaving, served, message: Vec::new(), looked: 0 }
    }

    fn serve(&mut self) -> Result<(), GenError> {
        while !self.station.is_stopped() {
            let now = self.station.now();
            if self.turn(now) {
                match &self.writer {
                    Some(writer) => self.station.pause_with(now, writer.wakes())?,
                    None => self.station.pause(now, Duration::MAX)?,
                }
            }
            let (peers, served) = (self.peers.len(), &self.served);
            self.station.tell(now, || {
                format!("{peers} connections, {} messages sent back, {} files", served.echoed, served.files)
            });
        }
        let now = self.station.now();
        for connection in self.peers.keys() {
            self.station.endpoint.abort(*connection, now);
        }
        // The ends; others may go on sending.
        for _ in 0..self.peers.len() {
            self.station.endpoint.poll(now);
        }
        self.station.settle();
        Ok(())
    }

    /// Handles what has happened. Returns true if nothing more is there for now.
    fn turn(&mut self, now: Nanos) -> bool {
        if now.saturating_sub(self.looked) >= LOOK {
            self.looked = now;
            self.end_idle(now);
        }
        if let Some(writer) = &self.writer {
            writer.awake();
        }
        while let Some((key, done)) = self.writer.as_ref().and_then(Writer::done) {
            self.wrote(key, done, now);
        }
        for _ in 0..MOST_EVENTS {
            let Some(event) = self.station.endpoint.poll(now) else { return true };
            match event {
                Event::Accepted { connection, service } => self.accept(connection, service),
                Event::Message { connection, data } => {
                    if let Some(Peer { service: Service::Sink { tally, first }, .. }) = self.peers.get_mut(&connection)
                    {
                        *first = (*first).min(now);
                        tally.messages += 1;
                        tally.bytes += data.len() as u64;
                        tally.time = now - *first;
                    } else {
                        self.message.clear();
                        self.message.extend_from_slice(data);
                        self.take(connection, now);
                    }
                }
                Event::Room { connection } => self.send_waiting(connection, now),
                Event::Finished { connection } => self.finish(connection, now),
                Event::Ended { connection, .. } => self.ended(connection),
                Event::Connected { .. } => {}
            }
        }
        false
    }

    /// Ends connections of clients that hold things of the server for too long: others want them.
    fn end_idle(&mut self, now: Nanos) {
        for (connection, peer) in &mut self.peers {
            let progress = self.station.endpoint.status(*connection).and_then(|status| peer.progress(&status));
            peer.idle = if progress.is_some() && progress == peer.progress { peer.idle + 1 } else { 0 };
            peer.progress = progress;
            if peer.idle >= MOST_IDLE {
                self.station.endpoint.abort(*connection, now);
            }
        }
    }

    fn ended(&mut self, connection: Connection) {
        let Some(peer) = self.peers.remove(&connection) else { return };
        match peer.service {
            Service::Sink { tally, .. } => {
                self.served.sunk.messages += tally.messages;
                self.served.sunk.bytes += tally.bytes;
            }
            Service::File(Some(Upload { key, .. })) => self.drop_file(key, peer.mac),
            _ => {}
        }
    }

    /// Has the writer remove a file that is not complete, and forget one that is.
    fn drop_file(&mut self, key: u64, mac: [u8; 6]) {
        if let Some(writer) = &self.writer {
            self.leaving.insert(key, mac);
            writer.give(key, Job::Drop);
        }
    }

    fn accept(&mut self, connection: Connection, service: u32) {
        self.served.connections += 1;
        let service = match service {
            ECHO => Service::Echo,
            SINK => Service::Sink { tally: Tally::default(), first: Nanos::MAX },
            _ => Service::File(None),
        };
        // It may be over already.
        let mac = self.station.endpoint.status(connection).map_or([0; 6], |status| status.mac);
        let waiting = VecDeque::new();
        let peer = Peer { mac, service, waiting, is_finished: false, is_over: false, progress: None, idle: 0 };
        self.peers.insert(connection, peer);
    }

    /// Returns the stations of the files on their way, of each file.
    fn files(&self) -> impl Iterator<Item = [u8; 6]> {
        let peers = self.peers.values().filter(|peer| matches!(peer.service, Service::File(Some(_))));
        peers.map(|peer| peer.mac).chain(self.leaving.values().copied())
    }

    /// Returns true if a client's station may send one more file.
    fn has_place_for_file(&self, connection: Connection) -> bool {
        let mac = self.peers.get(&connection).map(|peer| peer.mac);
        let held = self.files().filter(|other| Some(*other) == mac).count();
        share::may_take(held, MOST_FILES.saturating_sub(self.files().count()), MOST_FILES, 1)
    }

    /// Handles `self.message`.
    fn take(&mut self, connection: Connection, now: Nanos) {
        let is_offer = self.peers.get(&connection).is_some_and(|peer| matches!(peer.service, Service::File(None)));
        let has_place = !is_offer || self.has_place_for_file(connection);
        let Some(peer) = self.peers.get_mut(&connection).filter(|peer| !peer.is_over) else { return };
        match &mut peer.service {
            Service::Sink { .. } => {}
            Service::Echo => {
                self.served.echoed += 1;
                let message = std::mem::take(&mut self.message);
                self.message = self.send(connection, message, now);
            }
            Service::File(Some(upload)) => {
                upload.pending.extend_from_slice(&self.message);
                if upload.pending.len() >= CHUNK {
                    upload.hand_over(self.writer.as_ref());
                }
                if upload.ahead >= MOST_AHEAD && !upload.is_held {
                    upload.is_held = true;
                    self.station.endpoint.pause(connection);
                }
            }
            Service::File(place) => {
                let refused = match (&self.writer, services::offered(&self.message)) {
                    (None, _) => "takes no files: \"lwep serve --save DIR\" does".to_owned(),
                    (_, None) => "this is no file: the client is of another version".to_owned(),
                    _ if !has_place => "too many files are on their way: try again later".to_owned(),
                    (Some(writer), _) if writer.is_full() => "the disk is behind: try again later".to_owned(),
                    (_, Some((_, name))) if check_name(name).is_err() => check_name(name).err().unwrap_or_default(),
                    (Some(writer), Some((size, name))) => {
                        self.served.offered += 1;
                        let key = self.served.offered;
                        *place = Some(Upload { key, pending: Vec::new(), ahead: 0, has_begun: false, is_held: false });
                        return writer.give(key, Job::Begin(name.to_owned(), size));
                    }
                };
                self.judge(connection, Err(refused), now);
            }
        }
    }

    /// The writer has done something for a file.
    fn wrote(&mut self, key: u64, done: Done, now: Nanos) {
        if done == Done::Dropped {
            self.leaving.remove(&key);
            return;
        }
        let is_it = |peer: &Peer| matches!(&peer.service, Service::File(Some(upload)) if upload.key == key);
        // The connection may have ended meanwhile.
        let Some((connection, peer)) = self.peers.iter_mut().find(|(_, peer)| is_it(peer)) else { return };
        let connection = *connection;
        match done {
            Done::Dropped => {}
            Done::Begun(verdict) => {
                if let Service::File(Some(upload)) = &mut peer.service {
                    upload.has_begun = true;
                }
                self.judge(connection, verdict, now);
            }
            Done::Finished(verdict) => {
                self.served.files += u64::from(verdict.is_ok());
                self.judge(connection, verdict, now);
                self.close(connection, now);
            }
            Done::Written(bytes) => {
                let Service::File(Some(upload)) = &mut peer.service else { return };
                upload.ahead = upload.ahead.saturating_sub(bytes);
                if upload.is_held && upload.ahead <= MOST_AHEAD / 2 {
                    upload.is_held = false;
                    self.go_on(connection);
                }
            }
        }
    }

    /// Tells a client what becomes of its file. With a bad one the connection is over.
    fn judge(&mut self, connection: Connection, verdict: Verdict, now: Nanos) {
        self.send(connection, services::encode(&verdict), now);
        if verdict.is_err() {
            self.close(connection, now);
        }
    }

    /// The client has sent everything.
    fn finish(&mut self, connection: Connection, now: Nanos) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        peer.is_finished = true;
        match &mut peer.service {
            Service::Echo => {}
            Service::Sink { tally, .. } => {
                let message = tally.encode().to_vec();
                self.send(connection, message, now);
            }
            Service::File(Some(upload)) if !peer.is_over => {
                upload.hand_over(self.writer.as_ref());
                // The writer tells when the file is there.
                return give(self.writer.as_ref(), upload.key, Job::Finish);
            }
            Service::File(None) if !peer.is_over => self.judge(connection, Err("no file came".to_owned()), now),
            Service::File(_) => {}
        }
        self.close(connection, now);
    }

    /// Sends no more than what waits already.
    fn close(&mut self, connection: Connection, now: Nanos) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        let upload = if let Service::File(file) = &mut peer.service { file.take() } else { None };
        let mac = peer.mac;
        if let Some(Upload { key, .. }) = upload {
            self.drop_file(key, mac);
        }
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        let was_over = std::mem::replace(&mut peer.is_over, true);
        if peer.waiting.is_empty() && !was_over {
            // Refused only if the connection has ended, which an event tells.
            let _ = self.station.endpoint.close(connection, now);
        }
        // What still comes of a file that is not taken is dropped.
        self.go_on(connection);
    }

    /// Sends a message, or keeps it until there is room. Returns a vector to use again.
    fn send(&mut self, connection: Connection, message: Vec<u8>, now: Nanos) -> Vec<u8> {
        let Some(peer) = self.peers.get_mut(&connection) else { return message };
        let is_first = peer.waiting.is_empty();
        if is_first && !is_full(&mut self.station.endpoint, connection, &message, now) {
            return message;
        }
        let mac = peer.mac;
        let waits = |peer: &Peer| peer.waiting.iter().map(Vec::len).sum::<usize>();
        let total: usize = self.peers.values().map(waits).sum();
        let held = self.peers.values().filter(|peer| peer.mac == mac).map(waits).sum();
        if !share::may_take(held, MOST_WAITING.saturating_sub(total), MOST_WAITING, message.len()) {
            self.station.endpoint.abort(connection, now);
            return message;
        }
        self.station.endpoint.pause(connection);
        if let Some(peer) = self.peers.get_mut(&connection) {
            peer.waiting.push_back(message);
        }
        Vec::new()
    }

    fn send_waiting(&mut self, connection: Connection, now: Nanos) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        while let Some(message) = peer.waiting.front() {
            if is_full(&mut self.station.endpoint, connection, message, now) {
                return;
            }
            peer.waiting.pop_front();
        }
        let is_over = peer.is_over;
        self.go_on(connection);
        if is_over {
            let _ = self.station.endpoint.close(connection, now);
        }
    }

    /// Takes messages of a connection again, if nothing waits for room or for the writer.
    fn go_on(&mut self, connection: Connection) {
        let Some(peer) = self.peers.get(&connection) else { return };
        let is_held = matches!(&peer.service, Service::File(Some(upload)) if upload.is_held);
        if peer.waiting.is_empty() && !is_held {
            self.station.endpoint.resume(connection);
        }
    }
}

impl Upload {
    /// Hands the bytes that came to the writer.
    fn hand_over(&mut self, writer: Option<&Writer>) {
        if !self.pending.is_empty() {
            self.ahead += self.pending.len();
            give(writer, self.key, Job::Add(std::mem::take(&mut self.pending)));
        }
    }
}

fn give(writer: Option<&Writer>, key: u64, job: Job) {
    if let Some(writer) = writer {
        writer.give(key, job);
    }
}

/// Sends a message. Returns true if it has to wait. A message that the client cannot take ends the connection.
fn is_full<L: Link>(endpoint: &mut Endpoint<L>, connection: Connection, message: &[u8], now: Nanos) -> bool {
    match endpoint.send_long(connection, message, now) {
        Ok(()) | Err(SendError::Over) => false,
        Err(SendError::Full) => true,
        Err(SendError::TooLong | SendError::InMessage | SendError::OtherEndpoint) => {
            endpoint.abort(connection, now);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::io::Read;
    use std::rc::Rc;
    use std::sync::Mutex;
    use std::sync::atomic::Ordering;

    use ringway_link::memory::{MemoryLink, MemoryOptions, pair};
    use ringway_lwep::Options;
    use rustix::pipe::pipe;

    use super::super::services::LONG;
    use super::super::station::Wait;
    use super::*;

    /// A client at a server whose files are what `files` returns.
    struct Scene<'s> {
        server: Server<'s, MemoryLink>,
        client: Endpoint<MemoryLink>,
        /// What came on each connection.
        heard: BTreeMap<Connection, Vec<Vec<u8>>>,
        /// Passes by itself: a round is a microsecond.
        now: Nanos,
    }

    impl<'s> Scene<'s> {
        fn new(stop: &'s Stop, writer: Writer) -> Self {
            let (near, far) = pair(&MemoryOptions::default()).unwrap();
            let mut endpoint = Endpoint::new(far, Options { long: LONG, ..Options::default() });
            [ECHO, SINK, FILE].into_iter().for_each(|service| endpoint.listen(service));
            let station = Station::new("memory", endpoint, Wait::Sleep, stop);
            let server = Server::new(station, Some(writer));
            // A connection whose peer does not take its messages leaves buffers for others.
            let client = Endpoint::new(near, Options { queue: 256, ..Options::default() });
            Self { server, client, heard: BTreeMap::new(), now: 0 }
        }

        fn round(&mut self) {
            self.now += 1_000;
            while let Some(event) = self.client.poll(self.now) {
                if let Event::Message { connection, data } = event {
                    self.heard.entry(connection).or_default().push(data.to_vec());
                }
            }
            self.server.turn(self.now);
        }

        /// As many looks at clients pass as one may be idle.
        fn wait(&mut self) {
            for _ in 0..=MOST_IDLE {
                self.now += LOOK;
                // Timers of both ends are due, too.
                (0..64).for_each(|_| self.round());
            }
        }

        fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
            ringway_testing::until(what, || {
                (0..64).any(|_| {
                    self.round();
                    is_so(self)
                })
            });
        }

        fn connect(&mut self, service: u32) -> Connection {
            let mac = self.server.station.endpoint.mac();
            self.client.connect(mac, service, self.now).unwrap()
        }

        /// Sends as many of `bytes` as there is room for. Returns the number.
        fn send(&mut self, connection: Connection, bytes: &[u8]) -> usize {
            let mut sent = 0;
            for message in bytes.chunks(1000) {
                if self.client.send(connection, message, self.now).is_err() {
                    break;
                }
                sent += message.len();
            }
            sent
        }

        fn heard(&self, connection: Connection) -> &[Vec<u8>] {
            self.heard.get(&connection).map_or(&[], Vec::as_slice)
        }
    }

    #[test]
    fn a_disk_that_does_not_answer_holds_up_its_file_and_no_other_client() {
        const SIZE: usize = 5 << 20;
        let directory = tempfile::tempdir().unwrap();
        let (reader, sink) = pipe().unwrap();
        let (store, mut sink) = (Store::open(directory.path(), false).unwrap(), Some(File::from(sink)));
        // Nobody reads what the first file writes.
        let writer = Writer::start(move |name, size, key| {
            let file = store.begin(name, size, key)?;
            Ok(match sink.take() {
                Some(sink) => file.into_file(sink),
                None => file,
            })
        });
        let stop = Stop::default();
        let mut scene = Scene::new(&stop, writer.unwrap());
        let contents: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
        let (file, ping) = (scene.connect(FILE), scene.connect(ECHO));
        let offer = services::offer(SIZE as u64, "slow");
        assert!(scene.client.send(file, &offer, scene.now).is_ok());
        scene.until("the file is taken", |scene| scene.heard(file) == [[0]]);
        let mut sent = 0;
        // The sender is stopped by the server, which has taken no more than it may.
        scene.until("the sender waits", |scene| {
            sent += scene.send(file, &contents[sent..]);
            assert!(sent < SIZE, "the server takes everything");
            let held = |peer: &Peer| matches!(&peer.service, Service::File(Some(upload)) if upload.is_held);
            scene.server.peers.values().any(held)
        });
        for number in 1..=100 {
            assert!(scene.client.send(ping, b"ping", scene.now).is_ok());
            scene.until("an answer", |scene| scene.heard(ping).len() == number);
        }
        // The disk is there again.
        let reading = std::thread::spawn(move || {
            let mut bytes = vec![0; SIZE];
            File::from(reader).read_exact(&mut bytes).map(|()| bytes)
        });
        scene.until("everything is sent", |scene| {
            sent += scene.send(file, &contents[sent..]);
            sent == SIZE
        });
        scene.client.close(file, scene.now).unwrap();
        scene.until("the file is there", |scene| scene.heard(file) == [[0], [0]]);
        assert!(reading.join().unwrap().unwrap() == contents);
        assert_eq!(scene.server.served.files, 1);
        // Ended before it was complete.
        let file = scene.connect(FILE);
        assert!(scene.client.send(file, &services::offer(10, "cut"), scene.now).is_ok());
        scene.until("the next file is taken", |scene| scene.heard(file) == [[0]]);
        scene.client.abort(file, scene.now);
        let names = || std::fs::read_dir(directory.path()).unwrap().count();
        scene.until("its part is gone", |_| names() == 1);
    }

    #[test]
    fn a_file_that_the_disk_refuses_ends_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), false).unwrap();
        let writer = Writer::start(move |name, size, key| {
            Ok(store.begin(name, size, key)?.into_file(File::options().write(true).open("/dev/full").unwrap()))
        });
        let stop = Stop::default();
        let mut scene = Scene::new(&stop, writer.unwrap());
        let (file, contents) = (scene.connect(FILE), vec![0; 3 << 20]);
        assert!(scene.client.send(file, &services::offer(3 << 20, "full"), scene.now).is_ok());
        let mut sent = 0;
        scene.until("the reason", |scene| {
            sent += scene.send(file, &contents[sent..]);
            scene.heard(file).len() == 2
        });
        let said = services::decode(&scene.heard(file)[1]);
        assert!(said.as_ref().is_err_and(|why| why.contains("No space left")), "{said:?}");
        scene.client.close(file, scene.now).unwrap();
        scene.until("the connection is over", |scene| scene.client.connections() == 0 && scene.server.peers.is_empty());
    }

    #[test]
    fn a_client_that_takes_no_answers_leaves_buffers_for_others_after_a_while() {
        let stop = Stop::default();
        let mut scene = Scene::new(&stop, Writer::start(|_, _, _| Err(String::new())).unwrap());
        let greedy = scene.connect(ECHO);
        scene.until("the greedy client is connected", |scene| scene.server.peers.len() == 1);
        // Its window fills, and then the server's buffers.
        scene.client.pause(greedy);
        scene.until("an answer that waits", |scene| {
            scene.send(greedy, &[0; 20_000]);
            scene.server.peers.values().any(|peer| !peer.waiting.is_empty())
        });
        let ping = scene.connect(ECHO);
        assert!(scene.client.send(ping, b"ping", scene.now).is_ok());
        scene.wait();
        scene.until("an answer", |scene| scene.heard(ping) == [b"ping"]);
        assert_eq!(scene.server.station.endpoint.connections(), 1, "that of the other client");
    }

    #[test]
    fn a_client_that_sends_nothing_of_its_file_leaves_its_place_to_others_after_a_while() {
        let (stop, directory) = (Stop::default(), tempfile::tempdir().unwrap());
        let store = Store::open(directory.path(), false).unwrap();
        let mut scene = Scene::new(&stop, Writer::start(move |name, size, key| store.begin(name, size, key)).unwrap());
        let offer = |scene: &mut Scene<'_>, name: &str| {
            let file = scene.connect(FILE);
            assert!(scene.client.send(file, &services::offer(1, name), scene.now).is_ok());
            scene.until("an answer", |scene| scene.heard(file).len() == 1);
            services::decode(&scene.heard(file)[0])
        };
        let taken = (0..MOST_FILES).take_while(|number| offer(&mut scene, &number.to_string()).is_ok()).count();
        assert!((MOST_FILES / 2..MOST_FILES).contains(&taken), "one station gets a part: {taken}");
        assert!(offer(&mut scene, "last").unwrap_err().contains("try again later"));
        scene.wait();
        scene.until("places", |scene| scene.server.files().count() == 0);
        assert_eq!(offer(&mut scene, "last"), Ok(()));
        let names = || std::fs::read_dir(directory.path()).unwrap().count();
        scene.until("the parts of the others are gone", |_| names() == 1);
    }

    #[test]
    fn files_that_the_writer_has_yet_to_remove_keep_their_places() {
        let (stop, directory) = (Stop::default(), tempfile::tempdir().unwrap());
        let (store, hold) = (Store::open(directory.path(), false).unwrap(), Arc::new(Mutex::new(())));
        let held = Arc::clone(&hold);
        let writer = Writer::start(move |name, size, key| {
            // The disk does not answer.
            drop(held.lock());
            store.begin(name, size, key)
        });
        let mut scene = Scene::new(&stop, writer.unwrap());
        let guard = hold.lock().unwrap();
        // Offers that are taken back at once, again and again.
        for number in 0..2 * MOST_FILES {
            let file = scene.connect(FILE);
            let offer = services::offer(1, &number.to_string());
            scene.until("connected", |scene| scene.client.status(file).is_some_and(|status| status.is_open));
            assert!(scene.client.send(file, &offer, scene.now).is_ok());
            scene.until("taken or refused", |scene| {
                scene.server.served.offered > number as u64 || scene.heard(file).len() == 1
            });
            scene.client.abort(file, scene.now);
            scene.until("gone", |scene| scene.server.peers.is_empty());
        }
        assert!((1..MOST_FILES).contains(&scene.server.leaving.len()), "{}", scene.server.leaving.len());
        drop(guard);
        scene.until("places", |scene| scene.server.files().count() == 0);
    }

    #[test]
    fn answers_that_wait_for_room_take_no_more_memory_than_a_station_may_have() {
        let stop = Stop::default();
        let mut scene = Scene::new(&stop, Writer::start(|_, _, _| Err(String::new())).unwrap());
        let greedy: Vec<_> = (0..4).map(|_| scene.connect(ECHO)).collect();
        scene.until("all are connected", |scene| scene.server.peers.len() == greedy.len());
        let peers: Vec<Connection> = scene.server.peers.keys().copied().collect();
        // As if so much waited for room already.
        for peer in scene.server.peers.values_mut().take(3) {
            peer.waiting.push_back(vec![0; 14 << 20]);
        }
        let mut more = 0;
        while scene.server.station.endpoint.connections() == 4 && more < 64 {
            scene.server.send(peers[0], vec![0; 1 << 20], scene.now);
            more += 1;
        }
        assert!((2..8).contains(&more), "{more} MiB more");
        scene.until("the connection is over", |scene| scene.server.peers.len() == 3);
    }

    #[test]
    fn clients_that_send_without_a_pause_do_not_keep_a_server_from_its_end() {
        let options = MemoryOptions { capacity: 8192, buffers: 4096, ..MemoryOptions::default() };
        let (near, mut far) = pair(&options).unwrap();
        let (stop, is_flooded) = (Stop::default(), Rc::new(Cell::new(false)));
        let (signal, flooded) = (stop.clone(), Rc::clone(&is_flooded));
        // The signal comes with the first acknowledgement of the flood, which gets lost.
        far.set_network(move |frame, queue| match flooded.get() {
            true => signal.store(true, Ordering::Relaxed),
            false => queue.push_back(frame),
        });
        let (mut client, endpoint) = (Endpoint::new(near, Options::default()), Endpoint::new(far, Options::default()));
        let mac = endpoint.mac();
        let mut station = Station::new("test", endpoint, Wait::Spin, &stop);
        station.endpoint.listen(SINK);
        let mut server = Server::new(station, None);
        let connection = client.connect(mac, SINK, 0).unwrap();
        // The client's congestion window grows.
        let mut now = 0;
        for _ in 0..20 {
            now += 100_000;
            while client.send(connection, b"message", now).is_ok() {}
            while client.poll(now).is_some() {}
            while !server.turn(now) {}
        }
        now += 100_000;
        server.turn(now);
        while client.poll(now).is_some() {}
        let before = client.counters().messages_sent;
        while client.send(connection, b"message", now).is_ok() {}
        client.flush();
        let waiting = client.counters().messages_sent - before;
        assert!(waiting > 500, "{waiting}");
        is_flooded.set(true);
        let taken = |server: &Server<'_, MemoryLink>| match server.peers.values().next() {
            Some(Peer { service: Service::Sink { tally, .. }, .. }) => tally.messages,
            _ => panic!("no connection"),
        };
        let before = taken(&server);
        server.serve().unwrap();
        let taken = taken(&server) - before;
        assert!(taken > 0 && taken < 300, "{taken} of {waiting}");
    }

    #[test]
    fn clients_that_come_at_the_end_do_not_keep_a_server_from_it() {
        let options = MemoryOptions::default();
        let (near, far) = pair(&options).unwrap();
        let stop = Stop::default();
        let (mut client, endpoint) = (Endpoint::new(near, Options::default()), Endpoint::new(far, Options::default()));
        let mac = endpoint.mac();
        let mut station = Station::new("test", endpoint, Wait::Spin, &stop);
        station.endpoint.listen(SINK);
        let mut server = Server::new(station, None);
        let connections: Vec<_> = (0..20).map(|_| client.connect(mac, SINK, 0).unwrap()).collect();
        client.flush();
        while !server.turn(0) {}
        // They are accepted, but the server has heard nothing of them since.
        while client.poll(0).is_some() {}
        for connection in connections {
            while client.send(connection, b"message", 0).is_ok() {}
        }
        client.flush();
        let waiting = options.capacity - client.link().room();
        assert!(waiting > 50, "{waiting}");
        stop.store(true, Ordering::Relaxed);
        server.serve().unwrap();
        let left = options.capacity - client.link().room();
        assert!(left > waiting - 10, "{left} of {waiting}");
    }
}
