//! What an endpoint tells its program.

use std::ffi::{c_int, c_void};
use std::ptr;

use ringway_lwep::{Event, Reason};

use super::endpoint::Lwep;
use super::held::Held;
use super::send::LwepBuffer;
use crate::error::RINGWAY_E_ARGUMENT;

/// A kind of event: the peer has accepted a connection.
pub const RINGWAY_LWEP_CONNECTED: u32 = 1;
/// A kind of event: a peer has connected to `service` of this endpoint.
pub const RINGWAY_LWEP_ACCEPTED: u32 = 2;
/// A kind of event: a message of `length` bytes at `data`.
pub const RINGWAY_LWEP_MESSAGE: u32 = 3;
/// A kind of event: a connection that had no room for a message has room again.
pub const RINGWAY_LWEP_ROOM: u32 = 4;
/// A kind of event: the peer sends no further messages. The other direction is as before.
pub const RINGWAY_LWEP_FINISHED: u32 = 5;
/// A kind of event: the connection is over, for `reason`. `acknowledged` own messages have arrived at the peer, `received` messages of
/// the peer have arrived here; an orderly end counts as a message.
pub const RINGWAY_LWEP_ENDED: u32 = 6;

/// A reason: both ends have closed the connection.
pub const RINGWAY_LWEP_CLOSED: u32 = 1;
/// A reason: nobody listens for this service at the peer.
pub const RINGWAY_LWEP_NOBODY_LISTENS: u32 = 2;
/// A reason: the peer has no room for another connection.
pub const RINGWAY_LWEP_NO_ROOM: u32 = 3;
/// A reason: the peer has ended the connection.
pub const RINGWAY_LWEP_RESET: u32 = 4;
/// A reason: the peer does not answer.
pub const RINGWAY_LWEP_NO_ANSWER: u32 = 5;
/// A reason: a message is longer than its receiver takes.
pub const RINGWAY_LWEP_TOO_LONG: u32 = 6;
/// A reason: the peer speaks another version of LWEP.
pub const RINGWAY_LWEP_OTHER_VERSION: u32 = 7;
/// A reason: the peer does not know the connection any more.
pub const RINGWAY_LWEP_UNKNOWN: u32 = 8;
/// A reason: this end has aborted the connection.
pub const RINGWAY_LWEP_ABORTED: u32 = 9;

/// What has happened. Members that the kind does not name are 0. Later versions may have further kinds and reasons.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LwepEvent {
    /// One of RINGWAY_LWEP_CONNECTED to RINGWAY_LWEP_ENDED.
    pub kind: u32,
    /// Number of the connection. It may be used again after RINGWAY_LWEP_ENDED.
    pub connection: u32,
    /// The message, where it was received.
    pub data: *const u8,
    /// Number of its bytes.
    pub length: usize,
    /// The service that a peer has connected to.
    pub service: u32,
    /// Why the connection is over: one of RINGWAY_LWEP_CLOSED to RINGWAY_LWEP_ABORTED.
    pub reason: u32,
    /// Number of own messages that the peer has acknowledged.
    pub acknowledged: u64,
    /// Number of the peer's messages that have arrived without a gap.
    pub received: u64,
}

fn reason_number(reason: Reason) -> u32 {
    match reason {
        Reason::Closed => RINGWAY_LWEP_CLOSED,
        Reason::NobodyListens => RINGWAY_LWEP_NOBODY_LISTENS,
        Reason::NoRoom => RINGWAY_LWEP_NO_ROOM,
        Reason::Reset => RINGWAY_LWEP_RESET,
        Reason::NoAnswer => RINGWAY_LWEP_NO_ANSWER,
        Reason::TooLong => RINGWAY_LWEP_TOO_LONG,
        Reason::OtherVersion => RINGWAY_LWEP_OTHER_VERSION,
        Reason::Unknown => RINGWAY_LWEP_UNKNOWN,
        Reason::Aborted => RINGWAY_LWEP_ABORTED,
    }
}

impl From<Event<'_>> for LwepEvent {
    #[inline]
    fn from(event: Event<'_>) -> Self {
        let (kind, connection) = match event {
            Event::Connected { connection } => (RINGWAY_LWEP_CONNECTED, connection),
            Event::Accepted { connection, .. } => (RINGWAY_LWEP_ACCEPTED, connection),
            Event::Message { connection, .. } => (RINGWAY_LWEP_MESSAGE, connection),
            Event::Room { connection } => (RINGWAY_LWEP_ROOM, connection),
            Event::Finished { connection } => (RINGWAY_LWEP_FINISHED, connection),
            Event::Ended { connection, .. } => (RINGWAY_LWEP_ENDED, connection),
        };
        let none = Self {
            kind,
            connection: connection.number(),
            data: ptr::null(),
            length: 0,
            service: 0,
            reason: 0,
            acknowledged: 0,
            received: 0,
        };
        match event {
            Event::Message { data, .. } => Self { data: data.as_ptr(), length: data.len(), ..none },
            Event::Accepted { service, .. } => Self { service, ..none },
            Event::Ended { reason, acknowledged, received, .. } => {
                Self { reason: reason_number(reason), acknowledged, received, ..none }
            }
            Event::Connected { .. } | Event::Room { .. } | Event::Finished { .. } => none,
        }
    }
}

