//! Clients that flood ports `p1`, `p2`, ... of switch `lan0`, and what comes of it.
// Every function is for tests: whatever goes wrong is a panic.
#![allow(clippy::missing_panics_doc)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_client::Shape;
use ringway_testing::frame::{Address, blank, station};
use ringway_testing::{PATIENCE, until};
use ringway_traffic::{Endpoint, Ring, VirtioEndpoint, VirtioOptions};
use serde_json::Value;

use crate::daemon::Daemon;
use crate::port::send;

/// Pause of a flood whenever it has filled its rings. A flood at any rate that tests ask for has several frames for each that passes, and
/// leaves most of the processor time to others.
const PAUSE: Duration = Duration::from_millis(4);
/// Slots of each ring. A flood that gets no processor for some tens of milliseconds still has frames for its limit.
const SLOTS: u32 = 2048;
/// Most frames of a turn.
const MOST: usize = SLOTS as usize;

/// A client that fills its transmit ring again and again, and takes what comes. Ends when dropped.
pub struct Flooder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flooder {
    /// Takes turns in a thread of its own.
    fn start(mut turn: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                turn();
                std::thread::sleep(PAUSE);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Address of the client of port `p{number}`.
#[must_use]
pub fn address(number: u8) -> Address {
    station(number)
}

/// A frame of `len` bytes from the client of port `p{from}`.
#[must_use]
pub fn frame(to: Address, from: u8, len: usize) -> Vec<u8> {
    blank(to, address(from), len)
}

/// Puts a number behind the header of a frame.
fn set_number(frame: &mut [u8], number: u32) {
    frame[14..18].copy_from_slice(&number.to_be_bytes());
}

/// Sends numbered frames of these lengths from port `p{from}`. Without lengths it only takes what comes.
#[must_use]
pub fn client(daemon: &Daemon, from: u8, to: Address, lens: &[usize]) -> Flooder {
    clients(daemon, to, &[(from, lens)])
}

/// Several clients in one thread: as far as the thread has the processor, all of them send.
#[must_use]
pub fn clients(daemon: &Daemon, to: Address, each: &[(u8, &[usize])]) -> Flooder {
    clients_to(daemon, &each.iter().map(|&(from, lens)| (from, to, lens)).collect::<Vec<_>>())
}

/// Several clients in one thread, each with a destination of its own.
#[must_use]
pub fn clients_to(daemon: &Daemon, each: &[(u8, Address, &[usize])]) -> Flooder {
    let attached = each.iter().map(|&(from, to, lens)| {
        let shape = Shape { tx_slots: SLOTS, rx_slots: SLOTS, ..Shape::default() };
        let mut port = daemon.attach_as(&format!("lan0:p{from}"), shape).unwrap();
        send(&mut port, &frame([2, 0, 0, 0, 0xff, 0xff], from, 60));
        (port, lens.iter().map(|&len| frame(to, from, len)).collect::<Vec<_>>(), 0u32)
    });
    let mut attached: Vec<_> = attached.collect();
    Flooder::start(move || {
        for (port, frames, number) in &mut attached {
            port.rx().drain(MOST, |_| {});
            let lens = frames.len();
            let most = if lens == 0 { 0 } else { MOST };
            for turn in 0..most {
                let frame = &mut frames[turn % lens];
                set_number(frame, *number);
                if !port.tx().push(frame) {
                    break;
                }
                *number = number.wrapping_add(1);
            }
            port.flush();
        }
    })
}

/// The driver of a virtual machine's port that sends numbered frames.
#[must_use]
pub fn driver<R: Ring + 'static>(daemon: &Daemon, from: u8, to: Address, len: usize) -> Flooder {
    let socket = daemon.runtime_dir().join(format!("p{from}.sock"));
    let options = VirtioOptions { within: PATIENCE, rx_ring: 1024, tx_ring: 1024, ..VirtioOptions::default() };
    let mut port = VirtioEndpoint::<R>::attach(&socket, &options).expect("the port takes a front end");
    let (frame, mut number) = (frame(to, from, len), 0u32);
    Flooder::start(move || {
        for _ in 0..MOST {
            let fill = |bytes: &mut [u8]| {
                bytes.copy_from_slice(&frame);
                set_number(bytes, number);
            };
            if !port.tx_push(len, fill) {
                break;
            }
            number = number.wrapping_add(1);
        }
        port.tx_flush();
    })
}

/// A counter of a port's status.
#[must_use]
pub fn count(port: &Value, direction: &str, what: &str) -> u64 {
    port[direction][what].as_u64().unwrap()
}

/// Bits per second that arrive at a port, over a second or more. The time is measured from before the first reading of the
/// counter to after the second one: the rate is never above the true one, however long the machine holds this test up.
#[must_use]
pub fn rate(daemon: &Daemon, port: &str) -> f64 {
    let began = Instant::now();
    let before = count(&daemon.port(port), "out", "bytes");
    let mut after = before;
    until("a window has passed", || {
        after = count(&daemon.port(port), "out", "bytes");
        began.elapsed() > Duration::from_secs(1)
    });
    (after - before) as f64 * 8.0 / began.elapsed().as_secs_f64()
}

/// Waits until a window has the wanted rate. No window may have more: a limit holds on any machine. Other windows may have less, as
/// others may have the processors. The limit's burst must be that of a tenth of a second: with a smaller one the tokens are lost that
/// come while a sender or the switch waits for a processor, and no window may have the rate.
pub fn reaches(daemon: &Daemon, port: &str, wanted: f64) {
    until("the rate is reached", || {
        let rate = rate(daemon, port);
        // A burst (a tenth of a second) and a batch that was under way are less than a quarter of a second.
        assert!(rate < wanted * 1.25, "{rate} for {wanted}");
        rate > wanted * 0.75
    });
}

/// Configuration of process ports `p1`, `p2`, ... with these keys on the switch `lan0`.
#[must_use]
pub fn config(ports: &[&str]) -> String {
    let port = |(number, keys): (usize, &&str)| {
        format!("[port.p{}]\nswitch = \"lan0\"\nkind = \"process\"\n{keys}\n", number + 1)
    };
    format!("[switch.lan0]\n{}", ports.iter().enumerate().map(port).collect::<String>())
}

/// Drops of one port for one reason.
#[must_use]
pub fn drops(daemon: &Daemon, port: &str, reason: &str) -> u64 {
    daemon.port(port)["drops"][reason].as_u64().unwrap_or(0)
}
