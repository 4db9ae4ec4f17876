//! The command line of `ringway`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands;
use crate::global::Global;

/// A fast virtual Ethernet for virtual machines and processes, in user space.
#[derive(Debug, Parser)]
#[command(
    version,
    long_version = env!("RINGWAY_VERSION"),
    arg_required_else_help = true,
    after_help = "Example, in two terminals:
  ringway run
  ringway status"
)]
pub struct Command {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Run(commands::run::Args),
    Status(commands::status::Args),
    Reload(commands::reload::Args),
    Upgrade(commands::upgrade::Args),
    Config(commands::config::Args),
    Port(commands::port::Args),
    Bucket(commands::bucket::Args),
    Switch(commands::switch::Args),
    Top(commands::top::Args),
    Fdb(commands::fdb::Args),
    Capture(commands::capture::Args),
    Extcap(commands::extcap::Args),
    Exec(commands::exec::Args),
    Gen(ringway_commands::r#gen::Args),
    Lwep(ringway_commands::lwep::Args),
    Program(commands::program::Args),
    /// Run the experiments of the papers and their peers (needs ringway-lab; see ringway bench --help)
    Bench(commands::lab::Args),
    /// Show a switch at work: virtual machines, network namespaces and process ports (needs ringway-lab; see ringway demo --help)
    Demo(commands::lab::Args),
    Completions(commands::completions::Args),
}

impl Command {
    /// Parses a command line, beginning with the program. Its file name can stand for a subcommand: Wireshark calls
    /// `ringway-extcap`. Ends the process if the command line has a mistake, or asks for help.
    #[must_use]
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self::parse_from(commands::extcap::by_name(arguments))
    }

    /// Runs the subcommand.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let Command { global, what } = self;
        global.log_to_stderr(matches!(what, What::Run(_)));
        let context = global.context();
        match what {
            What::Run(args) => commands::run::run(args, &context),
            What::Status(args) => commands::status::run(args, &context),
            What::Reload(args) => commands::reload::run(&args, &context),
            What::Upgrade(args) => commands::upgrade::run(&args, &context),
            What::Config(args) => commands::config::run(&args, &context),
            What::Port(args) => commands::port::run(args, &context),
            What::Bucket(args) => commands::bucket::run(args, &context),
            What::Switch(args) => commands::switch::run(args, &context),
            What::Capture(args) => commands::capture::run(args, &context),
            What::Extcap(args) => commands::extcap::run(args, &context),
            What::Top(args) => commands::top::run(args, &context),
            What::Fdb(args) => commands::fdb::run(args, &context),
            What::Exec(args) => commands::exec::run(args, &context),
            What::Gen(args) => ringway_commands::r#gen::run(args, &context),
            What::Lwep(args) => ringway_commands::lwep::run(args, &context),
            What::Program(args) => commands::program::run(args),
            What::Bench(_) => commands::lab::exec("bench"),
            What::Demo(_) => commands::lab::exec("demo"),
            What::Completions(args) => commands::completions::run(&args, Command::command()),
        }
    }
}
