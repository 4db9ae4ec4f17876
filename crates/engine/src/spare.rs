//! Threads that wait to become a poller's.
//!
//! Such a thread has its stack and all other memory that it needs. The kernel may keep every thread that maps memory just when it is wanted: a page
//! fault that waits while its page is punched has the lock of the process's mappings.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::poller_state::PollerState;

/// A thread that waits.
#[derive(Debug)]
pub(crate) struct Spare {
    begin: SyncSender<Arc<PollerState>>,
    begun: Receiver<io::Result<()>>,
    thread: JoinHandle<()>,
}

/// What the thread waits for.
pub(crate) struct Order {
    begin: Receiver<Arc<PollerState>>,
    begun: Begun,
}

/// Says whether the thread serves the poller.
pub(crate) struct Begun(SyncSender<io::Result<()>>);

impl Spare {
    /// Starts a thread of this name.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub(crate) fn start(name: String, run: impl FnOnce(Order) + Send + 'static) -> io::Result<Spare> {
        let (begin, order) = sync_channel(1);
        let (say, begun) = sync_channel(1);
        let order = Order { begin: order, begun: Begun(say) };
        let thread = Builder::new().name(name).spawn(move || run(order))?;
        Ok(Spare { begin, begun, thread })
    }

    /// Makes the thread that of a poller.
    ///
    /// # Errors
    /// What the thread says.
    pub(crate) fn begin(self, state: Arc<PollerState>) -> io::Result<JoinHandle<()>> {
        let ended = || io::Error::other("the poller ended before it started");
        self.begin.send(state).map_err(|_| ended())?;
        self.begun.recv().map_err(|_| ended())??;
        Ok(self.thread)
    }

    /// Ends the thread.
    pub(crate) fn end(self) {
        drop(self.begin);
        let _ = self.thread.join();
    }
}

impl Order {
    /// Waits until the thread is wanted. `None`: it ends.
    pub(crate) fn wait(self) -> Option<(Arc<PollerState>, Begun)> {
        Some((self.begin.recv().ok()?, self.begun))
    }
}

impl Begun {
    /// Returns false if nobody waits for the thread.
    pub(crate) fn say(self, begun: io::Result<()>) -> bool {
        self.0.send(begun).is_ok()
    }
}
