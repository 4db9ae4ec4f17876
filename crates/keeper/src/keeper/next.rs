//! A switch that is started, and its opener.

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::opening::Opening;
use super::switch::{Switch, has_ended};
use crate::message::{BYTES_MOST, Message, Received, State, receive};

#[derive(Debug)]
pub(super) struct Next {
    pub(super) switch: Switch,
    pub(super) opening: Opening,
}

impl Next {
    /// Returns true once a switch that was started ahead says that it is prepared.
    ///
    /// # Errors
    /// It has ended, or says something else.
    pub(super) fn is_prepared(&self) -> Result<bool, String> {
        let mut heard = vec![0; BYTES_MOST + 1];
        match receive(&*self.switch.socket, &mut heard, RecvFlags::DONTWAIT) {
            Ok(Received::Message { message: Message::Is(State::Prepared), files, .. }) if files.is_empty() => Ok(true),
            Err(Errno::AGAIN | Errno::INTR) if !has_ended(&self.switch.process) => Ok(false),
            _ => Err("the new version ended before it was the switch".to_owned()),
        }
    }
}
