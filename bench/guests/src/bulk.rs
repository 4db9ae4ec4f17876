//! Bulk data from one guest to another by TCP: checked at its end, or as fast as possible.

use serde_json::Value;

use crate::error::Error;
use crate::guest::{Guest, Job, PATIENCE};

/// Random bytes that a guest has from its start, in its archive: the name of the file and its length.
pub(crate) const RANDOM: &str = "usr/random";
pub(crate) const RANDOM_BYTES: usize = 1 << 20;
/// File with the guest's data, and the file with their checksum.
const DATA: &str = "/tmp/data";
const DATA_SUM: &str = "/tmp/data-sum";
/// The TCP port of the receiver for [`transfer`], and the pipe with the checksums of what it has received.
const SUMMED: u16 = 7070;
const SUMS: &str = "/tmp/sums";
/// The file that ends a sender, with the number of its TCP port.
const STOP: &str = "/tmp/stop";
/// Program that sums bytes up: the quickest in an emulated guest that finds every change.
const SUM: &str = "md5sum";

/// Makes `mib` MiB of random data in the guest, unless it has as many. They begin with the random bytes that each guest brings, a MiB again and
/// again: an emulated guest takes a quarter of a second to make a MiB of its own. Returns their checksum.
pub fn make(guest: &Guest, mib: u32) -> Result<String, Error> {
    let make = format!("for i in $(seq {mib}); do cat /{RANDOM}; done >{DATA} && {SUM} <{DATA} >{DATA_SUM}");
    let has = format!("[ \"$(stat -c %s {DATA} 2>/dev/null)\" = {} ] && [ -e {DATA_SUM} ]", u64::from(mib) << 20);
    Ok(sum(&guest.ok(&format!("{has} || {{ {make}; }} && cat {DATA_SUM}"))?))
}

/// Waits for data on a TCP port. The job's output is their checksum.
pub fn receive(guest: &Guest, port: u16) -> Result<Job, Error> {
    // The program that sums up reads the socket itself: nc would move 1 KiB a call, which takes several times the processor
    // time of the emulated network.
    let job = guest.start(&format!("nc -l -p {port} -e sh -c '{SUM} >&3' 3>&1"))?;
    guest.until(&format!("netstat -ltn | grep -q ':{port} '"), PATIENCE)?;
    Ok(job)
}

/// Returns the command that writes a guest's data `times` times.
fn data(times: u32) -> String {
    format!("for i in $(seq {times}); do cat {DATA}; done")
}

/// Returns the checksum of a guest's data, written `times` times.
pub fn sum_of(guest: &Guest, times: u32) -> Result<String, Error> {
    Ok(sum(&guest.ok(&format!("{} | {SUM}", data(times)))?))
}

/// Returns the command that sends a guest's data `times` times, slowly: 1 KiB a call.
pub fn send(address: &str, port: u16, times: u32) -> String {
    format!("{} | nc {address} {port}", data(times))
}

/// Returns the command that sends a guest's data again and again, until [`stop`]. Its output is the number of times.
pub fn send_until_stopped(address: &str, port: u16) -> String {
    let data = format!("i=0; while [ ! -e {STOP}.{port} ]; do cat {DATA}; i=$((i + 1)); done; echo $i >&3");
    // On a busy machine the guest's kernel may give up an address that was unreachable for a while.
    let reach = format!("until ping -c 1 -w 10 {address} >/dev/null 2>&1; do :; done");
    format!("rm -f {STOP}.{port}; {reach}; {{ {{ {data}; }} | nc {address} {port}; }} 3>&1")
}

/// Ends what [`send_until_stopped`] sends to this TCP port.
pub fn stop(guest: &Guest, port: u16) -> Result<(), Error> {
    guest.ok(&format!("touch {STOP}.{port}")).map(drop)
}

/// Waits until the data are sent. Returns the number of times.
pub fn sent(guest: &Guest, job: &Job) -> Result<u32, Error> {
    let output = guest.wait(job, PATIENCE)?;
    match output.text.trim().parse() {
        Ok(times) if output.status == 0 => Ok(times),
        _ => Err(guest.altered(output.text)),
    }
}

/// Waits for the data. Returns their checksum.
pub fn received(guest: &Guest, job: &Job) -> Result<String, Error> {
    let output = guest.wait(job, PATIENCE)?;
    if output.status == 0 { Ok(sum(&output.text)) } else { Err(guest.altered(output.text)) }
}

/// Sends the data of `from` to `to`, which has the address `address`. Returns an error unless all of them arrive
/// unchanged.
pub fn transfer(from: &Guest, to: &Guest, address: &str, mib: u32) -> Result<(), Error> {
    let sent = make(from, mib)?;
    // The receiver stays: to start one for each transfer costs more than the transfer of a MiB.
    let receiver = format!("exec 4<>{SUMS}; exec nc -ll -p {SUMMED} -e sh -c '{SUM} >&4'");
    let start = format!("mkfifo {SUMS}; ( {receiver} ) >/dev/null 2>&1 </dev/null &");
    let listens = format!("until netstat -ltn | grep -q ':{SUMMED} '; do sleep 0.02; done");
    to.ok(&format!("[ -e {SUMS} ] || {{ {start} {listens}; }}"))?;
    from.ok(&format!("nc {address} {SUMMED} -e cat {DATA}"))?;
    let came = to.ok(&format!("read sum rest <{SUMS}; echo $sum"))?;
    if came.trim() == sent { Ok(()) } else { Err(to.altered(format!("{mib} MiB to {address} came altered"))) }
}

/// Starts the server for [`rate`] in a guest.
pub fn serve(guest: &Guest) -> Result<(), Error> {
    guest.ok("iperf3 -s -D >/dev/null 2>&1")?;
    guest.until("netstat -ltn | grep -q ':5201 '", PATIENCE)
}

/// Runs iperf3 in a guest with these arguments, against the server at `address`. Returns its report.
pub fn iperf3(from: &Guest, address: &str, arguments: &str) -> Result<Value, Error> {
    let text = from.ok(&format!("iperf3 -J -c {address} {arguments}"))?;
    // Warnings precede the report.
    let report = text.find('{').map_or(text.as_str(), |begin| &text[begin..]);
    serde_json::from_str(report).map_err(|error| from.altered(format!("iperf3 says what is not understood: {error}")))
}

/// Returns the bits per second of a TCP stream of `seconds` seconds.
pub fn rate(from: &Guest, address: &str, seconds: u32) -> Result<f64, Error> {
    let report = iperf3(from, address, &format!("-t {seconds}"))?;
    report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .ok_or_else(|| from.altered(format!("iperf3 gives no rate: {report}")))
}

fn sum(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}
