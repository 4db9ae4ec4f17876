//! A load balancer: servers behind several ports share one MAC address. Each flow goes to one of them, and stays there.
//!
//! `config`: the shared address and the servers' ports, for example `02:00:00:00:00:80 web1 web2 web3`. When a port leaves, its flows go to the others;
//! all other flows stay where they are.
#![no_std]

use ringway_program::{export, filled, hash, mac, mac_lookup, refuse};
use ringway_program::{Batch, DropReason, Flow, Frame, Port, Program, Refused, Start, Verdict};

/// Flows are spread over so many places, and these over the ports.
const PLACES: usize = 1024;

struct Balancer {
    address: [u8; 6],
    names: &'static str,
    servers: &'static mut [Option<Port>],
    places: [Option<Port>; PLACES],
    no_server: DropReason,
}

impl Balancer {
    /// The server of a flow. Fragments go by their addresses, frames that are no IP by their sender.
    fn server(&self, frame: &Frame<'_, [u8; 96]>, sender: [u8; 6]) -> Verdict {
        let [a, b, c, d, e, f] = sender;
        let key = match Flow::read(frame.bytes()) {
            Some(flow) if flow.is_fragment => Flow { source_port: 0, destination_port: 0, ..flow }.key(),
            Some(flow) => flow.key(),
            None => [u64::from_be_bytes([0, 0, a, b, c, d, e, f]), 0, 0, 0, 0],
        };
        // Without a seed: all instances, and the program's next start, send a flow to the same server.
        let place = hash(&key, 0) as usize % PLACES;
        self.places[place].map_or(Verdict::drop(self.no_server), Verdict::port)
    }
}

impl Program for Balancer {
    type Head = [u8; 96];

    fn start(start: &mut Start) -> Result<Self, Refused> {
        let config = start.config()?.trim();
        let (address, names) =
            config.split_once(' ').ok_or("config: write an address and ports: \"02:00:00:00:00:80 web1 web2\"")?;
        let address = mac(address).map_err(|_| refuse!("config: \"{}\" is no MAC address", address))?;
        let servers = filled(names.split_ascii_whitespace().count(), None).ok_or("no memory for so many ports")?;
        Ok(Balancer { address, names, servers, places: [None; PLACES], no_server: start.drop_reason("no_server") })
    }

    fn ports(&mut self) {
        for (server, name) in self.servers.iter_mut().zip(self.names.split_ascii_whitespace()) {
            *server = Port::named(name);
        }
        // Each place goes to the server for which the hash of both is highest.
        for (place, port) in self.places.iter_mut().enumerate() {
            let there = self.servers.iter().enumerate().filter_map(|(number, server)| Some((number, (*server)?)));
            let best = there.max_by_key(|(number, _)| hash(&[place as u64, *number as u64], 0));
            *port = best.map(|(_, server)| server);
        }
    }

    fn frames(&mut self, batch: Batch<'_, Self::Head>) {
        for frame in batch {
            let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *frame.head;
            let (to, from) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
            let verdict = if to == self.address {
                frame.learn(&from);
                self.server(&frame, from)
            } else if from == self.address {
                // The address is at several ports: the switch's table has nothing of it.
                mac_lookup(&to, frame.vlan()).map_or(Verdict::FLOOD, Verdict::port)
            } else {
                Verdict::BUILT_IN
            };
            frame.set(verdict);
        }
    }
}

export!(Balancer);
