//! Answers to frames that belong to no connection.

use super::event::Reason;
use crate::wire::{Kind, Mac};

/// A frame that belongs to no connection of this end.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub to: Mac,
    pub kind: Kind,
    pub connection: u32,
    pub token: u32,
    pub number: u32,
    pub acknowledgement: u32,
    pub reason: Option<Reason>,
}
