//! HTTP over `control.sock`, with a limit on everything: connections, their time, what they send.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

/// Connections served at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 32;

/// A client has this long for its request's line and headers.
const HEAD_TIME: Duration = Duration::from_secs(2);

/// A connection carries one request and ends within this time, whatever its client does.
const CONNECTION_TIME: Duration = Duration::from_secs(10);

/// Room for a request's line and headers in bytes; hyper's own minimum.
const HEAD_MAX: usize = 8192;

/// Makes the socket, for its owner alone (mode 0600). The runtime directory must have been claimed.
///
/// # Errors
/// The kernel refuses.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    // Between these two calls the directory's own mode protects the socket, and nobody accepts yet.
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves for ever.
pub async fn serve(listener: UnixListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: the queue keeps the client until there are some.
                tracing::warn!("control.sock: cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .keep_alive(false)
                .max_buf_size(HEAD_MAX)
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIME)
                .serve_connection(TokioIo::new(stream), service);
            match tokio::time::timeout(CONNECTION_TIME, connection).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!("control.sock: {error}"),
                Err(_) => tracing::debug!("control.sock: a client took longer than {CONNECTION_TIME:?}"),
            }
            drop(place);
        });
    }
}
