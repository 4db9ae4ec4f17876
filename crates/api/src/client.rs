//! The client of `control.sock`, for commands.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::capture::{CAPTURED, CaptureQuery, LOST, NUMBER};
use crate::config::ConfigStatus;
use crate::http::{self, Answer, Failure, Limit};
use crate::name::Name;
use crate::paths::{self, CONTROL_SOCKET};
use crate::patience::patience;
use crate::port_ref::PortRef;
use crate::types::{Done, FdbEntry, PortStatus, Refusal, Status, UNAVAILABLE};

/// Longest wait for an answer of the daemon.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Interval at which a capture calls `stop`.
const STOP_POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No daemon listens.
    #[error("no ringway daemon at {}: start one with \"ringway run\"", .0.display())]
    NoDaemon(PathBuf),
    /// A daemon runs, and does not listen: it starts, or ends, or its socket was removed a moment ago.
    #[error("a ringway daemon runs and does not listen at {} yet: it opens its ports, loads programs, or ends; try again", .0.display())]
    NotListening(PathBuf),
    /// The daemon is another user's.
    #[error("may not talk to the ringway daemon at {}: it belongs to another user", .0.display())]
    Forbidden(PathBuf),
    /// The daemon refused the request, which has a mistake.
    #[error("{}", .0.error)]
    Refused(Refusal),
    /// The daemon could not do what the request asks for.
    #[error("{}", .0.error)]
    Failed(Refusal),
    /// The file for the answer cannot be made or written.
    #[error("{0}")]
    File(String),
    /// The connection failed.
    #[error("the ringway daemon at {} did not answer: {why}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What happened.
        why: String,
    },
}

/// The result of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Frames in the file.
    pub frames: u64,
    /// Frames that are missing because they were not read fast enough.
    pub lost: u64,
    /// The reader of the file has gone. The counts are unknown then.
    pub reader_gone: bool,
}

/// A client of one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
}

impl Client {
    /// A client of the daemon with this runtime directory. Each request makes a connection.
    pub fn new(runtime_dir: &Path) -> Self {
        Self { socket: runtime_dir.join(CONTROL_SOCKET), patience: patience(ANSWER_WITHIN) }
    }

    /// Waits for an answer at most this long, instead of 10 s.
    #[must_use]
    pub fn patience(self, longest: Duration) -> Self {
        Self { patience: patience(longest), ..self }
    }

