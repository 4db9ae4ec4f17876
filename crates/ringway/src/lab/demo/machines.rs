//! The demo's part with virtual machines: two small ones on vhost-user ports.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use ringway_guests::{Accel, Builder, Error, Guest, Kernel, Nic, Release, bulk, missing};

use super::args::Args;
use super::live::Live;
use super::outcome::{NotDone, Outcome, Stop};
use super::patience::PATIENCE;
use super::ping::{Ping, SNMP, await_answers};
use super::say::say;
use super::stage::Stage;

/// Names of the guests and their ports, and their addresses.
const MACHINES: [(&str, &str); 2] = [("vm1", "10.77.1.1"), ("vm2", "10.77.1.2")];
/// MiB sent each way whose checksums are compared.
const CHECKED_MIB: u32 = 8;
/// Echo requests a second.
const PINGS: f64 = 20.0;
/// Interval at which the fetch of a kernel looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Ports and kernel of the guests.
#[derive(Debug)]
pub struct Seats {
    sockets: [PathBuf; 2],
    accel: Accel,
    kernel: String,
}

/// Results of this part.
#[derive(Debug)]
pub struct Figures {
    /// Time from the start of QEMU until both guests obey.
    pub boot: Duration,
    /// What runs the guests.
    pub by: &'static str,
    /// Version of their kernel.
    pub kernel: String,
    pub ping: Ping,
    /// Bits per second from one to the other.
    pub tcp: f64,
    /// MiB that arrived unaltered, each way.
    pub checked_mib: u32,
}

/// Makes two ports, if this host has what guests need.
pub fn prepare(stage: &Stage, args: &Args, stop: &Stop) -> Outcome<Seats> {
    let missing: Vec<String> = missing().iter().map(Error::to_string).collect();
    if !missing.is_empty() {
        return Err(NotDone::Skipped(missing.join("; ")));
    }
    let here = Kernel::is_here(Release::default());
    if !here && !args.fetch_kernel {
        let what = "no kernel for them is here; \"ringway demo --fetch-kernel\" fetches the one of Debian's package \
                    linux-image-amd64 (70 MB)";
        return Err(NotDone::Skipped(what.to_owned()));
    }
    if !here {
        say("Fetching a kernel for virtual machines from Debian: 70 MB, once.\n");
    }
    let kernel = fetch(stop)?;
    let [first, second] = MACHINES.map(|(name, _)| stage.add_seat(name));
    let accel = if args.kvm { Accel::Kvm } else { Accel::Tcg };
    Ok(Seats { sockets: [first?, second?], accel, kernel: kernel.version() })
}

/// Returns the kernel, fetched by another thread if need be. Ctrl-C ends the wait.
fn fetch(stop: &Stop) -> Outcome<Kernel> {
    let thread = thread::spawn(|| Kernel::get(Release::default()));
    while !thread.is_finished() {
        stop.check()?;
        thread::sleep(LOOK);
    }
    match thread.join() {
        Ok(Ok(kernel)) => Ok(kernel),
        Ok(Err(error)) => Err(NotDone::Skipped(error.to_string())),
        Err(_) => Err(NotDone::Failed("the thread that fetches a kernel panicked".to_owned())),
    }
}

/// Boots the guests and runs traffic between them for about `time`. Returns them, still running.
pub fn play(seats: &Seats, time: Duration, live: &mut Live, stop: &Stop) -> Outcome<(Figures, [Guest; 2])> {
    let start = Instant::now();
    let builder = |number: usize| -> Builder {
        let nic = Nic::vhost_user(&seats.sockets[number]).mac(&format!("52:54:00:77:00:0{}", number + 1));
        Guest::builder(MACHINES[number].0).accel(seats.accel).nic(nic)
    };
    let [first, second] = [0, 1].map(|number| builder(number).start().map_err(failed));
    let mut play = Play { guests: [first?, second?], live, stop };
    let by = if seats.accel == Accel::Kvm { "KVM" } else { "CPU emulated by QEMU" };
    let [(left, _), (right, to)] = MACHINES;
    let title = format!("boot: two virtual machines, {left} and {right}: Linux {}, busybox; {by}", seats.kernel);
    play.part(&title, Duration::ZERO, |guests| {
        for (guest, (_, address)) in guests.iter().zip(MACHINES) {
            guest.ready()?;
            // Without IPv6 a guest sends nothing by itself, so that idle is idle.
            guest.ok("for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done")?;
            guest.ok(&format!("ip link set eth0 up; ip addr add {address}/24 dev eth0"))?;
            // With the kernel's three requests, a switch without a processor for three seconds makes a station unreachable.
            guest.ok("echo 300 >/proc/sys/net/ipv4/neigh/eth0/mcast_solicit")?;
        }
        Ok(())
    })?;
    let boot = start.elapsed();

    let count = (time.as_secs_f64() * 0.3 * PINGS).ceil();
    let said = play.part(&format!("ping: {left} to {right}"), time, |[from, _]| {
        let ping = format!("ping -q -i {} -c {count} -W {} {to}", 1.0 / PINGS, PATIENCE.as_secs());
        from.ok_within(&ping, time + PATIENCE)
    })?;
    let counters = || play.guests[0].ok(&format!("cat {SNMP}")).map_err(failed);
    let ping = await_answers(&said, play.live, stop, counters)?;

    let seconds = (time.as_secs_f64() * 0.5).max(1.0) as u32;
    let tcp = play.part(&format!("tcp: a stream from {left} to {right}, by iperf3"), time, |[from, other]| {
        bulk::serve(other)?;
        bulk::rate(from, to, seconds)
    })?;
    play.part(&format!("data: {CHECKED_MIB} MiB each way, with a sum of it at either end"), time, |[one, other]| {
        bulk::transfer(one, other, MACHINES[1].1, CHECKED_MIB)?;
        bulk::transfer(other, one, MACHINES[0].1, CHECKED_MIB)
    })?;
    let kernel = seats.kernel.clone();
    Ok((Figures { boot, by, kernel, ping, tcp, checked_mib: CHECKED_MIB }, play.guests))
}

fn failed(error: Error) -> NotDone {
    NotDone::Failed(error.to_string())
}

/// Two guests, and the display of their rates.
struct Play<'a> {
    guests: [Guest; 2],
    live: &'a mut Live,
    stop: &'a Stop,
}

impl Play<'_> {
    /// Runs `work`, which is planned for `time`, while the display shows rates. An interruption ends the guests, so that `work` ends as
    /// well.
    fn part<T: Send>(
        &mut self,
        title: &str,
        time: Duration,
        work: impl FnOnce(&[Guest; 2]) -> Result<T, Error> + Send,
    ) -> Outcome<T> {
        let guests = &self.guests;
        thread::scope(|scope| {
            let worker = scope.spawn(|| work(guests));
            let ended = self.live.watch(title, time + PATIENCE, self.stop, || worker.is_finished());
            if !matches!(ended, Ok(true)) {
                guests.iter().for_each(Guest::end);
            }
            let result = worker.join();
            match (ended?, result) {
                (false, _) => Err(NotDone::Failed(format!("it does not end: {title}"))),
                (true, Ok(result)) => result.map_err(failed),
                (true, Err(_)) => Err(NotDone::Failed("the guests' thread panicked".to_owned())),
            }
        })
    }
}
