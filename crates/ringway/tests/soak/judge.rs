//! What must hold, and what the run has seen.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::faults::{Fault, What};
use crate::member;
use crate::members::MEMBERS;
use crate::notes::{self, Notes};
use crate::scene::Scene;

/// Everybody hears everybody again within so many looks. The machine may stand still for a minute: a time would tell of that.
const LOOKS_MOST: u32 = 3000;
/// Pause between two of them.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time of the traffic between two counts of everything.
const COUNTED: Duration = Duration::from_millis(500);
/// Nothing moves when nothing has moved for so long.
const STILL: Duration = Duration::from_millis(200);
/// The keeper has a client's port so long after its answer.
const YOUNG: Duration = Duration::from_millis(500);
/// A silence that is told, in nanoseconds.
const LONG: u64 = 1_000_000_000;
/// What a process may have more at the end.
const MORE_DESCRIPTORS: u64 = 16;
const MORE_KIB: u64 = 16 << 10;
/// Faults that a report names.
const LAST: usize = 14;

/// Open descriptors, private memory in KiB and threads of keeper and switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Resources {
    descriptors: u64,
    kib: u64,
    threads: u64,
}

impl Resources {
    fn of(process: u32) -> Self {
        let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count) as u64;
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        let number = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        Self { descriptors, kib: number("RssAnon:"), threads: number("Threads:") }
    }
}

/// Counters of one moment.
struct Counts {
    /// What each member sent to each other one, and received from it; the last one counts broadcasts.
    sent: Vec<Vec<u64>>,
    received: Vec<Vec<u64>>,
    /// Frames that each member received in all.
    came: Vec<u64>,
    status: Value,
}

/// The judge.
#[derive(Default)]
pub struct Judge {
    history: Vec<String>,
    counts: BTreeMap<What, u32>,
    last: Option<Fault>,
    /// The longest silence of each kind of port, in nanoseconds, and the fault before it.
    silences: BTreeMap<&'static str, (u64, Option<What>)>,
    looks: u32,
    young: u32,
    settled: Option<[Resources; 2]>,
}

impl Judge {
    /// Before a fault happens.
    pub fn begin_fault(&mut self, scene: &mut Scene, number: usize, fault: Fault) {
        self.note_silences(scene);
        self.last = Some(fault);
        *self.counts.entry(fault.what).or_default() += 1;
        let whom = fault.member().map_or("", |member| MEMBERS[member].name);
        let kill = if fault.has_kill { ", switch killed" } else { "" };
        self.history.push(format!("{number}: {:?} {whom}{kill}", fault.what));
        if std::env::var_os("RINGWAY_SOAK_VERBOSE").is_some() {
            let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            let (minute, second) = (time.tv_sec / 60 % 60, time.tv_sec % 60);
            println!("{minute:02}:{second:02}.{:03} {}", time.tv_nsec / 1_000_000, self.history.last().expect("one"));
        }
        if let Some(member) = fault.member().filter(|_| fault.ends_port()) {
            scene.members[member].is_hit = true;
        }
        if fault.ends_switch() {
            for (number, member) in scene.members.iter_mut().enumerate() {
                let is_young = member.attached.is_none_or(|attached| attached.elapsed() < YOUNG);
                member.is_hit |= is_young || !MEMBERS[number].kind.outlives() || fault.what == What::NoMemory;
            }
        }
    }

    /// The longest silences since the last fault.
    fn note_silences(&mut self, scene: &Scene) {
        for (number, member) in scene.members.iter().enumerate() {
            let silence = member.notes.get(notes::SILENCE);
            member.notes.set(notes::SILENCE, 0);
            let fault = self.last;
            if silence > LONG {
                let fault = self.history.last().map_or("the start", String::as_str);
                println!("soak: {} heard nothing for {} ms, {fault}", MEMBERS[number].name, silence / 1_000_000);
            }
            // What hit the member itself is no silence of the switch.
            if fault.is_some_and(|fault| fault.ends_switch()) && !member.is_hit {
                let longest = self.silences.entry(MEMBERS[number].kind.name()).or_default();
                if silence > longest.0 {
                    *longest = (silence, fault.map(|fault| fault.what));
                }
            }
        }
    }

    /// Looks at processes and complaints. Returns true if a process was started again.
    pub fn watch(&mut self, scene: &mut Scene) -> bool {
        if scene.log.full_until.is_some_and(|until| until <= Instant::now()) {
            scene.log.read();
        }
        let mut has_started = false;
        for (number, of) in MEMBERS.iter().enumerate() {
            self.judge_complaints(scene, number);
            let member = &mut scene.members[number];
            if member.attached.is_none() && member.notes.get(notes::ATTACHED) == u64::from(member.incarnation) {
                member.attached = Some(Instant::now());
            }
            let Some(status) = member.child.try_wait().expect("our own child") else { continue };
            let is_killed = status.signal() == Some(9);
            if !is_killed && (!member.is_hit || status.code() == Some(member::NOT_ATTACHED)) {
                let name = of.name;
                let log = std::fs::read_to_string(scene.folder.join(format!("{name}.log"))).unwrap_or_default();
                let why = log.lines().last().unwrap_or_default();
                self.fail(scene, &format!("the port of {name}, which nothing has hit, ended: {status}: {why}"));
            }
            self.young += u32::from(!is_killed && of.kind.outlives());
            scene.start_again(number);
            has_started = true;
        }
        has_started
    }

