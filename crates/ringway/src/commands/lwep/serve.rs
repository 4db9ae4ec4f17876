//! `ringway lwep serve`: answers `ping`, counts for `bandwidth`, takes files of `send`, for many clients at once.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ringway_link::Link;
use ringway_lwep::{Connection, Endpoint, Event, Nanos, SendError};
use ringway_traffic::Mac;
use serde::Serialize;

use super::files::{Incoming, Store};
use super::port::PortArgs;
use super::report::{Counted, report};
use super::services::{self, ECHO, FILE, SINK, Tally, Verdict};
use super::station::Station;
use crate::commands::r#gen::{GenError, Stop};
use crate::context::Context;

/// A client that is silent for so long is asked whether it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Events that are handled between two readings of the clock.
const EVENTS_PER_LOOK: u32 = 64;
/// Most files on their way at once.
const MOST_FILES: usize = 64;

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
    /// Most connections at once
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: u32,
    #[command(flatten)]
    common: PortArgs,
}

/// What a connection is for.
enum Service {
    Echo,
    Sink { tally: Tally, first: Nanos },
    File(Option<Incoming>),
}

/// A connection.
struct Peer {
    service: Service,
    /// Messages for which there was no room yet. No further ones are taken meanwhile.
    waiting: VecDeque<Vec<u8>>,
    /// The client sends nothing any more.
    is_finished: bool,
    /// Nothing follows what waits.
    is_over: bool,
}

/// What a server has done.
#[derive(Debug, Default, Serialize)]
struct Served {
    connections: u64,
    echoed: u64,
    sunk: Sunk,
    files: u64,
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
        let Served { connections, echoed, sunk: Sunk { messages, bytes }, files } = &self.served;
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
    store: Option<Store>,
    served: Served,
    /// A message on its way from the endpoint to a service.
    message: Vec<u8>,
}

/// Runs the command.
pub fn run(args: &Args, context: &Context, stop: &Stop) -> Result<(), GenError> {
    let store = args.save.as_deref().map(|directory| Store::open(directory, args.overwrite)).transpose();
    let store = store.map_err(|why| GenError::Usage(format!("--save {why}")))?;
    let mut station = args.common.open(&args.port, context, stop, |options| {
        options.connections = args.connections;
        options.keep_alive = Some(KEEP_ALIVE.as_nanos() as Nanos);
    })?;
    [ECHO, SINK, FILE].into_iter().for_each(|service| station.endpoint.listen(service));
    // A client that asks the daemon finds the address of a port. That of another interface has to be told.
    eprintln!("ringway lwep serve: at {}, address {}", args.port, Mac(station.endpoint.mac()));
    let message = Vec::new();
    let mut server = Server { station, peers: BTreeMap::new(), store, served: Served::default(), message };
    server.serve()?;
    let counted = Counted::of(&mut server.station.endpoint);
    report(&Report { served: server.served, counted }, args.common.json);
    Ok(())
}

