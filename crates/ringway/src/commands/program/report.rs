//! What `ringway program run` prints.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Stdout, Write};
use std::time::Duration;

use ringway_forwarding::{Fault, Offline, Sent};
use serde::Serialize;
use serde_json::{Value, json};

/// A frame and where it goes.
pub struct Line {
    /// From 1.
    pub number: u64,
    /// Since the first frame.
    pub time: Duration,
    /// Place of the port that it came from.
    pub from: usize,
    /// Bytes on the wire.
    pub len: usize,
    pub verdict: Verdict,
    /// The capture does not have all bytes that a program could see.
    pub is_cut: bool,
}

/// Where a frame goes.
pub enum Verdict {
    /// Where the program sends it.
    Sent(Sent),
    /// The program failed in its batch.
    Fault,
    /// It is no frame: a switch drops it before its program.
    Runt,
}

/// Prints frames as they come, and the sum at the end. JSON is one object.
pub struct Report {
    out: BufWriter<Stdout>,
    ports: Vec<String>,
    json: bool,
    width: usize,
    frames: u64,
    cut: u64,
    verdicts: BTreeMap<String, u64>,
    faults: Vec<Told>,
    log: Vec<Told>,
}

#[derive(Serialize)]
struct Told {
    time: f64,
    line: String,
}

impl Report {
    pub fn new(ports: &[String], json: bool) -> Report {
        let width = ports.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("FROM".len());
        Report {
            out: BufWriter::new(io::stdout()),
            ports: ports.to_vec(),
            json,
            width,
            frames: 0,
            cut: 0,
            verdicts: BTreeMap::new(),
            faults: Vec::new(),
            log: Vec::new(),
        }
    }

    pub fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    pub fn begin(&mut self) -> io::Result<()> {
        match self.json {
            true => write!(self.out, "{{\"frames\":["),
            false => writeln!(
                self.out,
                "{:>7}  {:>12}  {:width$}  {:>6}  VERDICT",
                "FRAME",
                "TIME",
                "FROM",
                "BYTES",
                width = self.width
            ),
        }
    }

    pub fn frame(&mut self, line: &Line) -> io::Result<()> {
        let text = self.text(&line.verdict);
        if self.json {
            let comma = if self.frames == 0 { "" } else { "," };
            let value = self.value(line);
            write!(self.out, "{comma}{value}")?;
        } else {
            let cut = if line.is_cut { " (the capture has not the whole head)" } else { "" };
            let (number, time, from, width) =
                (line.number, line.time.as_secs_f64(), &self.ports[line.from], self.width);
            writeln!(self.out, "{number:>7}  {time:>12.6}  {from:width$}  {:>6}  {text}{cut}", line.len)?;
        }
        self.frames += 1;
        self.cut += u64::from(line.is_cut);
        *self.verdicts.entry(text).or_default() += 1;
        Ok(())
    }

    pub fn fault(&mut self, time: Duration, fault: &Fault) -> io::Result<()> {
        let line = fault.to_string();
        if !self.json {
            writeln!(self.out, "{:>7}  {:>12.6}  fault {line}", "", time.as_secs_f64())?;
        }
        self.faults.push(Told { time: time.as_secs_f64(), line });
        Ok(())
    }

    pub fn log(&mut self, time: Duration, line: &str) -> io::Result<()> {
        if !self.json {
            writeln!(self.out, "{:>7}  {:>12.6}  log: {line}", "", time.as_secs_f64())?;
        }
        self.log.push(Told { time: time.as_secs_f64(), line: line.to_owned() });
        Ok(())
    }

    pub fn end(&mut self, program: &Offline) -> io::Result<()> {
        let sum = match self.json {
            true => self.sum_as_json(program),
            false => self.sum(program),
        };
        self.out.write_all(sum.as_bytes())?;
        self.out.flush()
    }

