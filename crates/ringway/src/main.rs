//! The `ringway` command.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ringway_control::runtime_dir;
use tracing_subscriber::EnvFilter;

/// A fast virtual Ethernet for virtual machines and processes, in user space.
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "Example, in two terminals:
  ringway run
  ringway status"
)]
struct Command {
    /// Directory of the daemon's sockets [default: /run/ringway for root, else $XDG_RUNTIME_DIR/ringway, else
    /// /tmp/ringway-UID]
    #[arg(long, global = true, value_name = "DIR")]
    runtime_dir: Option<PathBuf>,
    /// Say more on stderr; twice: everything. RUST_LOG overrides it
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Run(commands::run::Args),
    Status(commands::status::Args),
    Port(commands::port::Args),
    Bucket(commands::bucket::Args),
    Switch(commands::switch::Args),
    Top(commands::top::Args),
    Fdb(commands::fdb::Args),
    Capture(commands::capture::Args),
    Gen(commands::r#gen::Args),
    Bench(commands::bench::Args),
    Demo(commands::demo::Args),
    Completions(commands::completions::Args),
}

fn main() -> ExitCode {
    let command = Command::parse();
    log_to_stderr(command.verbose);
    let context = commands::Context { runtime_dir: command.runtime_dir.unwrap_or_else(runtime_dir::default_path) };
    match command.what {
        What::Run(args) => commands::run::run(args, &context),
        What::Status(args) => commands::status::run(args, &context),
        What::Port(args) => commands::port::run(args, &context),
        What::Bucket(args) => commands::bucket::run(args, &context),
        What::Switch(args) => commands::switch::run(args, &context),
        What::Capture(args) => commands::capture::run(args, &context),
        What::Top(args) => commands::top::run(args, &context),
        What::Fdb(args) => commands::fdb::run(args, &context),
        What::Gen(args) => commands::r#gen::run(args, &context),
        What::Bench(args) => commands::bench::run(args, &context),
        What::Demo(args) => commands::demo::run(args, &context),
        What::Completions(args) => commands::completions::run(&args, Command::command()),
    }
}

fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "info",
        1 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false).init();
}
