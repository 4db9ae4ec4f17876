//! Limits of the protocol, as the answer to VERSION states them.

/// Most bytes of a region that one message reads or writes (`max_data_xfer_size`).
pub const MOST_DATA: usize = 4096;
/// Most descriptors with one message (`max_msg_fds`). QEMU does not accept a higher limit.
pub const MOST_FDS: usize = 16;
/// Most mappings at a time (`max_dma_maps`).
pub const MOST_MAPS: usize = 256;
