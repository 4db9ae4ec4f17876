//! `ringway program run`: what a program does with the frames of a capture.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ringway_commands::context::{USAGE, complain, refuse};
use ringway_config::Name;
use ringway_forwarding::{Offline, OfflineFrame};
use ringway_traffic::Mac;
use ringway_traffic::pcap::CaptureReader;

use super::check::{default_ports, read};
use super::report::{Line, Report, Verdict};

/// Show what a forwarding program does with the frames of a capture, without a switch
///
/// The program's clock is that of the capture. Frames come from ports by their source addresses: the first address that occurs is at the first
/// port, the second at the second, and all further ones at the last. --at says otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway program run acl.wasm vm1.pcapng --config 'allow tcp from 10.0.0.0/8 port 443'
  ringway program run acl.wasm vm1.pcapng --config-file rules.txt --ports uplink,vm1,vm2 --at 52:54:00:00:00:01=vm1
  ringway program run acl.wasm vm1.pcapng --json | jq .drops")]
pub struct Args {
    /// The module
    file: PathBuf,
    /// The capture: pcap or pcapng
    capture: PathBuf,
    /// The text that the program reads at its start
    #[arg(long, value_name = "TEXT")]
    config: Option<String>,
    /// The same, from a file
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    config_file: Option<PathBuf>,
    /// Names of the switch's ports
    #[arg(long, value_name = "PORT,PORT...", value_delimiter = ',', default_values_t = default_ports())]
    ports: Vec<String>,
    /// Frames with this source address come from this port; may be repeated
    #[arg(long, value_name = "ADDRESS=PORT", value_parser = place)]
    at: Vec<(Mac, String)>,
    /// JSON, for programs
    #[arg(long)]
    json: bool,
}

/// Most frames of a batch: the default of the engine.
const BATCH: usize = 256;
/// Frames of a batch come within this time.
const WITHIN: Duration = Duration::from_millis(1);
/// Bytes of a frame that a program can see.
const HEAD: usize = 128;
/// Most ports of a switch.
const MOST_PORTS: usize = 4096;
/// Shortest frame, an Ethernet header.
const SHORTEST: usize = 14;

/// What is wrong with the names of the ports.
fn wrong_name(ports: &[String]) -> Option<String> {
    if ports.len() > MOST_PORTS {
        return Some(format!("--ports: {} ports: {MOST_PORTS} are the most", ports.len()));
    }
    let mut names = HashSet::new();
    ports.iter().find_map(|name| match name.parse::<Name>() {
        Err(why) => Some(format!("--ports: {why}")),
        Ok(_) if !names.insert(name) => Some(format!("--ports: \"{name}\" is there twice")),
        Ok(_) => None,
    })
}

fn place(text: &str) -> Result<(Mac, String), String> {
    let (address, port) = text.split_once('=').ok_or("write ADDRESS=PORT, for example 52:54:00:00:00:01=vm1")?;
    Ok((address.parse().map_err(|why| format!("{why}"))?, port.to_owned()))
}

/// Where source addresses are.
struct Places {
    by_address: HashMap<Mac, usize>,
    ports: usize,
    /// The port of the next address that is not known.
    next: usize,
}

impl Places {
    /// The place of the port that a frame came from.
    fn of(&mut self, frame: &[u8]) -> usize {
        let Some(source) = frame.get(6..12).and_then(|source| source.try_into().ok()) else { return 0 };
        *self.by_address.entry(Mac(source)).or_insert_with(|| {
            let port = self.next;
            self.next = (port + 1).min(self.ports - 1);
            port
        })
    }
}

/// A frame that waits for its batch to be full.
struct Waiting {
    number: u64,
    time: Duration,
    head: Vec<u8>,
    len: usize,
}

