//! The daemon's process: claims the runtime directory, makes the sockets, waits for signals, faults and time, ends cleanly.
//!
//! - The attach server is a thread of its own. The API is a single-threaded tokio runtime on the main thread.
//! - A panic that nothing contains ends the process with status 70, by a panic hook, which also covers tokio's tasks.
//! - The control loop tells the keeper, and the service manager's watchdog, that all is well after it has looked at the pollers
//!   (`Engine::stuck_pollers`).
//! - SIGTERM ends the process within 8 s in any case.

use std::future::pending;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringway_api::paths::{ATTACH_SOCKET, CONTROL_SOCKET};
use ringway_api::patience;
use ringway_config::{Config, Host};
use ringway_keeper::{Link, NotStarted};
use ringway_port_device::unclosed_devices;
use ringway_port_process::AttachServer;
use ringway_runtime::serving::{note_round, refused_calls};
use ringway_runtime::{fatal, log, prepare_descriptors, warn_limited};
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use crate::daemon::attach::AttachHost;
use crate::daemon::outliving::{keep_configuration, keep_version};
use crate::daemon::running::Running;
use crate::daemon::settle::{settle, start};
use crate::daemon::{Daemon, Refused, change, lock, programs};
use crate::http::{routes, server};
use crate::inject;
use crate::runtime_dir::{ClaimError, RuntimeDir};
use crate::sandbox;
use crate::state_file::{KeptState, StateFile};

/// Interval between two sweeps of the MAC tables, and between two attempts to open ports that are not open.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Longest interval between two checks of the pollers: after more than that, the keeper looks whether they hang.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// A poller that did not go round its loop for so long is stuck, in the log and in the status. With a watchdog, after half of its time.
const STUCK_AFTER: Duration = Duration::from_secs(15);

/// Longest time from the signal that ends the daemon to its end.
const END_WITHIN: Duration = Duration::from_secs(8);

/// Longest wait for the pollers to end a batch: on a machine with much other work, a thread has no processor for some hundred milliseconds. The frames of
/// a batch that is cut are lost.
const HALTED_WITHIN: Duration = Duration::from_secs(1);

/// Longest wait at the end for the log to be written.
pub const FLUSH_WITHIN: Duration = Duration::from_millis(500);

pub use crate::daemon::deaths::Deaths;
pub use crate::daemon::outliving::{CHECKED, begin, check_version, configuration_left, give_up_some};
pub use crate::sandbox::{begin_ahead as give_up_ahead, give_up_to_check, run_closer};

/// The name under which the keeper holds the lock of the state file.
const STATE_LOCK: &str = "state-lock";

/// What to serve.
#[derive(Debug)]
pub struct Options {
    /// The directory for the sockets.
    pub runtime_dir: PathBuf,
    /// The file that `config` was read from, for reloading.
    pub file: Option<PathBuf>,
    /// Its text.
    pub text: String,
    /// The configuration.
    pub config: Config,
    /// The machine, which the switch does not see later.
    pub host: Host,
    /// Makes the command of a process that calls [`run_closer`]: it closes what clients can keep from being closed. Without one, clients can
    /// keep the daemon from ending, unless it was started before ([`give_up_ahead`]).
    pub closer: Option<fn() -> std::process::Command>,
    /// The time without a keep-alive ([`Event::Alive`]) after which the service manager ends the daemon.
    pub watchdog: Option<Duration>,
    /// Holds what outlives the daemon.
    pub keeper: Link,
    /// Of what predecessors died ([`begin`]).
    pub deaths: Deaths,
    /// The directory, if it is claimed already ([`give_up`]).
    pub claim: Option<RuntimeDir>,
}

/// Events for the process of the daemon.
#[derive(Debug)]
pub enum Event {
    /// Ports accept clients.
    Ready,
    /// A reload (SIGHUP) made these changes.
    Reloaded(Vec<String>),
    /// A reload (SIGHUP) was refused.
    NotReloaded(Refused),
    /// All pollers and the control thread make progress. Sent each half second, and at least twice in the time of the watchdog, if there is one.
    Alive,
    /// The daemon is about to end.
    Stopping,
}

