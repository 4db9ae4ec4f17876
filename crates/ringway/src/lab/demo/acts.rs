//! The parts of the demo, in order.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use ringway_commands::r#gen::{Check, GenError, Loop, LoopReport, Traffic};
use ringway_traffic::Watch;

use super::live::Live;
use super::machines::{self, Figures, Seats};
use super::outcome::{NotDone, Outcome, Stop};
use super::patience::PATIENCE;
use super::ping::{Ping, SNMP, await_answers};
use super::program::{Program, finish, installed};
use super::say::say;
use super::stage::{ENDS, Spaces, Stage};

/// Echo requests a second.
const PINGS: f64 = 100.0;
/// Duration of the idle part.
const IDLE: Duration = Duration::from_secs(2);
/// Shortest time for the process ports.
const SHORTEST: Duration = Duration::from_secs(1);
/// Bytes of the frames between the process ports.
pub const FRAME: usize = 60;

/// Results of all parts.
#[derive(Debug)]
pub struct Results {
    pub ping: Outcome<Ping>,
    pub iperf: Outcome<f64>,
    pub load: Outcome<LoopReport>,
    pub machines: Outcome<Figures>,
    /// Share of one CPU that the idle switch takes.
    pub idle: Outcome<f64>,
}

impl Results {
    /// Returns true if a part failed.
    pub fn failed(&self) -> bool {
        fn failed<T>(outcome: &Outcome<T>) -> bool {
            matches!(outcome, Err(NotDone::Failed(_)))
        }
        failed(&self.ping) || failed(&self.iperf) || failed(&self.load) || failed(&self.machines) || failed(&self.idle)
    }
}

/// Plays all parts in about `time`.
pub fn all(
    stage: &mut Stage,
    spaces: &Outcome<Spaces>,
    seats: &Outcome<Seats>,
    time: Duration,
    live: &mut Live,
    stop: &Stop,
) -> Outcome<Results> {
    let (mut rest, share) = (time.saturating_sub(IDLE), |part: f64| time.mul_f64(part));
    let (ping, iperf) = match spaces {
        Ok(spaces) => {
            rest = rest.saturating_sub(share(0.35));
            let ping = unless_interrupted(ping(spaces, share(0.1), live, stop))?;
            (ping, unless_interrupted(iperf(spaces, share(0.25), live, stop))?)
        }
        Err(miss) => (Err(miss.clone()), Err(miss.clone())),
    };
    if seats.is_ok() {
        rest = rest.saturating_sub(share(0.35));
    }
    let (load, kept) = match unless_interrupted(load(stage, rest.max(SHORTEST), live, stop))? {
        Ok((report, kept)) => (Ok(report), Some(kept)),
        Err(miss) => (Err(miss), None),
    };
    let (machines, guests) = match seats {
        Ok(seats) => match unless_interrupted(machines::play(seats, share(0.35), live, stop))? {
            Ok((figures, guests)) => (Ok(figures), Some(guests)),
            Err(miss) => (Err(miss), None),
        },
        Err(miss) => (Err(miss.clone()), None),
    };
    let idle = unless_interrupted(rest_of(stage, IDLE, live, stop))?;
    drop((kept, guests));
    Ok(Results { ping, iperf, load, machines, idle })
}

/// Passes an interruption on, which ends the demo, and keeps every other result.
fn unless_interrupted<T>(outcome: Outcome<T>) -> Outcome<Outcome<T>> {
    match outcome {
        Err(NotDone::Interrupted) => Err(NotDone::Interrupted),
        other => Ok(other),
    }
}

fn needs(program: &str, package: &str) -> Outcome<()> {
    if installed(program) {
        Ok(())
    } else {
        Err(NotDone::Skipped(format!("{program} is not there: install the Debian package {package}")))
    }
}

