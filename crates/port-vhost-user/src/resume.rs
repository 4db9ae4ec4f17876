//! What a successor of the switch needs to go on with a connection, and going on with it.
//!
//! What a front end has said is kept as messages of the front end: as few as lead to the same state. A successor treats them as it treats any message, with
//! the same checks, and answers none. So what is kept may be altered as any message may.
//!
//! ```text
//!   part            files                          note: how the session is, and then messages, each with the number of its files before it
//!   state           dirty log, in-flight memory    features, protocol features, MTU, dirty log, in-flight memory, status
//!   memory          one for each region            the memory table
//!   queueN          kick, call, error              size, base, addresses, kick, enable, call, error of queue N
//! ```
//!
//! A message is looked at, applied, kept, taken out of the socket and answered, in this order. A successor of a switch that died before the message was taken finds
//! it in the socket and applies it again, which leads to the same state.
//!
//! Positions of rings are not kept here: the guest's memory and the note of frames in flight have them (`virtqueue/inflight.rs`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use ringway_port::front_end::{ClientFd, Left, Part};

use super::changed::{MEMORY, STATE, changes};
use super::end::SessionEnd;
use super::message::{HEADER_BYTES, Header, MessageError, Request, VringAddress};
use super::session::Session;
use super::vring::Vring;

const STATE_PART: &str = "state";
const MEMORY_PART: &str = "memory";

/// Numbers of the messages that are kept.
mod number {
    pub const SET_FEATURES: u32 = 2;
    pub const SET_MEM_TABLE: u32 = 5;
    pub const SET_LOG_BASE: u32 = 6;
    pub const SET_VRING_NUM: u32 = 8;
    pub const SET_VRING_ADDR: u32 = 9;
    pub const SET_VRING_BASE: u32 = 10;
    pub const SET_VRING_KICK: u32 = 12;
    pub const SET_VRING_CALL: u32 = 13;
    pub const SET_VRING_ERR: u32 = 14;
    pub const SET_PROTOCOL_FEATURES: u32 = 16;
    pub const SET_VRING_ENABLE: u32 = 18;
    pub const NET_SET_MTU: u32 = 20;
    pub const SET_INFLIGHT_FD: u32 = 32;
    pub const SET_STATUS: u32 = 39;
}

/// Bits of the first byte of the state.
const FEATURES_REFUSED: u8 = 1;
const UNSETTLED: u8 = 2;

/// Why a connection cannot go on. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum NotResumed {
    /// What was kept is not whole, or has other parts.
    #[error("its {0} was not kept as a whole")]
    Cut(String),
    /// A message that is never kept.
    #[error("its {0} has message {1}, which is not kept")]
    Unexpected(String, u32),
    /// The port is another one now, or what was kept was altered.
    #[error(transparent)]
    Refused(#[from] SessionEnd),
}

impl From<MessageError> for NotResumed {
    fn from(error: MessageError) -> Self {
        Self::Refused(error.into())
    }
}

/// Messages for one part, and their files.
#[derive(Default)]
struct Messages<'a> {
    note: Vec<u8>,
    files: Vec<BorrowedFd<'a>>,
}

impl<'a> Messages<'a> {
    fn add(&mut self, request: u32, words: &[u64], files: impl IntoIterator<Item = &'a ClientFd>) {
        let before = self.files.len();
        self.files.extend(files.into_iter().map(AsFd::as_fd));
        self.note.push(self.files.len().saturating_sub(before) as u8);
        self.note.extend_from_slice(&Header::of_request(request, words.len().saturating_mul(8)));
        words.iter().for_each(|word| self.note.extend_from_slice(&word.to_ne_bytes()));
    }
}

