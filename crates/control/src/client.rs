//! The client of `control.sock`, for commands.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::api::capture::{CAPTURED, CaptureQuery, LOST, NUMBER};
use crate::api::types::{Done, FdbEntry, PortStatus, Refusal, Status, UNAVAILABLE};
use crate::inject::patience;
use crate::keys::{Name, Node, PortRef};
use crate::runtime_dir::{self, CONTROL_SOCKET};

/// Longest wait for an answer of the daemon.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Interval at which a capture calls `stop`.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

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
        self.ask(Method::GET, "/v1/status", None)
    }

    /// Returns all ports.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn ports(&self) -> Result<Vec<PortStatus>, ClientError> {
        self.ask(Method::GET, "/v1/ports", None)
    }

    /// Adds a port.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn add_port(&self, port: &PortRef, keys: &Node) -> Result<Done, ClientError> {
        let mut body = keys.to_json();
        body["name"] = port.to_string().into();
        self.ask(Method::POST, "/v1/ports", Some(&body))
    }

    /// Changes a port.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn set_port(&self, port: &PortRef, keys: &Node) -> Result<Done, ClientError> {
        self.ask(Method::PATCH, &path_of(port, ""), Some(&keys.to_json()))
    }

    /// Removes a port.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_port(&self, port: &PortRef) -> Result<Done, ClientError> {
        self.ask(Method::DELETE, &path_of(port, ""), None)
    }

    /// Has the configuration file read again.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn reload(&self) -> Result<Done, ClientError> {
        self.ask(Method::POST, "/v1/reload", None)
    }

    /// Enables a port that is disabled, or ends its pause.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn enable_port(&self, port: &PortRef) -> Result<Done, ClientError> {
        self.ask(Method::POST, &path_of(port, "/enable"), None)
    }

    /// Makes a bucket, or makes it anew.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn set_bucket(&self, name: &Name, keys: &Node) -> Result<Done, ClientError> {
        self.ask(Method::PUT, &format!("/v1/buckets/{name}"), Some(&keys.to_json()))
    }

    /// Removes a bucket.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_bucket(&self, name: &Name) -> Result<Done, ClientError> {
        self.ask(Method::DELETE, &format!("/v1/buckets/{name}"), None)
    }

    /// Changes a switch.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn set_switch(&self, name: &Name, keys: &Node) -> Result<Done, ClientError> {
        self.ask(Method::PATCH, &format!("/v1/switches/{name}"), Some(&keys.to_json()))
    }

    /// Gives a switch's forwarding program a message.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn tell_program(&self, name: &Name, text: &str) -> Result<Done, ClientError> {
        let message = serde_json::json!({ "text": text });
        self.ask(Method::POST, &format!("/v1/switches/{name}/tell"), Some(&message))
    }

    /// The addresses that one switch or all know.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn fdb(&self, switch: Option<&Name>) -> Result<Vec<FdbEntry>, ClientError> {
        let query = switch.map_or(String::new(), |name| format!("?switch={name}"));
        self.ask(Method::GET, &format!("/v1/fdb{query}"), None)
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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| self.broken(e))?;
        runtime.block_on(async {
            let asked = tokio::time::timeout(self.patience, self.request(Method::GET, &path, None));
            let response = asked.await.map_err(|_| self.too_late())??;
            let status = response.status().as_u16();
            if status != 200 {
                let body = response.into_body().collect().await.map_err(|e| self.broken(e))?.to_bytes();
                return Err(refused(status, &body));
            }
            let number = response.headers().get(NUMBER).and_then(|number| number.to_str().ok().map(str::to_owned));
            let mut file = open().map_err(ClientError::File)?;
            let mut body = response.into_body();
            let mut stop_poll = tokio::time::interval(STOP_POLL_INTERVAL);
            stop_poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut captured = Captured::default();
            let mut stopping = false;
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    _ = stop_poll.tick(), if !stopping => {
                        if stop() {
                            stopping = true;
                            let path = format!("/v1/captures/{}", number.as_deref().unwrap_or_default());
                            // The capture may have ended already.
                            let _ = self.exchange(Method::DELETE, &path, None).await;
                        }
                        continue;
                    }
                };
                let Some(frame) = frame else { return Ok(captured) };
                let frame = frame.map_err(|_| self.broken("it ended in the midst of the capture"))?;
                if let Some(trailers) = frame.trailers_ref() {
                    let count = |name| trailers.get(name)?.to_str().ok()?.parse().ok();
                    captured.frames = count(CAPTURED).unwrap_or(0);
                    captured.lost = count(LOST).unwrap_or(0);
                }
                let Ok(data) = frame.into_data() else { continue };
                match file.write_all(&data).and_then(|()| file.flush()) {
                    Ok(()) => {}
                    Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                        return Ok(Captured { reader_gone: true, ..captured });
                    }
                    Err(e) => return Err(ClientError::File(format!("cannot write: {e}"))),
                }
            }
        })
    }

    fn broken(&self, why: impl ToString) -> ClientError {
        ClientError::Broken { path: self.socket.clone(), why: why.to_string() }
    }

    fn too_late(&self) -> ClientError {
        self.broken(format!("no answer within {} s", self.patience.as_secs_f64()))
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<T, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| self.broken(e))?;
        let answer = runtime.block_on(async {
            let exchange = self.exchange(method, path, body);
            tokio::time::timeout(self.patience, exchange).await.map_err(|_| self.too_late())?
        });
        let (status, body) = answer?;
        if (200..300).contains(&status) {
            return serde_json::from_slice(&body)
                .map_err(|e| self.broken(format!("its answer is not understood: {e}")));
        }
        Err(refused(status, &body))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<(u16, Bytes), ClientError> {
        let response = self.request(method, path, body).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|e| self.broken(e))?.to_bytes();
        Ok((status, body))
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream =
            connect(&self.socket, self.patience).and_then(UnixStream::from_std).map_err(|e| match e.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => match self.socket.parent() {
                    Some(dir) if runtime_dir::is_claimed(dir) => ClientError::NotListening(self.socket.clone()),
                    _ => ClientError::NoDaemon(self.socket.clone()),
                },
                io::ErrorKind::PermissionDenied => ClientError::Forbidden(self.socket.clone()),
                _ => self.broken(e),
            })?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|e| self.broken(e))?;
        // The task ends when the answer is read or dropped.
        tokio::spawn(connection);
        let body = body.map_or_else(Bytes::new, |json| json.to_string().into());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "ringway")
            .header("content-type", "application/json")
            .header("te", "trailers")
            .body(Full::new(body))
            .map_err(|e| self.broken(e))?;
        sender.send_request(request).await.map_err(|e| self.broken(e))
    }
}

/// Returns the error for an answer with this status code.
fn refused(status: u16, body: &[u8]) -> ClientError {
    let refusal = serde_json::from_slice(body)
        .unwrap_or_else(|_| Refusal { error: format!("HTTP status {status}"), mistakes: Vec::new() });
    if status < 500 && status != UNAVAILABLE { ClientError::Refused(refusal) } else { ClientError::Failed(refusal) }
}

/// Connects. Waits for room in the daemon's queue: a non-blocking socket would be refused.
fn connect(path: &Path, longest: Duration) -> io::Result<std::os::unix::net::UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(longest))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = std::os::unix::net::UnixStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
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
        let claim = runtime_dir::RuntimeDir::claim(dir.path()).unwrap();
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
