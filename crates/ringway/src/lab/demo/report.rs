//! The text of the demo's results, and the commands that a user can type next.

use super::acts::{FRAME, Results};
use super::outcome::{NotDone, Outcome};
use super::ping::Ping;

/// The results, one line each.
pub fn results(results: &Results) -> String {
    let mut text = String::from("\nWhat came out:\n");
    let mut line = |what: &str, figures: String| text.push_str(&format!("  {what:<14} {figures}\n"));
    line("ping", or_reason(&results.ping, ping_figures));
    line("iperf3", or_reason(&results.iperf, |bits| format!("{:.2} Gbit/s over TCP", bits / 1e9)));
    line(
        "process ports",
        or_reason(&results.load, |load| {
            let sent: u64 = load.stations.iter().map(|station| station.sent).sum();
            let share = if sent > 0 { 100.0 * load.lost as f64 / sent as f64 } else { 0.0 };
            let rate = load.received.frames_per_second / 1e6;
            let altered = if load.is_altered() { "; SOME CAME ALTERED OR OUT OF ORDER" } else { "" };
            format!("{rate:.1} Mframe/s of {FRAME} bytes; {} of {sent} dropped ({share:.3} %){altered}", load.lost)
        }),
    );
    match &results.machines {
        Ok(figures) => {
            let kernel = &figures.kernel;
            line("two VMs", format!("up in {:.1} s ({}, Linux {kernel})", figures.boot.as_secs_f64(), figures.by));
            line("VM to VM ping", ping_figures(&figures.ping));
            let checked = format!("{} MiB each way came unaltered", figures.checked_mib);
            line("VM to VM TCP", format!("{:.2} Gbit/s; {checked}", figures.tcp / 1e9));
        }
        missed => line("two VMs", or_reason(missed, |_| String::new())),
    }
    line("idle", or_reason(&results.idle, |share| format!("{:.1} % of one CPU for the switch", share * 100.0)));
    text
}

fn ping_figures(ping: &Ping) -> String {
    let [min, mean, max] = ping.ms.map(|ms| ms * 1e3);
    let lost = ping.sent.saturating_sub(ping.received);
    format!("{lost} of {} lost; round trip {mean:.0} us on average, {min:.0} to {max:.0}", ping.sent)
}

fn or_reason<T>(outcome: &Outcome<T>, figures: impl FnOnce(&T) -> String) -> String {
    match outcome {
        Ok(done) => figures(done),
        Err(NotDone::Skipped(why)) => format!("not shown: {why}"),
        Err(NotDone::Failed(why)) => format!("FAILED: {why}"),
        Err(NotDone::Interrupted) => "interrupted".to_owned(),
    }
}

/// Commands that the user can type next.
pub fn next_commands(ringway: &str) -> String {
    format!(
        "
Now yours. A switch, in a terminal of its own:
  {ringway} run
Two process ports under load, and what the switch counts:
  {ringway} gen loop lan0:a lan0:b --duration 5s
  {ringway} status
A port for a virtual machine (the README has the lines for QEMU and libvirt):
  {ringway} port add vm1 switch=lan0 kind=vhost-user
As root, this host's stack and a network namespace on the same switch:
  {ringway} port add tap0 switch=lan0 kind=tap
  ip addr add 10.77.0.1/24 dev tap0
  ip netns add box
  {ringway} port add box switch=lan0 kind=tap netns=box device=eth0
  ip -n box addr add 10.77.0.2/24 dev eth0
  ping -c 3 10.77.0.2
"
    )
}
