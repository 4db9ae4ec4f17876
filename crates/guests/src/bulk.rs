//! Bulk data from one guest to another by TCP: checked at its end, or as fast as possible.

use std::time::Duration;

use serde_json::Value;

use crate::error::Error;
use crate::guest::{Guest, Job};

/// File with the guest's data, and the file with their checksum.
const DATA: &str = "/tmp/data";
const DATA_SUM: &str = "/tmp/data-sum";
/// Program that sums bytes up: the quickest in an emulated guest that finds every change.
const SUM: &str = "md5sum";
/// Time limit for one transfer.
pub const TRANSFER: Duration = Duration::from_secs(120);

/// Makes `mib` MiB of random data in the guest, if it has none yet. Returns their checksum.
pub fn make(guest: &Guest, mib: u32) -> Result<String, Error> {
    let make = format!("dd if=/dev/urandom of={DATA} bs=1M count={mib} 2>/dev/null && {SUM} <{DATA} >{DATA_SUM}");
    Ok(sum(&guest.ok_within(&format!("[ -e {DATA_SUM} ] || {{ {make}; }} && cat {DATA_SUM}"), 2 * TRANSFER)?))
}

/// Waits for data on a TCP port. The job's output is their checksum.
pub fn receive(guest: &Guest, port: u16) -> Result<Job, Error> {
    // The program that sums up reads the socket itself: nc would move 1 KiB a call, which takes several times the processor
    // time of the emulated network.
    let job = guest.start(&format!("nc -l -p {port} -e sh -c '{SUM} >&3' 3>&1"))?;
    guest.until(&format!("netstat -ltn | grep -q ':{port} '"), TRANSFER)?;
    Ok(job)
}

/// Returns the command that writes a guest's data `times` times.
fn data(times: u32) -> String {
    format!("for i in $(seq {times}); do cat {DATA}; done")
}

/// Returns the checksum of a guest's data, written `times` times.
pub fn sum_of(guest: &Guest, times: u32) -> Result<String, Error> {
    Ok(sum(&guest.ok_within(&format!("{} | {SUM}", data(times)), TRANSFER)?))
}

/// Returns the command that sends a guest's data `times` times, slowly: 1 KiB a call.
pub fn send(address: &str, port: u16, times: u32) -> String {
    format!("{} | nc {address} {port}", data(times))
}

/// Waits for the data. Returns their checksum.
pub fn received(guest: &Guest, job: &Job) -> Result<String, Error> {
    let output = guest.wait(job, TRANSFER)?;
    if output.status == 0 { Ok(sum(&output.text)) } else { Err(guest.altered(output.text)) }
}

/// Sends the data of `from` to `to`, which has the address `address`. Returns an error unless all of them arrive
/// unchanged.
pub fn transfer(from: &Guest, to: &Guest, address: &str, mib: u32) -> Result<(), Error> {
    let sent = make(from, mib)?;
    let job = receive(to, 7000)?;
    from.ok_within(&format!("nc {address} 7000 -e cat {DATA}"), TRANSFER)?;
    if received(to, &job)? == sent { Ok(()) } else { Err(to.altered(format!("{mib} MiB to {address} came altered"))) }
}

/// Starts the server for [`rate`] in a guest.
pub fn serve(guest: &Guest) -> Result<(), Error> {
    guest.ok("iperf3 -s -D >/dev/null 2>&1")?;
    guest.until("netstat -ltn | grep -q ':5201 '", TRANSFER)
}

/// Runs iperf3 in a guest with these arguments, against the server at `address`. Returns its report.
pub fn iperf3(from: &Guest, address: &str, arguments: &str) -> Result<Value, Error> {
    let text = from.ok_within(&format!("iperf3 -J -c {address} {arguments}"), TRANSFER)?;
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
