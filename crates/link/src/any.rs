//! A link of any kind, by its name.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use ringway_abi::Offload;
use ringway_client::AttachError;
use ringway_memory::Buffer;
use ringway_netdevice::xdp::Mode;

use crate::e1000::{E1000Link, E1000Options};
use crate::link::{Counts, Interface, Link, Received};
use crate::packet::{PacketLink, PacketOptions};
use crate::pci::{PciDevice, PciError};
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
        Self { slots: 512, buffer: 2048, buffers: 1024, offload: false, address: None, mac: None }
    }
}

/// A link of any kind.
pub enum AnyLink {
    /// At a process port.
    Process(Box<ProcessLink>),
    /// At an interface of the host, by a packet socket.
    Packet(Box<PacketLink>),
    /// At a queue of an interface of the host, by AF_XDP.
    Xdp(Box<XdpLink>),
    /// At a virtio-net device that this program drives.
    Virtio(Box<VirtioLink>),
    /// At an e1000 or e1000e that this program drives.
    E1000(Box<E1000Link>),
}

/// Calls a method of the link.
macro_rules! each {
    ($self:ident, $link:ident => $call:expr) => {
        match $self {
            AnyLink::Process($link) => $call,
            AnyLink::Packet($link) => $call,
            AnyLink::Xdp($link) => $call,
            AnyLink::Virtio($link) => $call,
            AnyLink::E1000($link) => $call,
        }
    };
}

impl AnyLink {
    /// Opens the link that `spec` names, in the network namespace of the calling thread.
    ///
    /// | `spec` | link |
    /// |---|---|
    /// | `lan0:probe` | the process port `probe` of the switch `lan0`, through the daemon's socket `socket` |
    /// | `dev:eth0` | the interface `eth0`, by a packet socket |
    /// | `xdp:eth0`, `xdp:eth0/1` | the interface's queue 0 or 1, by AF_XDP |
    /// | `pci:0000:00:04.0` | the NIC at this PCI address of this machine: virtio-net, e1000, e1000e |
    ///
    /// # Errors
    /// `spec` names nothing (`InvalidInput`), or what it names cannot be opened. The error says what would be right.
    pub fn open(spec: &str, socket: &Path, options: &AnyOptions) -> io::Result<Self> {
        let AnyOptions { slots, buffer, buffers, offload, address, mac } = *options;
        match spec.split_once(':') {
            Some(("dev", interface)) if !interface.is_empty() => {
                let options = PacketOptions { slots, buffer, buffers, address };
                Ok(AnyLink::Packet(Box::new(PacketLink::open(interface, &options)?)))
            }
            Some(("xdp", place)) if !place.is_empty() => {
                let (interface, queue) = place.split_once('/').unwrap_or((place, "0"));
                let wrong = |_| {
                    invalid(format!(
                        "\"{spec}\": \"{queue}\" is not a queue: write xdp:{interface}/0 for the first one"
                    ))
                };
                let queue = queue.parse().map_err(wrong)?;
                let options = XdpOptions { slots, buffer, buffers, address, mode: Mode::Auto };
                Ok(AnyLink::Xdp(Box::new(XdpLink::open(interface, queue, &options)?)))
            }
            Some(("pci", address)) if !address.is_empty() => Self::drive(address, options),
            Some((switch, port)) if !switch.is_empty() && !port.is_empty() => {
                let options = ProcessOptions { slots, buffer, buffers, offload, mac };
                let link = ProcessLink::attach(socket, spec, &options).map_err(|error| attach_error(spec, error))?;
                Ok(AnyLink::Process(Box::new(link)))
            }
            _ => Err(invalid(format!("\"{spec}\" names no link: write {GRAMMAR}"))),
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
            return Ok(AnyLink::E1000(Box::new(E1000Link::start(device, &options).map_err(failed)?)));
        }
        let ring = u16::try_from(slots).map_err(|_| invalid("a ring of a NIC has up to 32768 places".to_owned()))?;
        let unsegmented = buffer >= WHOLE;
        let options = VirtioOptions { ring, buffer, buffers, offload, unsegmented, ..VirtioOptions::default() };
        Ok(AnyLink::Virtio(Box::new(VirtioLink::start(device, &options).map_err(failed)?)))
    }
}

const GRAMMAR: &str = "SWITCH:PORT for a process port, dev:INTERFACE for a network interface, \
    xdp:INTERFACE or xdp:INTERFACE/QUEUE for one of its queues by AF_XDP, pci:ADDRESS for a NIC that this program drives";

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Says which port could not be attached.
fn attach_error(spec: &str, error: AttachError) -> io::Error {
    let kind = match &error {
        AttachError::Name(_) => io::ErrorKind::InvalidInput,
        AttachError::Unreachable { source, .. } => source.kind(),
        AttachError::Refused(_) => io::ErrorKind::ConnectionRefused,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("port \"{spec}\": {error}"))
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

    #[inline]
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

    #[inline]
    fn peek(&mut self) -> Option<Received<'_>> {
        each!(self, link => link.peek())
    }

    #[inline]
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
