//! LWEP between two process ports of a switch.

use std::io;
use std::time::Instant;

use ringway_link::{ProcessLink, ProcessOptions};
use ringway_lwep::{Connection, Endpoint, Event, Options, SendError};

use super::messenger::{Messenger, is_patient};
use crate::daemon::{Daemon, Settings};
use crate::network::Network as _;
use crate::placement::Cores;

/// The service that the far end has.
const SERVICE: u32 = 1;
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x11], [2, 0, 0, 0, 0, 0x12]];
/// Messages that are sent, and received, at once.
const BATCH: usize = 128;

/// Two endpoints with a connection.
pub struct Lwep {
    // Endpoints are dropped before the switch.
    near: Endpoint<ProcessLink>,
    far: Endpoint<ProcessLink>,
    connection: [Connection; 2],
    began: Instant,
    daemon: Daemon,
    /// The receiver copies each message.
    copies: bool,
    copy: Vec<u8>,
}

impl Lwep {
    /// Starts a switch and connects. The switch is stopped when this returns.
    ///
    /// # Errors
    /// The daemon does not start, or the connection does not come about.
    pub fn start(cores: Cores, settings: &Settings, copies: bool) -> io::Result<Lwep> {
        let mut daemon = Daemon::start(cores, settings)?;
        let end = |number: usize| {
            let options = ProcessOptions { mac: Some(MACS[number]), ..ProcessOptions::default() };
            let link = daemon.attach_link(&format!("lwep{number}"), &options)?;
            Ok::<_, io::Error>(Endpoint::new(link, Options::default()))
        };
        let (mut near, mut far) = (end(0)?, end(1)?);
        let began = Instant::now();
        far.listen(SERVICE);
        let connection = near.connect(MACS[1], SERVICE, 0).map_err(io::Error::other)?;
        let (mut is_open, mut accepted) = (false, None);
        let accepted = loop {
            let now = began.elapsed().as_nanos() as u64;
            while let Some(event) = near.poll(now) {
                is_open |= matches!(event, Event::Connected { .. });
            }
            while let Some(event) = far.poll(now) {
                if let Event::Accepted { connection, .. } = event {
                    accepted = Some(connection);
                }
            }
            if let Some(accepted) = accepted.filter(|_| is_open) {
                break accepted;
            }
            is_patient(began)?;
        };
        daemon.hold()?;
        let connection = [connection, accepted];
        Ok(Lwep { near, far, connection, began, daemon, copies, copy: vec![0; 2048] })
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

impl Messenger for Lwep {
    fn ask(&mut self, message: &[u8]) -> io::Result<bool> {
        let now = self.now();
        match self.near.send(self.connection[0], message, now) {
            Ok(()) => {
                self.near.flush();
                Ok(true)
            }
            Err(SendError::Full) => {
                self.near.drain(now, BATCH, |_| ());
                Ok(false)
            }
            Err(error) => Err(io::Error::other(error)),
        }
    }

    fn answer(&mut self, message: &[u8]) -> io::Result<()> {
        let now = self.now();
        let mut arrived = 0;
        self.far.drain(now, BATCH, |event| arrived += usize::from(matches!(event, Event::Message { .. })));
        if arrived > 0 {
            self.far.send(self.connection[1], message, now).map_err(io::Error::other)?;
            self.far.flush();
        }
        Ok(())
    }

    fn is_answered(&mut self, _: usize) -> io::Result<bool> {
        let now = self.now();
        let mut is_answered = false;
        self.near.drain(now, BATCH, |event| is_answered |= matches!(event, Event::Message { .. }));
        Ok(is_answered)
    }

    fn pass(&mut self, size: usize) -> io::Result<u64> {
        let now = self.now();
        for _ in 0..BATCH {
            match self.near.send_with(self.connection[0], size, now, |bytes| bytes.fill(0x55)) {
                Ok(()) => {}
                Err(SendError::Full) => break,
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        self.near.drain(now, BATCH, |_| ());
        let (mut messages, copies, copy) = (0, self.copies, &mut self.copy);
        self.far.drain(now, 2 * BATCH, |event| {
            if let Event::Message { data, .. } = event {
                messages += 1;
                if copies {
                    copy[..data.len()].copy_from_slice(data);
                }
            }
        });
        std::hint::black_box(&self.copy);
        Ok(messages)
    }

    fn resume(&mut self) -> io::Result<()> {
        self.daemon.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.daemon.hold()
    }
}
