//! The switch: batches, forwarding functions, MAC table, counters.
