//! Opening an end of a pipe.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ringway_abi::netmap::PipeRole;
use ringway_port::front_end::Process;

use super::super::region::part::{Buffers, Part};
use super::super::region::{Region, RegionError, RegionPort};
use super::closing::ENDS;
use super::lane::copy_slots;
use super::mover::{PipeIo, PipeMover};
use super::state::{End, Pipe, Seen, Stage, State};

impl Pipe {
    /// Opens an end, which is not open, in a region, for a program of this process. It takes part as soon as the pollers have a
    /// topology with it. [`Pipe::close`] closes it, also after an error of the caller's own.
    ///
    /// # Errors
    /// The region has no room, its buffers have another size than those of the other end, the end was closed and has not left yet, a
    /// poller moves frames at this moment, or the kernel has no descriptors or threads left.
    pub fn open(
        self: &Arc<Self>,
        role: PipeRole,
        region: &Arc<Region>,
        colour: u32,
        process: Process,
    ) -> Result<(PipeIo, Arc<RegionPort>), RegionError> {
        let shape = self.shape(role, region)?;
        // The thread that has the lock may wait for pages of clients.
        let mut guard = self.state.try_lock().ok_or(RegionError::Closing)?;
        // Another thread may have opened it meanwhile.
        if self.is_closing(role) || guard.ends[role as usize].is_some() {
            return Err(RegionError::Closing);
        }
        // A close needs no new thread then.
        ENDS.keep_thread()?;
        let State { ends, lanes, last_number } = &mut *guard;
        let other = ends[role.other() as usize].as_ref();
        if let Some(other) = other
            && other.part.layout().shape.buffer_size != shape.buffer_size
        {
            let asked = other.part.layout().shape.buffer_size;
            return Err(RegionError::BufferSize { asked, has: shape.buffer_size });
        }
        let shared = other.filter(|other| Arc::ptr_eq(other.part.region(), region));
        let buffers = if shared.is_some() { Buffers::None } else { Buffers::Own };
        let part = Part::allocate(region, shape, colour, buffers)?;
        let (port, bell, signal) = RegionPort::new(Arc::clone(&part), colour, 0)?;
        let port = Arc::new(port);
        let end = End::new(Arc::clone(&part), Arc::downgrade(&port))?;
        let number = last_number.wrapping_add(1).max(1);
        let seen = Seen {
            tx: lanes[role as usize].iter().map(|lane| lane.next).collect(),
            rx: lanes[role.other() as usize].iter().map(|lane| lane.returned).collect(),
            own: number,
            ..Seen::default()
        };
        let mover = PipeMover::new(Arc::clone(self), role, part, seen)?;
        if let Some(other) = shared {
            other.tx.iter().zip(&end.rx).for_each(|(theirs, ours)| copy_slots(theirs, ours, 0, ours.slots));
            other.rx.iter().zip(&end.tx).for_each(|(theirs, ours)| copy_slots(theirs, ours, 0, ours.slots));
        }
        let transfer = other.map(|other| end.transfer(other));
        lanes[role as usize].iter_mut().zip(&end.tx).for_each(|(lane, ring)| lane.begin_sender(ring, transfer));
        for (is_sender, sender) in [(true, role), (false, role.other())] {
            for (ring, lane) in lanes[sender as usize].iter().enumerate() {
                end.begin_at(lane, ring, is_sender);
            }
        }
        ends[role as usize] = Some(end);
        *last_number = number;
        self.processes[role as usize].store(process.map_or(0, NonZeroU32::get), Ordering::Relaxed);
        self.set(role, Stage::Open);
        self.numbers[role as usize].store(number, Ordering::SeqCst);
        Ok((PipeIo { mover: Box::new(mover), bell, signal }, port))
    }
}
