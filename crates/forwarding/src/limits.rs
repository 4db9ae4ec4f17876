//! What a program may cost. `docs/guide/forwarding-programs.md` lists these figures.

use std::time::Duration;

/// The version of the interface.
pub const INTERFACE: i32 = 1;
/// Largest module in bytes. Compiling takes some seconds for each MiB.
pub const MODULE_MAX: usize = 4 << 20;
/// Most processor time that compiling a module takes.
pub const COMPILER_TIME: Duration = Duration::from_secs(60);
/// Longest time for compiling a module, on a machine whose processors do other work.
pub const COMPILER_WAIT: Duration = Duration::from_secs(180);
/// Most modules that are compiled at the same time.
pub(crate) const COMPILERS: usize = 2;
/// Most address space of the compiler in bytes.
pub const COMPILER_MEMORY: usize = 1 << 30;
/// Most bytes of machine code of a module.
pub(crate) const MACHINE_CODE_MAX: usize = 256 << 20;
/// Largest memory of an instance in bytes.
pub const MEMORY_MAX: usize = 64 << 20;
/// Most elements of an instance's tables.
pub(crate) const TABLE_MAX: usize = 1 << 16;
/// Stack of machine code in bytes. Pollers have 2 MiB.
pub(crate) const STACK: usize = 128 << 10;
/// Longest text `config` in bytes.
pub const CONFIG_MAX: usize = 8 << 20;
/// Longest message in bytes.
pub const MESSAGE_MAX: usize = 64 << 10;
/// Largest saved state of an instance in bytes.
pub const STATE_MAX: usize = 1 << 20;
/// Most frames of a call.
pub(crate) const CAPACITY_MAX: u32 = ringway_switch::MAX_BATCH as u32;
/// Most bytes of a head.
pub(crate) const HEAD_MAX: u32 = 128;
/// Bytes of a frame's descriptor.
pub(crate) const DESCRIPTOR: usize = 16;
/// Bytes of a verdict.
pub(crate) const VERDICT: usize = 4;
/// Most counters, and most gauges.
pub(crate) const METERS: usize = 64;
/// Longest name of a drop reason, counter or gauge in bytes.
pub(crate) const NAME_MAX: usize = 48;
/// Longest line of the log in bytes.
pub(crate) const LOG_LINE: usize = 256;
/// Lines of the log that a program may write in a second.
pub(crate) const LOG_LINES: u32 = 10;
/// Longest key of the shared map in bytes.
pub(crate) const KEY_MAX: usize = 64;
/// Longest value of the shared map in bytes.
pub(crate) const VALUE_MAX: usize = 256;
/// Most entries of the shared map.
pub(crate) const ENTRIES_MAX: usize = 1 << 16;

/// Most processor time of a call.
pub const CALL_TIME: Duration = Duration::from_millis(1);
/// Most processor time of a call after a call took too long.
pub(crate) const SHORT_CALL_TIME: Duration = Duration::from_micros(100);
/// How long calls are bounded to [`SHORT_CALL_TIME`].
pub(crate) const SHORT_FOR: Duration = Duration::from_secs(10);
/// Most processor time to start an instance, and to restore its state.
pub(crate) const START_TIME: Duration = Duration::from_secs(1);
/// Shortest time of a timer.
pub(crate) const TIMER_MIN: Duration = Duration::from_millis(1);
/// This many faults within [`FAULT_WINDOW`] take a program out.
pub(crate) const FAULTS: usize = 3;
/// See [`FAULTS`].
pub(crate) const FAULT_WINDOW: Duration = Duration::from_secs(1);
/// So do this many within [`LONG_FAULT_WINDOW`]: a program can fail, start anew for a while, and fail again.
pub(crate) const MANY_FAULTS: usize = 30;
/// See [`MANY_FAULTS`].
pub(crate) const LONG_FAULT_WINDOW: Duration = Duration::from_secs(60);
