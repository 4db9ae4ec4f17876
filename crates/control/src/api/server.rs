//! HTTP over `control.sock`, with a limit on everything: the connections, their duration, the bytes that they send.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, listen, socket_with};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;

use crate::inject::{self, Point};

/// Connections served at once. For one more, one that has not asked for anything yet is ended.
const CONNECTIONS_MAX: usize = 64;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// A client has this long for its request's line and headers.
const HEAD_TIME: Duration = Duration::from_secs(2);

/// A connection carries one request and ends within this time, whatever its client does, unless its answer is [`Lasting`].
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// Room for a request's line and headers in bytes; hyper's own minimum.
const HEAD_MAX: usize = 8192;

/// Makes the socket, for its owner alone (mode 0600). The runtime directory must have been claimed.
///
/// # Errors
/// The kernel refuses.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Closing them could last.
    ringway_ports::refuse_files(&socket);
    // A socket gets its mode when it is bound: there is no moment in which others may connect, and nothing else at this
    // path is given one.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// A connection that is being served, oldest first in a list of them.
struct Served {
    task: AbortHandle,
    /// Its request's line and headers have come.
    asked: Arc<AtomicBool>,
    lasting: Lasting,
}

/// Whether a connection's answer takes as long as its client wants. Every request has one as an extension.
#[derive(Clone, Debug, Default)]
pub struct Lasting(Arc<AtomicBool>);

impl Lasting {
    /// It does.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves for ever.
pub async fn serve(listener: UnixListener, router: Router) {
    let mut served: VecDeque<Served> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) if inject::at("api") == Point::Pass => stream,
            Ok(_) => return,
            Err(error) => {
                // Out of descriptors, most likely: the queue keeps the client until there are some.
                tracing::warn!("control.sock: cannot accept: {error}");
                make_room(&mut served);
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        served.retain(|one| !one.task.is_finished());
        if served.len() >= CONNECTIONS_MAX {
            make_room(&mut served);
        }
        let asked = Arc::new(AtomicBool::new(false));
        let lasting = Lasting::default();
        let task = tokio::spawn(converse(stream, router.clone(), Arc::clone(&asked), lasting.clone())).abort_handle();
        served.push_back(Served { task, asked, lasting });
        // Whoever has asked already is answered before another can take its place.
        tokio::task::yield_now().await;
    }
}

/// Ends the oldest connection that has not asked for anything yet, or the oldest that does not last, or the oldest.
fn make_room(served: &mut VecDeque<Served>) {
    let idle = served.iter().position(|one| !one.asked.load(Ordering::Relaxed));
    let idle = idle.or_else(|| served.iter().position(|one| !one.lasting.get())).unwrap_or(0);
    if let Some(one) = served.remove(idle) {
        one.task.abort();
    }
}

async fn converse(stream: UnixStream, router: Router, asked: Arc<AtomicBool>, lasting: Lasting) {
    let lasts = lasting.clone();
    let router = router.layer(axum::middleware::map_request(move |mut request: Request| {
        asked.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(lasting.clone());
        std::future::ready(request)
    }));
    let connection = hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let mut served = tokio::time::timeout(CONNECTION_TIME, connection.as_mut()).await;
    if served.is_err() && lasts.get() {
        served = Ok(connection.await);
    }
    match served {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("control.sock: {error}"),
        Err(_) => tracing::debug!("control.sock: a client took longer than {CONNECTION_TIME:?}"),
    }
}
