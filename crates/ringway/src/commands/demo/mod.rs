//! `ringway demo`: a switch at work, for a quarter of a minute.

mod acts;
mod live;
mod program;
mod stage;
mod words;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::r#gen::{Trouble, stop_on_signals};
use super::{Context, complain};
use acts::Results;
use live::Live;
use stage::Stage;
use words::say;

/// Show a switch at work: network namespaces, ping, iperf3 and process ports
///
/// Starts a switch of its own, apart from any other, and leaves nothing behind. As root it connects two network namespaces by
/// TAP ports; otherwise it shows the process ports only.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  ringway demo --seconds 20")]
pub struct Args {
    /// How long it takes, more or less
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(5..=3600))]
    seconds: u32,
}

/// What a shell reports of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Why a part of the demo has no result.
#[derive(Debug, Clone)]
pub enum Miss {
    /// It cannot be shown here; the reason.
    Skipped(String),
    /// It should have worked; the reason.
    Failed(String),
    /// Ctrl-C.
    Interrupted,
}

/// The result of a part.
type Outcome<T> = Result<T, Miss>;

/// Runs the command.
pub fn run(args: Args, _context: &Context) -> ExitCode {
    let stop = match stop_on_signals() {
        Ok(stop) => Stop(stop),
        Err(Trouble::Usage(why) | Trouble::Failed(why)) => {
            complain("demo", &why);
            return ExitCode::FAILURE;
        }
    };
    // Everything that was put up is taken down when `play` returns, however it does.
    match play(args.seconds, &stop) {
        Ok(results) => {
            say(&words::report(&results));
            say(&words::yours(&words::called()));
            if results.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(Miss::Interrupted) => {
            say("\nstopped; nothing is left behind\n");
            ExitCode::from(INTERRUPTED)
        }
        Err(Miss::Skipped(why) | Miss::Failed(why)) => {
            complain("demo", &why);
            ExitCode::FAILURE
        }
    }
}

fn play(seconds: u32, stop: &Stop) -> Outcome<Results> {
    // Declared before the stage, they go after its switch, which holds devices in them.
    let spaces;
    let mut stage = Stage::open(stop)?;
    say("A switch runs, called lan0. Ctrl-C ends the demo.\n");
    spaces = stage.spaces(stop);
    stop.check()?;
    let mut live = Live::new(stage.client());
    acts::all(&mut stage, &spaces, Duration::from_secs(seconds.into()), &mut live, stop)
}

/// Set by Ctrl-C.
#[derive(Debug, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// An error once it is set.
    pub fn check(&self) -> Outcome<()> {
        if self.0.load(Ordering::Relaxed) { Err(Miss::Interrupted) } else { Ok(()) }
    }

    /// The flag itself.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
