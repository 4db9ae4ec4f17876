//! `GET /v1/ports/{name}/capture`: frames as pcapng, while they flow.
//!
//! The reader of a capture is the body of the HTTP answer. hyper stops asking the reader when its client stops reading. The
//! end of the answer, however it comes, takes the capture out of the topology.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body, Bytes, Frame};
use ringway_capture::{Options, Reader, Selection};
use serde::{Deserialize, Serialize};
use tokio::net::unix::pipe::Receiver;
use utoipa::IntoParams;

use super::routes::Shared;
use crate::config::units;
use crate::config::{Direction, Mistake};
use crate::daemon::{PortRef, Refused};

/// The header with the capture's number.
pub const NUMBER: &str = "ringway-capture";
/// The trailer with the number of frames in the file.
pub const CAPTURED: &str = "ringway-captured";
/// The trailer with the number of frames that it lacks because they were not read fast enough.
pub const LOST: &str = "ringway-lost";

/// Most bytes of one piece of the answer, but for the frame that exceeds them.
const PIECE: usize = 256 << 10;
/// Smallest and largest buffer, in bytes.
const BUFFERS: (u64, u64) = (256 << 10, 1 << 30);
/// The usual one.
const BUFFER: u64 = 16 << 20;
/// The usual most bytes of a frame: more than any has.
const SNAPLEN: u32 = 262_144;

/// What is to be captured. What is not said has its usual value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CaptureQuery {
    /// Most bytes kept of each frame, 14 to 262144; usually all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snaplen: Option<u32>,
    /// Most frames; usually no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Longest time, like `10s`; usually no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// `in`: frames from the client; `out`: frames to it; usually `both`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Whether frames that were lost are captured, too, with the reason as a comment; usually not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops: Option<bool>,
    /// Memory for what was not read yet, 256KiB to 1GiB; usually 16MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer: Option<String>,
}

impl CaptureQuery {
    /// Checks everything. Gives what the capture needs, but for the interface's name, and its longest time.
    ///
    /// # Errors
    /// What is wrong.
    pub fn read(&self) -> Result<(Options, Option<Duration>), Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let mut wrong = |key: &str, what: String| {
            mistakes.push(Mistake { key: key.to_owned(), span: None, what, right: String::new() });
        };
        let snaplen = self.snaplen.unwrap_or(SNAPLEN);
        if !(14..=SNAPLEN).contains(&snaplen) {
            wrong("snaplen", format!("{snaplen} is out of range; write 14 to {SNAPLEN}"));
        }
        let duration = self.duration.as_deref().map(units::duration).transpose();
        let duration = duration.unwrap_or_else(|what| {
            wrong("duration", what);
            None
        });
        let selection = match self.direction.as_deref() {
            None => Selection::Both,
            Some(word) => match Direction::WORDS.iter().find(|(known, _)| *known == word) {
                Some((_, Direction::Both)) => Selection::Both,
                Some((_, Direction::In)) => Selection::In,
                Some((_, Direction::Out)) => Selection::Out,
                None => {
                    wrong("direction", format!("unknown value {word:?}; write \"both\", \"in\" or \"out\""));
                    Selection::Both
                }
            },
        };
        let buffer = self.buffer.as_deref().map_or(Ok(BUFFER), units::size).and_then(|bytes| {
            let (low, high) = (units::show_size(BUFFERS.0), units::show_size(BUFFERS.1));
            let fits = (BUFFERS.0..=BUFFERS.1).contains(&bytes);
            fits.then_some(bytes).ok_or(format!("{bytes} bytes are out of range; write {low} to {high}"))
        });
        let buffer = buffer.unwrap_or_else(|what| {
            wrong("buffer", what);
            BUFFER
        });
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let options = Options {
            program: format!("ringway {}", env!("CARGO_PKG_VERSION")),
            interface: String::new(),
            selection,
            drops: self.drops.unwrap_or(false),
            snaplen,
            count: self.count,
            buffer: buffer as usize,
        };
        Ok((options, duration))
    }
}

/// Starts a capture and answers with it.
///
/// # Errors
/// There is no such port, something is wrong with the query, or the kernel refuses.
pub fn start(daemon: &Shared, port: &PortRef, query: &CaptureQuery) -> Result<Response, Refused> {
    let (options, longest) = query.read().map_err(Refused::Mistakes)?;
    let mut locked = daemon.lock().unwrap_or_else(PoisonError::into_inner);
    let (number, reader) = locked.capture(port, |interface| Options { interface, ..options })?;
    drop(locked);
    let stream = Stream::new(number, reader, longest, daemon).map_err(|error| {
        let _ = daemon.lock().unwrap_or_else(PoisonError::into_inner).end_capture(number);
        Refused::Failed(format!("cannot capture: {error}"))
    })?;
    let headers = [
        (header::CONTENT_TYPE.as_str(), "application/x-pcapng".to_owned()),
        (header::TRAILER.as_str(), format!("{CAPTURED}, {LOST}")),
        (NUMBER, number.to_string()),
    ];
    Ok((headers, axum::body::Body::new(stream)).into_response())
}

/// The body of the answer.
struct Stream {
    number: u64,
    reader: Reader,
    /// The reader's event counter, as tokio waits for it.
    wake: Receiver,
    longest: Option<Pin<Box<tokio::time::Sleep>>>,
    daemon: Shared,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Running,
    /// All was read.
    Read,
    Ended,
}

impl Stream {
    fn new(number: u64, reader: Reader, longest: Option<Duration>, daemon: &Shared) -> io::Result<Self> {
        let wake: OwnedFd = reader.wake().try_clone_to_owned()?;
        // Tokio has no type for an event counter; a pipe's reading end is read and waited for alike.
        let wake = Receiver::from_owned_fd_unchecked(wake)?;
        let longest = longest.map(|time| Box::pin(tokio::time::sleep(time)));
        Ok(Self { number, reader, wake, longest, daemon: daemon.clone(), state: State::Running })
    }

    /// Ends the capture. What was captured can still be read.
    fn end(&self) {
        // It may have ended by itself.
        let _ = self.daemon.lock().unwrap_or_else(PoisonError::into_inner).end_capture(self.number);
    }

    fn trailers(&self) -> HeaderMap {
        let counts = self.reader.counts();
        [(CAPTURED, counts.captured), (LOST, counts.lost)]
            .into_iter()
            .map(|(name, count)| (header::HeaderName::from_static(name), HeaderValue::from(count)))
            .collect()
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.longest.as_mut().is_some_and(|longest| longest.as_mut().poll(context).is_ready()) {
            this.longest = None;
            this.end();
        }
        loop {
            match this.state {
                State::Running => {}
                State::Read => {
                    this.state = State::Ended;
                    return Poll::Ready(Some(Ok(Frame::trailers(this.trailers()))));
                }
                State::Ended => return Poll::Ready(None),
            }
            let mut piece = Vec::new();
            if !this.reader.read(&mut piece, PIECE) {
                this.state = State::Read;
            }
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(piece.into()))));
            }
            if this.state == State::Read {
                continue;
            }
            if !this.reader.may_sleep() {
                // Somebody is about to finish writing.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if this.wake.poll_read_ready(context).is_pending() {
                return Poll::Pending;
            }
            let _ = this.wake.try_read(&mut [0; 8]);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.end();
    }
}
