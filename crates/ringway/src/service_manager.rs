//! What the service manager is told, where it asked (NOTIFY_SOCKET).

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use ringway_keeper::State;
use sd_notify::NotifyState;

/// Longest wait for room in the service manager's socket: for the first message, which it waits for, and for others.
const READY_WITHIN: Duration = Duration::from_secs(5);
const NOTIFY_WITHIN: Duration = Duration::from_millis(1);

/// The shortest watchdog that is fed.
const LEAST_WATCHDOG: Duration = Duration::from_millis(10);

/// The time after which systemd ends this process if it is not fed. A time of 0 means no watchdog.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|watchdog| *watchdog >= LEAST_WATCHDOG)
}

/// Tells systemd the state. The wait for room in its socket is bounded: this process goes on also while the service manager does not read.
pub fn tell(state: State) {
    let (state, within) = match state {
        State::Ready => (NotifyState::Ready, READY_WITHIN),
        State::Alive => (NotifyState::Watchdog, NOTIFY_WITHIN),
        State::Stopping => (NotifyState::Stopping, NOTIFY_WITHIN),
        State::Fits | State::Prepared => return,
    };
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let send = || {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(within))?;
        socket.send_to(format!("{state}\n").as_bytes(), &path)
    };
    if let Err(error) = send() {
        tracing::warn!("cannot notify the service manager: {error}");
    }
}
