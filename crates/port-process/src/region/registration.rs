//! A registration: a port, or some of its rings, for one connection.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ringway_abi::Interface;
use ringway_abi::attach::REPLY_FDS;
use ringway_abi::layout::{PAGE, netmap_if};
use ringway_abi::netmap::{Granted, Numbers, PortName, Register};
use ringway_port::front_end::{ClientFd, Process};

use super::error::RegionError;
use super::extra::{Extra, Wanted};
use super::memory::Room;
use super::port::RegionPort;
use super::room::List;

/// A port, or some of its rings, for one connection. What it has goes back to the port and its region when it is dropped.
#[derive(Debug)]
pub struct Registration {
    port: Arc<RegionPort>,
    granted: Granted,
    call: usize,
    eventfd: Arc<ClientFd>,
    /// The extra buffers that are still to be had.
    wanted: Wanted,
}

impl Registration {
    /// Binds the rings that `register` asks for. `mac` is the address that the switch has bound to the port, or zero.
    /// [`Registration::add_extra`] adds the extra buffers.
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
        let room = call.and_then(|(call, eventfd)| match port.interface(&register.name, &tx, &rx) {
            Ok(interface) => Ok((call, eventfd, interface)),
            Err(error) => {
                port.calls.remove(call);
                Err(error)
            }
        });
        let (call, eventfd, interface) = room.inspect_err(|_| port.claims.lock().put_back(&tx, &rx))?;
        let granted = Granted {
            numbers: port.numbers(register.name.clone(), mac),
            colour: port.colour,
            base: layout.base as u64,
            interface: interface as u64,
            buffers: layout.buffers as u64,
            buffer_count: layout.buffer_count,
            extra_buffers: 0,
            extra_head: 0,
            tx,
            rx,
            exclusive: register.exclusive,
            polling: register.polling,
        };
        let wanted = Wanted::new(register.extra_buffers);
        Ok(Self { port: Arc::clone(port), granted, call, eventfd, wanted })
    }

    /// Adds some of the extra buffers that the client has asked for, as far as the region has them. The number is bounded,
    /// because each costs a page of memory and the caller serves other clients. `waits`: the caller tries again if closed ports still
    /// have some.
    pub fn add_extra(&mut self, waits: bool) -> Extra {
        let Self { port, granted, wanted, .. } = self;
        let (taken, extra) = wanted.take(port.region(), waits);
        if granted.extra_buffers == 0
            && let Some(&head) = taken.first()
        {
            granted.extra_head = head;
            port.region().write(granted.interface as usize + netmap_if::BUFS_HEAD, &head.to_le_bytes());
        }
        granted.extra_buffers += taken.len() as u32;
        extra
    }

    /// Gives the closer copies of what the client is about to get. `owner`: the client.
    ///
    /// # Errors
    /// The closer cannot have them: the client may not get its descriptors.
    pub(crate) fn hold(&self, owner: Process) -> io::Result<()> {
        self.port.kick.hold(owner)?;
        self.eventfd.hold(owner)
    }

    /// Returns what the reply says.
    #[must_use]
    pub fn granted(&self) -> &Granted {
        &self.granted
    }

    /// Returns the descriptors of a granting reply, in the order of the protocol.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; REPLY_FDS] {
        [self.port.memory(), self.port.kick.as_fd(), self.eventfd.as_fd()]
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let Self { port, granted, call, .. } = self;
        port.calls.remove(*call);
        port.claims.lock().put_back(&granted.tx, &granted.rx);
        let (interface, left) = (granted.interface as usize, granted.extra_buffers);
        if left == 0 {
            return port.region().room.lock().interfaces.free(interface, PAGE);
        }
        port.region().return_room(move |region| {
            // The program may have swapped extra buffers, and then names others in the list.
            let next = region.word(interface + netmap_if::BUFS_HEAD).unwrap_or(0);
            move |room: &mut Room| {
                room.lists.push(List { next, left });
                room.interfaces.free(interface, PAGE);
            }
        });
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

    /// Makes the `netmap_if` of a registration. Returns its offset.
    fn interface(&self, name: &PortName, tx: &Range<u16>, rx: &Range<u16>) -> Result<usize, RegionError> {
        let region = self.region();
        let at = region.room.lock().interfaces.allocate(PAGE).ok_or(RegionError::NoRoom("another registration"))?;
        region.write(at, &[0; PAGE]);
        let name = name.to_string();
        let interface = Interface { at, name: &name, tx: tx.clone(), rx: rx.clone() };
        self.layout().interface_contents(&interface, |at, bytes| region.write(at, bytes));
        Ok(at)
    }
}
