//! `ringway demo`: shows a switch at work for half a minute.

mod acts;
mod args;
mod live;
mod machines;
mod outcome;
mod patience;
mod ping;
mod program;
mod report;
mod say;
mod stage;

use std::process::ExitCode;
use std::time::Duration;

use acts::Results;
use live::Live;
use outcome::{NotDone, Outcome, Stop};
use ringway_commands::context::complain;
use ringway_commands::r#gen::{GenError, stop_on_signals};
use say::say;
use stage::Stage;

pub use args::Args;

/// What a shell reports of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let stop = match stop_on_signals() {
        Ok(stop) => Stop(stop),
        Err(GenError::Usage(why) | GenError::Failed(why)) => {
            complain("demo", &why);
            return ExitCode::FAILURE;
        }
    };
    // `play` removes what it made before it returns, on every path.
    match play(&args, &stop) {
        Ok(results) => {
            say(&report::results(&results));
            say(&report::next_commands(&say::called()));
            if results.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(NotDone::Interrupted) => {
            say("\nstopped; nothing is left behind\n");
            ExitCode::from(INTERRUPTED)
        }
        Err(NotDone::Skipped(why) | NotDone::Failed(why)) => {
            complain("demo", &why);
            ExitCode::FAILURE
        }
    }
}

fn play(args: &Args, stop: &Stop) -> Outcome<Results> {
    // Declared before the stage, so dropped after its switch, which has devices in the namespaces.
    let spaces;
    let mut stage = Stage::open(stop)?;
    say("A switch runs, called lan0. Ctrl-C ends the demo.\n");
    spaces = stage.spaces(stop);
    stop.check()?;
    let mut live = Live::new(stage.client());
    let seats = machines::prepare(&stage, args, stop);
    stop.check()?;
    acts::all(&mut stage, &spaces, &seats, Duration::from_secs(args.seconds.into()), &mut live, stop)
}