/// Why the daemon could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The runtime directory cannot be claimed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The keeper cannot be heard.
    #[error(transparent)]
    Keeper(#[from] NotStarted),
    /// A part of the configuration cannot be had.
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

impl ServeError {
    /// Returns true if the configuration has to be changed: to start again is in vain.
    #[must_use]
    pub fn is_of_configuration(&self) -> bool {
        matches!(self, Self::Refused(Refused::Mistakes(_) | Refused::Conflict(_) | Refused::File(_)))
    }
}

/// Says whether this machine has what every daemon with this configuration needs: the compiler of forwarding programs.
///
/// # Errors
/// What is missing.
pub fn check(config: &Config) -> Result<(), ServeError> {
    Ok(programs::check(config).map_err(Refused::from)?)
}

/// Gives up privileges and files, as a successor does before it looks at anything that was left. It claims the directory before, if no predecessor came so far.
///
/// # Errors
/// The directory cannot be claimed, or there can be no thread.
pub fn give_up(runtime_dir: &Path, keeper: &Link) -> Result<Option<RuntimeDir>, ServeError> {
    let claim = (!RuntimeDir::is_left(keeper)).then(|| RuntimeDir::claim(runtime_dir, keeper)).transpose()?;
    sandbox::begin(keeper)?;
    Ok(claim)
}

/// Serves until SIGTERM or SIGINT, and calls `notify` for each event.
///
/// A panic that nothing contains, on any thread, ends the process with status 70, and so does the end of the API's task. A service
/// manager then starts the daemon again. Without that, the daemon would be alive and serve nobody.
///
/// # Errors
/// It could not start.
pub fn serve(mut options: Options, notify: impl FnMut(Event)) -> Result<(), ServeError> {
    end_on_panics();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| system("cannot start the control thread", why))?;
    let keeper = options.keeper.clone();
    let claim = match options.claim.take() {
        Some(claim) => claim,
        None => RuntimeDir::claim(&options.runtime_dir, &keeper)?,
    };
    if let Err(why) = prepare_descriptors() {
        tracing::warn!("cannot raise the limit of open files: {why}");
    }
    let state = StateFile::locate(&options.config.state.file, claim.path(), options.file.as_deref());
    // The keeper has it as long as it lives.
    let lock = match keeper.inherit(STATE_LOCK) {
        Some(_) => None,
        None => state.lock().map_err(Refused::Conflict)?,
    };
    if let Some(lock) = &lock {
        keeper
            .keep(STATE_LOCK, &[], &[lock.as_fd()])
            .map_err(|why| system("cannot keep the lock of the state file", why))?;
    }
    let _lock = lock.filter(|_| !keeper.is_kept());
    sandbox::begin(&keeper)?;
    // Somebody else may have written it.
    inject::at("read-state");
    let kept = state.read();
    if let Some(closer) = options.closer {
        ringway_port::start_closer(closer);
    }
    if keeper.is_kept() {
        sandbox::give_up_rest(&keeper).iter().for_each(|missing| tracing::warn!("{missing}"));
    }
    let result = runtime.block_on(run(&claim, state, kept, options, notify));
    // With what the tasks of the API still have.
    drop(runtime);
    ringway_port::end_closer();
    result
}