    fn sum_as_json(&self, program: &Offline) -> String {
        let sum = json!({
            "batches": program.batches(),
            "verdicts": self.verdicts,
            "drops": map(program.drops()),
            "counters": map(program.counters()),
            "gauges": map(program.gauges()),
            "faults": self.faults,
            "log": self.log,
            "lost_lines": program.lost_lines(),
            "incomplete_heads": self.cut,
        });
        // The object began with the frames.
        format!("],{}\n", &sum.to_string()[1..])
    }

    fn sum(&self, program: &Offline) -> String {
        let mut text = format!("\n{} frames, {} batches\n", self.frames, program.batches());
        let mut list = |title: &str, values: Vec<(String, String)>| {
            if !values.is_empty() {
                let _ = writeln!(text, "{title}:");
                let width = values.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
                for (name, value) in values {
                    let _ = writeln!(text, "  {name:width$}  {value}");
                }
            }
        };
        let count = |(name, count): (String, u64)| (name, count.to_string());
        list("verdicts", self.verdicts.clone().into_iter().map(count).collect());
        list("counters", program.counters().into_iter().map(count).collect());
        list("gauges", program.gauges().into_iter().map(|(name, value)| (name, value.to_string())).collect());
        for (what, count) in [
            ("faults", self.faults.len() as u64),
            ("lines of the log lost (a program may write ten in a second)", program.lost_lines()),
            ("frames without a whole head in the capture", self.cut),
        ] {
            if count > 0 {
                let _ = writeln!(text, "{what}: {count}");
            }
        }
        text
    }

    fn names(&self, ports: &[usize]) -> Vec<&str> {
        ports.iter().map(|port| self.ports[*port].as_str()).collect()
    }

    fn text(&self, verdict: &Verdict) -> String {
        match verdict {
            Verdict::Fault => "fault".to_owned(),
            Verdict::Runt => "no frame".to_owned(),
            Verdict::Sent(Sent::BuiltIn(None)) => "as built in: to all".to_owned(),
            Verdict::Sent(Sent::BuiltIn(Some(port))) => format!("as built in: to {}", self.ports[*port]),
            Verdict::Sent(Sent::Flood) => "to all".to_owned(),
            Verdict::Sent(Sent::Port(port)) => format!("to {}", self.ports[*port]),
            Verdict::Sent(Sent::Ports(ports)) if ports.is_empty() => "to no port".to_owned(),
            Verdict::Sent(Sent::Ports(ports)) => format!("to {}", self.names(ports).join(" ")),
            Verdict::Sent(Sent::Dropped(reason)) => format!("dropped: {reason}"),
        }
    }

    fn value(&self, line: &Line) -> Value {
        let (verdict, ports, reason) = match &line.verdict {
            Verdict::Fault => ("fault", None, None),
            Verdict::Runt => ("runt", None, None),
            Verdict::Sent(Sent::BuiltIn(to)) => ("built_in", to.map(|port| self.names(&[port])), None),
            Verdict::Sent(Sent::Flood) => ("flood", None, None),
            Verdict::Sent(Sent::Port(port)) => ("port", Some(self.names(&[*port])), None),
            Verdict::Sent(Sent::Ports(ports)) => ("ports", Some(self.names(ports)), None),
            Verdict::Sent(Sent::Dropped(reason)) => ("drop", None, Some(reason)),
        };
        let mut value = json!({
            "frame": line.number,
            "time": line.time.as_secs_f64(),
            "from": self.ports[line.from],
            "bytes": line.len,
            "verdict": verdict,
        });
        if let Some(ports) = ports {
            value["ports"] = json!(ports);
        }
        if let Some(reason) = reason {
            value["reason"] = json!(reason);
        }
        value
    }
}

fn map<V: Into<Value>>(values: Vec<(String, V)>) -> Value {
    values.into_iter().map(|(name, value)| (name, value.into())).collect::<serde_json::Map<String, Value>>().into()
}
