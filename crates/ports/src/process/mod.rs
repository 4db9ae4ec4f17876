//! Process ports: netmap's rings in memory shared with one client, and a doorbell (VALE §3.1, VPE §4.3 and §4.7).

mod input;
mod output;
mod ring;
mod server;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ringway_abi::{Layout, Shape, doorbell};
use ringway_engine::{Called, Signal};
use ringway_memory::{Mapping, SharedMemory};
use ringway_switch::{Asked, Bell, News};
use rustix::event::{EventfdFlags, eventfd};

use crate::Sides;
use input::ProcessInput;
use output::ProcessOutput;

pub use server::{AttachServer, ClientId, Ender, Grant, Host};

/// What of a process port is handed to its client.
#[derive(Debug)]
pub struct ClientEnds {
    /// The sealed memory.
    pub memory: SharedMemory,
    /// The client writes it to wake the switch.
    pub kick: OwnedFd,
    /// The switch writes it to wake the client.
    pub call: OwnedFd,
    /// What the layout was computed with.
    pub layout: Layout,
}

/// Makes a process port of this shape. `name` appears in `netmap_if` and in the memory file's name.
///
/// # Errors
/// The shape cannot be had, or the kernel has no memory or descriptors.
pub fn open(name: &str, shape: Shape, colour: u32) -> io::Result<(Sides, ClientEnds)> {
    let layout = Layout::new(shape, colour).map_err(io::Error::other)?;
    let memory = SharedMemory::create(name, layout.bytes)?;
    let whole = memory.mapping().whole();
    let mut inside = true;
    layout.initial_words(name, |offset, bytes| {
        inside &= whole.sub(offset, bytes.len()).is_some_and(|view| view.write(bytes));
    });
    if !inside {
        return Err(io::Error::other("the layout reaches beyond its memory"));
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let (kick, call) = (eventfd(0, flags)?, eventfd(0, flags)?);
    let input = ProcessInput::new(Arc::clone(memory.mapping()), layout)?;
    let output = ProcessOutput::new(Arc::clone(memory.mapping()), layout)?;
    let bell = ProcessBell {
        mapping: Arc::clone(memory.mapping()),
        layout,
        call: call.try_clone()?,
        granted: (0..2 * usize::from(shape.tx_rings.max(shape.rx_rings))).map(|_| AtomicU32::new(0)).collect(),
        blocked: AtomicBool::new(false),
    };
    let signal = Signal::Kick(kick.try_clone()?);
    let sides = Sides { input: Box::new(input), output: Box::new(output), bell: Box::new(bell), signal };
    Ok((sides, ClientEnds { memory, kick, call, layout }))
}

impl ClientEnds {
    /// The descriptors of a granting reply, in their order.
    #[must_use]
    pub fn descriptors(&self) -> [BorrowedFd<'_>; ringway_abi::attach::REPLY_FDS] {
        [self.memory.file(), self.kick.as_fd(), self.call.as_fd()]
    }
}

/// Wakes a client that wishes to be woken, for received frames or for room to send.
struct ProcessBell {
    mapping: Arc<Mapping>,
    layout: Layout,
    call: OwnedFd,
    /// Last wish granted: transmit and receive of each pair in turn.
    granted: Box<[AtomicU32]>,
    blocked: AtomicBool,
}

impl Bell for ProcessBell {
    #[inline]
    fn ring(&self, news: News) -> Asked {
        let (line, direction) = match news {
            News::Room => (doorbell::TX_CLIENT, 0),
            News::Frames => (doorbell::RX_CLIENT, 1),
        };
        let mut wanted = false;
        for (pair, granted) in self.granted.chunks_exact(2).enumerate() {
            let Some(words) = ring::doorbell_words(&self.mapping, &self.layout, pair as u16) else { continue };
            wanted |= doorbell::granted(&words[line + doorbell::WISH], &granted[direction]);
        }
        if !wanted || self.is_blocked() {
            return Asked::Unwanted;
        }
        if ringway_engine::call(self.call.as_fd()) == Called::Blocked {
            self.blocked.store(true, Ordering::Relaxed);
        }
        Asked::Called
    }

    fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }
}
