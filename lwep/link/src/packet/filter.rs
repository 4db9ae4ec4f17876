//! Which frames come to a packet socket: a classic BPF program (Linux, Documentation/networking/filter.rst).

use std::net::Ipv4Addr;

use ringway_lwep::link::ETHERTYPE;

const TAKE: libc::sock_filter = libc::sock_filter { code: libc::BPF_RET as u16, jt: 0, jf: 0, k: u32::MAX };
const DROP: libc::sock_filter = libc::sock_filter { code: libc::BPF_RET as u16, jt: 0, jf: 0, k: 0 };
const IPV4: u32 = 0x0800;
const TCP: u32 = 6;

/// Returns the filter that takes frames without a VLAN tag that are not for another station: those of [`ETHERTYPE`] and, with an address,
/// TCP over IPv4 to this address.
pub(super) fn filter(address: Option<Ipv4Addr>) -> Vec<libc::sock_filter> {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |size: u32, at: u32| instruction(libc::BPF_LD | size | libc::BPF_ABS, 0, 0, at);
    let ancillary = |what: libc::c_int| load(libc::BPF_W, (libc::SKF_AD_OFF + what) as u32);
    let is = |value: u32, then, otherwise| instruction(libc::BPF_JMP | libc::BPF_JEQ, then, otherwise, value);
    // Instructions of the second part, without the last two: `DROP` and `TAKE`.
    let more = if address.is_some() { 5 } else { 0 };
    let mut program = vec![
        // The kernel has taken the tag out.
        ancillary(libc::SKF_AD_VLAN_TAG_PRESENT),
        is(0, 0, 4 + more),
        ancillary(libc::SKF_AD_PKTTYPE),
        is(u32::from(libc::PACKET_OTHERHOST), 2 + more, 0),
        load(libc::BPF_H, 12),
        is(u32::from(ETHERTYPE), 1 + more, 0),
    ];
    program.extend(address.into_iter().flat_map(|address| {
        [is(IPV4, 0, 4), load(libc::BPF_B, 23), is(TCP, 0, 2), load(libc::BPF_W, 30), is(address.into(), 1, 0)]
    }));
    program.extend([DROP, TAKE]);
    program
}
