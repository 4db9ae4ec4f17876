//! The document of benchmarks: how to read it, what it was measured on, and the tables of each experiment.

mod tables;

use std::fmt::Write as _;
use std::path::Path;

use crate::list::{EXPERIMENTS, Experiment};
use crate::machine::Machine;
use crate::number::whole;
use crate::placement::{FAR_ABOVE_NS, NEAR_BELOW_NS};
use crate::report::{Figure, Heading, Report};
use crate::table::Table;

/// Returns the document of `runs`. An experiment that several runs have is shown as the last of them measured it. `plots` is the folder
/// with the plots, as the document should link it.
#[must_use]
pub fn document(runs: &[Report], plots: Option<&Path>) -> String {
    let mut text = introduction();
    text.push_str(&machines(runs));
    text.push_str(&contents(runs));
    for experiment in EXPERIMENTS {
        if let Some((number, run)) = latest(runs, experiment) {
            text.push_str(&section(experiment, run, (runs.len() > 1).then_some(number), plots));
        }
    }
    text
}

/// Returns the last run that has figures of an experiment, and its number from 1.
fn latest<'r>(runs: &'r [Report], experiment: &Experiment) -> Option<(usize, &'r Report)> {
    (1..).zip(runs).filter(|(_, run)| figures(run, experiment).next().is_some()).last()
}

fn figures<'r>(run: &'r Report, experiment: &Experiment) -> impl Iterator<Item = &'r Figure> {
    run.figures.iter().filter(|figure| experiment_of(&figure.command) == experiment.name)
}

/// Returns the experiment that `ringway bench NAME ...` runs.
fn experiment_of(command: &str) -> &str {
    command.strip_prefix("ringway bench ").unwrap_or(command).split(' ').next().unwrap_or(command)
}

fn introduction() -> String {
    format!(
        "# Benchmarks

`ringway bench --report run.json` makes this document from the results of `ringway bench --json run.json`. Nothing in it is written by hand.
[Benchmarks](guide/benchmarks.md) in the guide says how to measure. [Instructions](benchmarks/instructions.md) has what a frame costs in
instructions.

## How to read a table

- A row is a contestant, a column a place on the x axis. The first column names the quantity and its unit.
- A cell has the median of *n* windows and, in brackets, the lower and the upper quartile. The windows of all contestants of a place are
  taken by turns (A B A B ...), each round within a second or so.
- *ringway / X* is the median of the ratios of Ringway's window to the window of X in the same round. A ratio of rates above 1 means that
  Ringway is faster. A ratio of times above 1 means that Ringway is slower.
- The *anchor* is a bare single-producer single-consumer ring between the same two cores. It hands over one copied frame at a time, and
  the consumer reads the first line of each.
- *Near* and *far* are distances of the two cores. One cache line crosses between near cores in less than {NEAR_BELOW_NS} ns and between far
  cores in more than {FAR_ABOVE_NS} ns, both before and after the window. Other windows are discarded. Rows without a distance are of
  programs that run for seconds wherever the scheduler places them.
- The traffic generator is source and sink on one core. The switch has the other core.
- Peers: `linux-bridge` is the kernel's bridge with TAP devices, `vde` is `vde_switch`, `ovs-dpdk` is Open vSwitch with DPDK, `testpmd io`
  is DPDK's testpmd as a cross-connect, `tc tbf` and `tc htb` are the kernel's queueing disciplines, `qemu ...` are QEMU's own NICs on
  TAP devices and a Linux bridge.
- In plots filled points are near and hollow points are far. A thin line is the range between the quartiles. Where the x axis has one or two
  places, medians are bars. Each contestant has one colour in all plots.
"
    )
}

/// Returns the table of runs: date, build, machine, and how often the contestants had their turns.
fn machines(runs: &[Report]) -> String {
    let headings = ["run", "date", "build", "machine", "kernel", "cores: generator, switch", "rounds"];
    let mut table = Table::new(headings.map(str::to_owned).to_vec(), 6);
    for (number, run) in (1..).zip(runs) {
        let Machine { cpu, kernel, processors, is_virtual, memory_mib, cores, version, commit, date } = &run.machine;
        let commit = commit.as_deref().map_or(String::new(), |commit| format!(", commit {commit}"));
        let machine = if *is_virtual { "virtual, " } else { "" };
        let memory = if *memory_mib > 0 { format!(", {} MiB", whole(*memory_mib as f64)) } else { String::new() };
        table.row(vec![
            number.to_string(),
            date.split('T').next().unwrap_or(date).to_owned(),
            format!("ringway {version}{commit}"),
            format!("{machine}{processors} processors ({cpu}){memory}"),
            format!("Linux {kernel}"),
            format!("{}, {}", cores.generator, cores.switch),
            run.pairs.to_string(),
        ]);
    }
    let mut text = format!("\n## Machines and builds\n\n{}", table.markdown());
    if runs.iter().any(|run| run.quick) {
        text.push_str("\n**Tables of a quick run (`--quick`) show that everything works, not how fast it is.**\n");
    }
    text
}

/// Returns the list of experiments, with links to those that were run.
fn contents(runs: &[Report]) -> String {
    let mut text = String::from("\n## Experiments\n\n| experiment | shows | source |\n|---|---|---|\n");
    let (run, not_run): (Vec<_>, Vec<_>) =
        EXPERIMENTS.iter().partition(|experiment| latest(runs, experiment).is_some());
    for Experiment { name, about, source, .. } in run {
        let _ = writeln!(text, "| [{name}](#{name}) | {about} | {source} |");
    }
    if !not_run.is_empty() {
        let names: Vec<String> = not_run.iter().map(|experiment| format!("`{}`", experiment.name)).collect();
        let _ = write!(text, "\nNot run: {}.\n", names.join(", "));
    }
    text
}

