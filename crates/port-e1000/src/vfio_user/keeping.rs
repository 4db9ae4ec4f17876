//! How a connection outlives the switch: the record of all that follows from the messages that were handled.
//!
//! A message is looked at, handled, recorded together with its answer, and then taken out of the socket and answered. Whenever the process is killed, a
//! successor knows what was handled (the record), what was taken (the journal and SO_PEEK_OFF) and how many answers went out: sending an answer and
//! counting it in an eventfd, which the keeper has, too, is one system call.
//!
//! Not counted so is the answer that carries the descriptor of the ring pages, which is asked for when a front end begins, and an answer for which there
//! is no room in the socket, because the front end reads no answers.
//!
//! A write to a ring's tail changes nothing that is recorded. It is only noted as handled, and may be handled twice.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ringway_port::front_end::{Connection, End, Kept, LateReceiver, Left, Part, Peer};
use rustix::event::{EventfdFlags, eventfd};

use super::function::Function;
use super::interrupts::Interrupts;
use super::kept_files::KeptFiles;
use super::message::Messages;
use super::reply::{self, Outgoing};
use super::session::Session;
use crate::kept::{NotUsable, Reader, State, Writer};

/// The part of a connection with the state.
const STATE: &str = "state";
/// Bytes of messages after which a record is written in any case.
const MOST_HANDLED: u64 = 1 << 20;

/// The records of one connection.
pub struct Keeping {
    state: Arc<State>,
    /// Counts answers.
    witness: OwnedFd,
    /// The number of the last record, and the bytes that were handled when it was written.
    number: u64,
    recorded: u64,
    /// Bytes that were handled, since the connection began.
    handled: u64,
    /// Answers that were sent, since the connection began.
    sent: u64,
    record: Writer,
}

/// A connection that goes on.
pub struct Adopted<'k> {
    pub keeping: Keeping,
    pub session: Session<'k>,
    pub receiver: LateReceiver<Messages>,
    /// Answers that were not sent.
    pub due: Vec<Outgoing>,
}

impl Keeping {
    /// Has the keeper hold what a new connection needs. The function notes its rings there from now on.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left, or the keeper cannot hold it.
    pub fn begin(kept: &Kept, function: &dyn Function) -> io::Result<Keeping> {
        let state = Arc::new(State::new(true)?);
        let witness = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        function.note_in(&state);
        let memory = function.memory_file()?;
        let mut files: Vec<_> = state.file().into_iter().chain([witness.as_fd()]).collect();
        files.extend(memory.as_ref().map(AsFd::as_fd));
        kept.keep(STATE, &[], &files)?;
        Ok(Keeping { state, witness, number: 0, recorded: 0, handled: 0, sent: 0, record: Writer::default() })
    }

