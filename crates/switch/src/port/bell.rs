//! Waking a port's client.

use super::event::News;
use super::moderation::Moderation;

/// What came of asking a client whether it wants a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It does not.
    Unwanted,
    /// It did, and was called.
    Called,
    /// It could not be asked: somebody has what that takes. It is asked again soon.
    Busy,
    /// It wants a call at a time to come: [`Bell::ring_due`] then, whatever else there is. Only bells that moderate
    /// themselves ([`Bell::moderate`]) say so.
    Later {
        /// Nanoseconds of the pollers' clock.
        due: u64,
        /// It was called now, too.
        called: bool,
    },
}

/// Wakes a port's client. Called after everything of a pass is published and fenced; may be called at any time.
pub trait Bell: Send + Sync {
    /// Wakes the client if it asked for that. A client that waits for something else sleeps on.
    fn ring(&self, news: News) -> Asked;

    /// Rings as [`Asked::Later`] asked for, `due` being what it said; at times early.
    fn ring_due(&self, news: News, due: u64) -> Asked {
        let _ = due;
        self.ring(news)
    }

    /// Sees to moderation itself, if true: the port does not hold its calls back.
    fn moderate(&self, moderation: Moderation) -> bool {
        let _ = moderation;
        false
    }

    /// Whether a call lasted. The client goes then ([`super::PortFault::CallBlocked`]), and is not called again.
    fn is_blocked(&self) -> bool {
        false
    }
}
