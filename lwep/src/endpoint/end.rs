//! How connections end.

use super::core::Endpoint;
use super::event::Reason;
use super::peer::Connection;
use super::transmit::SendError;
use crate::connection::Nanos;
use crate::link::Link;

impl<L: Link> Endpoint<L> {
    /// Announces that no further messages follow. The connection is over ([`crate::Event::Ended`]) when both ends have done so and all
    /// messages are acknowledged.
    ///
    /// # Errors
    /// [`SendError::Over`]: there is no such connection, or this was done before. [`SendError::InMessage`]: the rest of a long message has
    /// yet to be sent.
    pub fn close(&mut self, connection: Connection, now: Nanos) -> Result<(), SendError> {
        self.advance(now);
        let now = self.core.now;
        let peer = self.core.table.get(connection.0).filter(|peer| peer.may_queue()).ok_or(SendError::Over)?;
        if peer.sender.is_in_message() {
            return Err(SendError::InMessage);
        }
        peer.sender.queue(None, now);
        self.core.lists.send(peer);
        Ok(())
    }

    /// Ends a connection at once. What is not acknowledged may have arrived or not: [`crate::Event::Ended`] tells what is acknowledged.
    pub fn abort(&mut self, connection: Connection, now: Nanos) {
        self.advance(now);
        if self.core.table.get(connection.0).is_some() {
            self.core.reset(connection.0, Reason::Aborted);
            self.answer_strangers();
            self.flush();
        }
    }
}
