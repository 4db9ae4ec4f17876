//! A connection of the attach server, and how many of them a process may have.

use std::collections::HashMap;
use std::time::Instant;

use super::super::kept_fd::Keeping;
use ringway_abi::attach::Request;
use ringway_port::front_end::{ClientFd, Process, has_unread};
use rustix::io::Errno;

use super::host::Refusal;
use super::mapping::Mapping;
use super::netmap::{self, Open};
use super::send::send_reason;

/// Most connections of the netmap dialogue. A silent one costs a descriptor.
const MOST: usize = 1024;
/// Most of them that one process may have.
const MOST_OF_PROCESS: usize = 256;
/// Most connections of the attach dialogue of one process that have ended and that it has not read.
const MOST_UNREAD: usize = 256;

/// Where a connection is in its dialogue.
pub(super) enum State {
    /// Waits for the request, until this time.
    Asking(Instant),
    /// Waits, until this time, for the memory that the request speaks of.
    Sending(Instant, Box<Request>),
    /// Waits, until this time, for the closer, which receives that memory, and for the thread that maps it.
    Taking(Instant, Box<Request>, Option<Mapping>),
    Attached,
    /// A connection of the netmap dialogue.
    Netmap(Open),
    /// The switch has ended the connection, and its client has not read the last messages. The kernel counts the descriptors in
    /// them against the switch's limit until the client reads them or closes its end. The connection stays for as long, so that
    /// the number of such clients is known and bounded.
    Ended,
}

/// A connection.
pub(super) struct Connection {
    pub(super) socket: ClientFd,
    pub(super) state: State,
    /// The client may send files. They stay in the socket, which the server's thread does not read then.
    pub(super) takes_files: bool,
    /// The process that has connected.
    pub(super) process: Process,
    /// The next request stays in the socket: the client has not read the last answer, or has not got it yet.
    pub(super) is_paused: bool,
    /// What the keeper holds of it, if it outlives the switch.
    pub(super) kept: Keeping,
}

impl Connection {
    /// Returns the time until which the client has to go on with the dialogue.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Asking(deadline) | State::Sending(deadline, _) | State::Taking(deadline, ..) => Some(deadline),
            State::Attached | State::Netmap(_) | State::Ended => None,
        }
    }

    /// Sends the reason for which the connection ends.
    pub(super) fn send_end(&self, reason: &str) {
        match self.state {
            State::Netmap(_) => netmap::send_end(&self.socket, &Refusal::new(Errno::NXIO, reason)),
            State::Asking(_) | State::Sending(..) | State::Taking(..) | State::Attached => {
                send_reason(&self.socket, reason);
            }
            State::Ended => {}
        }
    }

    /// Returns true if the client was sent descriptors and has not read the last message.
    pub(super) fn holds_descriptors(&self) -> bool {
        let had = match &self.state {
            State::Attached | State::Ended => true,
            State::Netmap(open) => open.has_registration(),
            State::Asking(_) | State::Sending(..) | State::Taking(..) => false,
        };
        had && has_unread(&self.socket)
    }

    /// Returns true if the client has to read an answer before its next request is read.
    pub(super) fn has_to_read(&self) -> bool {
        matches!(&self.state, State::Netmap(open) if open.is_pending() || has_unread(&self.socket))
    }

    /// Returns true if messages of the client may be left in the socket.
    pub(super) fn may_be_unread(&self) -> bool {
        self.takes_files || self.is_paused
    }

    /// Returns the connection's part in the crowd, if it counts.
    pub(super) fn seat(&self, id: u64) -> Option<Seat> {
        match &self.state {
            State::Netmap(open) => Some(Seat { id, process: self.process, is_idle: !open.has_registration() }),
            State::Ended => Some(Seat { id, process: self.process, is_idle: false }),
            State::Asking(_) | State::Sending(..) | State::Taking(..) | State::Attached => None,
        }
    }
}

/// A connection of the netmap dialogue, or one that has ended and was not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) id: u64,
    pub(super) process: Process,
    /// It has no registration.
    pub(super) is_idle: bool,
}

/// Returns the number of connections of each process.
fn by_process(all: impl Iterator<Item = Process>) -> HashMap<Process, usize> {
    all.fold(HashMap::new(), |mut counts, process| {
        *counts.entry(process).or_default() += 1;
        counts
    })
}

