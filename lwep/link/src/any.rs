//! A link of any kind, by its name.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use ringway_abi::Offload;
use ringway_client::AttachError;
use ringway_drivers::pci::{PciDevice, PciError};
use ringway_lwep::link::{Counts, Interface, Link, Received};
use ringway_memory::Buffer;
use ringway_netdevice::xdp::Mode;

use crate::e1000::{E1000Link, E1000Options};
use crate::packet::{PacketLink, PacketOptions};
use crate::process::{ProcessLink, ProcessOptions};
use crate::virtio::{VirtioLink, VirtioOptions};
use crate::xdp::{XdpLink, XdpOptions};

/// Bytes of a NIC's buffer that holds whatever was joined or never cut: the most that a NIC's buffers have.
const WHOLE: u32 = 65_536;
/// Most bytes of a frame without its Ethernet header at a NIC that does not say how many its network takes.
const MTU: u16 = 1500;

/// How a link of any kind is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnyOptions {
    /// Most frames that wait to be sent.
    pub slots: u32,
    /// Bytes of a buffer.
    pub buffer: u32,
    /// Buffers that the program gets.
    pub buffers: u32,
    /// A process port takes and gives frames that are still to be segmented or lack a checksum. A NIC that this program drives segments
    /// and computes checksums; a virtio NIC gives frames that lack a checksum, and with buffers of 65,536 bytes such that are still to be
    /// segmented. Other kinds do so by their nature, or not.
    pub offload: bool,
    /// The link's own IPv4 address at an interface of the host ([`PacketOptions::address`]).
    pub address: Option<Ipv4Addr>,
    /// The Ethernet address to use at a process port ([`ProcessOptions::mac`]).
    pub mac: Option<[u8; 6]>,
}

impl Default for AnyOptions {
    fn default() -> Self {
        Self { slots: 512, buffer: 2048, buffers: 2048, offload: false, address: None, mac: None }
    }
}

/// A link of any kind. A process port costs no more than by itself, the others a call for each method.
pub enum AnyLink {
    /// At a process port.
    Process(Box<ProcessLink>),
    /// Of another kind.
    Other(Box<dyn Link + Send>),
}

/// Calls a method of the link.
macro_rules! each {
    ($self:ident, $link:ident => $call:expr) => {
        match $self {
            AnyLink::Process($link) => $call,
            AnyLink::Other($link) => $call,
        }
    };
}

