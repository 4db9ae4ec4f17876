//! Answers to the messages of a vhost-user front end.

use std::os::fd::OwnedFd;

use super::message::{Area, ConfigRange, HEADER_BYTES, Header, InflightAt, VringState};

/// The body of an answer.
#[derive(Debug)]
pub enum Reply {
    /// A number. With REPLY_ACK, for a message without an answer of its own: 0 for success.
    Number(u64),
    /// The position at which a queue can continue.
    State(VringState),
    /// The dirty log is in use.
    Log(Area),
    /// A range of the configuration space and its bytes; no bytes, and then no body, if there is no such range.
    Config(ConfigRange, Vec<u8>),
    /// In-flight memory and its file.
    Inflight(InflightAt, OwnedFd),
}

impl Reply {
    /// Encodes the answer to message number `request`. Returns its bytes and the descriptor to send with them.
    #[must_use]
    pub fn encode(&self, request: u32) -> (Vec<u8>, Option<&OwnedFd>) {
        let (mut body, mut file) = (Vec::with_capacity(HEADER_BYTES + 24), None);
        body.extend_from_slice(&[0; HEADER_BYTES]);
        match self {
            Reply::Number(number) => body.extend_from_slice(&number.to_ne_bytes()),
            Reply::State(state) => {
                body.extend_from_slice(&state.queue.to_ne_bytes());
                body.extend_from_slice(&state.number.to_ne_bytes());
            }
            Reply::Log(area) => put_area(&mut body, area),
            Reply::Config(range, bytes) if !bytes.is_empty() => {
                for field in [range.offset, range.size, range.flags] {
                    body.extend_from_slice(&field.to_ne_bytes());
                }
                body.extend_from_slice(bytes);
            }
            Reply::Config(..) => {}
            Reply::Inflight(at, memory) => {
                put_area(&mut body, &at.area);
                body.extend_from_slice(&at.queues.to_ne_bytes());
                body.extend_from_slice(&at.queue_size.to_ne_bytes());
                if at.padded {
                    body.extend_from_slice(&[0; 4]);
                }
                file = Some(memory);
            }
        }
        let size = body.len().saturating_sub(HEADER_BYTES);
        body[..HEADER_BYTES].copy_from_slice(&Header::of_reply(request, size));
        (body, file)
    }
}

fn put_area(body: &mut Vec<u8>, area: &Area) {
    body.extend_from_slice(&area.size.to_ne_bytes());
    body.extend_from_slice(&area.offset.to_ne_bytes());
}
