//! Buffers that no slot names: frames leave a receive ring in them, for programs that keep frames without copying them.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use ringway_abi::Layout;
use ringway_memory::Mapping;

/// A buffer of a port's memory that no slot names. Its owner may keep it as long as it likes, also after the port is gone.
#[derive(Debug)]
pub struct Buffer {
    pub(crate) index: u32,
    bytes: u32,
    pub(crate) start: NonNull<u8>,
    /// Keeps the memory.
    _mapping: Arc<Mapping>,
}

// SAFETY: the pointer refers to the mapping that is kept next to it, which is Send.
unsafe impl Send for Buffer {}
// SAFETY: a shared reference only reads, and nobody else writes to a buffer that no slot names.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Returns the extra buffers of a port that was attached with `layout`. Call once for each port: the caller owns them.
    pub(crate) fn extra(mapping: &Arc<Mapping>, layout: &Layout) -> Vec<Buffer> {
        let bytes = layout.shape.buffer_size;
        let buffer = |index| {
            let start = NonNull::new(mapping.view(layout.buffer(index), bytes as usize)?.as_ptr())?;
            Some(Buffer { index, bytes, start, _mapping: Arc::clone(mapping) })
        };
        layout.extra_buffers().filter_map(buffer).collect()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: mapped as long as `_mapping` lives, and `bytes` long. The client owns the buffer, so the switch does not
        // write to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes as usize) }
    }
}
