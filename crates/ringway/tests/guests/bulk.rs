//! Data that is checked at its end.

use std::time::Duration;

use ringway_guests::{Guest, Job};

/// Where a guest has its data.
const DATA: &str = "/tmp/data";
/// Longest time for one transfer.
pub const TRANSFER: Duration = Duration::from_secs(60);

/// Gives the guest `mib` of random data, if it has none yet, and the sum of it.
pub fn make(guest: &Guest, mib: u32) -> String {
    let make = format!("[ -e {DATA} ] || dd if=/dev/urandom of={DATA} bs=1M count={mib} 2>&1");
    guest.ok_within(&make, TRANSFER).unwrap();
    sum(&guest.ok(&format!("sha256sum <{DATA}")).unwrap())
}

/// Waits at a TCP port for data; the job gives its sum.
pub fn receive(guest: &Guest, port: u16) -> Job {
    // This nc ends with its own input, so that one is a pipe that both ends of are open for good.
    let command = format!("[ -e /tmp/open ] || mkfifo /tmp/open; nc -l -p {port} <>/tmp/open | sha256sum");
    let job = guest.start(&command).unwrap();
    guest.until(&format!("netstat -ltn | grep -q ':{port} '"), TRANSFER).unwrap();
    job
}

/// The command that writes a guest's data `times` times.
pub fn data(times: u32) -> String {
    format!("for i in $(seq {times}); do cat {DATA}; done")
}

/// The command that sends it.
pub fn send(address: &str, port: u16, times: u32) -> String {
    format!("{} | nc {address} {port}", data(times))
}

/// The sum of what came.
pub fn received(guest: &Guest, job: &Job) -> String {
    let output = guest.wait(job, TRANSFER).unwrap();
    assert_eq!(output.status, 0, "{}", output.text);
    sum(&output.text)
}

/// Sends the data of `from` to `to`, which is at `address`, and says what is wrong with what comes.
pub fn transfer(from: &Guest, to: &Guest, address: &str, mib: u32) -> Result<(), String> {
    let sent = make(from, mib);
    let job = receive(to, 7000);
    from.ok_within(&send(address, 7000, 1), TRANSFER).map_err(|error| error.to_string())?;
    let came = received(to, &job);
    if came == sent { Ok(()) } else { Err(format!("{mib} MiB to {address} came altered")) }
}

fn sum(text: &str) -> String {
    text.split_whitespace().next().unwrap_or_default().to_owned()
}