async fn run(
    claim: &RuntimeDir,
    state: StateFile,
    kept: KeptState,
    options: Options,
    mut notify: impl FnMut(Event),
) -> Result<(), ServeError> {
    let listen_to = |kind| signal(kind).map_err(|why| system("cannot listen to signals", why));
    let mut terminate = listen_to(SignalKind::terminate())?;
    let mut interrupt = listen_to(SignalKind::interrupt())?;
    let mut hangup = listen_to(SignalKind::hangup())?;
    claim.keeper().hears_signals();

    let sockets = options.config.sockets.clone();
    let host = Host { runtime_dir: claim.path().to_owned(), ..options.host };
    let (running, contradictions) = Running::new(options.file, options.config, &kept.changes, host);
    contradictions.iter().for_each(|said| tracing::warn!("{said}"));
    running.set_aside().iter().for_each(|said| tracing::warn!("{said}"));
    let mut daemon = Daemon::start(running)?;
    daemon.use_keeper(claim.keeper());
    daemon.use_deaths(options.deaths);
    keep_configuration(claim.keeper(), &options.text);
    if let Some(lost) = &kept.lost {
        tracing::error!("{lost}");
    }
    daemon.keep_state_in(state, kept);
    let engine_changed = daemon.engine_changed();
    let events = daemon.events();
    let daemon = Arc::new(Mutex::new(daemon));
    let mut starting = Box::pin(start(&daemon));
    let begun = tokio::select! {
        begun = &mut starting => Some(needed(claim, begun)?),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let Some(mut loading) = begun else {
        notify(Event::Stopping);
        end_process_within(patience(END_WITHIN));
        if claim.keeper().predecessor().is_some() {
            // What is left is taken over, to be ended in order. Whatever keeps it from that is no news.
            let _ = starting.await;
        }
        return end(&daemon).await;
    };
    let hand_over = claim.keeper().hand_over_signal().map_err(|why| system("no descriptors are left", why));
    let hand_over = needed(claim, hand_over)?;
    let hand_over = hand_over.and_then(|signal| Receiver::from_owned_fd_unchecked(signal).ok());
    drop(starting);
    let attach_socket = claim.socket(ATTACH_SOCKET);
    let host = Box::new(AttachHost::new(Arc::clone(&daemon)));
    let attach = AttachServer::start(&attach_socket, &sockets.attach.get(), host, claim.keeper())
        .map_err(|why| system(&format!("cannot listen on {}", attach_socket.display()), why));
    let attach = needed(claim, attach)?;
    lock(&daemon).set_disconnector(attach.disconnector());
    let control_socket = claim.socket(CONTROL_SOCKET);
    let listen = || {
        let listener = server::bind(&control_socket, &sockets.control.get(), claim.keeper())
            .map_err(|why| system(&format!("cannot listen on {}", control_socket.display()), why))?;
        Ok::<_, ServeError>(tokio::spawn(server::serve(listener, routes::router(Arc::clone(&daemon)))))
    };
    let listen_again = || {
        let again = attach.listen_again(&sockets.attach.get());
        again.map_err(|why| system(&format!("cannot listen on {}", attach_socket.display()), why))
    };
    let mut api = needed(claim, listen())?;
    let [mut attach_path, mut control_path] = [&attach_socket, &control_socket].map(SocketPath::new);

    // Before, an older version may have to go on with what it knows.
    keep_version(claim.keeper());
    lock(&daemon).begin_pauses();
    notify(Event::Ready);
    // Of ports that are not configured any more, and what this version has no use for.
    lock(&daemon).let_go();
    let mut faults = fault_signal(&daemon);
    let mut every_second = tokio::time::interval(SWEEP_EVERY);
    every_second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Each check asks the pollers to go round their loops, and finds the ones that have not since the check before.
    let stuck_after = options.watchdog.map_or(STUCK_AFTER, |watchdog| watchdog / 2);
    let check_every = stuck_after.min(CHECK_EVERY);
    let mut check = tokio::time::interval(check_every);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // One at a time: another signal waits in `hangup`, and is one more reload.
    let mut reload = None;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = wait_for(hand_over.as_ref()) => leave_to_successor(&daemon),
            _ = hangup.recv(), if reload.is_none() => reload = Some(Box::pin(change(&daemon, Daemon::reload))),
            done = completed(reload.as_mut()) => {
                reload = None;
                notify(done.map_or_else(Event::NotReloaded, Event::Reloaded));
            }
            Some(loaded) = loading.next() => lock(&daemon).bring(loaded),
            () = engine_changed.notified() => faults = fault_signal(&daemon),
            () = wait_for(faults.as_ref()) => end_faulty(&daemon).await,
            () = events.wait() => {
                let failed = lock(&daemon).note_events();
                if failed {
                    end_faulty(&daemon).await;
                }
            }
            _ = every_second.tick() => {
                warn_of_refused_calls();
                if faults.is_none() {
                    faults = fault_signal(&daemon);
                }
                // Faults that pollers which have ended noted are not signalled.
                end_faulty(&daemon).await;
                let is_any = lock(&daemon).end_in_old_namespaces();
                if is_any {
                    end_faulty(&daemon).await;
                }
                let mut locked = lock(&daemon);
                locked.sweep();
                locked.reopen();
                locked.write_state_again();
                // They come one by one: a slow one keeps neither others nor changes waiting.
                loading.add(locked.due_programs());
                drop(locked);
                attach_path.restore(listen_again);
                if let Some(again) = control_path.restore(listen) {
                    // What it has accepted goes on.
                    std::mem::replace(&mut api, again).abort();
                }
            }
            _ = check.tick() => {
                note_round();
                // A poller that did not go round since the check before may not have done so for twice that time.
                if lock(&daemon).check_pollers(stuck_after - check_every) {
                    notify(Event::Alive);
                }
            }
            ended = &mut api => fatal(&format!("a defect of Ringway, please report it: the API has ended ({ended:?})")),
        }
    }
    drop((reload, loading));
    notify(Event::Stopping);
    end_process_within(patience(END_WITHIN));
    api.abort();
    // The attach thread takes the daemon's lock for each client that it detaches: the lock must not be held here.
    drop(attach);
    end(&daemon).await
}

/// Says in the log that system calls were refused.
fn warn_of_refused_calls() {
    static SAID: AtomicU64 = AtomicU64::new(0);
    let (count, last) = refused_calls();
    if SAID.swap(count, Ordering::Relaxed) != count {
        warn_limited(&format!(
            "{count} system calls were refused to the switch, the last one of number {last}: a defect of Ringway, please report it, \
             or a client has the switch in its hands"
        ));
    }
}

