//! Clients that flood ports `p1`, `p2`, ... of switch `lan0`, and the counters of such a flood.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_traffic::{Endpoint, Ring, VirtioEndpoint, VirtioOptions};
use serde_json::Value;

use super::{Daemon, send, until};

/// A client that sends as fast as it can, and takes what comes.
pub struct Flooder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub fn address(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

pub fn frame(to: [u8; 6], from: u8, len: usize) -> Vec<u8> {
    let mut frame = [&to, &address(from)[..], &[0x88, 0xb5]].concat();
    frame.resize(len, 0);
    frame
}

/// Sends numbered frames of these lengths from port `p{from}`, or takes what comes where there is none.
pub fn client(daemon: &Daemon, from: u8, to: [u8; 6], lens: &[usize]) -> Flooder {
    clients(daemon, to, &[(from, lens)])
}

/// Several of them in one thread: as far as it has the processor, all send.
pub fn clients(daemon: &Daemon, to: [u8; 6], each: &[(u8, &[usize])]) -> Flooder {
    clients_to(daemon, &each.iter().map(|&(from, lens)| (from, to, lens)).collect::<Vec<_>>())
}

/// The same, each to an address of its own.
pub fn clients_to(daemon: &Daemon, each: &[(u8, [u8; 6], &[usize])]) -> Flooder {
    let attached = each.iter().map(|&(from, to, lens)| {
        let mut port = daemon.attach(&format!("lan0:p{from}")).unwrap();
        send(&mut port, &frame([2, 0, 0, 0, 0xff, 0xff], from, 60));
        (port, lens.iter().map(|&len| frame(to, from, len)).collect::<Vec<_>>(), 0u32)
    });
    let mut attached: Vec<_> = attached.collect();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            let mut sent = false;
            for (port, frames, number) in &mut attached {
                port.rx().drain(256, |_| {});
                let lens = frames.len();
                let most = if lens == 0 { 0 } else { 64 };
                for turn in 0..most {
                    let frame = &mut frames[turn % lens];
                    frame[14..18].copy_from_slice(&number.to_be_bytes());
                    if !port.tx().push(frame) {
                        break;
                    }
                    (*number, sent) = (number.wrapping_add(1), true);
                }
                port.flush();
            }
            if !sent {
                std::thread::yield_now();
            }
        }
    });
    Flooder { stop, thread: Some(thread) }
}

impl Drop for Flooder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// As [`client`] that sends, as the driver of a virtual machine's port; its frames are numbered.
pub fn driver<R: Ring + 'static>(daemon: &Daemon, from: u8, to: [u8; 6], len: usize) -> Flooder {
    let socket = daemon.runtime_dir().join(format!("p{from}.sock"));
    let mut port = VirtioEndpoint::<R>::attach(&socket, &VirtioOptions::default()).expect("the port takes a front end");
    let frame = frame(to, from, len);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut number = 0u32;
        while !stopped.load(Ordering::Relaxed) {
            let mut sent = false;
            for _ in 0..64 {
                let fill = |bytes: &mut [u8]| {
                    bytes.copy_from_slice(&frame);
                    bytes[14..18].copy_from_slice(&number.to_be_bytes());
                };
                if !port.tx_push(len, fill) {
                    break;
                }
                (number, sent) = (number.wrapping_add(1), true);
            }
            port.tx_flush();
            if !sent {
                std::thread::yield_now();
            }
        }
    });
    Flooder { stop, thread: Some(thread) }
}

pub fn count(port: &Value, direction: &str, what: &str) -> u64 {
    port[direction][what].as_u64().unwrap()
}

/// Bits per second that arrive at a port.
pub fn rate(daemon: &Daemon, port: &str) -> f64 {
    let (before, began) = (daemon.port(port), Instant::now());
    let mut after = before.clone();
    until("a window has passed", || {
        after = daemon.port(port);
        began.elapsed() > Duration::from_secs(1)
    });
    let bytes = count(&after, "out", "bytes") - count(&before, "out", "bytes");
    bytes as f64 * 8.0 / began.elapsed().as_secs_f64()
}

/// No window has more than is allowed, and one has it: in others, other tests may have the processors.
pub fn reaches(daemon: &Daemon, port: &str, wanted: f64) {
    until("the rate is reached", || {
        let rate = rate(daemon, port);
        assert!(rate < wanted * 1.25, "{rate} for {wanted}");
        rate > wanted * 0.75
    });
}

pub fn config(ports: &[&str]) -> String {
    let port = |(number, keys): (usize, &&str)| {
        format!("[port.p{}]\nswitch = \"lan0\"\nkind = \"process\"\n{keys}\n", number + 1)
    };
    format!("[switch.lan0]\n{}", ports.iter().enumerate().map(port).collect::<String>())
}

pub fn drops(daemon: &Daemon, port: &str, reason: &str) -> u64 {
    daemon.port(port)["drops"][reason].as_u64().unwrap_or(0)
}
