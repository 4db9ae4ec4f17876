//! A process port of a Ringway switch.

use std::io;
use std::time::Duration;

use ringway_client::{AttachError, Port};

use crate::endpoint::Endpoint;

/// An endpoint at a process port: frames go to and from the switch through shared memory.
#[derive(Debug)]
pub struct ProcessEndpoint {
    port: Port,
    /// Buffer for frames that are longer than a slot's buffer.
    long: Vec<u8>,
}

impl ProcessEndpoint {
    /// Sends and receives on the first ring of each direction.
    #[must_use]
    pub fn new(port: Port) -> ProcessEndpoint {
        ProcessEndpoint { port, long: Vec::new() }
    }

    /// Returns the port.
    pub fn port(&mut self) -> &mut Port {
        &mut self.port
    }
}

impl Endpoint for ProcessEndpoint {
    #[inline]
    fn tx_room(&mut self) -> usize {
        self.port.tx().room()
    }

    #[inline]
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if len <= self.port.layout().shape.buffer_size as usize {
            return self.port.tx().push_with(len, fill);
        }
        // Several slots: writes the frame to private memory first, and only if it will fit.
        if self.port.tx().room() < len.div_ceil(self.port.layout().shape.buffer_size as usize) {
            return false;
        }
        self.long.resize(len, 0);
        fill(&mut self.long);
        self.port.tx().push(&self.long)
    }

    #[inline]
    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        self.tx_repeat_many(template, 1) == 1
    }

    #[inline]
    fn tx_repeat_many(&mut self, template: &[u8], most: usize) -> usize {
        if template.len() <= self.port.layout().shape.buffer_size as usize {
            self.port.tx().push_again(template.len(), most)
        } else {
            (0..most).take_while(|_| self.port.tx().push(template)).count()
        }
    }

    #[inline]
    fn tx_flush(&mut self) {
        self.port.flush();
    }

    #[inline]
    fn rx_batch(&mut self, max: usize, take: impl FnMut(&[u8])) -> usize {
        self.port.rx().drain(max, take)
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        let waited = if for_rx { self.port.wait_rx(timeout) } else { self.port.wait_tx(timeout) };
        match waited {
            Ok(_) => Ok(()),
            Err(error @ AttachError::Refused(_)) => Err(io::Error::new(io::ErrorKind::ConnectionReset, error)),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