/// Returns what a daemon needs to serve. A successor without it ends at once, and leaves everything as it is for another one: to end in order
/// would take it from the clients.
fn needed<T, E: Into<ServeError>>(claim: &RuntimeDir, had: Result<T, E>) -> Result<T, ServeError> {
    had.map_err(|why| {
        let why = why.into();
        if claim.keeper().predecessor().is_some() {
            tracing::error!("{why}");
            log::flush(FLUSH_WITHIN);
            std::process::exit(1);
        }
        why
    })
}

/// Ends the process at the boundary of a batch, with everything as it is: a successor goes on with it.
fn leave_to_successor(daemon: &Mutex<Daemon>) -> ! {
    let mut daemon = lock(daemon);
    daemon.halt(HALTED_WITHIN);
    daemon.keep_all();
    // Nothing is closed or removed, as nothing is dropped.
    std::process::exit(0)
}

/// The path of a socket of Ringway's own, which somebody may remove.
struct SocketPath<'a> {
    path: &'a Path,
    /// It was removed, and could not be made again: this is in the log.
    is_lost: bool,
}

impl<'a> SocketPath<'a> {
    fn new(path: &'a PathBuf) -> Self {
        Self { path, is_lost: false }
    }

    /// Makes the socket again if its path is gone. Returns what `listen` returns then.
    fn restore<T>(&mut self, listen: impl FnOnce() -> Result<T, ServeError>) -> Option<T> {
        if !self.path.symlink_metadata().is_err_and(|why| why.kind() == ErrorKind::NotFound) {
            self.is_lost = false;
            return None;
        }
        match listen() {
            Ok(listening) => {
                tracing::warn!("{} was removed: it is made again", self.path.display());
                Some(listening)
            }
            Err(why) => {
                if !std::mem::replace(&mut self.is_lost, true) {
                    tracing::error!("{} was removed, and cannot be made again: {why}", self.path.display());
                }
                None
            }
        }
    }
}

/// Closes every port, before the claim of the directory ends: the next daemon makes sockets of the same names.
async fn end(daemon: &Mutex<Daemon>) -> Result<(), ServeError> {
    let ended = change(daemon, |daemon| {
        daemon.end();
        Ok(Vec::new())
    });
    ended.await.map(drop).map_err(ServeError::from)
}

/// Waits for the result of what runs, or for ever.
async fn completed<F: Future + Unpin>(running: Option<F>) -> F::Output {
    match running {
        Some(running) => running.await,
        None => pending().await,
    }
}

/// Makes every panic end the process, except those that are contained: their threads note them instead
/// ([`ringway_runtime::guard_thread`]).
fn end_on_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let place = panic.location().map_or("an unknown place".to_owned(), ToString::to_string);
        let what = panic.payload_as_str().unwrap_or("no message");
        fatal(&format!("a defect of Ringway, please report it: the thread \"{thread}\" failed at {place} ({what})"))
    }));
}

/// Ends the process after this time, in case clients delay the end of its threads.
fn end_process_within(time: Duration) {
    let thread = std::thread::Builder::new().name("end".to_owned()).spawn(move || {
        std::thread::sleep(time);
        tracing::warn!("clients keep threads of the switch from ending: it ends without waiting for them");
        log::flush(FLUSH_WITHIN);
        std::process::exit(0);
    });
    if let Err(error) = thread {
        tracing::warn!("cannot start a thread: {error}");
    }
}

/// Closes the ports that have a fault, and opens again those that may come back at once.
async fn end_faulty(daemon: &Mutex<Daemon>) {
    let unclosed = unclosed_devices();
    let ended = {
        let mut daemon = lock(daemon);
        daemon.note_slow();
        daemon.end_faulty()
    };
    if ended {
        let tasks = lock(daemon).take_tasks();
        settle(daemon, &tasks, unclosed).await;
        lock(daemon).reopen();
    }
}

/// Returns the engine's eventfd. Tokio has no type for one; the reading end of a pipe is read and polled in the same way.
fn fault_signal(daemon: &Mutex<Daemon>) -> Option<Receiver> {
    let signal = lock(daemon).fault_signal().and_then(Receiver::from_owned_fd_unchecked);
    let polled = |error| tracing::error!("faults of ports are looked for every second only: {error}");
    signal.map_err(polled).ok()
}

/// Waits until the eventfd is written, and resets it.
async fn wait_for(counter: Option<&Receiver>) {
    let Some(counter) = counter else { return pending().await };
    match counter.readable().await {
        Ok(()) => {
            // A failure to read only means that it was not written.
            let _ = counter.try_read(&mut [0; 8]);
        }
        Err(error) => {
            tracing::error!("faults of ports are not seen at once: {error}");
            pending().await
        }
    }
}

fn system(what: &str, why: io::Error) -> ServeError {
    ServeError::System { what: what.to_owned(), why }
}