    fn judge_complaints(&self, scene: &mut Scene, number: usize) {
        let name = MEMBERS[number].name;
        if scene.members[number].notes.get(notes::WRONG) == scene.members[number].judged {
            return;
        }
        let text = std::fs::read_to_string(scene.folder.join(format!("{name}.wrong"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().skip(scene.members[number].judged as usize).collect();
        scene.members[number].judged += lines.len() as u64;
        for line in lines {
            let [what, sender, of_sender, own, more] = line.splitn(5, ',').collect::<Vec<_>>()[..] else { continue };
            let was_punched = |number: usize, incarnation: &str| {
                let member = scene.members.get(number);
                let incarnation = incarnation.parse().unwrap_or(0);
                member.is_some_and(|member| member.punched.contains(&incarnation))
            };
            let sender: usize = sender.parse().unwrap_or(usize::MAX);
            if was_punched(number, own) || was_punched(sender, of_sender) {
                continue;
            }
            let sender = MEMBERS.get(sender).map_or("nobody", |member| member.name);
            let what =
                format!("{name} (incarnation {own}) got a frame of {sender} (incarnation {of_sender}): {what}: {more}");
            self.fail(scene, &what);
        }
    }

    /// Looks at everything: everybody hears everybody whom it may hear, and what is sent arrives or is counted.
    pub fn look(&mut self, scene: &mut Scene) {
        self.note_silences(scene);
        self.last = None;
        self.looks += 1;
        scene.log.read();
        scene.tell(notes::SEND);
        self.until_all_hear(scene);
        scene.members.iter_mut().for_each(|member| member.is_hit = false);
        self.count(scene);
        scene.tell(notes::SEND_TO_ALL);
        scene.members.iter().for_each(|member| {
            member.notes.set(notes::HEARD, 0);
            member.notes.set(notes::SILENCE, 0);
        });
    }

    fn until_all_hear(&mut self, scene: &mut Scene) {
        let heard = |scene: &Scene| -> Vec<Vec<u64>> {
            scene.members.iter().map(|member| row(&member.notes, notes::RECEIVED_FROM)).collect()
        };
        let mut before = heard(scene);
        for look in 0.. {
            if self.watch(scene) {
                before = heard(scene);
            }
            let now = heard(scene);
            let pairs = (0..MEMBERS.len()).flat_map(|from| (0..MEMBERS.len()).map(move |to| (from, to)));
            let silent =
                pairs.filter(|&(from, to)| MEMBERS[from].reaches(&MEMBERS[to]) && now[to][from] == before[to][from]);
            let silent: Vec<String> =
                silent.map(|(from, to)| format!("{}>{}", MEMBERS[from].name, MEMBERS[to].name)).collect();
            if silent.is_empty() {
                return;
            }
            if look == LOOKS_MOST {
                self.fail(scene, &format!("no frame arrives: {}", silent.join(" ")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn counts(&self, scene: &Scene) -> Counts {
        let status = std::iter::repeat_with(|| scene.status()).take(LOOKS_MOST as usize).flatten().next();
        let Some(status) = status else { self.fail(scene, "the switch does not say its status") };
        let of = |at: usize, all: usize| {
            let row = |member: &crate::scene::Running| {
                let mut row = row(&member.notes, at);
                row.push(if all == notes::SENT_TO_ALL { member.notes.get(all) } else { 0 });
                row
            };
            scene.members.iter().map(row).collect::<Vec<_>>()
        };
        let mut received = of(notes::RECEIVED_FROM, 0);
        for (row, member) in received.iter_mut().zip(&scene.members) {
            for (from, count) in row.iter_mut().enumerate().take(MEMBERS.len()) {
                *count += member.notes.get(notes::BROADCASTS_FROM + from);
            }
        }
        let came = scene.members.iter().map(|member| {
            member.notes.get(notes::RECEIVED) + member.notes.get(notes::FOREIGN) + member.notes.get(notes::WRONG)
        });
        Counts { sent: of(notes::SENT, notes::SENT_TO_ALL), received, came: came.collect(), status }
    }

    /// Waits until no frame moves, and returns what was counted then.
    fn still(&self, scene: &Scene) -> Counts {
        let mut before = self.counts(scene);
        for _ in 0..LOOKS_MOST {
            std::thread::sleep(STILL);
            let now = self.counts(scene);
            let frames = |counts: &Counts| {
                let of = |key: &str| MEMBERS.map(|member| frames(&counts.status, member.name, key));
                (of("in"), of("out"), counts.came.clone())
            };
            if frames(&now) == frames(&before) {
                return now;
            }
            before = now;
        }
        self.fail(scene, "frames move although nobody sends")
    }

    /// Traffic without a fault: all that is sent is received, or counted as dropped.
    fn count(&mut self, scene: &mut Scene) {
        scene.tell(notes::PAUSE);
        let before = self.still(scene);
        scene.tell(notes::SEND);
        std::thread::sleep(COUNTED);
        scene.tell(notes::PAUSE);
        let after = self.still(scene);
        if self.watch(scene) {
            self.fail(scene, "a port ended although nothing happened");
        }
        let (mut exact, mut all) = (0, 0);
        for (from, sender) in MEMBERS.iter().enumerate() {
            for (to, receiver) in MEMBERS.iter().enumerate().filter(|(_, receiver)| sender.reaches(receiver)) {
                let by = |at: usize| after.sent[from][at] - before.sent[from][at];
                let sent = by(to) + by(MEMBERS.len());
                let received = after.received[to][from] - before.received[to][from];
                let missing = sent.saturating_sub(received);
                all += missing;
                exact += if sender.kind.is_device() || receiver.kind.is_device() { 0 } else { missing };
            }
        }
        let drops = |counts: &Counts| {
            let ports = counts.status["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
            let of = |port: &Value| {
                let reasons = port["drops"].as_object().into_iter().flatten();
                reasons.filter_map(|(_, count)| count.as_u64()).sum::<u64>()
            };
            ports.iter().map(of).sum::<u64>()
        };
        let dropped = drops(&after) - drops(&before);
        if exact > dropped {
            self.fail(scene, &format!("{exact} frames are missing (with devices {all}), and {dropped} were dropped"));
        }
        for (number, member) in MEMBERS.iter().enumerate().filter(|(_, member)| !member.kind.is_device()) {
            let more = |key| frames(&after.status, member.name, key) - frames(&before.status, member.name, key);
            let sent = after.sent[number].iter().sum::<u64>() - before.sent[number].iter().sum::<u64>();
            let came = after.came[number] - before.came[number];
            if (more("in"), more("out")) != (sent, came) {
                let counted = format!("{} in and {} out", more("in"), more("out"));
                let what = format!("{} sent {sent} and received {came}, and the switch counted {counted}", member.name);
                self.fail(scene, &what);
            }
        }
    }

    /// Notes what keeper and switch have, the first time when the run has settled.
    pub fn note_resources(&mut self, scene: &Scene, has_settled: bool) {
        if has_settled && self.settled.is_none() {
            self.settled = Some(resources(scene));
        }
    }

    /// They have no more at the end, in these bounds.
    pub fn resources_are_as_before(&mut self, scene: &Scene) {
        let Some(before) = self.settled else { return };
        let after = resources(scene);
        for (name, before, after) in [("keeper", before[0], after[0]), ("switch", before[1], after[1])] {
            println!(
                "soak: {name}: {before:?} after it settled, {after:?} at the end (bounds: {MORE_DESCRIPTORS} descriptors and {MORE_KIB} KiB more)"
            );
            if after.descriptors > before.descriptors + MORE_DESCRIPTORS || after.kib > before.kib + MORE_KIB {
                self.fail(scene, &format!("the {name} has more than before: {after:?}, {before:?}"));
            }
        }
    }

    /// A line while the soak runs.
    pub fn progress(&self, scene: &Scene, elapsed: Duration) {
        let frames: u64 = scene.members.iter().map(|member| member.notes.get(notes::RECEIVED)).sum();
        let [keeper, switch] = resources(scene);
        println!(
            "soak: {:.0} s, {} faults, {frames} frames checked; keeper {} fds {} KiB, switch {} fds {} KiB",
            elapsed.as_secs_f64(),
            self.history.len(),
            keeper.descriptors,
            keeper.kib,
            switch.descriptors,
            switch.kib
        );
    }

    pub fn summary(&self) {
        println!("soak: faults: {:?}", self.counts);
        for (kind, (silence, fault)) in &self.silences {
            println!("soak: longest silence of {kind}: {:.1} ms, after {fault:?}", *silence as f64 / 1e6);
        }
        println!("soak: {} looks, {} ports ended by what hit them", self.looks, self.young);
    }

    fn fail(&self, scene: &Scene, what: &str) -> ! {
        let mut text = format!("seed {}: {what}\nlast faults:", scene.seed);
        for fault in self.history.iter().rev().take(LAST).rev() {
            let _ = write!(text, "\n  {fault}");
        }
        text += "\nlog:";
        for line in scene.log.lines.lock().expect("no panic").iter().rev().take(60).rev() {
            let _ = write!(text, "\n  {line}");
        }
        let status = scene.ringway(&["status"]);
        let _ = write!(text, "\nstatus:\n{}{}\nnotes are in {}", status.out, status.err, scene.folder.display());
        panic!("{text}");
    }
}

fn row(notes: &Notes, at: usize) -> Vec<u64> {
    (0..MEMBERS.len()).map(|number| notes.get(at + number)).collect()
}

fn resources(scene: &Scene) -> [Resources; 2] {
    [scene.daemon.keeper(), scene.daemon.pid()].map(Resources::of)
}

/// A counter of a port.
fn frames(status: &Value, port: &str, way: &str) -> u64 {
    let ports = status["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    let port = ports.iter().find(|shown| shown["name"] == port);
    port.and_then(|port| port[way]["frames"].as_u64()).unwrap_or(0)
}
