//! A guarded port's frames: whatever they are, they are judged without a panic, what passes claims nothing that is not the
//! port's, a copy that ends earlier is never read as something else, and tags hide nothing.
#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use ringway_switch::policy::{Checks, Claims, Guard, Prefix, Role};
use ringway_switch::{DropReason, Mac};

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const V4: u32 = 0x0a00_0001;
const V6: u128 = 0xfd00 << 112 | 1;
const LINK_LOCAL: u128 = 0xfe80 << 112 | 0x00ff_fe00_0001;

fuzz_target!(|data: &[u8]| {
    let Some((&[flags, cut], rest)) = data.split_first_chunk::<2>() else { return };
    let checks = Checks { mac: flags & 1 > 0, ip: flags & 2 > 0, dhcp: flags & 4 > 0, ra: flags & 8 > 0 };
    let own = Mac::new(OWN);
    let prefixes = [IpAddr::from(V4.to_be_bytes()), IpAddr::from(V6.to_be_bytes())]
        .map(|address| Prefix { address, length: if address.is_ipv4() { 32 } else { 128 } });
    let guard = Guard::new(checks, &[own], &prefixes);

    let source = if flags & 16 > 0 { [2, 0, 0, 0, 0, 2] } else { OWN };
    let frame: Vec<u8> = [0xff; 6].into_iter().chain(source).chain([8, 0]).collect();
    let frame = [&frame[..if rest.len() < 2 { 14 } else { 12 }], rest].concat();
    let len = frame.len().min(128);
    // What is behind the frame is somebody else's.
    let mut head = [0xa5; 128];
    head[..len].copy_from_slice(&frame[..len]);

    let verdict = guard.judge(&head, len);
    let claims = Claims::read(&frame[..len]);
    let foreign = checks.mac && source != OWN;
    match claims {
        Err(_) => {
            let wanted = if foreign { DropReason::SpoofedMac } else { DropReason::GuardUnreadable };
            assert_eq!(verdict, Err(wanted));
        }
        Ok(claims) => {
            let mine = |address: Option<u128>| address.is_none_or(|address| [V6, LINK_LOCAL].contains(&address));
            let right = !foreign
                && (!checks.ip
                    || claims.v4.is_none_or(|address| address == V4) && mine(claims.v6) && mine(claims.target))
                && (!checks.mac || claims.hardware.is_none_or(|mac| mac == own))
                && (!checks.dhcp || claims.role != Role::DhcpServer)
                && (!checks.ra || claims.role != Role::Router);
            assert_eq!(verdict.is_ok(), right, "{verdict:?} {claims:?}");
        }
    }
    // A row of frames like one that passed is not judged: neither one that differs in a byte nor one that ends earlier.
    let mut other = head;
    other[usize::from(cut) % len.max(1)] ^= flags.rotate_left(3) | 1;
    for (other, len) in [(&other, len), (&head, len.min(usize::from(cut).max(14))), (&other, 128)] {
        if guard.is_like((&head, len), (other, len)) {
            assert_eq!(guard.judge(other, len), Ok(()), "like a frame that passes");
        }
    }
    let shorter = Claims::read(&frame[..len.min(usize::from(cut).max(12))]);
    assert!(shorter.is_err() || shorter == claims, "{shorter:?} of {claims:?}");
    let tagged = [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    let behind = Claims::read(&tagged[..tagged.len().min(128)]);
    assert!(behind.is_err() || claims.is_err() || behind == claims, "{behind:?} behind a tag, {claims:?} without");
});