/// Returns the section of one experiment.
fn section(experiment: &Experiment, run: &Report, number: Option<usize>, plots: Option<&Path>) -> String {
    let Experiment { name, about, source, reading, .. } = experiment;
    let figures: Vec<&Figure> = figures(run, experiment).collect();
    let mut text = format!("\n## {name}\n\n{}: {about}.", capitalized(source));
    if !reading.is_empty() {
        let _ = write!(text, " {reading}");
    }
    let _ = write!(text, "\n\nCommand: `{}`", figures[0].command);
    if let Some(number) = number {
        let _ = write!(text, " (run {number})");
    }
    text.push_str(".\n");
    if let Some(plots) = plots {
        for figure in &figures {
            let Heading { name, title, .. } = &figure.heading;
            let _ = write!(text, "\n![{title}]({})\n", plots.join(format!("{name}.svg")).display());
        }
    }
    for table in tables::of(&figures) {
        let _ = write!(text, "\n{}", table.markdown());
    }
    text + &remarks(&figures)
}

/// Returns peers that were not available, notes and the numbers of discarded windows.
fn remarks(figures: &[&Figure]) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut discarded = Vec::new();
    for figure in figures {
        let missing =
            figure.unavailable.iter().map(|peer| format!("Peer {} is not available: {}.", peer.peer, peer.reason));
        let notes = figure.notes.iter().map(|note| format!("Note: {note}."));
        for line in missing.chain(notes) {
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        if figure.discarded > 0 {
            discarded.push(format!("{} {}", figure.heading.name, figure.discarded));
        }
    }
    if !discarded.is_empty() {
        lines.push(format!(
            "Discarded windows (the cores moved, or something else ran on them): {}.",
            discarded.join(", ")
        ));
    }
    if lines.is_empty() { String::new() } else { format!("\n- {}\n", lines.join("\n- ")) }
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::{Class, Cores};
    use crate::report::{RATE, Unavailable};
    use crate::series::RINGWAY;
    use crate::trial::{Outcome, Sample};

    fn run(experiment: &str, date: &str, value: f64) -> Report {
        let x = crate::report::Axis { label: "frame size", unit: "bytes", logarithmic: false };
        let heading = Heading { name: "fig".into(), title: "Title".into(), source: "none", x, y: RATE };
        let (series, crossing_ns) = (RINGWAY.to_owned(), [25.0; 2]);
        let samples = vec![Sample { series, x: 60.0, round: 1, class: Class::Near, crossing_ns, value }];
        let outcome = Outcome { samples, discarded: 2, ..Outcome::default() };
        let missing = vec![Unavailable { peer: "vde".into(), reason: "it is not installed".into(), lacks_tool: true }];
        let machine = Machine {
            cpu: "A processor".into(),
            kernel: "6.18".into(),
            processors: 2,
            is_virtual: true,
            memory_mib: 24_105,
            cores: Cores { generator: 0, switch: 1 },
            version: "0.1.0".into(),
            commit: Some("0123abc".into()),
            date: format!("{date}T01:02:03Z"),
        };
        let figures = vec![Figure::new(heading, format!("ringway bench {experiment} --pairs 5"), outcome, missing)];
        Report { command: String::new(), machine, pairs: 5, quick: false, figures }
    }

    #[test]
    fn a_document_has_the_machine_the_command_the_plot_and_what_is_missing() {
        let text = document(&[run("headline", "2026-11-24", 7.0)], Some(Path::new("plots")));
        for wanted in [
            "| 1 | 2026-11-24 | ringway 0.1.0, commit 0123abc | virtual, 2 processors (A processor), 24,105 MiB | Linux 6.18 | 0, 1 | 5 |",
            "\n| [headline](#headline) | ",
            "\nNot run: `destinations`, ",
            "\n## headline\n\nVALE, section 5.1: rate of one sender",
            "\nCommand: `ringway bench headline --pairs 5`.\n\n![Title](plots/fig.svg)\n\n| ",
            "\n| ringway | near | 1 | 7.00 |\n",
            "\n- Peer vde is not available: it is not installed.\n- Discarded windows (the cores moved, or something else ran on them): fig 2.\n",
        ] {
            assert!(text.contains(wanted), "{wanted} is missing in {text}");
        }
    }

    #[test]
    fn the_last_run_of_an_experiment_is_shown() {
        let runs =
            [run("headline", "2026-11-23", 7.0), run("headline", "2026-11-24", 8.0), run("policy", "2026-11-24", 9.0)];
        let text = document(&runs, None);
        assert!(text.contains("`ringway bench headline --pairs 5` (run 2).\n"), "{text}");
        assert!(text.contains("| ringway | near | 1 | 8.00 |") && !text.contains("7.00"), "{text}");
        assert!(text.contains("`ringway bench policy --pairs 5` (run 3).\n"), "{text}");
    }

    #[test]
    fn the_document_of_a_summary_is_that_of_the_whole_results() {
        let whole = document(&[run("headline", "2026-11-24", 7.123_456_7)], None);
        let summary = crate::report_file::summary(run("headline", "2026-11-24", 7.123_456_7));
        assert_eq!(summary.figures[0].points[0].value.median, 7.1235);
        assert_eq!(document(&[summary], None), whole);
    }
}
