//! Waking a port's client.

use std::time::Duration;

use super::event::CallReason;
use super::moderation::Moderation;

/// Result of ringing a port's bell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// The client does not want a call.
    Unwanted,
    /// The client wanted a call, and was called.
    Called,
    /// The bell could not tell, because another thread holds a lock that it needs. The bell is rung again soon.
    Busy,
    /// The client wants calls that are not made before the time of [`Bell::held_until`]. The bell is rung again then, even if there are no
    /// further frames. Not for bells that moderate themselves.
    Held {
        /// True if the client was also called now.
        called: bool,
    },
    /// A call may be due at a later time. A poller calls [`Bell::ring_due`] then, even if there are no further frames.
    /// Only bells that moderate themselves ([`Bell::moderate`]) return this.
    Later {
        /// The time, in nanoseconds of the pollers' clock.
        due: u64,
        /// True if the client was also called now.
        called: bool,
    },
}

/// Wakes a port's client. Several pollers may call it at the same time.
///
/// A pass rings the bells of the ports that it served after all its stores to client memory, and after a full fence. A
/// bell may also be rung when there is no event, so a client must check for events after each call.
///
/// # Example
/// A client that is a thread in this process. Before it parks, it sets the flag of the event that it waits for, and then checks
/// once more: an event that comes in between must not be missed. The bell clears the flag, so that each wait gets one call.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::thread::{self, Thread};
///
/// use ringway_switch::{CallResult, Bell, CallReason};
///
/// #[derive(Default)]
/// struct Waiting {
///     for_frames: AtomicBool,
///     for_room: AtomicBool,
/// }
///
/// struct Unpark {
///     client: Thread,
///     waiting: Arc<Waiting>,
/// }
///
/// impl Bell for Unpark {
///     fn ring(&self, reason: CallReason) -> CallResult {
///         let flag = match reason {
///             CallReason::Frames => &self.waiting.for_frames,
///             CallReason::Room => &self.waiting.for_room,
///         };
///         // The load alone is cheap while the client is awake. The swap lets one of several pollers make the call.
///         if !flag.load(Ordering::SeqCst) || !flag.swap(false, Ordering::SeqCst) {
///             return CallResult::Unwanted;
///         }
///         self.client.unpark();
///         CallResult::Called
///     }
/// }
///
/// let waiting = Arc::new(Waiting::default());
/// let bell = Unpark { client: thread::current(), waiting: waiting.clone() };
/// assert_eq!(bell.ring(CallReason::Frames), CallResult::Unwanted);
/// waiting.for_frames.store(true, Ordering::SeqCst);
/// assert_eq!(bell.ring(CallReason::Room), CallResult::Unwanted);
/// assert_eq!(bell.ring(CallReason::Frames), CallResult::Called);
/// thread::park(); // Returns at once.
/// assert_eq!(bell.ring(CallReason::Frames), CallResult::Unwanted);
/// ```
pub trait Bell: Send + Sync {
    /// Wakes the client if it waits for this event. A client that waits for another event is not woken.
    fn ring(&self, reason: CallReason) -> CallResult;

    /// Rings at the time that the bell named in [`CallResult::Later`]. `due` is that time. The poller may call this before
    /// that time.
    fn ring_due(&self, reason: CallReason, due: u64) -> CallResult {
        let _ = due;
        self.ring(reason)
    }

    /// Sets the moderation of this port's calls. Returns true if the bell moderates its calls itself. Then the port
    /// does not hold them back.
    fn moderate(&self, moderation: Moderation) -> bool {
        let _ = moderation;
        false
    }

    /// For a bell that moderates its calls itself: the least time between two calls at present.
    fn call_interval(&self) -> Option<Duration> {
        None
    }

    /// The time before which the client should not be called, because of what its calls have cost, in nanoseconds of the pollers' clock. 0:
    /// there is none. A bell that moderates itself waits itself, and returns 0.
    fn held_until(&self) -> u64 {
        0
    }

    /// Nobody makes the calls that the bell named in [`CallResult::Later`] until now: the bell names them again when it is rung.
    fn forget_calls(&self) {}

    /// Returns true if a call blocked for too long. The port ends then ([`super::PortFault::CallBlocked`]), and its
    /// client is not called again.
    fn is_blocked(&self) -> bool {
        false
    }
}
