//! `ringway demo`: shows a switch at work for half a minute.

mod acts;
mod live;
mod machines;
mod program;
mod stage;
mod words;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::commands::complain;
use crate::commands::r#gen::{Trouble, stop_on_signals};

use acts::Results;
use live::Live;
use stage::Stage;
use words::say;

/// Show a switch at work: virtual machines, network namespaces and process ports
///
/// Starts a switch of its own, apart from any other, and leaves nothing behind. It boots two small virtual machines (QEMU, a
/// Debian kernel, busybox) on vhost-user ports; as root it also connects two network namespaces by TAP ports. What it cannot
/// show for want of a program it names, with the package to install.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ringway demo --seconds 30\n  ringway demo --fetch-kernel")]
pub struct Args {
    /// How long it takes, more or less; the virtual machines take some seconds more to boot
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(5..=3600))]
    seconds: u32,
    /// Fetch Debian's kernel for the virtual machines if it is not here (70 MB, kept in ~/.cache/ringway/kernels)
    #[arg(long)]
    fetch_kernel: bool,
    /// Run the virtual machines by KVM; without, QEMU emulates their CPUs, which is slower and works everywhere
    #[arg(long)]
    kvm: bool,
}

/// What a shell reports of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Why a part of the demo has no result.
#[derive(Debug, Clone)]
pub enum Miss {
    /// The part cannot be shown here, for this reason.
    Skipped(String),
    /// The part failed, for this reason.
    Failed(String),
    /// Ctrl-C.
    Interrupted,
}

/// The result of a part.
type Outcome<T> = Result<T, Miss>;

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    let stop = match stop_on_signals() {
        Ok(stop) => Stop(stop),
        Err(Trouble::Usage(why) | Trouble::Failed(why)) => {
            complain("demo", &why);
            return ExitCode::FAILURE;
        }
    };
    // `play` removes what it made before it returns, on every path.
    match play(&args, &stop) {
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

/// A flag that Ctrl-C sets.
#[derive(Debug, Clone)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Returns an error once the flag is set.
    pub fn check(&self) -> Outcome<()> {
        if self.0.load(Ordering::Relaxed) { Err(Miss::Interrupted) } else { Ok(()) }
    }

    /// The flag itself.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}
