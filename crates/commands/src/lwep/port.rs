//! The interface of a run: the only place that opens one.

use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;

use ringway_api::paths::ATTACH_SOCKET;
use ringway_link::{AnyLink, AnyOptions, Link, LinkName};
use ringway_lwep::{Endpoint, Options};
use ringway_traffic::Mac;

use super::services::LONG;
use super::station::{Station, Wait};
use crate::context::Context;
use crate::r#gen::{GenError, Stop, address_of, stay_on};

/// Number of slots and buffers, where each holds many messages.
const LARGE: u32 = 256;

/// Returns how a link of this name is opened by default. With an address, a buffer holds many messages, where the kind of link can have
/// such buffers: as many bytes as a process port's or a NIC's can have, or as the kernel joins frames to.
fn usual(name: LinkName<'_>, address: Option<Ipv4Addr>) -> AnyOptions {
    let usual = AnyOptions { offload: address.is_some(), address, ..name.usual() };
    let large = |buffer| AnyOptions { slots: LARGE, buffer, buffers: LARGE, ..usual };
    match name {
        LinkName::Packet(_) if address.is_some() => large(65_600),
        LinkName::Pci(_) if address.is_some() => large(65_536),
        LinkName::Process(_) if address.is_some() => large(65_472),
        _ => usual,
    }
}

/// Options of every form of `lwep` for its port.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Port options")]
pub struct PortArgs {
    /// Address to use [default: the address bound to the port, else one made from its name]
    #[arg(long, value_name = "MAC")]
    src: Option<Mac>,
    /// IPv4 address of this end, which nobody else has, for messages in the segmentation layout: to receive or send these
    #[arg(long, value_name = "IPV4")]
    pub address: Option<Ipv4Addr>,
    /// Frames have checksums, those of the peer, too
    #[arg(long)]
    checksums: bool,
    /// Messages of a connection that are taken before they are handled [default: 1024 if there are as many slots, else 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(8..=4096))]
    window: Option<u16>,
    /// Slots of each ring [default: 1024 of SWITCH:PORT, 512 of other kinds; with --address 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(4..=32_768))]
    slots: Option<u32>,
    /// Buffers for messages that are not acknowledged, or wait [default: 4096 of SWITCH:PORT, 2048 of other kinds; with --address 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..=65_536))]
    buffers: Option<u32>,
    /// What to do while there is nothing to do
    #[arg(long, value_enum, default_value_t = Wait::Sleep)]
    wait: Wait,
    /// Stay on this CPU
    #[arg(long, value_name = "CPU")]
    core: Option<usize>,
    /// JSON, for programs
    #[arg(long, help_heading = None)]
    pub json: bool,
}

impl PortArgs {
    /// Opens the interface with this name, and moves this thread to its CPU. `change` adapts the endpoint's options.
    pub fn open<'s>(
        &self,
        name: &str,
        context: &Context,
        stop: &'s Stop,
        change: impl FnOnce(&mut Options),
    ) -> Result<Station<'s, AnyLink>, GenError> {
        self.core.map_or(Ok(()), stay_on)?;
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::ConnectionRefused => GenError::Usage(error.to_string()),
            _ => GenError::Failed(error.to_string()),
        };
        let usual = usual(LinkName::parse(name).map_err(failed)?, self.address);
        let slots = self.slots.unwrap_or(usual.slots);
        let mut options = Options {
            window: self.window.unwrap_or(if slots >= 1024 { 1024 } else { 256 }),
            checksums: self.checksums,
            address: self.address,
            long: LONG,
            ..Options::default()
        };
        change(&mut options);
        let links = AnyOptions {
            slots,
            buffers: self.buffers.unwrap_or(usual.buffers),
            mac: Some(self.src.unwrap_or_else(|| address_of(name, context)).0),
            ..usual
        };
        let link = AnyLink::open(name, &context.runtime_dir.join(ATTACH_SOCKET), &links).map_err(failed)?;
        if let Some(src) = self.src.filter(|src| src.0 != link.interface().mac) {
            let own = Mac(link.interface().mac);
            return Err(GenError::Usage(format!("--src {src}: {name} has an address of its own, {own}")));
        }
        Ok(Station::new(name, Endpoint::new(link, options), self.wait, stop))
    }
}
