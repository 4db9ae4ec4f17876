//! A link within this process, for tests and examples. The link can also do to frames what a broken network does.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use crate::endpoint::Endpoint;

/// A fault of the link, applied to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No fault: the frame arrives as sent.
    None,
    /// The frame is lost.
    Drop,
    /// The frame arrives twice.
    Duplicate,
    /// The frame arrives after the next one.
    Swap,
    /// The byte at this index (modulo the length) arrives inverted.
    Corrupt(usize),
    /// The last byte is missing.
    Shorten,
}

type FaultPlan = Box<dyn FnMut(u64) -> Fault + Send>;

#[derive(Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    held: Option<Vec<u8>>,
    pushed: u64,
    faults: Option<FaultPlan>,
}

#[derive(Default)]
struct Pipe {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One end of a [`pair`].
pub struct MemoryEndpoint {
    tx: Arc<Pipe>,
    rx: Arc<Pipe>,
    capacity: usize,
}

/// Returns two connected endpoints. Each direction holds up to `capacity` frames.
#[must_use]
pub fn pair(capacity: usize) -> (MemoryEndpoint, MemoryEndpoint) {
    let (there, back) = (Arc::<Pipe>::default(), Arc::<Pipe>::default());
    let a = MemoryEndpoint { tx: there.clone(), rx: back.clone(), capacity };
    (a, MemoryEndpoint { tx: back, rx: there, capacity })
}

impl MemoryEndpoint {
    /// Sets the faults of frames sent from here: `plan` gets the number of each frame, from 0.
    pub fn set_faults(&mut self, plan: impl FnMut(u64) -> Fault + Send + 'static) {
        self.tx.lock().faults = Some(Box::new(plan));
    }
}

impl Endpoint for MemoryEndpoint {
    fn tx_room(&mut self) -> usize {
        self.capacity.saturating_sub(self.tx.lock().frames.len())
    }

    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.tx_room() == 0 {
            return false;
        }
        let mut frame = vec![0x5a; len];
        fill(&mut frame);
        let mut queue = self.tx.lock();
        let number = queue.pushed;
        queue.pushed += 1;
        let fault = queue.faults.as_mut().map_or(Fault::None, |plan| plan(number));
        let held = queue.held.take();
        match fault {
            Fault::None => queue.frames.push_back(frame),
            Fault::Drop => {}
            Fault::Duplicate => queue.frames.extend([frame.clone(), frame]),
            Fault::Swap => queue.held = Some(frame),
            Fault::Corrupt(place) => {
                frame[place % len] ^= 0xff;
                queue.frames.push_back(frame);
            }
            Fault::Shorten => {
                frame.pop();
                queue.frames.push_back(frame);
            }
        }
        queue.frames.extend(held);
        true
    }

    fn tx_flush(&mut self) {
        self.tx.changed.notify_all();
    }

    fn rx_batch(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut queue = self.rx.lock();
        let taken: Vec<_> = {
            let count = queue.frames.len().min(max);
            queue.frames.drain(..count).collect()
        };
        drop(queue);
        self.rx.changed.notify_all();
        taken.iter().for_each(|frame| take(frame));
        taken.len()
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        let pipe = if for_rx { &self.rx } else { &self.tx };
        let queue = pipe.lock();
        let blocked =
            |queue: &mut Queue| if for_rx { queue.frames.is_empty() } else { queue.frames.len() >= self.capacity };
        drop(pipe.changed.wait_timeout_while(queue, timeout, |queue| blocked(queue)));
        Ok(())
    }
}
