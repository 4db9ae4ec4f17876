//! The daemon's process: claims the runtime directory, makes the sockets, waits for signals, faults and time, ends clean.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringway_ports::process::AttachServer;
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};

use super::attach::AttachHost;
use super::running::Running;
use super::{Daemon, Refused};
use crate::api::{routes, server};
use crate::config::{Config, Host};
use crate::runtime_dir::{ATTACH_SOCKET, CONTROL_SOCKET, ClaimError, RuntimeDir};

/// How often MAC tables are looked through for what is too old, and what was lost is tried again.
const EVERY: Duration = Duration::from_secs(1);

/// What to serve.
#[derive(Debug)]
pub struct Options {
    /// Where the sockets go.
    pub runtime_dir: PathBuf,
    /// Where `config` was read from, for reloading.
    pub file: Option<PathBuf>,
    /// What is to run.
    pub config: Config,
}

/// What the daemon's process hears of while it serves.
#[derive(Debug)]
pub enum Event {
    /// Ports accept clients.
    Ready,
    /// A reload (SIGHUP) did this.
    Reloaded(Vec<String>),
    /// A reload (SIGHUP) was refused.
    NotReloaded(Refused),
    /// The daemon is about to end.
    Stopping,
}

/// Why the daemon could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The runtime directory cannot be had.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Something configured cannot be had.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The kernel refused something.
    #[error("{what}: {why}")]
    System {
        /// What was tried.
        what: String,
        /// The kernel's reason.
        why: io::Error,
    },
}

/// Serves until SIGTERM or SIGINT, telling `tell` what happens.
///
/// # Errors
/// It could not start.
pub fn serve(options: Options, tell: impl FnMut(Event)) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| system("cannot start the control thread", why))?;
    let claim = RuntimeDir::claim(&options.runtime_dir)?;
    raise_descriptor_limit();
    runtime.block_on(run(&claim, options, tell))
}

async fn run(claim: &RuntimeDir, options: Options, mut tell: impl FnMut(Event)) -> Result<(), ServeError> {
    let listen_to = |kind| signal(kind).map_err(|why| system("cannot listen to signals", why));
    let mut terminate = listen_to(SignalKind::terminate())?;
    let mut interrupt = listen_to(SignalKind::interrupt())?;
    let mut hangup = listen_to(SignalKind::hangup())?;

    let daemon = Daemon::start(Running::new(options.file, options.config, Host::here(claim.path())))?;
    let engine_changed = daemon.engine_changed();
    let events = daemon.events();
    let daemon = Arc::new(Mutex::new(daemon));
    let attach_socket = claim.socket(ATTACH_SOCKET);
    let attach = AttachServer::start(&attach_socket, Box::new(AttachHost(Arc::clone(&daemon))))
        .map_err(|why| system(&format!("cannot listen on {}", attach_socket.display()), why))?;
    lock(&daemon).set_ender(attach.ender());
    let control_socket = claim.socket(CONTROL_SOCKET);
    let listener = server::bind(&control_socket)
        .map_err(|why| system(&format!("cannot listen on {}", control_socket.display()), why))?;
    let api = tokio::spawn(server::serve(listener, routes::router(Arc::clone(&daemon))));

    tell(Event::Ready);
    let mut faults = fault_signal(&daemon);
    let mut every_second = tokio::time::interval(EVERY);
    every_second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => match lock(&daemon).reload() {
                Ok(changes) => tell(Event::Reloaded(changes)),
                Err(refused) => tell(Event::NotReloaded(refused)),
            },
            () = engine_changed.notified() => faults = fault_signal(&daemon),
            () = wait_for(faults.as_ref()) => lock(&daemon).end_faulty(),
            () = events.news() => lock(&daemon).note_events(),
            _ = every_second.tick() => {
                let mut daemon = lock(&daemon);
                daemon.sweep();
                daemon.reopen();
            }
        }
    }
    tell(Event::Stopping);
    api.abort();
    // Its thread takes the daemon's lock for each client that it ends: not to be held here.
    drop(attach);
    // While the directory is still ours: the next daemon makes sockets of the same names.
    lock(&daemon).end();
    Ok(())
}

fn lock(daemon: &Mutex<Daemon>) -> MutexGuard<'_, Daemon> {
    daemon.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine's event counter. Tokio has no type for one; a pipe's reading end is read and waited for alike.
fn fault_signal(daemon: &Mutex<Daemon>) -> Option<Receiver> {
    let signal = lock(daemon).fault_signal().and_then(Receiver::from_owned_fd_unchecked);
    signal.map_err(|error| tracing::error!("faults of ports will go unnoticed: {error}")).ok()
}

/// Waits for the event counter to be written, and resets it.
async fn wait_for(counter: Option<&Receiver>) {
    let Some(counter) = counter else { return pending().await };
    match counter.readable().await {
        Ok(()) => {
            // A failure to read it only means that it was not written.
            let _ = counter.try_read(&mut [0; 8]);
        }
        Err(error) => {
            tracing::error!("faults of ports will go unnoticed: {error}");
            pending().await
        }
    }
}

/// Each client takes four descriptors: the usual limit of 1024 would end at 250 clients.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
}

fn system(what: &str, why: io::Error) -> ServeError {
    ServeError::System { what: what.to_owned(), why }
}
