//! The driver of a PCI NIC, in a guest: `--pci`.

use ringway_link::e1000::{E1000Link, E1000Options};
use ringway_link::pci::{PciDevice, PciError};
use ringway_link::virtio::{VirtioLink, VirtioOptions};
use ringway_traffic::LinkEndpoint;

use super::attached::AnyPort;
use super::report::GenError;

/// Bytes of a buffer in front of the frame, and of an Ethernet header.
const HEADERS: u32 = 12 + 14;

/// What the driver of a PCI NIC can be told.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Driver options")]
pub struct PciArgs {
    /// Drive the NIC at this PCI address of this machine, usually a guest, instead of a process port: virtio-net, e1000 or
    /// e1000e. Needs root and huge pages
    #[arg(long, value_name = "ADDRESS")]
    pub pci: Vec<String>,
}

impl PciArgs {
    /// Becomes the driver of the NIC at `address`.
    pub fn attach(&self, address: &str, ring: u32, buffer: u32) -> Result<AnyPort, GenError> {
        let failed = |error: PciError| match error {
            PciError::Address(_) | PciError::Absent { .. } => GenError::Usage(error.to_string()),
            _ => GenError::Failed(error.to_string()),
        };
        let device = PciDevice::open(address).map_err(failed)?;
        if E1000Link::drives(device.id()) {
            let options = E1000Options { slots: ring, buffer, buffers: ring, ..E1000Options::default() };
            let link = E1000Link::start(device, &options).map_err(failed)?;
            return Ok(AnyPort::PciE1000(LinkEndpoint::new(link)));
        }
        let ring = u16::try_from(ring).ok().filter(|ring| ring.is_power_of_two() && *ring >= 2);
        let wrong = || GenError::Usage("--slots of a NIC: a power of two from 2 to 32768 is needed".to_owned());
        let ring = ring.ok_or_else(wrong)?;
        if !(128..=65_536).contains(&buffer) || !buffer.is_multiple_of(64) {
            let what = "--buffer-size of a NIC: a multiple of 64 from 128 to 65536 is needed";
            return Err(GenError::Usage(what.to_owned()));
        }
        // Frames are as long as buffers hold them: the network decides what passes.
        let mtu = Some((buffer - HEADERS).min(u16::MAX.into()) as u16);
        let options = VirtioOptions { ring, buffer, buffers: ring.into(), mtu, ..VirtioOptions::default() };
        let link = VirtioLink::start(device, &options).map_err(failed)?;
        Ok(AnyPort::PciVirtio(LinkEndpoint::new(link)))
    }
}