/// Runs the command.
pub fn run(args: &Args) -> ExitCode {
    if let Some(wrong) = wrong_name(&args.ports) {
        return refuse("program run", &wrong);
    }
    let mut by_address = HashMap::new();
    for (address, port) in &args.at {
        let Some(place) = args.ports.iter().position(|name| name == port) else {
            return refuse(
                "program run",
                &format!("--at: there is no port \"{port}\": --ports has {}", args.ports.join(",")),
            );
        };
        by_address.insert(*address, place);
    }
    let config = match (&args.config, &args.config_file) {
        (Some(text), _) => text.clone(),
        (None, None) => String::new(),
        (None, Some(file)) => match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) => return refuse("program run", &format!("{}: {error}", file.display())),
        },
    };
    let started = read(&args.file).and_then(|bytes| {
        Offline::start(&bytes, &config, &args.ports).map_err(|why| format!("{}: {why}", args.file.display()))
    });
    let program = match started {
        Ok(program) => program,
        Err(why) => {
            complain("program run", &why);
            return ExitCode::from(USAGE);
        }
    };
    let places = Places { by_address, ports: args.ports.len(), next: 0 };
    let report = Report::new(&args.ports, args.json);
    match (Session { program, report, waiting: Vec::new(), from: 0, places }).run(args) {
        Ok(code) => code,
        Err(Trouble::Capture(why)) => {
            complain("program run", &why);
            ExitCode::from(USAGE)
        }
        // The reader has gone.
        Err(Trouble::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Trouble::Output(error)) => {
            complain("program run", &format!("cannot write to stdout: {error}"));
            ExitCode::FAILURE
        }
    }
}

enum Trouble {
    Capture(String),
    Output(std::io::Error),
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Trouble::Output(error)
    }
}

struct Session {
    program: Offline,
    report: Report,
    waiting: Vec<Waiting>,
    /// The port of the frames that wait.
    from: usize,
    places: Places,
}

impl Session {
    /// Returns the exit code: 1 if the program failed.
    fn run(mut self, args: &Args) -> Result<ExitCode, Trouble> {
        let wrong = |error: ringway_traffic::pcap::CaptureError| Trouble::Capture(error.to_string());
        let mut capture = CaptureReader::open(&args.capture).map_err(wrong)?;
        self.report.begin()?;
        self.tell_log(Duration::ZERO)?;
        let most = self.program.capacity().min(BATCH);
        let (mut first, mut number) = (None, 0);
        loop {
            let record = match capture.next_frame() {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(error) => {
                    self.judge()?;
                    self.report.end(&self.program)?;
                    return Err(wrong(error));
                }
            };
            number += 1;
            let time = record.time.saturating_sub(*first.get_or_insert(record.time));
            let from = self.places.of(record.data);
            let is_next = self.waiting.first().is_none_or(|earliest| {
                from == self.from && time.checked_sub(earliest.time).is_some_and(|later| later < WITHIN)
            });
            if !is_next || self.waiting.len() == most {
                self.judge()?;
            }
            self.from = from;
            let head = record.data[..record.data.len().min(HEAD)].to_vec();
            self.waiting.push(Waiting { number, time, head, len: record.original_len as usize });
        }
        self.judge()?;
        self.report.end(&self.program)?;
        Ok(if self.report.has_faults() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Shows the program the frames that wait.
    fn judge(&mut self) -> Result<(), Trouble> {
        let Some(time) = self.waiting.first().map(|first| first.time) else { return Ok(()) };
        if let Err(fault) = self.program.advance(time) {
            self.report.fault(time, &fault)?;
        }
        self.tell_log(time)?;
        let is_frame = |frame: &&Waiting| frame.head.len() >= SHORTEST;
        let batch: Vec<OfflineFrame<'_>> = self
            .waiting
            .iter()
            .filter(is_frame)
            .map(|frame| OfflineFrame { bytes: &frame.head, len: frame.len })
            .collect();
        let mut sent = Ok(Vec::new());
        if !batch.is_empty() {
            sent = self.program.frames(self.from, &batch);
        }
        let mut fault = None;
        let mut verdicts = match sent {
            Ok(sent) => sent.into_iter(),
            Err(what) => {
                fault = Some(what);
                Vec::new().into_iter()
            }
        };
        for frame in &self.waiting {
            let verdict = match is_frame(&frame) {
                false => Verdict::Runt,
                true => verdicts.next().map_or(Verdict::Fault, Verdict::Sent),
            };
            let is_cut = frame.head.len() < frame.len.min(HEAD);
            let line =
                Line { number: frame.number, time: frame.time, from: self.from, len: frame.len, verdict, is_cut };
            self.report.frame(&line)?;
        }
        self.waiting.clear();
        if let Some(fault) = fault {
            self.report.fault(time, &fault)?;
        }
        self.tell_log(time)
    }

    fn tell_log(&mut self, time: Duration) -> Result<(), Trouble> {
        for line in self.program.log() {
            self.report.log(time, &line)?;
        }
        Ok(())
    }
}