/// What the name of a link names.
///
/// | name | link |
/// |---|---|
/// | `lan0:probe` | the process port `probe` of the switch `lan0` |
/// | `dev:eth0` | the interface `eth0`, by a packet socket |
/// | `xdp:eth0`, `xdp:eth0/1` | the interface's queue 0 or 1, by AF_XDP |
/// | `pci:0000:00:04.0` | the NIC at this PCI address of this machine: virtio-net, e1000, e1000e |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkName<'a> {
    /// A process port: the whole name.
    Process(&'a str),
    /// An interface.
    Packet(&'a str),
    /// An interface and the number of a queue.
    Xdp(&'a str, u32),
    /// A PCI address.
    Pci(&'a str),
}

impl<'a> LinkName<'a> {
    /// Reads a name.
    ///
    /// # Errors
    /// It names nothing (`InvalidInput`). The error says what would be right.
    pub fn parse(name: &'a str) -> io::Result<Self> {
        match name.split_once(':') {
            Some(("dev", interface)) if !interface.is_empty() => Ok(Self::Packet(interface)),
            Some(("xdp", place)) if !place.is_empty() => {
                let (interface, queue) = place.split_once('/').unwrap_or((place, "0"));
                let wrong = |_| {
                    invalid(format!(
                        "\"{name}\": \"{queue}\" is not a queue: write xdp:{interface}/0 for the first one"
                    ))
                };
                Ok(Self::Xdp(interface, queue.parse().map_err(wrong)?))
            }
            Some(("pci", address)) if !address.is_empty() => Ok(Self::Pci(address)),
            Some((switch, port)) if !switch.is_empty() && !port.is_empty() => Ok(Self::Process(name)),
            _ => Err(invalid(format!("\"{name}\" names no link: write {GRAMMAR}"))),
        }
    }

    /// Returns how a link of this kind is opened by a program for messages that fit into a frame.
    #[must_use]
    pub fn usual(self) -> AnyOptions {
        match self {
            // An odd multiple of a cache line spreads the buffers over the sets of the caches.
            Self::Process(_) => AnyOptions { slots: 1024, buffer: 2112, buffers: 4096, ..AnyOptions::default() },
            Self::Packet(_) | Self::Xdp(..) | Self::Pci(_) => AnyOptions::default(),
        }
    }
}

impl AnyLink {
    /// Opens the link with this name ([`LinkName`]), in the network namespace of the calling thread; a process port through the daemon's
    /// socket `socket`.
    ///
    /// # Errors
    /// `name` names nothing (`InvalidInput`), or what it names cannot be opened. The error says what would be right. That of a process
    /// port has the [`AttachError`] as its source.
    pub fn open(name: &str, socket: &Path, options: &AnyOptions) -> io::Result<Self> {
        let AnyOptions { slots, buffer, buffers, offload, address, mac } = *options;
        match LinkName::parse(name)? {
            LinkName::Packet(interface) => {
                let options = PacketOptions { slots, buffer, buffers, address };
                Ok(AnyLink::Other(Box::new(PacketLink::open(interface, &options)?)))
            }
            LinkName::Xdp(interface, queue) => {
                let options = XdpOptions { slots, buffer, buffers, address, mode: Mode::Auto };
                Ok(AnyLink::Other(Box::new(XdpLink::open(interface, queue, &options)?)))
            }
            LinkName::Pci(address) => Self::drive(address, options),
            LinkName::Process(port) => {
                let options = ProcessOptions { slots, buffer, buffers, offload, mac };
                let link = ProcessLink::attach(socket, port, &options).map_err(|error| attach_error(port, error))?;
                Ok(AnyLink::Process(Box::new(link)))
            }
        }
    }
}

impl AnyLink {
    /// Drives the NIC at a PCI address.
    fn drive(address: &str, options: &AnyOptions) -> io::Result<Self> {
        let AnyOptions { slots, buffer, buffers, offload, .. } = *options;
        let failed = |error: PciError| match error {
            PciError::Address(_) => invalid(error.to_string()),
            _ => io::Error::other(error.to_string()),
        };
        let device = PciDevice::open(address).map_err(failed)?;
        if E1000Link::drives(device.id()) {
            let mtu = Some(MTU);
            let options = E1000Options { slots, buffer, buffers, mtu, offload, ..E1000Options::default() };
            return Ok(AnyLink::Other(Box::new(E1000Link::start(device, &options).map_err(failed)?)));
        }
        let ring = u16::try_from(slots).map_err(|_| invalid("a ring of a NIC has up to 32768 places".to_owned()))?;
        let unsegmented = buffer >= WHOLE;
        let options = VirtioOptions { ring, buffer, buffers, offload, unsegmented, ..VirtioOptions::default() };
        Ok(AnyLink::Other(Box::new(VirtioLink::start(device, &options).map_err(failed)?)))
    }
}

const GRAMMAR: &str = "SWITCH:PORT for a process port, dev:INTERFACE for a network interface, \
    xdp:INTERFACE or xdp:INTERFACE/QUEUE for one of its queues by AF_XDP, pci:ADDRESS for a NIC that this program drives";

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// A port that could not be attached.
#[derive(Debug, thiserror::Error)]
#[error("port \"{port}\": {source}")]
struct PortError {
    port: String,
    source: AttachError,
}

fn attach_error(port: &str, source: AttachError) -> io::Error {
    let kind = match &source {
        AttachError::Name(_) => io::ErrorKind::InvalidInput,
        AttachError::Unreachable { source, .. } => source.kind(),
        AttachError::Refused(_) => io::ErrorKind::ConnectionRefused,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, PortError { port: port.to_owned(), source })
}

impl Link for AnyLink {
    #[inline]
    fn interface(&self) -> &Interface {
        each!(self, link => link.interface())
    }

    fn take_buffers(&mut self) -> Vec<Buffer> {
        each!(self, link => link.take_buffers())
    }

    #[inline]
    fn room(&mut self) -> usize {
        each!(self, link => link.room())
    }

    #[inline(always)]
    fn send(&mut self, buffer: &mut Buffer, len: usize, offload: Option<&Offload>) -> bool {
        each!(self, link => link.send(buffer, len, offload))
    }

    #[inline]
    fn flush(&mut self) {
        each!(self, link => link.flush());
    }

    #[inline]
    fn sent(&mut self) -> u64 {
        each!(self, link => link.sent())
    }

    #[inline(always)]
    fn peek(&mut self) -> Option<Received<'_>> {
        each!(self, link => link.peek())
    }

    #[inline(always)]
    fn release(&mut self) {
        each!(self, link => link.release());
    }

    #[inline]
    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize) {
        each!(self, link => link.exchange(spare))
    }

    fn want(&mut self, room: bool) -> bool {
        each!(self, link => link.want(room))
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        each!(self, link => link.descriptor())
    }

    fn awake(&mut self) {
        each!(self, link => link.awake());
    }

    fn wait(&mut self, room: bool, timeout: Duration) -> io::Result<()> {
        each!(self, link => link.wait(room, timeout))
    }

    fn check(&mut self) -> io::Result<()> {
        each!(self, link => link.check())
    }

    fn counts(&self) -> Counts {
        each!(self, link => link.counts())
    }
}
