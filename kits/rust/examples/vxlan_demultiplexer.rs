//! A demultiplexer of VXLAN (RFC 7348): frames from an uplink go to the port of their network identifier (VNI), unchanged; frames of these ports go to the uplink.
//!
//! `config`: the uplink's port, then identifiers and ports, for example `uplink 10=tenant1 20=tenant2`.
#![no_std]

use ringway_program::{export, refuse, Batch, DropReason, Flow, Port, Program, Refused, Start, Table, Verdict, UDP};

/// UDP port of VXLAN.
const VXLAN: u16 = 4789;

struct Demultiplexer {
    config: &'static str,
    uplink: Option<Port>,
    /// By identifier.
    tenants: Table<1, Port>,
    no_vxlan: DropReason,
    unknown_vni: DropReason,
    foreign_vni: DropReason,
    no_uplink: DropReason,
}

/// The network identifier of a frame.
fn vni(frame: &[u8]) -> Option<u64> {
    let flow = Flow::read(frame).filter(|flow| flow.protocol == UDP && flow.destination_port == VXLAN)?;
    // Behind the UDP header of 8 bytes: flags (8: there is an identifier), reserved bytes, the identifier of 3 bytes, a reserved byte.
    match frame.get(flow.transport + 8..flow.transport + 16)? {
        [flags, _, _, _, a, b, c, _] if flags & 8 != 0 => Some(u64::from(u32::from_be_bytes([0, *a, *b, *c]))),
        _ => None,
    }
}

/// The identifiers and names of ports in the words behind the first.
fn tenants(config: &str) -> impl Iterator<Item = Option<(u64, &str)>> {
    config.split_ascii_whitespace().skip(1).map(|word| {
        let (vni, name) = word.split_once('=')?;
        Some((vni.parse().ok().filter(|vni| *vni < 1 << 24)?, name))
    })
}

impl Program for Demultiplexer {
    type Head = [u8; 96];

    fn start(start: &mut Start) -> Result<Self, Refused> {
        let config = start.config()?;
        if let Some(word) = tenants(config).position(|tenant| tenant.is_none()) {
            return Err(refuse!("config: word {} has not the form VNI=PORT, with a VNI below 16777216", word + 2));
        }
        let tenants = Table::new(tenants(config).count()).ok_or("no memory for so many tenants")?;
        Ok(Demultiplexer {
            config,
            uplink: None,
            tenants,
            no_vxlan: start.drop_reason("no_vxlan"),
            unknown_vni: start.drop_reason("unknown_vni"),
            foreign_vni: start.drop_reason("foreign_vni"),
            no_uplink: start.drop_reason("no_uplink"),
        })
    }

    fn ports(&mut self) {
        self.uplink = self.config.split_ascii_whitespace().next().and_then(Port::named);
        self.tenants.clear();
        for (vni, name) in tenants(self.config).flatten() {
            if let Some(port) = Port::named(name) {
                let _ = self.tenants.insert([vni], port);
            }
        }
    }

    fn frames(&mut self, batch: Batch<'_, Self::Head>) {
        let from = batch.port();
        for frame in batch {
            let tenant = vni(frame.bytes()).map(|vni| self.tenants.get(&[vni]));
            let verdict = match (tenant, self.uplink) {
                (None, _) => Verdict::drop(self.no_vxlan),
                (Some(None), _) => Verdict::drop(self.unknown_vni),
                (Some(Some(port)), uplink) if uplink == Some(from) => Verdict::port(port),
                (Some(Some(port)), _) if port != from => Verdict::drop(self.foreign_vni),
                (_, Some(uplink)) => Verdict::port(uplink),
                (_, None) => Verdict::drop(self.no_uplink),
            };
            frame.set(verdict);
        }
    }
}

export!(Demultiplexer);
