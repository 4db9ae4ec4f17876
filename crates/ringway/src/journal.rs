//! Priorities of lines for systemd's journal (sd-daemon(3)): `<4>` before a warning. Only where stderr is the journal's.

use std::sync::OnceLock;

use ringway_daemon::log;
use rustix::fs::fstat;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{DefaultFields, Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::registry::LookupSpan;

/// Returns true if stderr is the stream that systemd names in JOURNAL_STREAM as `DEVICE:INODE`.
fn is_journal() -> bool {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    *IS_JOURNAL.get_or_init(|| {
        let named = std::env::var("JOURNAL_STREAM").ok();
        let is = fstat(rustix::stdio::stderr()).ok().map(|is| format!("{}:{}", is.st_dev, is.st_ino));
        named.is_some() && named == is
    })
}

/// Returns the priority of a line of this level, or nothing.
pub fn priority(level: Level) -> &'static str {
    match level {
        _ if !is_journal() => "",
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        _ => "<7>",
    }
}

/// Writes each line of the message to stderr as commands do, and never waits for that.
pub fn on_stderr(message: &str) {
    let priority = priority(Level::ERROR);
    message.lines().for_each(|line| log::stderr().say(&format!("{priority}ringway run: {line}")));
}

/// Lines of the log, with their priority where the journal takes them. It has the time of each.
#[derive(Debug)]
pub struct Lines(Format<Full>, Format<Full, ()>);

impl Lines {
    /// Lines without the module that they come from.
    pub fn new() -> Self {
        let format = tracing_subscriber::fmt::format().with_target(false);
        Self(format.clone(), format.without_time())
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> FormatEvent<S, DefaultFields> for Lines {
    fn format_event(
        &self,
        context: &FmtContext<'_, S, DefaultFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        match priority(*event.metadata().level()) {
            "" => self.0.format_event(context, writer, event),
            priority => {
                writer.write_str(priority)?;
                self.1.format_event(context, writer, event)
            }
        }
    }
}
