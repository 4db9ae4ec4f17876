//! The list of devices: libpcap's own, and after them the switches' ports and their mirrors.

use std::collections::HashSet;
use std::ffi::{CString, c_uint};
use std::sync::{Mutex, MutexGuard};

use ringway_api::http::Limit;
use serde_json::Value;

use crate::abi::*;
use crate::daemon::{self, BODY_WITHIN};
use crate::device::Device;
use crate::real;

/// Asks the daemon for its ports. No daemon, no answer, no ports.
fn ports() -> Vec<Value> {
    let bytes = daemon::get("/v1/ports").and_then(|mut body| body.whole(Limit::begin(BODY_WITHIN)));
    bytes.map_or_else(|_| Vec::new(), |bytes| read(&bytes))
}

/// Reads the daemon's list of ports.
pub fn read(bytes: &[u8]) -> Vec<Value> {
    serde_json::from_slice(bytes).unwrap_or_default()
}

fn text<'a>(port: &'a Value, key: &str) -> &'a str {
    port[key].as_str().unwrap_or_default()
}

/// An entry of a list. libpcap's structure comes first.
#[repr(C)]
struct Entry {
    device: pcap_if_t,
    name: CString,
    description: CString,
}

/// The addresses of all entries of ours in programs' lists.
static OURS: Mutex<Option<HashSet<usize>>> = Mutex::new(None);

fn ours() -> MutexGuard<'static, Option<HashSet<usize>>> {
    OURS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns name, description and flags of each device of ours: process ports, and after them a mirror of each port.
pub fn listed(ports: &[Value]) -> Vec<(String, String, c_uint)> {
    let full_name = |port| format!("{}:{}", text(port, "switch"), text(port, "name"));
    let of_programs = ports.iter().filter(|port| text(port, "kind") == "process").map(|port| {
        let state = match text(port, "state") {
            "up" => PCAP_IF_CONNECTION_STATUS_CONNECTED,
            _ => PCAP_IF_CONNECTION_STATUS_DISCONNECTED,
        };
        (Device::Port(full_name(port)), "Ringway port".to_owned(), PCAP_IF_UP | PCAP_IF_RUNNING | state)
    });
    let mirrors = ports.iter().map(|port| {
        let flags = PCAP_IF_UP | PCAP_IF_RUNNING | PCAP_IF_CONNECTION_STATUS_NOT_APPLICABLE;
        let description = format!("Ringway tap on {} port {}", text(port, "kind"), full_name(port));
        (Device::Mirror(full_name(port)), description, flags)
    });
    // What is listed can be opened: a port of a switch named "mirror" or "nflog" is no device.
    let can_be_opened = |device: &Device| Device::parse(&device.name()).as_ref() == Some(device);
    let all = of_programs.chain(mirrors).filter(|(device, _, _)| can_be_opened(device));
    all.map(|(device, description, flags)| (device.name(), description, flags)).collect()
}

/// Appends our devices to a list.
///
/// # Safety
/// `list` holds null or a list of libpcap's.
pub unsafe fn append(list: &mut *mut pcap_if_t) {
    let mut last: *mut *mut pcap_if_t = list;
    // SAFETY: the entries of the list are valid until it is freed.
    unsafe {
        while !(*last).is_null() {
            last = &raw mut (**last).next;
        }
    }
    let listed = listed(&ports());
    let mut known = ours();
    let known = known.get_or_insert_default();
    for (name, description, flags) in listed {
        let Some(entry) = entry(&name, &description, flags) else { continue };
        known.insert(entry as usize);
        // SAFETY: `last` is the end of the list, and the entry is valid until the list is freed.
        unsafe {
            *last = entry;
            last = &raw mut (*entry).next;
        }
    }
}

fn entry(name: &str, description: &str, flags: c_uint) -> Option<*mut pcap_if_t> {
    let (name, description) = (CString::new(name).ok()?, CString::new(description).ok()?);
    let device = pcap_if_t {
        next: std::ptr::null_mut(),
        name: name.as_ptr().cast_mut(),
        description: description.as_ptr().cast_mut(),
        addresses: std::ptr::null_mut(),
        flags,
    };
    Some(Box::into_raw(Box::new(Entry { device, name, description })).cast())
}

/// Frees a list: our entries, and by libpcap those before them.
///
/// # Safety
/// `list` is null or a list of `pcap_findalldevs`, which nothing uses afterwards.
pub unsafe fn free(mut list: *mut pcap_if_t) {
    let mut known = ours();
    let mut cut: *mut *mut pcap_if_t = &raw mut list;
    // SAFETY: the entries of the list are valid. Ours are at its end, and each was made by `entry`.
    unsafe {
        let is_ours = |entry: *mut pcap_if_t| known.as_ref().is_some_and(|known| known.contains(&(entry as usize)));
        while !(*cut).is_null() && !is_ours(*cut) {
            cut = &raw mut (**cut).next;
        }
        let mut entry = std::mem::replace(&mut *cut, std::ptr::null_mut());
        while !entry.is_null() {
            let next = (*entry).next;
            if known.as_mut().is_some_and(|known| known.remove(&(entry as usize))) {
                drop(Box::from_raw(entry.cast::<Entry>()));
            }
            entry = next;
        }
    }
    drop(known);
    if !list.is_null() {
        // SAFETY: what is left is libpcap's.
        unsafe { real::pcap_freealldevs(list) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_all_switches_are_listed_if_they_can_be_opened() {
        let port =
            |switch, name, kind| serde_json::json!({"switch": switch, "name": name, "kind": kind, "state": "up"});
        let ports = [
            port("lan0", "a", "process"),
            port("lan1", "vm-1.x", "vhost-user"),
            port("mirror", "b", "process"),
            port("nflog", "c", "process"),
            port("lan0", "a\nb\0", "process"),
            port("", "", "tap"),
            serde_json::json!([1, "lan0"]),
            serde_json::json!(7),
        ];
        let names: Vec<String> = listed(&ports).into_iter().map(|(name, _, _)| name).collect();
        assert_eq!(
            names,
            ["lan0:a", "mirror:lan0:a", "mirror:lan1:vm-1.x", "mirror:mirror:b", "mirror:nflog:c"].map(str::to_owned)
        );
    }
}
