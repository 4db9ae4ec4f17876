//! HTTP over `control.sock`, with limits on the connections, their duration, and the bytes that they send.

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
use ringway_api::patience;
use ringway_keeper::Link;
use ringway_port::{SocketAccess, listen_at};
use rustix::net::SocketType;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::AbortHandle;

use crate::inject::{self, Point};

/// Most connections. One more ends a connection without a request.
const CONNECTIONS_MAX: usize = 64;

/// Most connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Longest time for a request's line and headers.
const HEAD_TIME: Duration = Duration::from_secs(2);

/// Longest time of a connection, which carries one request, unless its answer is [`Lasting`].
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// Most bytes of a request's line and headers. It is hyper's minimum.
const HEAD_MAX: usize = 8192;

/// Makes the socket, with access for those of `access`. The runtime directory must have been claimed.
///
/// # Errors
/// The kernel refuses.
pub fn bind(path: &Path, access: &SocketAccess, keeper: &Link) -> io::Result<UnixListener> {
    let (socket, _) = listen_at(path, SocketType::STREAM, BACKLOG, access, keeper)?;
    UnixListener::from_std(socket.into()).inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// An open connection.
struct Served {
    task: AbortHandle,
    /// True once the request's line and headers are received.
    asked: Arc<AtomicBool>,
    lasting: Lasting,
}

/// A flag for an answer that may take long: the client decides its length, or a forwarding program is loaded for it. Every request has one as an
/// extension.
#[derive(Clone, Debug, Default)]
pub struct Lasting(Arc<AtomicBool>);

impl Lasting {
    /// Sets the flag.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Serves connections, oldest first in the list of open ones. Does not return.
pub async fn serve(listener: UnixListener, router: Router) {
    let mut served: VecDeque<Served> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) if inject::at("api") == Point::Pass => stream,
            Ok(_) => return,
            Err(error) => {
                // Most likely no descriptor is left. The client waits in the queue.
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
        let task =
            tokio::spawn(serve_connection(stream, router.clone(), Arc::clone(&asked), lasting.clone())).abort_handle();
        served.push_back(Served { task, asked, lasting });
        // A connection with a request is answered before another connection can displace it.
        tokio::task::yield_now().await;
    }
}

/// Ends the oldest connection without a request, or else the oldest without a lasting answer, or else the oldest.
fn make_room(served: &mut VecDeque<Served>) {
    let idle = served.iter().position(|one| !one.asked.load(Ordering::Relaxed));
    let idle = idle.or_else(|| served.iter().position(|one| !one.lasting.get())).unwrap_or(0);
    if let Some(one) = served.remove(idle) {
        one.task.abort();
    }
}

async fn serve_connection(stream: UnixStream, router: Router, asked: Arc<AtomicBool>, lasting: Lasting) {
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
        .header_read_timeout(patience(HEAD_TIME))
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let mut served = tokio::time::timeout(patience(CONNECTION_TIME), connection.as_mut()).await;
    if served.is_err() && lasts.get() {
        served = Ok(connection.await);
    }
    match served {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("control.sock: {error}"),
        Err(_) => tracing::debug!("control.sock: a client took longer than {CONNECTION_TIME:?}"),
    }
}
