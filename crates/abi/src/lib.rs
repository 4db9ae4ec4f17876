//! What a process port's client and the switch share: netmap's memory layout, the doorbell block, the attach messages.
