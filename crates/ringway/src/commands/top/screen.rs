//! The terminal: keys, time, and the restoration of its state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;
use ringway_api::PortRef;
use ringway_api::client::Client;
use ringway_api::types::Status;
use ringway_api::units;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::order::Order;
use super::rates::Rates;
use super::view::View;

/// Shortest and longest interval between two readings.
pub const INTERVALS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(3600));

/// Interval at which signals and new readings are looked for while no key is pressed.
const LOOK: Duration = Duration::from_millis(50);

/// A terminal whose state is restored on drop, and after a panic (ratatui's hook).
struct Screen(DefaultTerminal);

impl Screen {
    fn new() -> Result<Screen, String> {
        ratatui::try_init().map(Screen).map_err(|error| format!("cannot use the terminal: {error}"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Action of a key.
enum Action {
    Nothing,
    Quit,
    Suspend,
}

struct Top {
    view: View,
    only: Vec<PortRef>,
    interval: Duration,
    before: Status,
    /// Sends the interval to the thread that reads the status.
    pace: Sender<Duration>,
    readings: Receiver<Result<Status, String>>,
}

/// Shows rates until the user quits, or a signal comes.
///
/// # Errors
/// The terminal cannot be used.
pub fn show(
    client: Client,
    interval: Duration,
    order: Order,
    only: Vec<PortRef>,
    before: Status,
) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| format!("cannot catch signal {signal}: {error}"))?;
    }
    let (pace, paces) = channel();
    let (sender, readings) = channel();
    // The daemon may answer late. Keys must not wait for it.
    std::thread::spawn(move || poll_status(&client, interval, &paces, &sender));
    let rates = Rates::between(&before, &before, &only);
    let view = View {
        rates,
        order,
        rows: TableState::default(),
        is_still: false,
        interval: units::show_duration(interval),
        trouble: None,
    };
    let mut top = Top { view, only, interval, before, pace, readings };
    top.view.order.sort(&mut top.view.rates.ports);
    let mut screen = Screen::new()?;
    let failed = |error: std::io::Error| format!("the terminal failed: {error}");
    while !stop.load(Ordering::Relaxed) {
        top.take_readings();
        screen.0.draw(|frame| top.view.draw(frame)).map_err(failed)?;
        if !event::poll(LOOK).map_err(failed)? {
            continue;
        }
        let Event::Key(key) = event::read().map_err(failed)? else { continue };
        match top.press(key) {
            Action::Nothing => {}
            Action::Quit => break,
            Action::Suspend => {
                drop(screen);
                let _ = kill_process(getpid(), Signal::STOP);
                screen = Screen::new()?;
            }
        }
    }
    Ok(())
}

/// Reads the status at intervals, until the receiver is gone.
fn poll_status(
    client: &Client,
    mut interval: Duration,
    paces: &Receiver<Duration>,
    sender: &Sender<Result<Status, String>>,
) {
    loop {
        match paces.recv_timeout(interval) {
            Ok(changed) => interval = changed,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if sender.send(client.status().map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        }
    }
}

impl Top {
    fn take_readings(&mut self) {
        while let Ok(reading) = self.readings.try_recv() {
            match reading {
                Err(trouble) => self.view.trouble = Some(trouble),
                Ok(_) if self.view.is_still => {}
                Ok(now) => {
                    self.view.trouble = None;
                    self.view.rates = Rates::between(&self.before, &now, &self.only);
                    self.view.order.sort(&mut self.view.rates.ports);
                    self.before = now;
                }
            }
        }
    }

    fn press(&mut self, key: KeyEvent) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let view = &mut self.view;
        match key.code {
            KeyCode::Char('c') if control => return Action::Quit,
            KeyCode::Char('z') if control => return Action::Suspend,
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Left | KeyCode::Char('<') => view.order = Order::new(view.order.column.beside(-1)),
            KeyCode::Right | KeyCode::Char('>') => view.order = Order::new(view.order.column.beside(1)),
            KeyCode::Char('r') => view.order.reversed = !view.order.reversed,
            KeyCode::Up => view.rows.select_previous(),
            KeyCode::Down => view.rows.select_next(),
            KeyCode::PageUp => view.rows.scroll_up_by(20),
            KeyCode::PageDown => view.rows.scroll_down_by(20),
            KeyCode::Home => view.rows.select_first(),
            KeyCode::End => view.rows.select_last(),
            KeyCode::Char(' ') => view.is_still = !view.is_still,
            KeyCode::Char('+') => self.wait(self.interval * 2),
            KeyCode::Char('-') => self.wait(self.interval / 2),
            _ => {}
        }
        self.view.order.sort(&mut self.view.rates.ports);
        Action::Nothing
    }

    fn wait(&mut self, interval: Duration) {
        self.interval = interval.clamp(INTERVALS.0, INTERVALS.1);
        self.view.interval = units::show_duration(self.interval);
        // The thread may have ended with the daemon.
        let _ = self.pace.send(self.interval);
    }
}