/// Two halves of a word, as they lie in memory.
fn halves(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// Keeps what has changed, so that a successor can go on. `hold`: has the keeper hold a part, with its note and its files.
///
/// # Errors
/// The keeper cannot hold it.
pub fn keep(
    session: &mut Session,
    mut hold: impl FnMut(&str, &[u8], &[BorrowedFd<'_>]) -> io::Result<()>,
) -> Result<(), SessionEnd> {
    let changed = std::mem::take(&mut session.changed);
    if changed & STATE != 0 {
        let Messages { note, files } = state(session);
        hold(STATE_PART, &note, &files)?;
    }
    if changed & MEMORY != 0 {
        let Messages { note, files } = memory(session);
        hold(MEMORY_PART, &note, &files)?;
    }
    for (number, vring) in (0..).zip(&session.vrings) {
        if changed & 1u32.checked_shl(number).unwrap_or(0) != 0 {
            let Messages { note, files } = queue(number, vring);
            hold(&queue_part(number), &note, &files)?;
        }
    }
    // Not before: a successor that knows nothing of the stop needs the positions.
    session.stopped.drain(..).for_each(|noted| noted.clear());
    session.retired.clear();
    Ok(())
}

fn queue_part(number: u32) -> String {
    format!("queue{number}")
}

fn state(session: &Session) -> Messages<'_> {
    let mut all = Messages::default();
    let refused = if session.features_refused { FEATURES_REFUSED } else { 0 };
    all.note.push(refused | if session.is_unsettled() { UNSETTLED } else { 0 });
    all.add(number::SET_PROTOCOL_FEATURES, &[session.protocol], None);
    if session.features != 0 {
        all.add(number::SET_FEATURES, &[session.features], None);
    }
    if let Some(mtu) = session.mtu {
        all.add(number::NET_SET_MTU, &[mtu.into()], None);
    }
    if let Some((area, file)) = &session.log_file {
        all.add(number::SET_LOG_BASE, &[area.size, area.offset], Some(file));
    }
    if let Some((at, file)) = &session.inflight_file {
        let queues = halves(u32::from(at.queues) | u32::from(at.queue_size) << 16, 0);
        all.add(number::SET_INFLIGHT_FD, &[at.area.size, at.area.offset, queues], Some(file));
    }
    if session.status != 0 {
        all.add(number::SET_STATUS, &[session.status.into()], None);
    }
    all
}

fn memory(session: &Session) -> Messages<'_> {
    let mut all = Messages::default();
    if !session.region_files.is_empty() {
        let mut words = vec![session.region_files.len() as u64];
        words.extend(session.region_files.iter().flat_map(|(at, _)| [at.guest, at.size, at.user, at.offset]));
        all.add(number::SET_MEM_TABLE, &words, session.region_files.iter().map(|(_, file)| file));
    }
    all
}

fn queue(queue: u32, vring: &Vring) -> Messages<'_> {
    let mut all = Messages::default();
    if vring.size != 0 {
        all.add(number::SET_VRING_NUM, &[halves(queue, vring.size.into())], None);
    }
    all.add(number::SET_VRING_BASE, &[halves(queue, vring.base)], None);
    if let Some(VringAddress { queue, flags, descriptors, used, available, log }) = vring.address {
        all.add(number::SET_VRING_ADDR, &[halves(queue, flags), descriptors, used, available, log], None);
    }
    const NO_FD: u64 = 1 << 8;
    let kick = vring.started.then_some((number::SET_VRING_KICK, vring.kick.as_deref()));
    let others = [(number::SET_VRING_CALL, vring.call.as_deref()), (number::SET_VRING_ERR, vring.error.as_ref())];
    for (request, file) in kick.into_iter().chain(others) {
        all.add(request, &[u64::from(queue) | if file.is_none() { NO_FD } else { 0 }], file);
    }
    // After the kick: it may mean that the queue waits for the dirty log.
    all.add(number::SET_VRING_ENABLE, &[halves(queue, vring.enabled.into())], None);
    all
}

/// Goes on with the session of a predecessor: a new one, into which all of the front end's messages go. `hold`: gives the closer copies of the files.
///
/// # Errors
/// What was kept does not fit. The connection has to end.
pub fn resume(
    session: &mut Session,
    left: Left,
    hold: impl FnOnce(&[&ClientFd]) -> io::Result<()>,
) -> Result<(), NotResumed> {
    let mut flags = 0;
    let of_client = |Part { note, files }| (note, files.into_iter().map(ClientFd::from).collect::<Vec<_>>());
    let mut left: BTreeMap<String, _> = left.into_iter().map(|(name, part)| (name, of_client(part))).collect();
    hold(&left.values().flat_map(|(_, files)| files).collect::<Vec<_>>()).map_err(SessionEnd::from)?;
    // Nothing runs before all is known.
    session.unsettled = true;
    // The dirty log has to cover the memory.
    if let Some((note, files)) = left.remove(MEMORY_PART) {
        replay(session, MEMORY_PART, &note, files)?;
    }
    if let Some((note, files)) = left.remove(STATE_PART) {
        let (first, rest) = note.split_first().ok_or_else(|| NotResumed::Cut(STATE_PART.to_owned()))?;
        flags = *first;
        replay(session, STATE_PART, rest, files)?;
    }
    for number in 0..session.vrings.len() as u32 {
        let part = queue_part(number);
        if let Some((note, files)) = left.remove(&part) {
            replay(session, &part, &note, files)?;
        }
    }
    if let Some(part) = left.into_keys().next() {
        return Err(NotResumed::Cut(part));
    }
    session.features_refused = flags & FEATURES_REFUSED != 0;
    session.go_on(flags & UNSETTLED != 0)?;
    Ok(())
}

/// Applies the messages of a part.
fn replay(session: &mut Session, part: &str, mut note: &[u8], files: Vec<ClientFd>) -> Result<(), NotResumed> {
    let cut = || NotResumed::Cut(part.to_owned());
    let mut files = files.into_iter();
    while let Some((&count, rest)) = note.split_first() {
        let (header, rest) = rest.split_first_chunk::<HEADER_BYTES>().ok_or_else(cut)?;
        let header = Header::decode(header)?;
        let (body, rest) = rest.split_at_checked(header.size).ok_or_else(cut)?;
        let own: Vec<_> = files.by_ref().take(count.into()).collect();
        if own.len() != usize::from(count) {
            return Err(cut());
        }
        let request = Request::decode(header, body, own)?;
        if changes(&request) == 0 || matches!(request, Request::GetVringBase(_) | Request::ResetDevice) {
            return Err(NotResumed::Unexpected(part.to_owned(), header.request));
        }
        session.apply(request)?;
        note = rest;
    }
    if files.len() > 0 { Err(cut()) } else { Ok(()) }
}
