//! Makes the ports of programs, and goes on with those that a predecessor of the switch has made.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ringway_abi::{Layout, Shape, doorbell};
use ringway_memory::{Mapping, SharedMemory};
use ringway_port::front_end::Process;
use ringway_port::port_io::PortIo;
use ringway_runtime::{CallAccount, Called, Signal, Watch};
use ringway_switch::{Bell, CallReason, CallResult, Input, Output};
use rustix::event::{EventfdFlags, eventfd};

use super::client_handles::{ClientHandles, LeftPort};
use super::external::ExternalMemory;
use super::input::ProcessInput;
use super::kept_fd::{Keeping, KeptFd};
use super::output::ProcessOutput;
use super::positions::Positions;
use super::ring::{self, Backing, Doorbell, Own, PortMemory};

/// Makes a process port of this shape. `name` appears in `netmap_if` and in the memory file's name. `colour` selects
/// the layout's colour.
///
/// # Errors
/// The shape is invalid, or the kernel has no memory or descriptors left.
pub fn open(name: &str, shape: Shape, colour: u32) -> io::Result<(PortIo, ClientHandles)> {
    open_with(name, Layout::new(shape, colour).map_err(io::Error::other)?, None)
}

/// Makes a process port of this layout, like [`open`]. Its buffers lie in `external`, if the layout says so.
///
/// # Errors
/// The layout does not fit the memory, or the kernel has no memory or descriptors left.
pub fn open_with(
    name: &str,
    layout: Layout,
    external: Option<Arc<ExternalMemory>>,
) -> io::Result<(PortIo, ClientHandles)> {
    new_port(name, layout, external, None)
}

/// Makes a process port of this layout, like [`open`], that can outlive this process: a successor goes on with [`open_left`].
///
/// # Errors
/// The kernel has no memory or descriptors left.
pub fn open_lasting(name: &str, layout: Layout) -> io::Result<(PortIo, ClientHandles)> {
    new_port(name, layout, None, Some(Positions::new()?))
}

fn new_port(
    name: &str,
    layout: Layout,
    external: Option<Arc<ExternalMemory>>,
    positions: Option<Positions>,
) -> io::Result<(PortIo, ClientHandles)> {
    if layout.is_external() != external.is_some() {
        return Err(io::Error::other("the layout is that of another memory"));
    }
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
    let keeping = Keeping::default();
    let new_eventfd = || Ok::<_, io::Error>(Arc::new(KeptFd::new(eventfd(0, flags)?.into(), &keeping)));
    let (kick, call) = (new_eventfd()?, new_eventfd()?);
    let ends = ClientHandles { memory, kick, call, layout, positions, keeping };
    Ok((port(&ends, external, false)?, ends))
}

/// Makes the port of this layout again that a predecessor left. The first frame is the one behind those that the predecessor took last. Calls the
/// client once, whatever the client waits for. The client may have changed everything in its memory. `owner`: the client.
///
/// # Errors
/// What was left does not fit the layout, or the kernel refuses.
pub fn open_left(layout: Layout, left: LeftPort, owner: Process) -> io::Result<(PortIo, ClientHandles)> {
    let LeftPort { memory, kick, call, positions } = left;
    let memory = SharedMemory::left(memory, layout.bytes)?;
    memory.mapping().set_owner(owner);
    let keeping = Keeping::default();
    let [kick, call] = [kick, call].map(|file| Arc::new(KeptFd::new(file.into(), &keeping)));
    let ends = ClientHandles { memory, kick, call, layout, positions: Some(Positions::left(positions)?), keeping };
    let port = port(&ends, None, true)?;
    // After the stores that give slots back.
    doorbell::publish_fence();
    for reason in [CallReason::Room, CallReason::Frames] {
        let _ = port.bell.ring(reason);
    }
    Ok((port, ends))
}

/// Makes the sides of a port with these ends. `is_left`: a predecessor has served it.
fn port(ends: &ClientHandles, external: Option<Arc<ExternalMemory>>, is_left: bool) -> io::Result<PortIo> {
    let ClientHandles { memory, kick, call, layout, positions, .. } = ends;
    let (own, shape, positions) = (memory.mapping(), layout.shape, positions.as_ref());
    let (input, output) = match external {
        Some(external) => sides(own, external, layout, positions, is_left)?,
        None => sides(own, Own, layout, positions, is_left)?,
    };
    let pairs = 0..shape.tx_rings.max(shape.rx_rings);
    let pairs =
        pairs.map(|pair| Ok(Pair { doorbell: ring::doorbell_of(own, layout, pair)?, granted: Default::default() }));
    let bell = ProcessBell {
        pairs: pairs.collect::<io::Result<_>>()?,
        call: Arc::clone(call),
        account: CallAccount::default(),
        blocked: AtomicBool::new(false),
    };
    let watch = Watch::new();
    watch.add(kick.clone())?;
    let signal = Signal::Kick(watch);
    Ok(PortIo { input, output, bell: Box::new(bell), signal })
}

/// Makes both sides of a port, whose buffers lie in `backing`.
fn sides<B: Backing>(
    own: &Arc<Mapping>,
    backing: B,
    layout: &Layout,
    positions: Option<&Positions>,
    is_left: bool,
) -> io::Result<(Box<dyn Input>, Box<dyn Output>)> {
    let memory = PortMemory { own: Arc::clone(own), backing };
    let input = ProcessInput::new(&memory, layout, positions, is_left)?;
    Ok((Box::new(input), Box::new(ProcessOutput::new(&memory, layout, is_left)?)))
}

/// Wakes a client that has asked for it, when it has received frames or has room to send.
struct ProcessBell {
    pairs: Box<[Pair]>,
    call: Arc<KeptFd>,
    account: CallAccount,
    blocked: AtomicBool,
}

/// The wake-up requests of a ring pair.
struct Pair {
    doorbell: Doorbell,
    /// The last request that was granted, indexed by [`CallReason`].
    granted: [AtomicU32; 2],
}

impl Bell for ProcessBell {
    #[inline]
    fn ring(&self, reason: CallReason) -> CallResult {
        let line = match reason {
            CallReason::Room => doorbell::TX_CLIENT,
            CallReason::Frames => doorbell::RX_CLIENT,
        };
        let mut wanted = false;
        for pair in &self.pairs {
            wanted |= doorbell::granted(&pair.doorbell[line + doorbell::WISH], &pair.granted[reason as usize]);
        }
        if !wanted || self.is_blocked() {
            return CallResult::Unwanted;
        }
        if ringway_runtime::call(self.call.as_fd(), &self.account) != Called::Done {
            self.blocked.store(true, Ordering::Relaxed);
        }
        CallResult::Called
    }

    fn held_until(&self) -> u64 {
        self.account.held_until()
    }

    fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }
}
