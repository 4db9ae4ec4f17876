//! Registration of a port, and questions about it.

use std::ffi::c_int;

use ringway_abi::netmap::{Monitor, Numbers, Polling, Register, Reply, Request, Rings, Wish};

use super::abi::{PoolsBody, PortInfoBody, RegisterBody, flag, mode};
use super::call::Call;
use crate::daemon;
use crate::file::State;

/// Most slots and rings that a request gets, as the kernel bounds them.
const MOST_SLOTS: u32 = 32_768;
const LEAST_SLOTS: u32 = 4;
const MOST_RINGS: u16 = 16;
const MOST_EXTRA: u32 = 65_536;

/// Returns the wish for a new port. Numbers out of range are moved into it, as by netmap; 0 stays the default.
pub(super) fn wish(tx_rings: u16, rx_rings: u16, tx_slots: u32, rx_slots: u32) -> Wish {
    let slots = |slots: u32| if slots == 0 { 0 } else { slots.clamp(LEAST_SLOTS, MOST_SLOTS) };
    Wish {
        tx_rings: tx_rings.min(MOST_RINGS),
        rx_rings: rx_rings.min(MOST_RINGS),
        tx_slots: slots(tx_slots),
        rx_slots: slots(rx_slots),
        buffer_size: 0,
        header: 0,
    }
}

