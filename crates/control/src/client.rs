//! The commands' side of `control.sock`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::api::types::{Done, FdbEntry, PortStatus, Refusal, Status};
use crate::config::{Name, PortKeys};
use crate::daemon::PortRef;
use crate::runtime_dir::CONTROL_SOCKET;

/// Longest time a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no ringway daemon at {}: start one with \"ringway run\"", .0.display())]
    NoDaemon(PathBuf),
    /// The daemon is another user's.
    #[error("may not talk to the ringway daemon at {}: it belongs to another user", .0.display())]
    Forbidden(PathBuf),
    /// The daemon refused: the request was wrong.
    #[error("{}", .0.error)]
    Refused(Refusal),
    /// The daemon tried and could not.
    #[error("{}", .0.error)]
    Failed(Refusal),
    /// The conversation broke off.
    #[error("the ringway daemon at {} did not answer: {why}", path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What happened.
        why: String,
    },
}

/// Asks one daemon.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// Of the daemon with this runtime directory. Connects with each question.
    pub fn new(runtime_dir: &Path) -> Self {
        Self { socket: runtime_dir.join(CONTROL_SOCKET) }
    }

    /// The daemon's status.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn status(&self) -> Result<Status, ClientError> {
        self.ask(Method::GET, "/v1/status", None)
    }

    /// All ports.
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
    pub fn add_port(&self, port: &PortRef, keys: &PortKeys) -> Result<Done, ClientError> {
        let mut body = serde_json::to_value(keys).unwrap_or_default();
        body["name"] = port.to_string().into();
        self.ask(Method::POST, "/v1/ports", Some(&body))
    }

    /// Changes a port.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn set_port(&self, port: &PortRef, keys: &PortKeys) -> Result<Done, ClientError> {
        let body = serde_json::to_value(keys).unwrap_or_default();
        self.ask(Method::PATCH, &format!("/v1/ports/{port}"), Some(&body))
    }

    /// Removes a port.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete_port(&self, port: &PortRef) -> Result<Done, ClientError> {
        self.ask(Method::DELETE, &format!("/v1/ports/{port}"), None)
    }

    /// The addresses that one switch or all know.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn fdb(&self, switch: Option<&Name>) -> Result<Vec<FdbEntry>, ClientError> {
        let query = switch.map_or(String::new(), |name| format!("?switch={name}"));
        self.ask(Method::GET, &format!("/v1/fdb{query}"), None)
    }

    fn broken(&self, why: impl ToString) -> ClientError {
        ClientError::Broken { path: self.socket.clone(), why: why.to_string() }
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
            tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| self.broken("no answer within 10 s"))?
        });
        let (status, body) = answer?;
        if (200..300).contains(&status) {
            return serde_json::from_slice(&body)
                .map_err(|e| self.broken(format!("its answer is not understood: {e}")));
        }
        let refusal = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Refusal { error: format!("HTTP status {status}"), mistakes: Vec::new() });
        Err(if status < 500 { ClientError::Refused(refusal) } else { ClientError::Failed(refusal) })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<(u16, Bytes), ClientError> {
        let stream = connect(&self.socket).and_then(UnixStream::from_std).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoDaemon(self.socket.clone()),
            io::ErrorKind::PermissionDenied => ClientError::Forbidden(self.socket.clone()),
            _ => self.broken(e),
        })?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|e| self.broken(e))?;
        let connection = tokio::spawn(connection);
        let body = body.map_or_else(Bytes::new, |json| json.to_string().into());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "ringway")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|e| self.broken(e))?;
        let response = sender.send_request(request).await.map_err(|e| self.broken(e))?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(|e| self.broken(e))?.to_bytes();
        connection.abort();
        Ok((status, body))
    }
}

/// Connects, waiting for room in the daemon's queue if need be: without blocking the kernel would refuse.
fn connect(path: &Path) -> io::Result<std::os::unix::net::UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = std::os::unix::net::UnixStream::from(socket);
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

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
