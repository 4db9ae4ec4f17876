//! An attached port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringway_abi::attach::{MessageError, Request, split_name};
use ringway_abi::doorbell::{LOST, PAIR_BYTES, RX_SWITCH};
use ringway_abi::{Layout, Shape};
use ringway_memory::{Buffer, Mapping, SharedMemory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::attach::{OfferedMemory, REPLY_WITHIN, request_port, wait_readable};
use crate::end::End;
use crate::error::AttachError;
use crate::external::ExternalMemory;
use crate::memory::PortMemory;
use crate::rx::RxRing;
use crate::sleep::Sleep;
use crate::tx::{TxRing, wake};

/// A process port. Dropping it detaches.
#[derive(Debug)]
pub struct Port {
    tx: Vec<TxRing>,
    rx: Vec<RxRing>,
    memory: SharedMemory,
    kick: Arc<OwnedFd>,
    call: OwnedFd,
    connection: OwnedFd,
    end: End,
    /// For [`Port::wait_rx`] and [`Port::wait_tx`]; made with the first sleep.
    sleep: Option<Sleep>,
    layout: Layout,
    mac: [u8; 6],
}

impl Port {
    /// Attaches as `SWITCH:PORT` through the daemon's socket.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn attach(socket: impl AsRef<Path>, name: &str, shape: Shape) -> Result<Port, AttachError> {
        Self::attach_by(socket.as_ref(), name, shape, None)
    }

    /// Attaches like [`Port::attach`], with buffers in `memory` instead of in memory of the switch: [`TxRing::push_from`] sends
    /// what is there, and received frames are there. The port takes a part of the memory for the buffers of its slots. Returns
    /// the port's extra buffers, too, like [`Port::attach_with_buffers`].
    ///
    /// # Errors
    /// See [`AttachError`]. The memory has no room for the slots' buffers, its unit is out of range, or the switch refuses it.
    /// After an error the memory is as before, unless the switch has asked for it: then the switch may have used the part, which stays
    /// taken. Most refusals come before: that of a port that is in use, and of everything that the switch's configuration forbids.
    pub fn attach_with_memory(
        socket: impl AsRef<Path>,
        name: &str,
        shape: Shape,
        memory: &mut ExternalMemory,
    ) -> Result<(Port, Vec<Buffer>), AttachError> {
        let port = Self::attach_by(socket.as_ref(), name, shape, Some(memory))?;
        let buffers = extra_buffers(memory.mapping(), &port.layout);
        Ok((port, buffers))
    }

    fn attach_by(
        socket: &Path,
        name: &str,
        shape: Shape,
        mut external: Option<&mut ExternalMemory>,
    ) -> Result<Port, AttachError> {
        let (switch, port) = split_name(name)?;
        Layout::new(shape, 0).map_err(MessageError::Shape)?;
        let part = match &mut external {
            Some(memory) => {
                let full = || AttachError::Memory(io::Error::other("the memory has no room for the slots' buffers"));
                Some(memory.take_for(&shape).ok_or_else(full)?)
            }
            None => None,
        };
        let request = Request { switch: switch.to_owned(), port: port.to_owned(), shape, external: part };
        let mut offered = external.as_deref().map(|memory| OfferedMemory { file: memory.file(), is_sent: false });
        let asked = match request.layout(0) {
            Ok(_) => request_port(socket, &request, offered.as_mut()),
            Err(error) => Err(MessageError::Shape(error).into()),
        };
        let is_sent = offered.is_some_and(|memory| memory.is_sent);
        if let (Some(memory), Some(part), true) = (&mut external, part, asked.is_err() && !is_sent) {
            memory.give_back(part);
        }
        let granted = asked?;
        let brought = external.as_deref();
        let layout = request.layout(granted.colour).map_err(MessageError::Shape)?;
        if granted.bytes != layout.bytes as u64 {
            let message = format!("{} bytes were promised, the layout has {}", granted.bytes, layout.bytes);
            return Err(AttachError::Memory(io::Error::other(message)));
        }
        let end = End::unknown().map_err(AttachError::Memory)?;
        let memory = match SharedMemory::open(granted.memory, layout.bytes) {
            // The memory of a port that has ended is sealed against mappings, and the reason is told then.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let has_ended = wait_readable(&granted.connection, REPLY_WITHIN)?;
                let ended = || AttachError::Refused(end.take(&granted.connection));
                return Err(if has_ended { ended() } else { AttachError::Memory(error) });
            }
            opened => opened.map_err(AttachError::Memory)?,
        };
        let rings = memory.mapping();
        let all = PortMemory { rings, buffers: brought.map_or(rings, ExternalMemory::mapping), layout: &layout };
        let kick = Arc::new(granted.kick);
        let tx = (0..shape.tx_rings).map(|ring| TxRing::new(all, ring, &kick)).collect::<io::Result<_>>();
        let rx = (0..shape.rx_rings).map(|ring| RxRing::new(all, ring)).collect::<io::Result<_>>();
        Ok(Port {
            tx: tx.map_err(AttachError::Memory)?,
            rx: rx.map_err(AttachError::Memory)?,
            memory,
            kick,
            call: granted.call,
            connection: granted.connection,
            end,
            sleep: None,
            layout,
            mac: granted.mac,
        })
    }

    /// Attaches like [`Port::attach`]. Returns the port's extra buffers ([`Shape::extra_buffers`]), too, for
    /// [`RxRing::exchange`].
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn attach_with_buffers(
        socket: impl AsRef<Path>,
        name: &str,
        shape: Shape,
    ) -> Result<(Port, Vec<Buffer>), AttachError> {
        let port = Self::attach(socket, name, shape)?;
        let buffers = extra_buffers(port.memory.mapping(), &port.layout);
        Ok((port, buffers))
    }

    /// Returns the first transmit ring.
    #[inline]
    pub fn tx(&mut self) -> &mut TxRing {
        &mut self.tx[0]
    }

    /// Returns the first receive ring.
    #[inline]
    pub fn rx(&mut self) -> &mut RxRing {
        &mut self.rx[0]
    }

    /// Returns all transmit rings.
    pub fn tx_rings(&mut self) -> &mut [TxRing] {
        &mut self.tx
    }

    /// Returns all receive rings.
    pub fn rx_rings(&mut self) -> &mut [RxRing] {
        &mut self.rx
    }

    /// Takes the rings out of the port: one thread can send while another receives, each with rings of its own. What asks the switch
    /// for calls is [`TxRing::want_call`] and [`RxRing::want_call`] then, and [`TxRing::flush`] publishes. The port must be kept as
    /// long as its rings; it has none any more, and [`Port::tx`] and [`Port::rx`] panic.
    pub fn take_rings(&mut self) -> (Vec<TxRing>, Vec<RxRing>) {
        (std::mem::take(&mut self.tx), std::mem::take(&mut self.rx))
    }

    /// Publishes the frames queued on all transmit rings, and wakes the switch if it has asked for a kick.
    #[inline]
    pub fn flush(&mut self) {
        let mut kick = false;
        for ring in &mut self.tx {
            kick |= ring.publish();
        }
        if kick {
            wake(&self.kick);
        }
    }

    /// Returns the MAC address bound to this port, or zeroes if there is none.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Returns the layout of the shared memory.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns how many frames for this port were dropped because this side did not take them in time or has no buffers for them
    /// (drop reasons `receiver_*`), since the port was attached. Modulo 2^32.
    #[must_use]
    pub fn lost(&self) -> u32 {
        let words = self.memory.mapping().view(self.layout.doorbell(0), PAIR_BYTES).and_then(|view| view.words32());
        words.and_then(|words| words.get(RX_SWITCH + LOST)).map_or(0, |lost| lost.load(Ordering::Relaxed))
    }

    /// Returns the shared memory.
    #[must_use]
    pub fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Returns the eventfd that wakes the switch.
    #[must_use]
    pub fn kick_fd(&self) -> BorrowedFd<'_> {
        self.kick.as_fd()
    }

    /// Returns the eventfd that wakes this side, for the caller's own event loop: see [`Port::want_rx`].
    #[must_use]
    pub fn call_fd(&self) -> BorrowedFd<'_> {
        self.call.as_fd()
    }

    /// Returns the connection. It becomes readable when the switch has ended the port.
    #[must_use]
    pub fn connection_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }

    /// Requests a call when frames arrive. Returns true when there are frames already: then the caller must not sleep.
    /// To sleep, wait until [`Port::call_fd`] is readable, read it, and end with [`Port::want_nothing`].
    pub fn want_rx(&mut self) -> bool {
        let mut ready = false;
        for ring in &mut self.rx {
            ready |= ring.want_call();
        }
        ready
    }

    /// Requests a call when there is room to send. Returns true when there is room already.
    pub fn want_tx(&mut self) -> bool {
        self.rx.iter_mut().for_each(RxRing::give_back);
        let mut ready = false;
        for ring in &mut self.tx {
            ready |= ring.want_call();
        }
        ready
    }

    /// Requests a call when the switch takes frames. Returns true when it has taken all that were published, on all transmit rings.
    pub fn want_sent(&mut self) -> bool {
        self.rx.iter_mut().for_each(RxRing::give_back);
        let mut sent = true;
        for ring in &mut self.tx {
            sent &= ring.want_sent();
        }
        sent
    }

    /// Withdraws all requests for calls.
    pub fn want_nothing(&mut self) {
        for ring in &mut self.rx {
            ring.want_no_call();
        }
        for ring in &mut self.tx {
            ring.want_no_call();
        }
    }

    /// Sleeps until a frame can be received. Returns false when `timeout` has passed first. Signals do not end the sleep.
    ///
    /// # Errors
    /// The switch has ended the port, with its reason.
    pub fn wait_rx(&mut self, timeout: Duration) -> Result<bool, AttachError> {
        self.wait(timeout, Port::want_rx, false)
    }

    /// Sleeps until a frame can be sent. Returns false when `timeout` has passed first. Signals do not end the sleep.
    ///
    /// # Errors
    /// The switch has ended the port, with its reason.
    pub fn wait_tx(&mut self, timeout: Duration) -> Result<bool, AttachError> {
        self.wait(timeout, Port::want_tx, false)
    }

    /// Sleeps until the switch has taken all frames that were published: what [`TxRing::push_from`] named may be changed then. Returns
    /// false when `timeout` has passed first. Signals do not end the sleep.
    ///
    /// # Errors
    /// The switch has ended the port, with its reason.
    pub fn wait_sent(&mut self, timeout: Duration) -> Result<bool, AttachError> {
        self.wait(timeout, Port::want_sent, false)
    }

    /// Sleeps like [`Port::wait_rx`], until a signal comes.
    ///
    /// # Errors
    /// [`AttachError::Interrupted`] after a signal that a handler has taken, or after the process was stopped and continued; the
    /// switch has ended the port, with its reason.
    pub fn wait_rx_or_signal(&mut self, timeout: Duration) -> Result<bool, AttachError> {
        self.wait(timeout, Port::want_rx, true)
    }

    /// Sleeps like [`Port::wait_tx`], until a signal comes.
    ///
    /// # Errors
    /// As [`Port::wait_rx_or_signal`].
    pub fn wait_tx_or_signal(&mut self, timeout: Duration) -> Result<bool, AttachError> {
        self.wait(timeout, Port::want_tx, true)
    }

    fn wait(
        &mut self,
        timeout: Duration,
        want: fn(&mut Port) -> bool,
        signals_end_it: bool,
    ) -> Result<bool, AttachError> {
        let mut began = None;
        loop {
            if want(self) {
                self.want_nothing();
                return Ok(true);
            }
            let now = Instant::now();
            let left = timeout.saturating_sub(now - *began.get_or_insert(now));
            if left.is_zero() {
                self.want_nothing();
                return Ok(false);
            }
            match self.sleep(left, now) {
                Ok(false) => {}
                Ok(true) => return Err(AttachError::Refused(self.end.take(&self.connection))),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if signals_end_it {
                        self.want_nothing();
                        return Err(AttachError::Interrupted);
                    }
                }
                Err(error) => return Err(AttachError::Dialogue(error)),
            }
        }
    }

    /// Sleeps until a call arrives, for at most `longest` from `now`. Returns true when the switch has ended the port.
    fn sleep(&mut self, longest: Duration, now: Instant) -> io::Result<bool> {
        let sleep = match self.sleep.take() {
            Some(sleep) => sleep,
            None => Sleep::new(self.connection.as_fd(), self.call.as_fd())?,
        };
        self.sleep.insert(sleep).until_called(longest, now)
    }

    /// Returns why the switch has ended the port, or `None` while it has not. Every caller is told, also in a child made by `fork`.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        if let Some(reason) = self.end.known() {
            return Some(reason);
        }
        let mut descriptors = [PollFd::new(&self.connection, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut descriptors, Some(&now)) {
            Ok(1..) => Some(self.end.take(&self.connection)),
            _ => None,
        }
    }
}

/// Returns the extra buffers of a port that was attached with `layout`. Call once for each port: the caller owns them.
fn extra_buffers(mapping: &Arc<Mapping>, layout: &Layout) -> Vec<Buffer> {
    // SAFETY: no slot names an extra buffer, and the switch touches only what slots name. The layout's buffers do not overlap.
    let buffer = |index| unsafe { Buffer::new(mapping, index, layout.buffer(index), layout.shape.buffer_size) };
    layout.extra_buffers().filter_map(buffer).collect()
}
