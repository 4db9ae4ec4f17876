//! Port kinds: process, TAP.
