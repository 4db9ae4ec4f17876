//! Attach a process port to a Ringway switch: send and receive batches of frames through shared memory.
