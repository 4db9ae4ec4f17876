//! The terminal: keys, time, and the restoration of its state.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;
use ringway_control::api::types::Status;
use ringway_control::client::Client;
use ringway_control::config::units;
use ringway_control::daemon::PortRef;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::INTERVALS;
use super::order::Order;
use super::rates::Rates;
use super::view::View;

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
enum Wish {
    Nothing,
    Quit,
    Suspend,
}

struct Top {
    view: View,
    only: Vec<PortRef>,
    interval: Duration,
    before: Status,
    /// Tells the asking thread how long to wait.
    pace: Sender<Duration>,
    news: Receiver<Result<Status, String>>,
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
    let (tell, news) = channel();
    // The daemon may answer late. Keys must not wait for it.
    std::thread::spawn(move || ask(&client, interval, &paces, &tell));
    let rates = Rates::between(&before, &before, &only);
    let view = View {
        rates,
        order,
        rows: TableState::default(),
        is_still: false,
        interval: units::show_duration(interval),
        trouble: None,
    };
    let mut top = Top { view, only, interval, before, pace, news };
    top.view.order.sort(&mut top.view.rates.ports);
    let mut screen = Screen::new()?;
    let failed = |error: std::io::Error| format!("the terminal failed: {error}");
    while !stop.load(Ordering::Relaxed) {
        top.take_news();
        screen.0.draw(|frame| top.view.draw(frame)).map_err(failed)?;
        if !event::poll(LOOK).map_err(failed)? {
            continue;
        }
        let Event::Key(key) = event::read().map_err(failed)? else { continue };
        match top.press(key) {
            Wish::Nothing => {}
            Wish::Quit => break,
            Wish::Suspend => {
                drop(screen);
                let _ = kill_process(getpid(), Signal::STOP);
                screen = Screen::new()?;
            }
        }
    }
    Ok(())
}

/// Reads the status at intervals, until the receiver is gone.
fn ask(client: &Client, mut interval: Duration, paces: &Receiver<Duration>, tell: &Sender<Result<Status, String>>) {
    loop {
        match paces.recv_timeout(interval) {
            Ok(changed) => interval = changed,
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                if tell.send(client.status().map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        }
    }
}

impl Top {
    fn take_news(&mut self) {
        while let Ok(news) = self.news.try_recv() {
            match news {
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

    fn press(&mut self, key: KeyEvent) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let view = &mut self.view;
        match key.code {
            KeyCode::Char('c') if control => return Wish::Quit,
            KeyCode::Char('z') if control => return Wish::Suspend,
            KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
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
        Wish::Nothing
    }

    fn wait(&mut self, interval: Duration) {
        self.interval = interval.clamp(INTERVALS.0, INTERVALS.1);
        self.view.interval = units::show_duration(self.interval);
        // It may have ended with the daemon's last word.
        let _ = self.pace.send(self.interval);
    }
}
