//! Pipes of the netmap API that have an end in use. Pollers serve each end as a mover.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use ringway_abi::netmap::{Family, PipeRole};
use ringway_config::Name;
use ringway_engine::{Attached, Client, Ends, Place, Source};
use ringway_port_process::{ClientId, Pipe, Process, RegionPort};
use ringway_switch::{self as data, PortFault};

/// A pipe: the port that it belongs to, and its identifier.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PipeName {
    pub switch: Name,
    pub port: Name,
    pub id: String,
}

/// An end of a pipe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndName {
    pub pipe: PipeName,
    pub role: PipeRole,
}

impl EndName {
    /// Returns the name without the switch: `PORT{ID`.
    pub fn name(&self) -> String {
        format!("{}{}{}", self.pipe.port, self.role.sign(), self.pipe.id)
    }
}

impl fmt::Display for EndName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.pipe.switch, self.name())
    }
}

/// An end in use.
#[derive(Debug)]
pub struct LiveEnd {
    pub family: Family,
    /// The process that opened it.
    pub process: Process,
    /// What its registrations share.
    pub shared: Arc<RegionPort>,
    pub port: Arc<data::Port>,
    pub source: Arc<Source>,
    pub members: HashSet<ClientId>,
}

/// A pipe with one or two ends in use.
#[derive(Debug)]
pub struct LivePipe {
    pub pipe: Arc<Pipe>,
    /// The poller of both ends.
    pub poller: usize,
    ends: [Option<LiveEnd>; 2],
}

/// All pipes.
#[derive(Debug, Default)]
pub struct Pipes {
    pipes: BTreeMap<PipeName, LivePipe>,
    /// The end that each client with a registration of one has.
    clients: HashMap<ClientId, EndName>,
}

impl Pipes {
    /// Returns the number of ends in use.
    pub fn ends(&self) -> usize {
        self.ends_in_use().count()
    }

    /// Returns the ends in use.
    pub fn ends_in_use(&self) -> impl Iterator<Item = (EndName, &LiveEnd)> {
        self.pipes.iter().flat_map(|(pipe, live)| {
            let roles = [PipeRole::Master, PipeRole::Slave].into_iter();
            roles.filter_map(|role| Some((EndName { pipe: pipe.clone(), role }, live.ends[role as usize].as_ref()?)))
        })
    }

    /// Returns the pipe of this name.
    pub fn pipe(&self, name: &PipeName) -> Option<&LivePipe> {
        self.pipes.get(name)
    }

    /// Returns an end in use.
    pub fn end(&self, end: &EndName) -> Option<&LiveEnd> {
        self.pipes.get(&end.pipe)?.ends[end.role as usize].as_ref()
    }

    /// Returns the ends whose ports have a fault.
    pub fn faulty(&self) -> Vec<(EndName, PortFault)> {
        self.ends_in_use().filter_map(|(end, live)| Some((end, live.port.fault()?))).collect()
    }

    /// Returns true if an end that was opened can be added: no other thread has opened it, or made the pipe, meanwhile.
    pub fn may_insert(&self, end: &EndName, pipe: &Arc<Pipe>) -> bool {
        let live = self.pipes.get(&end.pipe);
        live.is_none_or(|live| Arc::ptr_eq(&live.pipe, pipe) && live.ends[end.role as usize].is_none())
    }

    /// Adds an end, of a new pipe or of one whose other end is in use.
    pub fn insert(&mut self, end: EndName, pipe: Arc<Pipe>, poller: usize, live: LiveEnd) {
        self.clients.extend(live.members.iter().map(|&client| (client, end.clone())));
        let entry = self.pipes.entry(end.pipe);
        let pipe = entry.or_insert_with(|| LivePipe { pipe, poller, ends: [None, None] });
        pipe.ends[end.role as usize] = Some(live);
        pipe.name_clients();
    }

    /// Adds a registration of an end in use. Returns false, without effect, if the end has gone.
    pub fn join(&mut self, end: &EndName, shared: &Arc<RegionPort>, client: ClientId) -> bool {
        let live = self.pipes.get_mut(&end.pipe).and_then(|pipe| pipe.ends[end.role as usize].as_mut());
        let Some(live) = live.filter(|live| Arc::ptr_eq(&live.shared, shared)) else { return false };
        live.members.insert(client);
        self.clients.insert(client, end.clone());
        true
    }

