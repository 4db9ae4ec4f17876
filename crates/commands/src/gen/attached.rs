//! An attachment that traffic goes through, of any kind.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use ringway_link::Link;
use ringway_link::e1000::E1000Link;
use ringway_link::virtio::VirtioLink;
use ringway_traffic::{
    E1000Endpoint, Endpoint, LinkEndpoint, Mac, Packed, ProcessEndpoint, Ring, Split, VirtioEndpoint,
};

use super::report::{Driver, GenError};

/// An endpoint that is connected to a switch or another back end.
pub trait Attached: Endpoint {
    /// Returns a descriptor that becomes readable when the other side has ended.
    fn end(&mut self) -> io::Result<OwnedFd>;

    /// Returns the address that the switch binds to it.
    fn bound(&mut self) -> Option<Mac> {
        None
    }

    /// Returns the driver's counts of device accesses, if it has any.
    fn driver(&self) -> Option<Driver> {
        None
    }

    /// Returns a second descriptor that becomes readable when the other side has ended.
    fn connection(&mut self) -> Result<OwnedFd, GenError> {
        self.end().map_err(|error| GenError::Failed(format!("cannot duplicate the port's connection: {error}")))
    }
}

impl Attached for ProcessEndpoint {
    fn end(&mut self) -> io::Result<OwnedFd> {
        self.port().connection_fd().try_clone_to_owned()
    }

    fn bound(&mut self) -> Option<Mac> {
        match self.port().mac() {
            [0, 0, 0, 0, 0, 0] => None,
            bound => Some(Mac(bound)),
        }
    }
}

impl<R: Ring> Attached for VirtioEndpoint<R> {
    fn end(&mut self) -> io::Result<OwnedFd> {
        VirtioEndpoint::connection(self).as_fd().try_clone_to_owned()
    }
}

impl Attached for E1000Endpoint {
    fn end(&mut self) -> io::Result<OwnedFd> {
        E1000Endpoint::connection(self).as_fd().try_clone_to_owned()
    }

    fn bound(&mut self) -> Option<Mac> {
        Some(self.mac())
    }

    fn driver(&self) -> Option<Driver> {
        Some(Driver::E1000(self.counters()))
    }
}

impl<L: Link> Attached for LinkEndpoint<L> {
    fn end(&mut self) -> io::Result<OwnedFd> {
        // A device has no connection. Its end is found by waits.
        Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?)
    }

    fn bound(&mut self) -> Option<Mac> {
        Some(Mac(self.link().interface().mac))
    }

    fn driver(&self) -> Option<Driver> {
        Some(Driver::Link(self.counters()))
    }
}

/// An endpoint of any kind.
#[allow(clippy::large_enum_variant, reason = "there are one or two of them")]
pub enum AnyPort {
    /// A process port.
    Process(ProcessEndpoint),
    /// A virtio-net driver with split rings.
    Split(VirtioEndpoint<Split>),
    /// A virtio-net driver with packed rings.
    Packed(VirtioEndpoint<Packed>),
    /// A driver of an e1000.
    E1000(E1000Endpoint),
    /// A driver of a virtio NIC.
    PciVirtio(LinkEndpoint<VirtioLink>),
    /// A driver of an e1000 or e1000e.
    PciE1000(LinkEndpoint<E1000Link>),
}

/// Evaluates an expression for the endpoint of every variant.
macro_rules! each {
    ($any:expr, $port:ident => $do:expr) => {
        match $any {
            AnyPort::Process($port) => $do,
            AnyPort::Split($port) => $do,
            AnyPort::Packed($port) => $do,
            AnyPort::E1000($port) => $do,
            AnyPort::PciVirtio($port) => $do,
            AnyPort::PciE1000($port) => $do,
        }
    };
}

impl Endpoint for AnyPort {
    #[inline]
    fn tx_room(&mut self) -> usize {
        each!(self, port => port.tx_room())
    }

    #[inline]
    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        each!(self, port => port.tx_push(len, fill))
    }

    #[inline]
    fn tx_repeat(&mut self, template: &[u8]) -> bool {
        each!(self, port => port.tx_repeat(template))
    }

    #[inline]
    fn tx_repeat_many(&mut self, template: &[u8], most: usize) -> usize {
        each!(self, port => port.tx_repeat_many(template, most))
    }

    #[inline]
    fn tx_flush(&mut self) {
        each!(self, port => port.tx_flush());
    }

    #[inline]
    fn rx_batch(&mut self, max: usize, take: impl FnMut(&[u8])) -> usize {
        each!(self, port => port.rx_batch(max, take))
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        each!(self, port => port.wait(for_rx, timeout))
    }
}

impl Attached for AnyPort {
    fn end(&mut self) -> io::Result<OwnedFd> {
        each!(self, port => port.end())
    }

    fn bound(&mut self) -> Option<Mac> {
        each!(self, port => port.bound())
    }

    fn driver(&self) -> Option<Driver> {
        each!(self, port => port.driver())
    }
}