/// Checks that a process may have one more connection beside these. Returns the connection that has to end for it, if one has:
/// the oldest idle one of the process with the most.
///
/// # Errors
/// The process has too many, or all have too many and no process has more than this one. The text is for the client.
pub(super) fn find_seat(crowd: &[Seat], process: Process) -> Result<Option<Seat>, String> {
    let counts = by_process(crowd.iter().map(|seat| seat.process));
    let count = |process: Process| counts.get(&process).copied().unwrap_or(0);
    let own = count(process);
    if own >= MOST_OF_PROCESS {
        return Err(format!("{own} netmap connections of this process are open: the switch allows no more"));
    }
    if crowd.len() < MOST {
        return Ok(None);
    }
    let idle = crowd.iter().filter(|seat| seat.is_idle && count(seat.process) > own + 1);
    let displaced = idle.max_by_key(|seat| (count(seat.process), std::cmp::Reverse(seat.id)));
    let full = || format!("{} netmap connections are open: the switch allows no more", crowd.len());
    displaced.map(|seat| Some(*seat)).ok_or_else(full)
}

/// Checks that a process may attach, by the connections that have ended and that their clients have not read.
///
/// # Errors
/// The process has too many. The text is for the client.
pub(super) fn check_unread(ended: impl Iterator<Item = Process>, process: Process) -> Result<(), String> {
    match ended.filter(|other| *other == process).count() {
        unread if unread >= MOST_UNREAD => {
            Err(format!("{unread} connections of this process have ended, and it has not read why: read or close them"))
        }
        _ => Ok(()),
    }
}

/// Returns the connection that makes room for another one: of the process with the most, the one with the earliest deadline.
pub(super) fn longest_asking(asking: &[(Instant, u64, Process)]) -> Option<u64> {
    let counts = by_process(asking.iter().map(|(.., process)| *process));
    let key = |(deadline, id, process): &&(Instant, u64, Process)| {
        (std::cmp::Reverse(counts.get(process).copied()), *deadline, *id)
    };
    asking.iter().min_by_key(key).map(|(_, id, _)| *id)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use super::*;

    fn crowd(parts: &[(u32, usize, bool)]) -> Vec<Seat> {
        let seats = parts
            .iter()
            .flat_map(|&(process, count, is_idle)| std::iter::repeat_n((NonZeroU32::new(process), is_idle), count));
        (0..).zip(seats).map(|(id, (process, is_idle))| Seat { id, process, is_idle }).collect()
    }

    #[test]
    fn a_process_with_many_connections_shuts_no_other_out() {
        let two = NonZeroU32::new(2);
        let find = |parts: &[(u32, usize, bool)], process| {
            find_seat(&crowd(parts), NonZeroU32::new(process)).map(|seat| seat.map(|seat| seat.id))
        };
        let own = find(&[(1, MOST_OF_PROCESS, true)], 1).expect_err("its own bound");
        assert!(own.starts_with("256 netmap connections of this process"), "{own}");
        assert_eq!(find(&[(1, MOST_OF_PROCESS, true)], 2), Ok(None), "there is room");
        // Four processes have all: the one with the most gives its oldest idle one.
        let most = MOST_OF_PROCESS;
        let all =
            [(3, most - 1, true), (4, 9, false), (4, most - 9, true), (5, most, false), (6, most, true), (2, 1, true)];
        assert_eq!(crowd(&all).len(), MOST);
        assert_eq!(find(&all, 2), Ok(Some((most - 1 + 9) as u64)));
        assert_eq!(find_seat(&crowd(&all), two).expect("a seat").map(|seat| seat.process), Some(NonZeroU32::new(4)));
        let busy = [(3, most, false), (4, most, false), (5, most, false), (6, most, false)];
        let full = find(&busy, 2).expect_err("all have registrations");
        assert!(full.starts_with("1024 netmap connections are open"), "{full}");
        let single: Vec<(u32, usize, bool)> = (10..10 + MOST as u32).map(|process| (process, 1, true)).collect();
        assert!(find(&single, 2).is_err(), "nobody has more than the newcomer would have");
    }

    #[test]
    fn who_asks_most_makes_room_and_not_who_asked_first() {
        let now = Instant::now();
        let at = |second, id, process| (now + Duration::from_secs(second), id, NonZeroU32::new(process));
        assert_eq!(longest_asking(&[at(1, 1, 7), at(2, 2, 8), at(3, 3, 8)]), Some(2));
        assert_eq!(longest_asking(&[at(2, 1, 7), at(1, 2, 8)]), Some(2));
        assert_eq!(longest_asking(&[]), None);
    }
}
