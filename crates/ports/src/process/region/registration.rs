//! A registration: a port, or some of its rings, for one connection.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ringway_abi::Interface;
use ringway_abi::attach::REPLY_FDS;
use ringway_abi::layout::{MAX_EXTRA, PAGE, netmap_if};
use ringway_abi::netmap::{Granted, Numbers, PortName, Register};

use super::error::RegionError;
use super::port::RegionPort;

/// A port, or some of its rings, for one connection. What it has goes back to the port and its region when it is dropped.
#[derive(Debug)]
pub struct Registration {
    port: Arc<RegionPort>,
    granted: Granted,
    call: usize,
}

impl Registration {
    /// Binds the rings that `register` asks for. `mac` is the address that the switch has bound to the port, or zero.
    ///
    /// # Errors
    /// The port does not have these rings or others have them, or the region has no room.
    pub fn new(port: &Arc<RegionPort>, register: &Register, mac: [u8; 6]) -> Result<Self, RegionError> {
        let layout = port.layout();
        let (Some(tx), Some(rx)) = (register.tx.of(layout.shape.tx_rings), register.rx.of(layout.shape.rx_rings))
        else {
            return Err(RegionError::NoRings);
        };
        port.claims.lock().take(&tx, &rx, register.exclusive)?;
        let call = port.calls.add(&tx, &rx);
        let room = call.and_then(|call| match port.interface(&register.name, &tx, &rx, register.extra_buffers) {
            Ok((interface, extra)) => Ok((call, interface, extra)),
            Err(error) => {
                port.calls.remove(call);
                Err(error)
            }
        });
        let (call, interface, extra) = room.inspect_err(|_| port.claims.lock().put_back(&tx, &rx))?;
        let granted = Granted {
            numbers: port.numbers(register.name.clone(), mac),
            colour: port.colour,
            base: layout.base as u64,
            interface: interface as u64,
            buffers: layout.buffers as u64,
            buffer_count: layout.buffer_count,
            extra_buffers: extra.len() as u32,
            extra_head: extra.first().copied().unwrap_or(0),
            tx,
            rx,
            exclusive: register.exclusive,
        };
        Ok(Self { port: Arc::clone(port), granted, call })
    }

    /// Returns what the reply says.
    #[must_use]
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Returns the descriptors of a granting reply, in the order of the protocol.
    #[must_use]
    pub fn descriptors(&self) -> Option<[BorrowedFd<'_>; REPLY_FDS]> {
        Some([self.port.memory(), self.port.kick.as_fd(), self.port.calls.eventfd(self.call)?])
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Self { port, granted, call } = self;
        port.calls.remove(*call);
        port.claims.lock().put_back(&granted.tx, &granted.rx);
        let region = port.region();
        let interface = granted.interface as usize;
        // The program may have swapped extra buffers, and then names others in the list.
        let mut next = region.word(interface + netmap_if::BUFS_HEAD).unwrap_or(0);
        let mut room = region.room.lock();
        for _ in 0..granted.extra_buffers {
            if !room.pool.free(next) {
                break;
            }
            next = region.word(port.layout().buffer(next)).unwrap_or(0);
        }
        room.interfaces.free(interface, PAGE);
    }
}

impl RegionPort {
    /// Returns the port's numbers.
    #[must_use]
    pub fn numbers(&self, name: PortName, mac: [u8; 6]) -> Numbers {
        let region = self.region();
        let shape = self.layout().shape;
        Numbers { name, region: region.id(), region_bytes: region.bytes(), shape, header: self.header(), mac }
    }

    /// Makes the `netmap_if` of a registration. Returns its offset and the extra buffers: as many of `extra` as are left.
    fn interface(
        &self,
        name: &PortName,
        tx: &Range<u16>,
        rx: &Range<u16>,
        extra: u32,
    ) -> Result<(usize, Vec<u32>), RegionError> {
        let region = self.region();
        let (at, extra) = {
            let mut room = region.room.lock();
            let at = room.interfaces.allocate(PAGE).ok_or(RegionError::NoRoom("another registration"))?;
            let count = extra.min(MAX_EXTRA).min(room.pool.left());
            (at, room.pool.allocate(count).unwrap_or_default())
        };
        region.write(at, &[0; PAGE]);
        let name = name.to_string();
        let interface = Interface { at, name: &name, tx: tx.clone(), rx: rx.clone(), extra: &extra };
        self.layout().interface_contents(&interface, |at, bytes| region.write(at, bytes));
        Ok((at, extra))
    }
}
