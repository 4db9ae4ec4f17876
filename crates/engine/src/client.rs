//! Whose memory a port's is: what keeps a thread at one port of a client may keep threads at all its ports.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// With so many threads that are kept at ports of one client, no thread touches any port of the client.
const STALLS_OF_CLIENT: usize = 2;

/// A client, or several that share memory: whom a port's memory belongs to.
#[derive(Debug, Default)]
pub struct Client {
    /// Number of threads that are kept in its memory.
    stalls: AtomicUsize,
}

/// The clients with several ports, by the numbers of their processes.
static CLIENTS: Mutex<Option<HashMap<[u32; 2], Weak<Client>>>> = Mutex::new(None);

impl Client {
    /// The client that is this process.
    #[must_use]
    pub fn of_process(process: u32) -> Arc<Client> {
        Client::of([process, 0])
    }

    /// The memory that these two processes share.
    #[must_use]
    pub fn of_pair(pair: [u32; 2]) -> Arc<Client> {
        let [one, other] = pair;
        if one == other { Client::of_process(one) } else { Client::of([one.min(other), one.max(other)]) }
    }

    fn of(key: [u32; 2]) -> Arc<Client> {
        let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = clients.get_or_insert_default();
        if let Some(client) = clients.get(&key).and_then(Weak::upgrade) {
            return client;
        }
        clients.retain(|_, client| client.strong_count() > 0);
        let client = Arc::default();
        clients.insert(key, Arc::downgrade(&client));
        client
    }

    /// A thread is kept in the client's memory from now on.
    fn begin_stall(&self) {
        self.stalls.fetch_add(1, Ordering::Relaxed);
    }

    /// A thread has been let go.
    fn end_stall(&self) {
        self.stalls.fetch_sub(1, Ordering::Relaxed);
    }

    /// Number of threads that are kept in the client's memory.
    fn stalls(&self) -> usize {
        self.stalls.load(Ordering::Relaxed)
    }
}

/// The memory of a port. Lives on after the port for those that have to know whose it was.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// What is this port's alone.
    own: Client,
    /// Whose it is, if that client has other ports.
    client: Mutex<Option<Arc<Client>>>,
}

impl Memory {
    pub(crate) fn set_client(&self, client: Arc<Client>) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }

    /// Returns true if no further thread should touch the memory.
    pub(crate) fn is_stalled(&self) -> bool {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        self.own.stalls() > 0 || client.as_ref().is_some_and(|client| client.stalls() >= STALLS_OF_CLIENT)
    }
}

/// A thread is kept in this memory until this is dropped.
#[derive(Debug)]
pub(crate) struct KeptIn {
    memory: Arc<Memory>,
    /// The client at that time.
    client: Option<Arc<Client>>,
}

impl KeptIn {
    pub(crate) fn new(memory: Arc<Memory>) -> KeptIn {
        let client = memory.client.lock().unwrap_or_else(PoisonError::into_inner).clone();
        memory.own.begin_stall();
        client.iter().for_each(|client| client.begin_stall());
        KeptIn { memory, client }
    }
}

impl Drop for KeptIn {
    fn drop(&mut self) {
        self.memory.own.end_stall();
        self.client.iter().for_each(|client| client.end_stall());
    }
}
