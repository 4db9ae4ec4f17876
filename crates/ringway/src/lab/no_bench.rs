//! `ringway bench` in a build with the demo alone, as `make demo` makes it.

use std::process::ExitCode;

use ringway_commands::context::complain;

/// Run the experiments of the papers and their peers (not in this build: "make build" builds them)
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<String>,
}

/// Says what to build.
pub fn run(_: Args) -> ExitCode {
    complain("bench", "this ringway-lab was built for the demo alone: \"make build\" builds the experiments, too");
    ExitCode::FAILURE
}