/// Stores what has happened next in `*event`: a message, in the order of arrival, or another event. Returns 1, or 0 if there is nothing
/// more for now: then everything that was due by `now` is done. `now` is the time in nanoseconds of any clock that does not run
/// backwards, for instance ringway_lwep_now(). A message stays where it is until the next ringway_lwep_poll(), ringway_lwep_drain(),
/// ringway_lwep_keep(), ringway_lwep_abort() or ringway_lwep_free(); it may be sent from there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_poll(lwep: *mut Lwep, now: u64, event: *mut LwepEvent) -> c_int {
    // SAFETY: the caller's endpoint.
    let (Some(lwep), false) = (unsafe { Lwep::of(lwep) }, event.is_null()) else { return RINGWAY_E_ARGUMENT };
    let Some(found) = lwep.endpoint.poll(now) else {
        lwep.last = (ptr::null(), 0);
        return 0;
    };
    let found = LwepEvent::from(found);
    lwep.last = (found.data, found.length);
    // SAFETY: the caller's, not NULL.
    unsafe { event.write(found) };
    1
}

/// What ringway_lwep_drain() calls for each event: with the caller's context, and the event, which is valid with its message until it
/// returns. It must return, and not by an exception or longjmp().
pub type LwepTake = Option<unsafe extern "C" fn(context: *mut c_void, event: *const LwepEvent)>;

/// Calls `take` for up to `most` events: the fastest way for many messages. Returns their number: fewer than `most` if there is nothing
/// more for now. `take` must not use the endpoint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_drain(
    lwep: *mut Lwep,
    now: u64,
    most: usize,
    take: LwepTake,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's endpoint.
    let (Some(lwep), Some(take)) = (unsafe { Lwep::of(lwep) }, take) else { return RINGWAY_E_ARGUMENT };
    lwep.last = (ptr::null(), 0);
    let most = most.min(c_int::MAX as usize);
    // SAFETY: the caller's function, which takes the caller's context.
    lwep.endpoint.drain(now, most, |event| unsafe { take(context, &LwepEvent::from(event)) }) as c_int
}

/// Keeps the message of the last ringway_lwep_poll() beyond the next one: stores it in `*buffer`. It is not copied, unless it is a long
/// message, shares its buffer with others, no other buffer is free, or a dev: link has received it. Returns 1, or 0 if the last event was no message or it is kept
/// already. ringway_lwep_give_back() frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_keep(lwep: *mut Lwep, buffer: *mut LwepBuffer) -> c_int {
    // SAFETY: the caller's endpoint.
    let (Some(lwep), false) = (unsafe { Lwep::of(lwep) }, buffer.is_null()) else { return RINGWAY_E_ARGUMENT };
    let (data, length) = std::mem::replace(&mut lwep.last, (ptr::null(), 0));
    if data.is_null() {
        return 0;
    }
    let held = match lwep.endpoint.keep() {
        Some(kept) => Held::Kept(kept),
        // SAFETY: the message of the last `poll`, which is in its place until the next one.
        None => Held::Copy(unsafe { std::slice::from_raw_parts(data, length) }.into()),
    };
    let bytes: &[u8] = match &held {
        Held::Kept(kept) => kept,
        Held::Copy(copy) => copy,
        Held::Outgoing(_) => &[],
    };
    let (data, length) = (bytes.as_ptr().cast_mut(), bytes.len());
    let handle = lwep.held.add(held);
    // SAFETY: the caller's, not NULL.
    unsafe { buffer.write(LwepBuffer { data, length, handle }) };
    1
}

/// Frees a message that was kept. Returns 0; RINGWAY_E_ARGUMENT if `handle` is not one of a kept message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_lwep_give_back(lwep: *mut Lwep, handle: u64) -> c_int {
    // SAFETY: the caller's endpoint.
    let Some(lwep) = (unsafe { Lwep::of(lwep) }) else { return RINGWAY_E_ARGUMENT };
    match lwep.held.lift(handle) {
        Some(Held::Kept(kept)) => lwep.endpoint.give_back(kept),
        Some(Held::Copy(copy)) => drop(copy),
        Some(other) => {
            lwep.held.put_back(handle, other);
            return RINGWAY_E_ARGUMENT;
        }
        None => return RINGWAY_E_ARGUMENT,
    }
    lwep.held.retire(handle);
    0
}