impl<L: Link> Server<'_, L> {
    fn serve(&mut self) -> Result<(), GenError> {
        while !self.station.is_stopped() {
            let mut events = 0;
            let mut now = self.station.now();
            while let Some(event) = self.station.endpoint.poll(now) {
                events += 1;
                match event {
                    Event::Accepted { connection, service } => self.accept(connection, service),
                    Event::Message { connection, data } => {
                        if let Some(Peer { service: Service::Sink { tally, first }, .. }) =
                            self.peers.get_mut(&connection)
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
                    Event::Ended { connection, .. } => {
                        if let Some(Peer { service: Service::Sink { tally, .. }, .. }) = self.peers.remove(&connection)
                        {
                            self.served.sunk.messages += tally.messages;
                            self.served.sunk.bytes += tally.bytes;
                        }
                    }
                    Event::Connected { .. } => {}
                }
                // Clients that send without a pause must not stop the clock, nor signals.
                if events % EVENTS_PER_LOOK == 0 {
                    if self.station.is_stopped() {
                        break;
                    }
                    now = self.station.now();
                }
            }
            self.station.pause(Duration::MAX)?;
            let (peers, served) = (self.peers.len(), &self.served);
            self.station.tell(now, || {
                format!("{peers} connections, {} messages sent back, {} files", served.echoed, served.files)
            });
        }
        let now = self.station.now();
        for connection in self.peers.keys() {
            self.station.endpoint.abort(*connection, now);
        }
        while self.station.endpoint.poll(now).is_some() {}
        self.station.settle();
        Ok(())
    }

    fn accept(&mut self, connection: Connection, service: u32) {
        self.served.connections += 1;
        let service = match service {
            ECHO => Service::Echo,
            SINK => Service::Sink { tally: Tally::default(), first: Nanos::MAX },
            _ => Service::File(None),
        };
        let peer = Peer { service, waiting: VecDeque::new(), is_finished: false, is_over: false };
        self.peers.insert(connection, peer);
    }

    /// Handles `self.message`. Writes to files go to the page cache, a message at a time.
    fn take(&mut self, connection: Connection, now: Nanos) {
        let files = self.peers.values().filter(|peer| matches!(peer.service, Service::File(Some(_)))).count();
        let Some(peer) = self.peers.get_mut(&connection).filter(|peer| !peer.is_over) else { return };
        match &mut peer.service {
            Service::Sink { .. } => {}
            Service::Echo => {
                self.served.echoed += 1;
                let message = std::mem::take(&mut self.message);
                self.message = self.send(connection, message, now);
            }
            Service::File(Some(file)) => {
                if let Err(why) = file.add(&self.message) {
                    self.judge(connection, Err(why), now);
                }
            }
            Service::File(place) => {
                let begun = match (&self.store, services::offered(&self.message)) {
                    (None, _) => Err("takes no files: \"lwep serve --save DIR\" does".to_owned()),
                    (_, None) => Err("this is no file: the client is of another version".to_owned()),
                    _ if files >= MOST_FILES => Err(format!("{MOST_FILES} files are on their way: try again later")),
                    (Some(store), Some((size, name))) => store.begin(name, size, self.served.connections),
                };
                let verdict = begun.map(|file| *place = Some(file));
                self.judge(connection, verdict, now);
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
            Service::File(file) if !peer.is_over => {
                let verdict = file.take().map_or_else(|| Err("no file came".to_owned()), Incoming::finish);
                self.served.files += u64::from(verdict.is_ok());
                self.judge(connection, verdict, now);
            }
            Service::File(_) => {}
        }
        self.close(connection, now);
    }

    /// Sends no more than what waits already.
    fn close(&mut self, connection: Connection, now: Nanos) {
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        if let Service::File(file) = &mut peer.service {
            *file = None;
        }
        let was_over = std::mem::replace(&mut peer.is_over, true);
        if peer.waiting.is_empty() && !was_over {
            // Refused only if the connection has ended, which an event tells.
            let _ = self.station.endpoint.close(connection, now);
        }
    }

    /// Sends a message, or keeps it until there is room. Returns a vector to use again.
    fn send(&mut self, connection: Connection, message: Vec<u8>, now: Nanos) -> Vec<u8> {
        let Some(peer) = self.peers.get_mut(&connection) else { return message };
        let is_first = peer.waiting.is_empty();
        if is_first && !is_full(&mut self.station.endpoint, connection, &message, now) {
            return message;
        }
        self.station.endpoint.pause(connection);
        peer.waiting.push_back(message);
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
        self.station.endpoint.resume(connection);
        if peer.is_over {
            let _ = self.station.endpoint.close(connection, now);
        }
    }
}

/// Sends a message. Returns true if it has to wait. A message that the client cannot take ends the connection.
fn is_full<L: Link>(endpoint: &mut Endpoint<L>, connection: Connection, message: &[u8], now: Nanos) -> bool {
    match endpoint.send_long(connection, message, now) {
        Ok(()) | Err(SendError::Over) => false,
        Err(SendError::Full) => true,
        Err(SendError::TooLong) => {
            endpoint.abort(connection, now);
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::atomic::Ordering;

    use ringway_link::memory::{MemoryLink, MemoryOptions, pair};
    use ringway_lwep::Options;

    use super::*;
    use crate::commands::lwep::station::Wait;

    /// Takes all events.
    fn take(server: &mut Server<'_, MemoryLink>, now: Nanos) {
        loop {
            let asked = match server.station.endpoint.poll(now) {
                Some(Event::Accepted { connection, service }) => Some((connection, service)),
                Some(_) => None,
                None => break,
            };
            if let Some((connection, service)) = asked {
                server.accept(connection, service);
            }
        }
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
        let (peers, served, message) = (BTreeMap::new(), Served::default(), Vec::new());
        let mut server = Server { station, peers, store: None, served, message };
        let connection = client.connect(mac, SINK, 0).unwrap();
        let (mut now, mut before) = (0, 0);
        // The client's congestion window grows. At last the server does not take what the client has sent.
        for step in 0..=10 {
            if step > 0 {
                take(&mut server, now);
                // Acknowledgements that are owed go out later.
                take(&mut server, now + 50_000);
            }
            now += 100_000;
            before = client.counters().frames_sent;
            while client.send(connection, b"message", now).is_ok() {}
            // A connection sends some messages at its turn.
            for _ in 0..64 {
                while client.poll(now).is_some() {}
            }
        }
        let waiting = client.counters().frames_sent - before;
        assert!(waiting > 300, "{waiting}");
        is_flooded.set(true);
        server.serve().unwrap();
        let Some(Peer { service: Service::Sink { tally, .. }, .. }) = server.peers.values().next() else {
            panic!("no connection")
        };
        assert!(tally.messages > 0 && tally.messages <= 200, "{} of {waiting}", tally.messages);
    }
}
