//! Closes descriptors on threads of their own: a last close can wait for the kernel's lock of network devices, or for what a client does.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::net::SendFlags;

use crate::message::{Message, send};

/// Most threads.
const THREADS_MOST: usize = 32;

/// Files that a thread closes, and the switch's number for them, which the thread sends back then.
type Work = (Vec<OwnedFd>, Option<(u64, Arc<OwnedFd>)>);

/// What is not closed yet. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Work>,
    threads: usize,
    unclosed: usize,
}

impl Closing {
    /// Closes these files, and tells the switch then, if it wants to know.
    pub(super) fn close(&self, files: Vec<OwnedFd>, tell: Option<(u64, Arc<OwnedFd>)>) {
        if files.is_empty() {
            return say(tell);
        }
        let mut queue = self.0.lock();
        queue.unclosed += files.len();
        queue.waiting.push_back((files, tell));
        if queue.threads < THREADS_MOST {
            queue.threads += 1;
            drop(queue);
            let here = self.clone();
            let thread = std::thread::Builder::new().name("closing".to_owned()).spawn(move || here.work());
            if thread.is_err() {
                // The next one that is started does it.
                self.0.lock().threads -= 1;
            }
        }
    }

    /// How many files are not closed yet.
    pub(super) fn unclosed(&self) -> usize {
        self.0.lock().unclosed
    }

    fn work(&self) {
        loop {
            let next = {
                let mut queue = self.0.lock();
                let next = queue.waiting.pop_front();
                queue.threads -= usize::from(next.is_none());
                next
            };
            let Some((files, tell)) = next else { return };
            let number = files.len();
            drop(files);
            self.0.lock().unclosed -= number;
            say(tell);
        }
    }
}

/// Tells the switch that files are closed. It goes on without that, should there be no room.
fn say(tell: Option<(u64, Arc<OwnedFd>)>) {
    if let Some((token, socket)) = tell {
        let _ = send(&*socket, &Message::Released { token }, &[], SendFlags::DONTWAIT);
    }
}