fn ping(spaces: &Spaces, time: Duration, live: &mut Live, stop: &Stop) -> Outcome<Ping> {
    needs("ping", "iputils-ping")?;
    let count = (time.as_secs_f64() * PINGS).ceil();
    let mut command = spaces.command(0, "ping");
    // Without any answer, ping itself waits so long for the first one. With another limit of ping's (-w), ping sends more requests while
    // it waits for the last answer.
    let longest = PATIENCE.as_secs().to_string();
    command.args(["-q", "-i", &(1.0 / PINGS).to_string(), "-c", &count.to_string(), "-W", &longest, ENDS[1].1]);
    let mut program = Program::start(&mut command)?;
    let title = format!("ping: a namespace called left, at {}, to one called right, at {}", ENDS[0].1, ENDS[1].1);
    if !live.watch(&title, time + PATIENCE, stop, || program.has_ended())? {
        return Err(NotDone::Failed("ping does not end".to_owned()));
    }
    let said = program.output()?;
    let counters = || finish(spaces.command(0, "cat").arg(SNMP), stop);
    await_answers(&said, live, stop, counters)
}

/// Returns the bits per second of TCP from left to right.
fn iperf(spaces: &Spaces, time: Duration, live: &mut Live, stop: &Stop) -> Outcome<f64> {
    needs("iperf3", "iperf3")?;
    let mut server = Program::start(spaces.command(1, "iperf3").args(["-s", "-1", "--forceflush"]))?;
    server.says("Server listening", stop)?;
    let seconds = time.as_secs().max(1);
    let mut command = spaces.command(0, "iperf3");
    let mut client = Program::start(command.args(["-J", "-c", ENDS[1].1, "-t", &seconds.to_string()]))?;
    let title = "iperf3: a TCP stream from left to right";
    if !live.watch(title, Duration::from_secs(seconds) + PATIENCE, stop, || client.has_ended())? {
        return Err(NotDone::Failed("iperf3 does not end".to_owned()));
    }
    let text = client.output()?;
    read_iperf(&text).ok_or_else(|| NotDone::Failed("iperf3 says what is not understood".to_owned()))
}

fn read_iperf(text: &str) -> Option<f64> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    json["end"]["sum_received"]["bits_per_second"].as_f64()
}

/// Loads two process ports from a thread of this program. Returns the ports, still attached.
fn load(stage: &Stage, time: Duration, live: &mut Live, stop: &Stop) -> Outcome<(LoopReport, Loop)> {
    let (context, flag) = (stage.context(), stop.clone());
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || {
        let traffic = Traffic { size: FRAME, flows: 1, both: false, check: Check::Sequence };
        let attached = Loop::attach(["lan0:a", "lan0:b"], &traffic, PATIENCE, &context);
        let result = attached.and_then(|mut ports| {
            let report = ports.run(time, &mut Watch::none().stop_by(flag.flag()));
            report.map(|report| (report, ports)).map_err(|error| GenError::Failed(error.to_string()))
        });
        // After Ctrl-C there is no receiver.
        let _ = send.send(());
        result
    });
    let title = format!("gen loop: a program sends frames of {FRAME} bytes from port a to port b, and checks them");
    let ended = live.watch(&title, time + PATIENCE, stop, || receive.try_recv().is_ok())?;
    if !ended {
        return Err(NotDone::Failed("the process ports do not end".to_owned()));
    }
    match thread.join() {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(GenError::Usage(why) | GenError::Failed(why))) => Err(NotDone::Failed(why)),
        Err(_) => Err(NotDone::Failed("the process ports' thread panicked".to_owned())),
    }
}

/// Returns the share of a CPU that the idle switch takes. Sends it no requests meanwhile, as an answer takes CPU time.
fn rest_of(stage: &mut Stage, time: Duration, live: &mut Live, stop: &Stop) -> Outcome<f64> {
    say("\nidle: all ports stay, nothing moves\n");
    live.pause(time / 4, stop)?;
    let (start, before) = (Instant::now(), stage.cpu_time());
    live.pause(time * 3 / 4, stop)?;
    if stage.has_ended() {
        return Err(NotDone::Failed("the switch has ended".to_owned()));
    }
    let (Some(before), Some(after)) = (before, stage.cpu_time()) else {
        return Err(NotDone::Skipped("this kernel does not tell the CPU time of threads".to_owned()));
    };
    Ok(after.saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_iperf3_is_read() {
        assert_eq!(read_iperf(r#"{"end":{"sum_received":{"bits_per_second":9.5e9}}}"#), Some(9.5e9));
        assert_eq!(read_iperf(r#"{"error":"unable to connect"}"#), None);
    }
}
