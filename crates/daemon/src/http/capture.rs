//! `GET /v1/ports/{name}/capture`: frames as pcapng, while they flow.
//!
//! The reader of a capture is the body of the HTTP answer. hyper stops asking the reader when its client stops reading. The
//! end of the answer, however it comes, takes the capture out of the topology.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body, Bytes, Frame};
use ringway_api::PortRef;
use ringway_api::capture::{CAPTURED, CaptureDirection, CaptureOptions, CaptureQuery, LOST, NUMBER};
use ringway_capture::{Options, Reader, Selection};
use tokio::net::unix::pipe::Receiver;

use crate::daemon::{Refused, SharedDaemon, lock};

/// Bytes after which a piece of the answer ends. The last frame of a piece may exceed it.
const PIECE: usize = 256 << 10;

/// Starts a capture and answers with it.
///
/// # Errors
/// There is no such port, something is wrong with the query, or the kernel refuses.
pub fn start(daemon: &SharedDaemon, port: &PortRef, query: &CaptureQuery) -> Result<Response, Refused> {
    let wanted = query.read().map_err(Refused::Mistakes)?;
    let mut locked = lock(daemon);
    let (number, reader) = locked.capture(port, |interface| Options { interface, ..options(&wanted) })?;
    drop(locked);
    let stream = Stream::new(number, reader, wanted.duration, daemon).map_err(|error| {
        let _ = lock(daemon).end_capture(number);
        Refused::Failed(format!("cannot capture: {error}"))
    })?;
    let headers = [
        (header::CONTENT_TYPE.as_str(), "application/x-pcapng".to_owned()),
        (header::TRAILER.as_str(), format!("{CAPTURED}, {LOST}")),
        (NUMBER, number.to_string()),
    ];
    Ok((headers, axum::body::Body::new(stream)).into_response())
}

/// The options of a capture, without the interface's name.
fn options(wanted: &CaptureOptions) -> Options {
    Options {
        program: format!("ringway {}", env!("CARGO_PKG_VERSION")),
        interface: String::new(),
        selection: match wanted.direction {
            CaptureDirection::Both => Selection::Both,
            CaptureDirection::In => Selection::In,
            CaptureDirection::Out => Selection::Out,
        },
        drops: wanted.drops,
        snaplen: wanted.snaplen,
        count: wanted.count,
        buffer: wanted.buffer as usize,
    }
}

/// The body of the answer.
struct Stream {
    number: u64,
    reader: Reader,
    /// The reader's eventfd.
    wake: Receiver,
    timeout: Option<Pin<Box<tokio::time::Sleep>>>,
    daemon: SharedDaemon,
    state: State,
}

#[derive(PartialEq)]
enum State {
    Running,
    /// All frames are read.
    Read,
    Ended,
}

impl Stream {
    fn new(number: u64, reader: Reader, longest: Option<Duration>, daemon: &SharedDaemon) -> io::Result<Self> {
        let wake: OwnedFd = reader.wake().try_clone_to_owned()?;
        // Tokio has no type for an eventfd; the reading end of a pipe is read and polled in the same way.
        let wake = Receiver::from_owned_fd_unchecked(wake)?;
        let timeout = longest.map(|time| Box::pin(tokio::time::sleep(time)));
        Ok(Self { number, reader, wake, timeout, daemon: daemon.clone(), state: State::Running })
    }

    /// Ends the capture. The captured frames can still be read.
    fn end(&self) {
        // It may have ended by itself.
        let _ = lock(&self.daemon).end_capture(self.number);
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
        if this.timeout.as_mut().is_some_and(|timeout| timeout.as_mut().poll(context).is_ready()) {
            this.timeout = None;
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
                // A poller is about to finish writing.
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
