//! `kind = "process"`: a program with shared memory, attached by name.

use std::io;

use super::contract::{CannotOpen, End, Named, Opened, Opening, PortKind};
use crate::keys::keys;

keys! {
    /// Settings of a process port beside those of every port: none.
    pub struct Process {}
}

impl Named for Process {
    const NAME: &'static str = "process";
    const ABOUT: &'static str = "A program with shared memory, attached by name.";
}

impl PortKind for Process {
    fn end(&self) -> End<'_> {
        End::Client
    }

    fn open(&self, at: &Opening<'_>) -> Result<Opened, CannotOpen> {
        let what = format!("{} is opened by the client that attaches to it", at.label);
        Err(CannotOpen { what, why: io::ErrorKind::Unsupported.into() })
    }
}
