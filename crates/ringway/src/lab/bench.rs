//! `ringway bench`: measures the papers' figures here, beside the switches that a user would pick instead.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ringway_commands::context::{USAGE, complain};
use ringway_commands::out;
use ringway_experiments::machine::Machine;
use ringway_experiments::report::{Figure, Report};
use ringway_experiments::session::{Options, Session};
use ringway_experiments::{EXPERIMENTS, Experiment, find, interrupt, markdown, plot, report_file};

use crate::commands::lab;

/// Run the experiments of the papers and their peers
#[derive(Debug, clap::Args)]
#[command(after_help = "Needs two cores that do nothing else. Peers (Linux bridge, VDE, tc, Open vSwitch, ...) are
measured where they can be had: as root, with the Debian packages that \"make deps\" installs. Ctrl-C ends a run
with what it has measured so far.

Examples:
  ringway bench --list
  ringway bench headline
  ringway bench e1000-transmit --only ringway --only \"qemu e1000\" --pairs 20
  ringway bench --json bench.json --plots plots
  ringway bench --report bench.json >benchmarks.md")]
pub struct Args {
    /// What to measure; all when none is named
    #[arg(value_name = "EXPERIMENT")]
    experiments: Vec<String>,
    /// Show what can be measured
    #[arg(long)]
    list: bool,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write one SVG per figure
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    /// Measure nothing: write the results of this file, which --json or --summary wrote, as Markdown; with --plots draw them again
    /// (may be given again for further files)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["experiments", "list", "json", "quick", "pairs", "only"])]
    report: Vec<PathBuf>,
    /// With --report: also write the results to this file, as JSON without single windows
    #[arg(long, value_name = "FILE", requires = "report")]
    summary: Option<PathBuf>,
    /// Every experiment in seconds, to see that it works
    #[arg(long)]
    quick: bool,
    /// How often every contestant has its turn
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
    /// Measure this curve only, named as in the table (again for each further one)
    #[arg(long, value_name = "CURVE", requires = "experiments")]
    only: Vec<String>,
}

/// Runs the command.
pub fn run(args: Args) -> ExitCode {
    if args.list {
        return out::print(&list());
    }
    if !args.report.is_empty() {
        return match report(&args.report, args.plots.as_deref(), args.summary.as_deref()) {
            Ok(document) => out::print(&document),
            Err(error) => {
                complain("bench", &error.to_string());
                ExitCode::FAILURE
            }
        };
    }
    let mut chosen: Vec<&Experiment> = Vec::new();
    for name in &args.experiments {
        let Some(experiment) = find(name) else {
            let known: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
            complain("bench", &format!("no experiment \"{name}\": there are {}", known.join(", ")));
            return ExitCode::from(USAGE);
        };
        chosen.push(experiment);
    }
    if chosen.is_empty() {
        chosen.extend(EXPERIMENTS);
    }
    match measure(&args, &chosen) {
        Ok(code) => code,
        Err(error) => {
            complain("bench", &error.to_string());
            if error.kind() == io::ErrorKind::InvalidInput { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn list() -> String {
    let width = EXPERIMENTS.iter().map(|experiment| experiment.name.len()).max().unwrap_or(0);
    let line = |experiment: &Experiment| {
        format!("{:<width$}  {} ({})\n", experiment.name, experiment.about, experiment.source)
    };
    EXPERIMENTS.iter().map(line).collect()
}

/// Returns what runs measured as Markdown. Writes their plots into the folder `plots`, and their summary into the file `summary`.
fn report(files: &[PathBuf], plots: Option<&Path>, summary: Option<&Path>) -> io::Result<String> {
    let mut runs = Vec::new();
    for file in files {
        let read = report_file::read(file).map_err(|error| with_path(file, &error))?;
        runs.extend(read.into_iter().map(report_file::summary));
    }
    if let Some(dir) = plots {
        std::fs::create_dir_all(dir).map_err(|error| with_path(dir, &error))?;
        runs.iter().flat_map(|run| &run.figures).try_for_each(|figure| plot::write(figure, dir))?;
    }
    if let Some(file) = summary {
        make_parent(file)?;
        report_file::write(file, &runs).map_err(|error| with_path(file, &error))?;
    }
    Ok(markdown::document(&runs, plots))
}

fn measure(args: &Args, chosen: &[&Experiment]) -> io::Result<ExitCode> {
    // A place that cannot be written is an error before the measurement, not after it.
    if let Some(file) = &args.json {
        make_parent(file)?;
    }
    if let Some(dir) = &args.plots {
        std::fs::create_dir_all(dir).map_err(|error| with_path(dir, &error))?;
    }
    let terminal = io::stderr().is_terminal();
    let mut progress = |what: &str| {
        if terminal {
            let _ = write!(io::stderr(), "\r\x1b[K{what}");
        }
    };
    let program = lab::switch_program().ok_or_else(|| {
        let what = "the ringway command is not there, neither next to this program nor in PATH";
        io::Error::new(io::ErrorKind::NotFound, what)
    })?;
    let (build, only) = (program.clone(), args.only.clone());
    let options = Options { program, quick: args.quick, pairs: args.pairs.into(), only };
    let mut session = Session::new(options, interrupt::watch(), &mut progress)?;
    let mut report = Report {
        command: std::env::args().collect::<Vec<_>>().join(" "),
        machine: Machine::describe(session.cores, &build)?,
        pairs: if args.quick { 1 } else { args.pairs.into() },
        quick: args.quick,
        figures: Vec::new(),
    };
    for experiment in chosen {
        if session.stopped() {
            break;
        }
        if !terminal {
            eprintln!("measuring {}: {}", experiment.name, experiment.about);
        }
        report.figures.extend((experiment.run)(&mut session)?);
    }
    let stopped = session.stopped();
    if terminal {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    if let Some(file) = &args.json {
        let json = serde_json::to_string_pretty(&report).map_err(io::Error::other)?;
        std::fs::write(file, json + "\n").map_err(|error| with_path(file, &error))?;
    }
    let code = out::print(&report.text());
    let figures = report_file::summary(report).figures;
    if let Some(dir) = &args.plots {
        figures.iter().try_for_each(|figure| plot::write(figure, dir))?;
    }
    // A quick run shows that the experiments work, also on a busy machine.
    let is_excused = |figure: &Figure| args.quick && figure.was_disturbed() || !args.only.is_empty();
    let is_missing = |figure: &&Figure| !(figure.has_ours() || figure.lacks_tool() || is_excused(figure));
    if let Some(figure) = figures.iter().find(is_missing).filter(|_| !stopped) {
        complain("bench", &format!("{}: Ringway itself could not be measured, see the table", figure.heading.name));
        return Ok(ExitCode::FAILURE);
    }
    Ok(code)
}

fn make_parent(file: &Path) -> io::Result<()> {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => {
            std::fs::create_dir_all(parent).map_err(|error| with_path(parent, &error))
        }
        _ => Ok(()),
    }
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
