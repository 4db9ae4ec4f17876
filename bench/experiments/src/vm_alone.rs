//! Rate at which a guest's driver fills a ring whose device does nothing. No device can exceed that rate.

use std::io;
use std::thread;
use std::time::Duration;

use ringway_guests::Error;
use ringway_traffic::Mac;

use crate::network::Network as _;
use crate::placement::unpin;
use crate::vm_nics::{SINK, Station};

/// Frames that the driver puts into a ring of 256. Drivers call the ring full when 52 places are left, so these need no interrupt.
const FRAMES: u32 = 200;
/// Repetitions in one window.
const TIMES: usize = 8;
/// Seconds between the command and the guest's first frame. Meanwhile the switch answers the driver's pending requests and is
/// stopped.
const AFTER: &str = "0.1";
/// Wait until the switch is stopped, and wait until the guest is done in most cases.
const HALF: Duration = Duration::from_millis(50);
const DONE: Duration = Duration::from_millis(200);

impl Station {
    /// Returns the most frames per second that the guest's kernel puts into its ring, one at a time, while the switch is stopped or
    /// serves the ring. The ring's registers have to be mapped, as a stopped switch answers no message.
    ///
    /// # Errors
    /// The guest does not run the command.
    pub fn fill(&mut self, size: usize, served: bool) -> io::Result<f64> {
        unpin(self.cores)?;
        let failed = |error: Error| io::Error::other(error);
        let sink = Mac::local(SINK);
        let setup = format!(
            "cd /proc/net/pktgen; [ -e eth0 ] || echo add_device eth0 >kpktgend_0; echo pkt_size {size} >eth0; \
             echo count {FRAMES} >eth0; echo dst_mac {sink} >eth0"
        );
        self.guest.ok(&setup).map_err(failed)?;
        let mut rates = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let begun = self.guest.ok(&format!("(sleep {AFTER}; echo start >/proc/net/pktgen/pgctrl) &"));
            thread::sleep(HALF);
            if let Some(daemon) = self.daemon.as_mut().filter(|_| !served) {
                daemon.hold()?;
            }
            thread::sleep(DONE);
            // No command reaches the guest before: a driver that happens to read a register waits for the answer.
            if let Some(daemon) = &mut self.daemon {
                daemon.resume()?;
            }
            let told = begun.and_then(|_| {
                self.guest.until("grep -q 'Result: OK' /proc/net/pktgen/eth0", crate::patience::PATIENCE)?;
                self.guest.ok("cat /proc/net/pktgen/eth0")
            });
            rates.extend(rate(&told.map_err(failed)?));
        }
        // The fastest repetition: something else interrupted the others.
        rates.into_iter().reduce(f64::max).ok_or_else(|| io::Error::other("pktgen tells no rate"))
    }
}

/// Returns frames per second from pktgen's result (Linux, Documentation/networking/pktgen.rst), without the time that it waited:
/// `Result: OK: 25324(c1320+d24004) usec, 200 (60byte,0frags)`.
fn rate(told: &str) -> Option<f64> {
    let (_, busy) = told.split_once("(c")?;
    let busy: f64 = busy.split_once('+')?.0.parse().ok()?;
    Some(f64::from(FRAMES) / busy * 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_pktgen_waited_does_not_count() {
        let told = "Params: count 200\nResult: OK: 50000(c1000+d49000) usec, 200 (60byte,0frags)\n  4000pps";
        assert_eq!(rate(told), Some(200_000.0));
        assert_eq!(rate("Result: Idle"), None);
    }
}
