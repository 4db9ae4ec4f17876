//! Requests to the daemon, each within a time that a program that captures can bear.

use std::time::Duration;

use ringway_api::http::{self, Body, Failure, Limit};

use crate::sockets;

/// Longest wait for an answer's head, from the beginning of the connection.
const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// Longest wait for the rest of an answer that is read whole.
pub const BODY_WITHIN: Duration = Duration::from_secs(5);

/// Asks for `path`. Returns the body of a successful answer.
pub fn get(path: &str) -> Result<Body, Failure> {
    http::get(&sockets::control(), path, Limit::begin(HEAD_WITHIN))
}
