//! The daemon's process: claims the runtime directory, makes the sockets, waits for signals, faults and time, ends cleanly.
//!
//! - The attach server is a thread of its own. The API is a single-threaded tokio runtime on the main thread.
//! - A panic that nothing contains ends the process with status 70, by a panic hook, which also covers tokio's tasks.
//! - The control loop feeds the service manager's watchdog after it has looked at the pollers (`Engine::stuck_pollers`).
//! - SIGTERM ends the process within 8 s in any case.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringway_engine::fatal;
use ringway_ports::process::AttachServer;
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::attach::AttachHost;
use super::change::SETTLE_WITHIN;
use super::chores::Chores;
use super::running::Running;
use super::{Daemon, Refused};
use crate::api::{routes, server};
use crate::config::{Config, Host};
use crate::runtime_dir::{ATTACH_SOCKET, CONTROL_SOCKET, ClaimError, RuntimeDir};

/// How often MAC tables are looked through for what is too old, and what was lost is tried again.
const EVERY: Duration = Duration::from_secs(1);

/// How often pollers are looked at where no service manager says otherwise.
const LOOK_EVERY: Duration = Duration::from_secs(15);

/// Longest wait for what a client can make last, such as the end of its connection.
const CHORES_WITHIN: Duration = Duration::from_secs(3);

/// Longest time from the signal that ends the daemon to its end.
const END_WITHIN: Duration = Duration::from_secs(8);

/// What to serve.
#[derive(Debug)]
pub struct Options {
    /// Where the sockets go.
    pub runtime_dir: PathBuf,
    /// Where `config` was read from, for reloading.
    pub file: Option<PathBuf>,
    /// What is to run.
    pub config: Config,
    /// The service manager ends the daemon when it is not told for so long that it is alive ([`Event::Alive`]).
    pub watchdog: Option<Duration>,
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
    /// All pollers and the control thread go on. Told twice in the time of the watchdog, if there is one.
    Alive,
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
/// A panic that nothing contains, on whatever thread, ends the process with status 70, as does a task of the control thread
/// that ends by itself: a service manager starts the daemon anew, which otherwise only looked alive.
///
/// # Errors
/// It could not start.
pub fn serve(options: Options, tell: impl FnMut(Event)) -> Result<(), ServeError> {
    end_on_panics();
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
    let attach = AttachServer::start(&attach_socket, Box::new(AttachHost::new(Arc::clone(&daemon))))
        .map_err(|why| system(&format!("cannot listen on {}", attach_socket.display()), why))?;
    lock(&daemon).set_ender(attach.ender());
    let control_socket = claim.socket(CONTROL_SOCKET);
    let listener = server::bind(&control_socket)
        .map_err(|why| system(&format!("cannot listen on {}", control_socket.display()), why))?;
    let mut api = tokio::spawn(server::serve(listener, routes::router(Arc::clone(&daemon))));

    let chores = lock(&daemon).take_chores();
    settled(&daemon, &chores).await;
    tell(Event::Ready);
    let mut faults = fault_signal(&daemon);
    let mut every_second = tokio::time::interval(EVERY);
    every_second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Each look asks the pollers to go round, and sees what became of the look before.
    let mut look = tokio::time::interval(options.watchdog.map_or(LOOK_EVERY, |watchdog| watchdog / 2));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => match change(&daemon, Daemon::reload).await {
                Ok(changes) => tell(Event::Reloaded(changes)),
                Err(refused) => tell(Event::NotReloaded(refused)),
            },
            () = engine_changed.notified() => faults = fault_signal(&daemon),
            () = wait_for(faults.as_ref()) => end_faulty(&daemon).await,
            () = events.news() => {
                let failed = lock(&daemon).note_events();
                if failed {
                    end_faulty(&daemon).await;
                }
            }
            _ = every_second.tick() => {
                if faults.is_none() {
                    faults = fault_signal(&daemon);
                }
                // Those of pollers that have ended are not told.
                end_faulty(&daemon).await;
                let mut daemon = lock(&daemon);
                daemon.sweep();
                daemon.reopen();
            }
            _ = look.tick() => if lock(&daemon).look_at_pollers() && options.watchdog.is_some() {
                tell(Event::Alive);
            },
            ended = &mut api => fatal(&format!("a defect of Ringway, please report it: the API has ended ({ended:?})")),
        }
    }
    tell(Event::Stopping);
    end_in_any_case();
    api.abort();
    // Its thread takes the daemon's lock for each client that it ends: not to be held here.
    drop(attach);
    // While the directory is still ours: the next daemon makes sockets of the same names.
    let ended = change(&daemon, |daemon| {
        daemon.end();
        Ok(Vec::new())
    });
    ended.await.map(drop).map_err(ServeError::from)
}

/// Has a panic end the process, unless it is one that is contained where it happens: those are of threads that note them
/// instead ([`ringway_engine::guard_thread`]).
fn end_on_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let place = panic.location().map_or("an unknown place".to_owned(), ToString::to_string);
        let what = panic.payload_as_str().unwrap_or("no message");
        fatal(&format!("a defect of Ringway, please report it: the thread \"{thread}\" failed at {place} ({what})"))
    }));
}

/// Ends the process if clients keep its threads from ending.
fn end_in_any_case() {
    let thread = std::thread::Builder::new().name("end".to_owned()).spawn(|| {
        std::thread::sleep(END_WITHIN);
        tracing::warn!("clients keep threads of the switch from ending: it ends without waiting for them");
        std::process::exit(0);
    });
    if let Err(error) = thread {
        tracing::warn!("cannot start a thread: {error}");
    }
}

/// Ends ports that have a fault, and opens those again that may come back at once.
async fn end_faulty(daemon: &Mutex<Daemon>) {
    let ended = {
        let mut daemon = lock(daemon);
        daemon.note_slow();
        daemon.end_faulty()
    };
    if ended {
        let chores = lock(daemon).take_chores();
        settled(daemon, &chores).await;
        lock(daemon).reopen();
    }
}

/// Changes the daemon, and waits until that is done: pollers use what was published, and what was closed is gone. The daemon is
/// not locked meanwhile.
///
/// # Errors
/// Those of the change.
pub async fn change(
    daemon: &Mutex<Daemon>,
    change: impl FnOnce(&mut Daemon) -> Result<Vec<String>, Refused>,
) -> Result<Vec<String>, Refused> {
    let (done, chores) = {
        let mut daemon = lock(daemon);
        let done = change(&mut daemon);
        (done, daemon.take_chores())
    };
    settled(daemon, &chores).await;
    done
}

async fn settled(daemon: &Mutex<Daemon>, chores: &Chores) {
    let begun = Instant::now();
    let waits = |most| begun.elapsed() < most;
    while (waits(SETTLE_WITHIN) && !lock(daemon).is_released()) || (waits(CHORES_WITHIN) && !chores.are_done()) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn lock(daemon: &Mutex<Daemon>) -> MutexGuard<'_, Daemon> {
    daemon.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The engine's event counter. Tokio has no type for one; a pipe's reading end is read and waited for alike.
fn fault_signal(daemon: &Mutex<Daemon>) -> Option<Receiver> {
    let signal = lock(daemon).fault_signal().and_then(Receiver::from_owned_fd_unchecked);
    let unseen = |error| tracing::error!("faults of ports are looked for every second only: {error}");
    signal.map_err(unseen).ok()
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
            tracing::error!("faults of ports are not seen at once: {error}");
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
