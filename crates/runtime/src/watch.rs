//! The descriptors that wake a port's poller: each is in the poller's own epoll set, and no epoll instance is ever in another.
//!
//! The kernel takes a lock that all processes share (`epnested_mutex`) when it adds an epoll instance to another one, or adds anything to an
//! instance that another one watches. Any user can hold that lock for as long as they like (`docs/decisions/waits.md`), and a poller would wait. So a
//! port has no epoll instance of its own: this list holds its descriptors, which move from poller to poller with the port.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::{self, EventData, EventFlags};

/// A descriptor that its owner and a [`Watch`] share.
pub type Shared = Arc<dyn AsFd + Send + Sync>;

/// The descriptors that wake a port's poller. They may come and go while the port is served. A descriptor that a client gave has to be an
/// eventfd.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<Watched>>);

#[derive(Default)]
struct Watched {
    descriptors: Vec<Shared>,
    /// The epoll set of the poller that serves the port, and the port's token in it.
    set: Option<(Arc<OwnedFd>, u64)>,
}

impl Watch {
    /// No descriptor yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a descriptor. Each change of it to readable wakes the poller, also one that has happened already.
    ///
    /// # Errors
    /// The kernel cannot watch it, or the user watches too much (`fs.epoll.max_user_watches`). It is not added then.
    pub fn add(&self, descriptor: Shared) -> io::Result<()> {
        let mut watched = self.lock();
        watched.descriptors.try_reserve(1)?;
        if let Some((set, token)) = &watched.set {
            add(set, &descriptor, *token)?;
        }
        watched.descriptors.push(descriptor);
        Ok(())
    }

    /// Removes a descriptor and returns it, so that the caller decides where it is closed. `None`: it is not here.
    pub fn remove(&self, descriptor: &impl AsFd) -> Option<Shared> {
        let number = descriptor.as_fd().as_raw_fd();
        let mut watched = self.lock();
        let place = watched.descriptors.iter().position(|here| here.as_fd().as_raw_fd() == number)?;
        let removed = watched.descriptors.swap_remove(place);
        if let Some((set, _)) = &watched.set {
            // Closing the descriptor does not remove it from the set while another process has it open.
            let _ = epoll::delete(set, &*removed);
        }
        Some(removed)
    }

    /// Has the descriptors wake the poller with this set. They no longer wake the one before.
    pub fn enter(&self, set: &Arc<OwnedFd>, token: u64) {
        let mut watched = self.lock();
        watched.leave();
        for descriptor in &watched.descriptors {
            // If epoll refused a descriptor, the port would be served only while the poller is awake. Kinds add valid ones.
            let _ = add(set, descriptor, token);
        }
        watched.set = Some((Arc::clone(set), token));
    }

    /// The poller with this set does not serve the port any more. Another one may already.
    pub fn leave(&self, set: &Arc<OwnedFd>) {
        let mut watched = self.lock();
        if watched.set.as_ref().is_some_and(|(current, _)| Arc::ptr_eq(current, set)) {
            watched.leave();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Watched> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watched {
    fn leave(&mut self) {
        if let Some((set, _)) = self.set.take() {
            for descriptor in &self.descriptors {
                let _ = epoll::delete(&set, &**descriptor);
            }
        }
    }
}

/// Edge-triggered, so that no eventfd has to be read: each write is an edge.
fn add(set: &OwnedFd, descriptor: &Shared, token: u64) -> io::Result<()> {
    let events = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    Ok(epoll::add(set, &**descriptor, EventData::new_u64(token), events)?)
}

impl From<OwnedFd> for Watch {
    fn from(descriptor: OwnedFd) -> Self {
        Watch(Arc::new(Mutex::new(Watched { descriptors: vec![Arc::new(descriptor)], set: None })))
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.lock();
        f.debug_struct("Watch").field("descriptors", &watched.descriptors.len()).field("set", &watched.set).finish()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::Timespec;
    use rustix::event::epoll::CreateFlags;

    use super::*;

    fn new_eventfd() -> io::Result<OwnedFd> {
        Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK)?)
    }

    fn set() -> Arc<OwnedFd> {
        Arc::new(epoll::create(CreateFlags::CLOEXEC).expect("an epoll set"))
    }

    /// The tokens of the events that have come.
    fn events(set: &OwnedFd) -> Vec<u64> {
        let mut events = Vec::with_capacity(8);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(set, rustix::buffer::spare_capacity(&mut events), Some(&now)).expect("events");
        events.iter().map(|event| { event.data }.u64()).collect()
    }

    fn write(eventfd: &OwnedFd) {
        rustix::io::write(eventfd, &1u64.to_ne_bytes()).expect("a write");
    }

    #[test]
    fn what_is_watched_moves_with_its_port_and_a_kick_between_two_pollers_is_not_lost() {
        let (first, second) = (set(), set());
        let kicks = [(); 2].map(|()| Arc::new(new_eventfd().expect("an eventfd")));
        let watch = Watch::new();
        for kick in &kicks {
            watch.add(kick.clone()).expect("a place");
        }
        write(&kicks[0]);
        watch.enter(&first, 7);
        assert_eq!(events(&first), [7], "a kick before anybody looked");
        write(&kicks[1]);
        watch.enter(&second, 8);
        assert_eq!(events(&first), [] as [u64; 0], "the port has moved");
        assert_eq!(events(&second), [8, 8], "a kick that the first poller did not see");
        // The first poller lets go after the second one has the port.
        watch.leave(&first);
        write(&kicks[0]);
        assert_eq!(events(&second), [8]);
    }

    #[test]
    fn a_removed_descriptor_wakes_nobody_though_its_client_keeps_it() {
        let set = set();
        let (watch, kick) = (Watch::new(), Arc::new(new_eventfd().expect("an eventfd")));
        let clients = kick.try_clone().expect("a copy");
        watch.enter(&set, 1);
        watch.add(kick.clone()).expect("a place");
        write(&clients);
        assert_eq!(events(&set), [1]);
        let removed = watch.remove(&*kick).expect("it is watched");
        write(&clients);
        assert_eq!(events(&set), [] as [u64; 0]);
        drop(removed);
        assert_eq!(Arc::strong_count(&kick), 1, "nothing keeps it");
        assert!(watch.remove(&*kick).is_none());
        // The next connection's is watched at once.
        let next = Arc::new(new_eventfd().expect("an eventfd"));
        watch.add(next.clone()).expect("a place");
        write(&next);
        assert_eq!(events(&set), [1]);
        watch.leave(&set);
        write(&next);
        assert_eq!(events(&set), [] as [u64; 0]);
    }
}