    /// Returns the daemon's status.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn status(&self) -> Result<Status, ClientError> {
        self.ask("GET", "/v1/status", None)
    }

    /// Returns all ports.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn ports(&self) -> Result<Vec<PortStatus>, ClientError> {
        self.ask("GET", "/v1/ports", None)
    }

    /// Adds a port.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn add_port(&self, port: &PortRef, keys: &Json) -> Result<Done, ClientError> {
        let mut body = keys.clone();
        body["name"] = port.to_string().into();
        self.ask("POST", "/v1/ports", Some(&body))
    }

    /// Changes a port.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn set_port(&self, port: &PortRef, keys: &Json) -> Result<Done, ClientError> {
        self.ask("PATCH", &path_of(port, ""), Some(keys))
    }

    /// Removes a port.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_port(&self, port: &PortRef) -> Result<Done, ClientError> {
        self.ask("DELETE", &path_of(port, ""), None)
    }

    /// Has the configuration file read again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn reload(&self) -> Result<Done, ClientError> {
        self.ask("POST", "/v1/reload", None)
    }

    /// Returns the running configuration, and what commands changed of the file.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn config(&self) -> Result<ConfigStatus, ClientError> {
        self.ask("GET", "/v1/config", None)
    }

    /// Drops what commands changed of the configuration file.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn reset_config(&self) -> Result<Done, ClientError> {
        self.ask("POST", "/v1/config/reset", None)
    }

    /// Enables a port that is disabled, or ends its pause.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn enable_port(&self, port: &PortRef) -> Result<Done, ClientError> {
        self.ask("POST", &path_of(port, "/enable"), None)
    }

    /// Makes a bucket, or makes it anew.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn set_bucket(&self, name: &Name, keys: &Json) -> Result<Done, ClientError> {
        self.ask("PUT", &format!("/v1/buckets/{name}"), Some(keys))
    }

    /// Removes a bucket.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_bucket(&self, name: &Name) -> Result<Done, ClientError> {
        self.ask("DELETE", &format!("/v1/buckets/{name}"), None)
    }

    /// Changes a switch.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn set_switch(&self, name: &Name, keys: &Json) -> Result<Done, ClientError> {
        self.ask("PATCH", &format!("/v1/switches/{name}"), Some(keys))
    }

    /// Gives a switch's forwarding program a message.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn tell_program(&self, name: &Name, text: &str) -> Result<Done, ClientError> {
        let message = serde_json::json!({ "text": text });
        self.ask("POST", &format!("/v1/switches/{name}/tell"), Some(&message))
    }

    /// The addresses that one switch or all know.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn fdb(&self, switch: Option<&Name>) -> Result<Vec<FdbEntry>, ClientError> {
        let query = switch.map_or(String::new(), |name| format!("?switch={name}"));
        self.ask("GET", &format!("/v1/fdb{query}"), None)
    }

    /// Captures frames of a port. Calls `open` to make the file once the daemon has accepted the request, and `stop` ten times a second;
    /// the capture ends when it returns true.
    ///
    /// # Errors
    /// See [`ClientError`]; also the file cannot be made or written.
    pub fn capture<W: Write>(
        &self,
        port: &PortRef,
        query: &CaptureQuery,
        open: impl FnOnce() -> Result<W, String>,
        stop: impl Fn() -> bool,
    ) -> Result<Captured, ClientError> {
        let query = serde_urlencoded::to_string(query).map_err(|e| self.broken(e))?;
        let path = path_of(port, &format!("/capture?{query}"));
        let limit = Limit::begin(self.patience);
        let answer = self.request("GET", &path, None, limit)?;
        let number = answer.field(NUMBER).map(str::to_owned);
        let mut body = answer.successful(limit).map_err(|failure| self.error(failure))?;
        let mut file = open().map_err(ClientError::File)?;
        let mut captured = Captured::default();
        let (mut piece, mut stopping) = (Vec::new(), false);
        loop {
            let ended = match body.read(&mut piece) {
                Ok(ended) => ended,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    match poll(&mut [PollFd::new(&body.as_fd(), PollFlags::IN)], Some(&STOP_POLL_INTERVAL)) {
                        Ok(_) | Err(Errno::INTR) => false,
                        Err(e) => return Err(self.broken(e)),
                    }
                }
                Err(_) => return Err(self.broken("it ended in the midst of the capture")),
            };
            match file.write_all(&piece).and_then(|()| file.flush()) {
                Ok(()) => piece.clear(),
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Captured { reader_gone: true, ..captured });
                }
                Err(e) => return Err(ClientError::File(format!("cannot write: {e}"))),
            }
            if ended {
                let count = |name| body.trailer(name)?.parse().ok();
                captured.frames = count(CAPTURED).unwrap_or(0);
                captured.lost = count(LOST).unwrap_or(0);
                return Ok(captured);
            }
            if !stopping && stop() {
                stopping = true;
                let path = format!("/v1/captures/{}", number.as_deref().unwrap_or_default());
                // The capture may have ended already.
                let _ = self.request("DELETE", &path, None, Limit::begin(self.patience));
            }
        }
    }

    fn broken(&self, why: impl ToString) -> ClientError {
        ClientError::Broken { path: self.socket.clone(), why: why.to_string() }
    }

    fn ask<T: DeserializeOwned>(&self, method: &str, path: &str, body: Option<&Json>) -> Result<T, ClientError> {
        let limit = Limit::begin(self.patience);
        let answer = self.request(method, path, body, limit)?;
        let answer = answer.successful(limit).and_then(|mut body| body.whole(limit));
        let answer = answer.map_err(|failure| self.error(failure))?;
        serde_json::from_slice(&answer).map_err(|e| self.broken(format!("its answer is not understood: {e}")))
    }

    fn request(&self, method: &str, path: &str, body: Option<&Json>, limit: Limit) -> Result<Answer, ClientError> {
        let body = body.map(|json| json.to_string().into_bytes());
        let connection =
            http::request(&self.socket, method, path, body.as_deref(), limit).map_err(|failure| match failure {
                Failure::Io(e) => match e.kind() {
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => match self.socket.parent() {
                        Some(dir) if paths::is_claimed(dir) => ClientError::NotListening(self.socket.clone()),
                        _ => ClientError::NoDaemon(self.socket.clone()),
                    },
                    io::ErrorKind::PermissionDenied => ClientError::Forbidden(self.socket.clone()),
                    _ => self.broken(e),
                },
                other => self.error(other),
            })?;
        http::answer(connection, limit).map_err(|failure| self.error(failure))
    }

    fn error(&self, failure: Failure) -> ClientError {
        match failure {
            Failure::Io(why) => self.broken(why),
            Failure::Broken(why) => self.broken(why),
            Failure::Refused(status, refusal) if status < 500 && status != UNAVAILABLE => ClientError::Refused(refusal),
            Failure::Refused(_, refusal) => ClientError::Failed(refusal),
        }
    }
}

/// Returns the path of a port in the API.
fn path_of(port: &PortRef, of_port: &str) -> String {
    let port = port.to_string().replace('{', "%7B").replace('}', "%7D");
    format!("/v1/ports/{port}{of_port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_does_not_listen_yet_is_not_to_be_started_once_more() {
        let dir = tempfile::tempdir().unwrap();
        // As the daemon claims it.
        let claim = std::fs::File::open(dir.path()).unwrap();
        rustix::fs::flock(&claim, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let client = Client::new(dir.path());
        assert!(matches!(client.status(), Err(ClientError::NotListening(_))));
        drop(claim);
        assert!(matches!(client.status(), Err(ClientError::NoDaemon(_))));
    }

    #[test]
    fn without_a_daemon_the_message_says_how_to_start_one() {
        let dir = tempfile::tempdir().unwrap();
        let error = Client::new(dir.path()).status().unwrap_err();
        let wanted =
            format!("no ringway daemon at {}/control.sock: start one with \"ringway run\"", dir.path().display());
        assert_eq!(error.to_string(), wanted);
        drop(std::os::unix::net::UnixListener::bind(dir.path().join(CONTROL_SOCKET)).unwrap());
        assert!(matches!(Client::new(dir.path()).status(), Err(ClientError::NoDaemon(_))), "a dead daemon's socket");
    }
}