    /// Removes a registration. Returns the end whose last one this was.
    pub fn leave(&mut self, client: ClientId) -> Option<EndName> {
        let end = self.clients.remove(&client)?;
        let live = self.pipes.get_mut(&end.pipe)?.ends[end.role as usize].as_mut()?;
        live.members.remove(&client);
        live.members.is_empty().then_some(end)
    }

    /// Closes an end and removes it, and its pipe if the other end is not in use. Returns the clients that had registrations.
    pub fn close(&mut self, end: &EndName) -> HashSet<ClientId> {
        let Some(pipe) = self.pipes.get_mut(&end.pipe) else { return HashSet::new() };
        let Some(live) = pipe.ends[end.role as usize].take() else { return HashSet::new() };
        pipe.pipe.close(end.role);
        if pipe.ends.iter().all(Option::is_none) {
            self.pipes.remove(&end.pipe);
        }
        live.members.iter().for_each(|client| _ = self.clients.remove(client));
        live.members
    }

    /// Returns the ends as pollers take them.
    pub fn attached(&self) -> impl Iterator<Item = Attached> {
        self.pipes.values().flat_map(|pipe| {
            let [master, slave] = pipe.ends.each_ref().map(Option::as_ref);
            let ends = [(master, slave), (slave, master)].into_iter();
            ends.filter_map(|(end, peer)| Some(end?.attached(peer, pipe.poller)))
        })
    }
}

impl LiveEnd {
    fn attached(&self, peer: Option<&LiveEnd>, poller: usize) -> Attached {
        let ends = Ends { own: Arc::clone(&self.port), peer: peer.map(|peer| Arc::clone(&peer.port)) };
        Attached { place: Place::Mover(ends), source: Arc::clone(&self.source), poller, weight: 1 }
    }
}

impl LivePipe {
    /// The mover of each end touches the memory of both. What stalls there may stall in all pipes between the two processes.
    fn name_clients(&self) {
        let mut processes = self.ends.iter().flatten().map(|end| end.process);
        let client = match [processes.next(), processes.next()] {
            [Some(Some(one)), Some(Some(other))] => Client::of_pair([one.get(), other.get()]),
            [Some(Some(one)), None] => Client::of_process(one.get()),
            _ => Arc::default(),
        };
        self.ends.iter().flatten().for_each(|end| end.source.set_client(Arc::clone(&client)));
    }
}

#[cfg(test)]
mod tests {
    use ringway_abi::netmap::{FAMILY_BYTES, Wish};
    use ringway_port_process::Region;

    use super::*;

    fn end() -> EndName {
        let name = |text: &str| text.parse().expect("a name");
        EndName { pipe: PipeName { switch: name("lan0"), port: name("a"), id: "1".to_owned() }, role: PipeRole::Master }
    }

    /// Opens the end for this client. Returns what its registrations share.
    fn open(pipes: &mut Pipes, client: ClientId) -> Arc<RegionPort> {
        let wish = Wish { tx_slots: 16, rx_slots: 16, ..Wish::default() };
        let region = Region::new(1, &wish, 16 << 20).expect("a region");
        let pipe = Pipe::new(PipeRole::Master, &wish);
        let (io, shared) = pipe.open(PipeRole::Master, &region, 0, None).expect("an end");
        let live = LiveEnd {
            family: Family([0; FAMILY_BYTES]),
            process: None,
            shared: Arc::clone(&shared),
            port: Arc::new(data::Port::without_output("p", io.bell)),
            source: Arc::new(Source::of_mover(io.mover, io.signal)),
            members: HashSet::from([client]),
        };
        pipes.insert(end(), pipe, 0, live);
        shared
    }

    #[test]
    fn a_registration_does_not_join_an_end_that_has_gone_or_is_another_one_by_now() {
        let (mut pipes, clients) = (Pipes::default(), [1, 2, 3].map(ClientId));
        let first = open(&mut pipes, clients[0]);
        assert!(pipes.join(&end(), &first, clients[1]));
        assert_eq!(pipes.close(&end()), HashSet::from([clients[0], clients[1]]));
        assert!(!pipes.join(&end(), &first, clients[2]), "it has gone");
        let second = open(&mut pipes, clients[0]);
        assert!(!pipes.join(&end(), &first, clients[2]), "another one has its name");
        assert!(pipes.join(&end(), &second, clients[2]));
    }
}
