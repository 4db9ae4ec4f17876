//! `NIOCREGIF` and `NIOCGINFO`: the same requests in the older form, a `struct nmreq`.

use std::ffi::c_int;

use super::abi::{
    self, AttachBody, DetachBody, Header, Legacy, ListBody, NewBody, PortHeaderBody, PortInfoBody, RegisterBody,
};
use super::abi::{flag, mode, request as kinds};
use super::call::Call;
use super::options::Options;
use crate::file::Pinned;
use crate::user;

/// `nr_cmd`.
const ATTACH: u16 = 1;
const DETACH: u16 = 2;
const LIST: u16 = 4;
const VNET_HDR: u16 = 5;
const NEWIF: u16 = 6;
const DELIF: u16 = 7;
const POLLING_ON: u16 = 10;
const POLLING_OFF: u16 = 11;
const VNET_HDR_GET: u16 = 12;
/// `nr_arg1` of an attachment: with the host's rings.
const HOST: u16 = 1;

/// Performs the request at the program's address.
///
/// # Errors
/// The errno that netmap gives.
pub(super) fn request(file: &Pinned, fd: c_int, number: u64, argument: u64) -> Result<(), c_int> {
    let mut legacy: Legacy = user::read(argument)?;
    if legacy.version < u32::from(abi::VERSION) {
        return Err(libc::EINVAL);
    }
    legacy.name[15] = 0;
    let mut name = [0; 64];
    name[..16].copy_from_slice(&legacy.name);
    let header = Header { version: abi::VERSION, kind: 0, reserved: 0, name, options: 0, body: 0 };
    let mut call = Call { file, fd, header, options: Options::default() };
    if number == abi::NIOCGINFO {
        get(&mut call, &mut legacy)?;
    } else {
        set(&mut call, &mut legacy)?;
    }
    user::write(argument, &legacy)
}

fn get(call: &mut Call<'_>, legacy: &mut Legacy) -> Result<(), c_int> {
    if legacy.cmd == LIST {
        call.header.kind = kinds::VALE_LIST;
        let mut body = ListBody { bridge: legacy.arg1, reserved: 0, port: legacy.arg2.into() };
        call.list(&mut body)?;
        legacy.name.copy_from_slice(&call.header.name[..16]);
        legacy.name[15] = 0;
        (legacy.arg1, legacy.arg2) = (body.bridge, body.port as u16);
        return Ok(());
    }
    let mut body = PortInfoBody {
        memsize: 0,
        tx_slots: legacy.tx_slots,
        rx_slots: legacy.rx_slots,
        tx_rings: legacy.tx_rings,
        rx_rings: legacy.rx_rings,
        host_tx_rings: 0,
        host_rx_rings: 0,
        mem_id: legacy.arg2,
        reserved: [0; 3],
    };
    call.port_info(&mut body)?;
    legacy.memsize = body.memsize as u32;
    (legacy.tx_slots, legacy.rx_slots) = (body.tx_slots, body.rx_slots);
    (legacy.tx_rings, legacy.rx_rings) = (body.tx_rings, body.rx_rings);
    legacy.arg2 = body.mem_id;
    Ok(())
}

fn set(call: &mut Call<'_>, legacy: &mut Legacy) -> Result<(), c_int> {
    match legacy.cmd {
        0 => {
            let mut body = register_body(legacy);
            if matches!(body.mode, mode::PIPE_MASTER | mode::PIPE_SLAVE) {
                name_end(call, &mut body);
            }
            call.register(&mut body)?;
            legacy.offset = u32::try_from(body.offset).map_err(|_| libc::EOVERFLOW)?;
            legacy.memsize = u32::try_from(body.memsize).map_err(|_| libc::EOVERFLOW)?;
            (legacy.tx_slots, legacy.rx_slots) = (body.tx_slots, body.rx_slots);
            (legacy.tx_rings, legacy.rx_rings) = (body.tx_rings, body.rx_rings);
            (legacy.arg2, legacy.arg3) = (body.mem_id, body.extra_bufs);
            Ok(())
        }
        ATTACH => {
            // The host's rings, which cannot be had.
            let mode = if legacy.arg1 & HOST != 0 { mode::SW } else { mode::ALL_NIC };
            let register = RegisterBody { mode, ..register_body(legacy) };
            call.attach(&mut AttachBody { register, port_index: 0, reserved: 0 })
        }
        DETACH => call.detach(&mut DetachBody { port_index: 0, reserved: 0 }),
        VNET_HDR | VNET_HDR_GET => {
            let mut body = PortHeaderBody { len: legacy.arg1.into(), reserved: 0 };
            if legacy.cmd == VNET_HDR {
                call.set_header(&mut body)?
            } else {
                call.get_header(&mut body)?
            }
            legacy.arg1 = body.len as u16;
            Ok(())
        }
        NEWIF => call.new_port(&mut NewBody {
            tx_slots: legacy.tx_slots,
            rx_slots: legacy.rx_slots,
            tx_rings: legacy.tx_rings,
            rx_rings: legacy.rx_rings,
            mem_id: legacy.arg2,
            reserved: 0,
        }),
        DELIF => call.delete_port(),
        POLLING_ON | POLLING_OFF => call.polling(&mut abi::PollingBody { mode: 0, first_cpu: 0, cpus: 0, reserved: 0 }),
        _ => Err(libc::EINVAL),
    }
}

/// Replaces the older mode of a pipe's end, whose number is that of the ring, by the end's name.
fn name_end(call: &mut Call<'_>, body: &mut RegisterBody) {
    let sign = if body.mode == mode::PIPE_MASTER { '{' } else { '}' };
    let suffix = format!("{sign}{}", body.ring_id);
    // The name of the older form has at most 15 bytes.
    let end = call.name().len();
    call.header.name[end..end + suffix.len()].copy_from_slice(suffix.as_bytes());
    (body.mode, body.ring_id) = (mode::ALL_NIC, 0);
}

/// Returns the registration that the older form asks for.
fn register_body(legacy: &Legacy) -> RegisterBody {
    let mode = match legacy.flags & Legacy::MODE_MASK {
        mode::DEFAULT if legacy.ring_id & Legacy::SW_RING != 0 => mode::SW,
        mode::DEFAULT if legacy.ring_id & Legacy::HW_RING != 0 => mode::ONE_NIC,
        mode::DEFAULT => mode::ALL_NIC,
        mode => mode,
    };
    let polls = |bit: u16, flag: u64| if legacy.ring_id & bit != 0 { flag } else { 0 };
    RegisterBody {
        offset: 0,
        memsize: 0,
        tx_slots: legacy.tx_slots,
        rx_slots: legacy.rx_slots,
        tx_rings: legacy.tx_rings,
        rx_rings: legacy.rx_rings,
        host_tx_rings: 0,
        host_rx_rings: 0,
        mem_id: legacy.arg2,
        ring_id: legacy.ring_id & Legacy::RING_MASK,
        mode,
        extra_bufs: legacy.arg3,
        reserved: 0,
        flags: u64::from(legacy.flags & !Legacy::MODE_MASK)
            | polls(Legacy::NO_TX_POLL, flag::NO_TX_POLL)
            | polls(Legacy::DO_RX_POLL, flag::DO_RX_POLL),
    }
}