    /// Goes on with the connection of a predecessor. `None`: it had not handled a message.
    ///
    /// # Errors
    /// What was left cannot be used.
    pub fn adopt<'k>(
        kept: &'k Kept,
        mut left: Left,
        socket: &Connection,
        function: &Arc<dyn Function>,
        interrupts: &Arc<Interrupts>,
    ) -> Result<Option<Adopted<'k>>, NotUsable> {
        const ALTERED: NotUsable = NotUsable::Altered;
        let Some(Part { files, .. }) = left.remove(STATE) else { return Ok(None) };
        let mut files = files.into_iter();
        let (state, witness) = files.next().zip(files.next()).ok_or(NotUsable::Missing)?;
        let state = Arc::new(State::open(state)?);
        let Some(found) = state.left()? else { return Ok(None) };
        let mut from = Reader(&found.bytes);
        let (recorded, before) = (from.u64().ok_or(ALTERED)?, from.u64().ok_or(ALTERED)?);
        let rest = from.bytes().ok_or(ALTERED)?;
        let mut answers = Vec::new();
        for _ in 0..from.u32().ok_or(ALTERED)? {
            answers.push(reply::restore(&mut from).ok_or(ALTERED)?);
        }
        let counted = count(&witness).ok_or(NotUsable::File)?.saturating_sub(found.refused);
        let sent = counted.checked_sub(before).and_then(|sent| usize::try_from(sent).ok());
        let sent = sent.filter(|sent| *sent <= answers.len()).ok_or(ALTERED)?;

        // What was handled and not taken is taken now; what was taken and not handled is in the record.
        let handled = recorded.saturating_add(found.handled.into());
        let untaken = usize::try_from(handled.saturating_sub(found.taken)).map_err(|_| ALTERED)?;
        LateReceiver::<Messages>::finish(socket, &*state, untaken, found.taking).map_err(|_| NotUsable::Receiving)?;
        let taken = state.left()?.ok_or(ALTERED)?.taken;
        let ahead = usize::try_from(taken.saturating_sub(handled)).map_err(|_| ALTERED)?;
        let rest = rest.get(found.handled as usize..).unwrap_or_default();
        if ahead > 0 && ahead != rest.len() {
            return Err(NotUsable::Receiving);
        }
        let receiver = LateReceiver::new(socket, if ahead > 0 { rest } else { &[] }).map_err(|_| NotUsable::File)?;

        let (owner, memory) = (socket.owner().flatten(), files.next());
        let (served, interrupts) = (Arc::clone(function), Arc::clone(interrupts));
        let files = KeptFiles::new(Some(kept));
        let session = Session::adopt(served, interrupts, files, &mut from, (&mut left, owner), memory)?;
        // Only now: until here the function rests, and would note that its rings are not in use.
        function.note_in(&state);
        let unnamed: Vec<_> = left.into_keys().collect();
        unnamed.iter().for_each(|part| kept.release(part));
        let due = answers.into_iter().skip(sent).map(|(bytes, has_file)| {
            let file = if has_file { session.file_of_answers() } else { None };
            Outgoing { bytes, file }
        });
        let due = due.collect();
        let (number, record) = (found.number, Writer::default());
        let keeping = Keeping { state, witness, number, recorded, handled, sent: counted, record };
        Ok(Some(Adopted { keeping, session, receiver, due }))
    }

    /// Notes that a message of `bytes` bytes was handled, with the answers `out` that follow from it.
    ///
    /// # Errors
    /// The connection cannot outlive this process.
    pub fn note(
        &mut self,
        bytes: usize,
        session: &mut Session<'_>,
        receiver: &LateReceiver<Messages>,
        out: &[Outgoing],
        is_changed: bool,
    ) -> Result<(), End> {
        self.handled = self.handled.saturating_add(bytes as u64);
        let since = self.handled.saturating_sub(self.recorded);
        if is_changed || !out.is_empty() || self.number == 0 || since > MOST_HANDLED || session.is_changed() {
            return self.record(session, receiver.rest(false), out);
        }
        self.state.set_handled(self.number, since as u32);
        Ok(())
    }

    /// Takes the bytes of handled messages out of the socket, and those of the message that has begun.
    ///
    /// # Errors
    /// The connection broke, or cannot outlive this process.
    pub fn settle(
        &mut self,
        session: &mut Session<'_>,
        receiver: &mut LateReceiver<Messages>,
        socket: &Connection,
    ) -> Result<(), End> {
        let has_begun = !receiver.rest(true).is_empty();
        if has_begun {
            self.record(session, receiver.rest(true), &[])?;
        }
        receiver.settle(socket, &*self.state, has_begun)
    }

    /// Writes a record. `rest`: bytes of the message that has begun. `out`: answers that are sent next.
    ///
    /// # Errors
    /// The record is longer than any.
    pub fn record(&mut self, session: &mut Session<'_>, rest: &[u8], out: &[Outgoing]) -> Result<(), End> {
        let mut record = std::mem::take(&mut self.record);
        record.0.clear();
        record.u64(self.handled);
        record.u64(self.sent);
        record.bytes(rest);
        reply::save_all(out, &mut record);
        session.save(&mut record);
        let number = self.number.wrapping_add(1);
        let is_written = self.state.write(number, &record.0);
        self.record = record;
        if !is_written {
            return Err(End::Fault("out_of_resources", "the state of the port is longer than its file".into()));
        }
        (self.number, self.recorded) = (number, self.handled);
        session.saved();
        Ok(())
    }

    /// Sends answers, which a record names.
    ///
    /// # Errors
    /// The connection has to end.
    pub fn send(&mut self, peer: &Peer<'_>, out: &mut Vec<Outgoing>) -> Result<(), End> {
        for Outgoing { bytes, file } in out.drain(..) {
            match file {
                Some(file) => {
                    peer.send(&bytes, Some(file.as_fd()))?;
                    let _ = rustix::io::write(&self.witness, &1u64.to_ne_bytes());
                }
                None => peer.send_counted(&bytes, self.witness.as_fd(), || self.state.note_refused())?,
            }
            self.sent = self.sent.saturating_add(1);
        }
        Ok(())
    }
}

/// Returns the counter of an eventfd, without a change of it.
fn count(witness: &OwnedFd) -> Option<u64> {
    use std::os::fd::AsRawFd;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", witness.as_raw_fd())).ok()?;
    let count = text.lines().find_map(|line| line.strip_prefix("eventfd-count:"))?;
    u64::from_str_radix(count.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_read_without_a_change() {
        let witness = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
        assert_eq!(count(&witness), Some(0));
        rustix::io::write(&witness, &300u64.to_ne_bytes()).expect("room");
        assert_eq!([count(&witness), count(&witness)], [Some(300); 2]);
        assert_eq!(count(&std::fs::File::open("/dev/null").expect("a file").into()), None);
    }
}
