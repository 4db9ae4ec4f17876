//! A port's own part of its region.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringway_abi::layout::{PAGE, netmap_ring};
use ringway_abi::slot::SLOT_BYTES;
use ringway_abi::{Layout, Place, Shape, Slot};

use super::error::RegionError;
use super::memory::{Region, Room, Sizes};

/// A port's own part of its region, and the buffers of its slots. They go back to the region when nothing uses the port
/// any more: the pollers have released its input and its output.
#[derive(Debug)]
pub struct Part {
    pub(super) region: Arc<Region>,
    pub(super) layout: Layout,
    /// The buffers of its slots go back with it. Of two ends of a pipe that have the same buffers, one has them.
    has_buffers: AtomicBool,
    /// The port was closed: [`Region::is_leaving`].
    is_leaving: AtomicBool,
}

/// The buffers that the slots of a new port name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// Each slot has one of its own.
    Own,
    /// The caller writes the slots.
    None,
}

impl Part {
    /// Allocates a port's part and writes its rings.
    ///
    /// # Errors
    /// The region has no room, or the shape is out of range.
    pub(crate) fn allocate(
        region: &Arc<Region>,
        shape: Shape,
        colour: u32,
        buffers_of: Buffers,
    ) -> Result<Arc<Self>, RegionError> {
        let Sizes { buffers, buffer_count, bytes, .. } = region.sizes;
        let place = |base| Place { base, buffers, buffer_count, bytes };
        // Also checks the shape, which `own_bytes` needs.
        Layout::new(shape, colour).map_err(RegionError::Shape)?;
        let needed = if buffers_of == Buffers::Own { shape.slots() } else { 0 };
        if !region.give_back(needed) {
            return Err(RegionError::Returning);
        }
        let (base, mut given) = {
            let mut room = region.room.lock();
            let left = room.pool.left();
            if needed > left {
                return Err(RegionError::NoBuffers { needed, left });
            }
            let base = room.ports.allocate(shape.own_bytes()).ok_or(RegionError::NoRoom("another port"))?;
            (base, room.pool.allocate(needed).unwrap_or_default().into_iter())
        };
        let layout = Layout::in_region(shape, colour, place(base)).map_err(RegionError::Shape)?;
        // An earlier port, or any process of the family, may have written here.
        let zeroes = [0; PAGE];
        (base..layout.end).step_by(PAGE).for_each(|page| region.write(page, &zeroes));
        layout.ring_contents(|| given.next().unwrap_or(0), |at, bytes| region.write(at, bytes));
        let has_buffers = AtomicBool::new(buffers_of == Buffers::Own);
        Ok(Arc::new(Self { region: Arc::clone(region), layout, has_buffers, is_leaving: AtomicBool::new(false) }))
    }

    /// Returns the region.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Returns the layout.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Says whether the buffers of the slots go back to the region with this part.
    pub(crate) fn set_has_buffers(&self, has: bool) {
        self.has_buffers.store(has, Ordering::Relaxed);
    }
}

impl Part {
    /// The port was closed: its memory comes back as soon as nothing uses it any more.
    pub(super) fn begin_to_leave(&self) {
        if !self.is_leaving.swap(true, Ordering::Relaxed) {
            self.region.room.lock().leaving += 1;
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Self { region, layout, has_buffers, is_leaving } = self;
        let (layout, is_leaving) = (*layout, *is_leaving.get_mut());
        let mut shape = layout.shape;
        if !*has_buffers.get_mut() {
            (shape.tx_rings, shape.rx_rings) = (0, 0);
        }
        region.return_room(move |region| {
            let tx = (0..shape.tx_rings).map(|ring| (layout.tx_ring(ring), shape.tx_slots));
            let rx = (0..shape.rx_rings).map(|ring| (layout.rx_ring(ring), shape.rx_slots));
            let mut named = Vec::new();
            for (at, slots) in tx.chain(rx) {
                let slots = region.memory.mapping().view(at + netmap_ring::SLOTS, slots as usize * SLOT_BYTES);
                let words = slots.and_then(|slots| slots.words64()).unwrap_or_default();
                let words = words.iter().step_by(SLOT_BYTES / 8);
                named.extend(words.map(|word| Slot::from_word(word.load(Ordering::Relaxed)).buffer));
            }
            move |room: &mut Room| {
                named.into_iter().for_each(|buffer| _ = room.pool.free(buffer));
                room.ports.free(layout.base, layout.end - layout.base);
                room.leaving -= usize::from(is_leaving);
            }
        });
    }
}
