//! The list of options of a request. No option is built in, so that each is refused in its `nro_status`, as a kernel without them does.

use std::ffi::c_int;

use super::abi::OptionHeader;
use crate::user;

/// Most bytes of a request's body and options together.
const MOST_BYTES: u64 = 4096;
/// The kernel copies them with a pointer for each option, into a buffer that is a little larger. What fits into it is accepted.
const BUFFER: u64 = MOST_BYTES + 112;
const BEFORE_OPTIONS: u64 = 64;
const POINTER: u64 = 8;
const HEADER: u64 = size_of::<OptionHeader>() as u64;
/// `NETMAP_REQ_OPT_*`: the types that have a name, and the one after them.
const EXTMEM: u32 = 1;
const EVENTFDS: u32 = 2;
const CSB: u32 = 3;
const KLOOP_MODE: u32 = 4;
const OFFSETS: u32 = 5;
const END: u32 = 6;

/// What the options say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// There is at least one option.
    pub(crate) any: bool,
    /// There is a `NETMAP_REQ_OPT_CSB`.
    pub(crate) csb: bool,
}

/// Bytes of an option's own body.
fn body_bytes(option: &OptionHeader) -> u64 {
    match option.kind {
        EXTMEM => 72,
        EVENTFDS => option.size.saturating_sub(HEADER),
        CSB => 16,
        KLOOP_MODE => 8,
        OFFSETS => 32,
        _ => 0,
    }
}

/// Walks the list from `first` after a body of `used` bytes, and marks each option as not supported.
///
/// # Errors
/// EFAULT: an option cannot be read. EMSGSIZE: they are too long, or form a loop. EINVAL: a type is 0 or occurs twice.
pub(crate) fn walk(first: u64, used: u64) -> Result<Options, c_int> {
    let (mut options, mut at, mut seen) = (Options::default(), first, [0u64; END as usize]);
    let mut used = BEFORE_OPTIONS + used;
    while at != 0 {
        // No option is shorter than its header: a loop ends here, too.
        if used + POINTER + HEADER > BUFFER {
            return Err(libc::EMSGSIZE);
        }
        let option: OptionHeader = user::read(at)?;
        used += POINTER + HEADER;
        if option.kind == 0 {
            return mark(at, libc::EINVAL).and(Err(libc::EINVAL));
        }
        if let Some(place) = seen.get_mut(option.kind as usize) {
            if *place != 0 {
                mark(*place, libc::EINVAL)?;
                return mark(at, libc::EINVAL).and(Err(libc::EINVAL));
            }
            *place = at;
            let body = body_bytes(&option);
            if option.size > MOST_BYTES || used + body > BUFFER {
                return Err(libc::EMSGSIZE);
            }
            used += body;
        }
        options.any = true;
        options.csb |= option.kind == CSB;
        mark(at, libc::EOPNOTSUPP)?;
        at = option.next;
    }
    Ok(options)
}

/// Writes an option's `nro_status`.
fn mark(option: u64, status: c_int) -> Result<(), c_int> {
    user::write(option.wrapping_add(12), &(status as u32))
}
