//! Messages longer than a frame, from the program to the link.
//!
//! A long message needs many buffers. It takes those that its station may have, one after the other, and goes on when the program sends
//! it again: if it took all of them at once or none, a station that always has many would keep it waiting for ever.

use super::core::Endpoint;
use super::peer::Connection;
use super::transmit::SendError;
use crate::connection::{Nanos, Part};
use crate::link::Link;
use crate::wire::segmented;

/// How a long message is cut.
#[derive(Clone, Copy)]
struct Cut {
    /// Bytes of all fragments but the last one.
    part: usize,
    /// Fragments in a buffer.
    per_buffer: usize,
}

impl<L: Link> Endpoint<L> {
    /// Copies a message of any length that the peer takes ([`crate::Options::long`]) and sends it in as many frames as it needs.
    ///
    /// After [`SendError::Full`] a part of it may have been sent. The program then calls this again with the same message, when
    /// [`crate::Event::Room`] tells that there is room. Until all of it is sent, the connection takes nothing else.
    ///
    /// # Errors
    /// See [`SendError`].
    pub fn send_long(&mut self, connection: Connection, message: &[u8], now: Nanos) -> Result<(), SendError> {
        self.advance(now);
        let data = self.core.data;
        let peer = self.core.table.get(connection.0).filter(|peer| peer.may_queue()).ok_or(SendError::Over)?;
        let plain = data.min(peer.far.frame);
        let (long, in_message) = (peer.far.long as usize, peer.in_message);
        if message.len() <= plain {
            return self.send(connection, message, now);
        }
        let from = match in_message {
            Some((len, sent)) if len == message.len() => sent,
            Some(_) => return Err(SendError::InMessage),
            None => 0,
        };
        let cut = self.cut(connection, plain);
        if message.len() > long || message.len().div_ceil(cut.part) > usize::from(u16::MAX) {
            return Err(SendError::TooLong);
        }
        let sent = self.queue_from(connection, message, from, cut);
        self.go(connection.0);
        sent
    }

    /// Returns how the endpoint cuts a long message into frames of `plain` bytes.
    fn cut(&mut self, connection: Connection, plain: usize) -> Cut {
        let segmented = self.link.interface().segmented;
        let is_train = segmented > 0 && self.core.table.get(connection.0).is_some_and(|peer| peer.addresses.is_some());
        if !is_train {
            return Cut { part: plain.max(1), per_buffer: 1 };
        }
        let part = usize::from(self.core.options.segment).min(plain).max(1);
        let most = segmented.min(usize::from(u16::MAX)).saturating_sub(segmented::HEADERS);
        Cut { part, per_buffer: (most / part).max(1) }
    }

    /// Queues the bytes of a long message from `from` on, as far as there is room.
    fn queue_from(
        &mut self,
        connection: Connection,
        message: &[u8],
        from: usize,
        Cut { part, per_buffer }: Cut,
    ) -> Result<(), SendError> {
        // More than the queue takes at all is taken by an empty queue.
        let was_empty = self.core.table.get(connection.0).is_some_and(|peer| peer.sender.queued() == 0);
        let mut sent = from;
        for piece in message[from..].chunks(part * per_buffer) {
            let parts = piece.len().div_ceil(part) as u16;
            if !was_empty {
                self.check_queue(connection, parts.into())?;
            }
            self.check_buffer(connection)?;
            let reserved = if per_buffer > 1 { self.reserve_many() } else { self.reserve() };
            let Some(mut outgoing) = reserved else { return Err(self.without_buffer(connection)) };
            outgoing[..piece.len()].copy_from_slice(piece);
            self.place(&mut outgoing, piece.len(), parts > 1);
            let core = &mut self.core;
            core.pool.fill(outgoing.slot, outgoing.buffer, parts, piece.len(), part);
            sent += piece.len();
            let mut remaining = (message.len() - sent).div_ceil(part) as u16 + parts;
            let Some(peer) = core.table.get(connection.0) else { return Err(SendError::Over) };
            core.pool.charge(outgoing.slot, peer.far.station);
            for index in 0..parts {
                remaining -= 1;
                peer.sender.queue(Some(Part { slot: outgoing.slot, index, remaining }), core.now);
            }
            peer.in_message = (sent < message.len()).then_some((message.len(), sent));
        }
        Ok(())
    }
}