impl Call<'_> {
    pub(super) fn register(&mut self, body: &mut RegisterBody) -> Result<(), c_int> {
        // Inherited or passed: it may be registered.
        let recalled = match self.file.state() {
            State::Unknown => self.file.registration(self.fd).map(|_| ()),
            _ => Ok(()),
        };
        let _held = self.begin()?;
        match self.file.state() {
            State::Open => {}
            State::Registered => return Err(libc::EBUSY),
            State::Ended => return Err(libc::ENXIO),
            // It is, but its memory cannot be mapped.
            State::Unknown => return recalled.and(Err(libc::EBUSY)),
        }
        let has = |flags: u64| body.flags & flags != 0;
        // Zero-copy monitors hear both directions, and get copies.
        let monitor = Monitor {
            sent: has(flag::MONITOR_TX | flag::ZCOPY_MON),
            received: has(flag::MONITOR_RX | flag::ZCOPY_MON),
        };
        let name = match body.mode {
            mode::PIPE_MASTER | mode::PIPE_SLAVE => return Err(libc::EINVAL),
            mode::NULL => return Err(libc::EOPNOTSUPP),
            _ => self.port_or_end()?,
        };
        let mut wish = wish(body.tx_rings, body.rx_rings, body.tx_slots, body.rx_slots);
        wish.header = super::headers::wanted(&name)?;
        if wish.header != 0 && body.flags & flag::ACCEPT_VNET_HDR == 0 {
            return Err(libc::EIO);
        }
        let one = |count: u16| if body.ring_id < count { body.ring_id } else { 0 };
        let (tx, rx) = match body.mode {
            mode::ALL_NIC => (Rings::All, Rings::All),
            // A monitor hears all rings of its port.
            mode::ONE_NIC if !monitor.is_empty() => return Err(libc::EOPNOTSUPP),
            mode::ONE_NIC => {
                let Numbers { shape, .. } = self.numbers(Request::Info(name.clone(), wish))?;
                if body.ring_id >= shape.tx_rings.max(shape.rx_rings) {
                    return Err(libc::EINVAL);
                }
                let (tx, rx) = (one(shape.tx_rings), one(shape.rx_rings));
                (Rings::Some(tx, tx + 1), Rings::Some(rx, rx + 1))
            }
            // NR_REG_DEFAULT, and the host's rings, which a port of a switch does not have.
            _ => return Err(libc::EINVAL),
        };
        if self.options.any {
            return Err(libc::EOPNOTSUPP);
        }
        let unless = |excluded: u64, rings| if body.flags & excluded == 0 { rings } else { Rings::None };
        let request = Request::Register(Register {
            name,
            tx: unless(flag::RX_RINGS_ONLY, tx),
            rx: unless(flag::TX_RINGS_ONLY, rx),
            exclusive: body.flags & flag::EXCLUSIVE != 0,
            wish,
            extra_buffers: body.extra_bufs.min(MOST_EXTRA),
            region: body.mem_id,
            monitor,
            polling: Polling { no_tx: has(flag::NO_TX_POLL), do_rx: has(flag::DO_RX_POLL) },
        });
        let (granted, given) = daemon::ask_for_registration(self.socket(), &request)?;
        if let Err(error) = self.file.take(&granted, given) {
            // Nobody can use it. The end of the connection frees the port for others.
            let _ = rustix::net::shutdown(self.socket().socket, rustix::net::Shutdown::Both);
            self.file.end();
            return Err(error);
        }
        let shape = granted.numbers.shape;
        body.offset = granted.interface;
        body.memsize = granted.numbers.region_bytes;
        (body.tx_rings, body.rx_rings) = (shape.tx_rings, shape.rx_rings);
        (body.tx_slots, body.rx_slots) = (shape.tx_slots, shape.rx_slots);
        (body.host_tx_rings, body.host_rx_rings) = (1, 1);
        body.mem_id = granted.numbers.region;
        body.extra_bufs = granted.extra_buffers;
        Ok(())
    }

    /// Asks for a port's numbers.
    pub(super) fn numbers(&self, request: Request) -> Result<Numbers, c_int> {
        match daemon::ask(self.socket(), &request)?.0 {
            Reply::Info(numbers) => Ok(numbers),
            _ => Err(libc::EPROTO),
        }
    }

    pub(super) fn port_info(&mut self, body: &mut PortInfoBody) -> Result<(), c_int> {
        // Only memory is asked about. The kernel's region 1 is every program's, and is not here.
        if self.name().is_empty() {
            return Err(libc::EINVAL);
        }
        let wish = wish(body.tx_rings, body.rx_rings, body.tx_slots, body.rx_slots);
        let name = self.port_or_end()?;
        let _held = self.begin()?;
        let numbers = self.numbers(Request::Info(name, wish))?;
        if body.mem_id != 0 && body.mem_id != numbers.region {
            return Err(libc::EINVAL);
        }
        let shape = numbers.shape;
        body.memsize = numbers.region_bytes;
        (body.tx_rings, body.rx_rings) = (shape.tx_rings, shape.rx_rings);
        (body.tx_slots, body.rx_slots) = (shape.tx_slots, shape.rx_slots);
        (body.host_tx_rings, body.host_rx_rings) = (1, 1);
        body.mem_id = numbers.region;
        Ok(())
    }

    /// One pool of buffers, and one of parts of ports, which have no fixed size here.
    pub(super) fn pools_info(&mut self, body: &mut PoolsBody) -> Result<(), c_int> {
        let name = self.port_or_end()?;
        let _held = self.begin()?;
        let numbers = self.numbers(Request::Info(name, Wish::default()))?;
        if body.mem_id != 0 && body.mem_id != numbers.region {
            return Err(libc::EINVAL);
        }
        let shape = numbers.shape;
        let rings = u32::from(shape.tx_rings) + u32::from(shape.rx_rings);
        let slots = shape.tx_slots.max(shape.rx_slots);
        *body = PoolsBody {
            memsize: numbers.region_bytes,
            mem_id: numbers.region,
            reserved: [0; 3],
            if_offset: 0,
            if_total: 1,
            if_size: 4096,
            ring_offset: 4096,
            ring_total: rings,
            ring_size: 256 + slots * 16,
            buf_offset: 0,
            buf_total: shape.slots(),
            buf_size: shape.buffer_size,
        };
        Ok(())
    }
}

/// `NR_REG_DEFAULT` is only of the legacy interface, where it was already replaced.
const _: () = assert!(mode::DEFAULT == 0 && mode::SW == 2);
