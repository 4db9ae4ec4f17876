//! The addresses that frames come from and go to.

use std::path::{Path, PathBuf};

use ringway_api::Name;
use ringway_api::types::PortStatus;
use ringway_traffic::Mac;

use super::attached::Attached;
use crate::context::Context;

/// The address to send from: the one given, or the one bound to the port, or one made from its name.
pub fn source(given: Option<Mac>, endpoint: &mut impl Attached, name: &str, context: &Context) -> Mac {
    given.or_else(|| endpoint.bound()).unwrap_or_else(|| address_of(name, context))
}

/// The address that `gen` uses at a port, or behind a socket, of this name: the one that is bound there, or one made from the name.
pub fn address_of(name: &str, context: &Context) -> Mac {
    // Without a daemon no address is bound: the socket may belong to another switch.
    let ports = context.client().ports().unwrap_or_default();
    bound_at(name, &ports, &context.runtime_dir).unwrap_or_else(|| named(name))
}

/// The address that is bound to the port, or to the one with the socket, of this name.
fn bound_at(name: &str, ports: &[PortStatus], runtime_dir: &Path) -> Option<Mac> {
    let runtime_dir = absolute(runtime_dir);
    let is_meant = |port: &PortStatus| {
        let nic = port.e1000.as_ref().map(|nic| &nic.socket);
        let socket = nic.or(port.vhost_user.as_ref().map(|vhost_user| &vhost_user.socket));
        match name.contains('/') {
            true => socket.is_some_and(|socket| absolute(&runtime_dir.join(socket)) == absolute(Path::new(name))),
            false => name.split_once(':') == Some((port.switch.as_str(), port.name.as_str())),
        }
    };
    let port = ports.iter().find(|port| is_meant(port))?;
    let own = port.e1000.as_ref().map(|nic| &nic.address).or(port.mac.first())?;
    own.parse().ok()
}

/// Returns the absolute form of a path: the canonical one if the path exists.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Returns a locally administered address for this name, always the same.
fn named(name: &str) -> Mac {
    // FNV-1a: short, and stable over versions.
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    Mac::local(hash)
}

/// Destination of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To this address.
    Address(Mac),
    /// To the one that `gen` uses at `SWITCH:PORT`, or behind a socket's path.
    Named(String),
}

impl Destination {
    /// Returns its address.
    pub fn resolve(&self, context: &Context) -> Mac {
        match self {
            Self::Address(mac) => *mac,
            Self::Named(name) => address_of(name, context),
        }
    }
}

/// Reads an address: itself, `broadcast`, or `SWITCH:PORT` or a socket's path for the one that `gen` uses there.
pub fn destination(text: &str) -> Result<Destination, String> {
    let is_name = |part: &str| part.parse::<Name>().is_ok();
    match text.split_once(':') {
        Some((switch, port)) if is_name(switch) && is_name(port) => Ok(Destination::Named(text.to_owned())),
        _ if text.contains('/') => Ok(Destination::Named(text.to_owned())),
        _ => text.parse().map(Destination::Address).map_err(|error| format!("{error}, or SWITCH:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use ringway_api::types::E1000Status;

    use super::*;

    #[test]
    fn a_port_name_stands_for_the_address_gen_uses_there() {
        let dir = tempfile::tempdir().unwrap();
        let nobody = Context { runtime_dir: dir.path().to_owned(), is_default_dir: false };
        let resolve = |text| destination(text).map(|destination| destination.resolve(&nobody));
        assert_eq!(resolve("lan0:b"), Ok(named("lan0:b")));
        assert_ne!(named("lan0:a"), named("lan0:b"));
        assert!(!named("lan0:b").is_group());
        assert_eq!(resolve("/run/vm1.sock"), Ok(named("/run/vm1.sock")));
        assert_eq!(resolve("52:54:00:00:00:01"), Ok(Mac([0x52, 0x54, 0, 0, 0, 1])));
        assert_eq!(resolve("broadcast"), Ok(Mac::BROADCAST));
        for wrong in ["lan0", "52:54:00:00:00", "a:b:c", ""] {
            let error = destination(wrong).unwrap_err();
            assert!(error.contains("SWITCH:PORT"), "{wrong}: {error}");
        }
    }

    #[test]
    fn an_address_that_is_bound_to_a_port_or_is_its_nics_goes_before_one_made_of_the_name() {
        let port = |name: &str, mac: &[&str]| PortStatus {
            name: name.into(),
            switch: "lan0".into(),
            mac: mac.iter().map(|mac| (*mac).to_owned()).collect(),
            ..PortStatus::default()
        };
        let (address, socket) = ("02:00:00:00:00:02".to_owned(), "nic.sock".to_owned());
        let nic = E1000Status { address, socket, ..E1000Status::default() };
        let ports = [
            port("free", &[]),
            port("bound", &["02:00:00:00:00:01", "02:00:00:00:00:09"]),
            PortStatus { e1000: Some(nic), ..port("nic", &[]) },
        ];
        let bound = |name: &str| bound_at(name, &ports, Path::new("/no-such/run")).map(|mac| mac.0[5]);
        let names = ["lan0:free", "lan0:bound", "lan1:bound", "lan0:nic", "/no-such/run/nic.sock", "/no-such/nic.sock"];
        assert_eq!(names.map(bound), [None, Some(1), None, Some(2), Some(2), None]);
    }
}
