//! Errors: codes, and their text.

use std::ffi::{c_char, c_int};

use ringway_client::AttachError;

/// A pointer is NULL, a ring does not exist, or a number is out of range.
pub const RINGWAY_E_ARGUMENT: c_int = -1;
/// The name is not SWITCH:PORT (ringway_attach), or not that of a link (ringway_lwep_attach).
pub const RINGWAY_E_NAME: c_int = -2;
/// The shape is not possible.
pub const RINGWAY_E_SHAPE: c_int = -3;
/// No switch listens at the socket.
pub const RINGWAY_E_UNREACHABLE: c_int = -4;
/// The switch refused the request. The text says why: the port has a client already, or the name is not allowed.
pub const RINGWAY_E_REFUSED: c_int = -5;
/// The switch has ended the port, or is gone; the interface of a link is down or gone. ringway_ended() and ringway_lwep_ended() say why.
pub const RINGWAY_E_ENDED: c_int = -6;
/// The dialogue with the switch failed, or a system call did.
pub const RINGWAY_E_SYSTEM: c_int = -7;
/// The shared memory differs from what the switch announced, or the program's memory has no room for the buffers of a port.
pub const RINGWAY_E_MEMORY: c_int = -8;
/// The frame is longer than a ring takes (ringway_push), or than the caller's buffer (ringway_pop); the message is longer than the peer
/// takes (ringway_lwep_send).
pub const RINGWAY_E_LENGTH: c_int = -9;
/// The offload header contradicts itself.
pub const RINGWAY_E_OFFLOAD: c_int = -10;
/// A signal has ended the wait.
pub const RINGWAY_E_INTERRUPTED: c_int = -11;
/// There is no such connection, or its end was announced.
pub const RINGWAY_E_OVER: c_int = -12;
/// The endpoint has as many connections as its options allow, or the identifier of a connection is in use.
pub const RINGWAY_E_CONNECTIONS: c_int = -13;
/// The network interface or the NIC of a link cannot be used. The text says why, and what would help.
pub const RINGWAY_E_INTERFACE: c_int = -14;
/// The rest of a long message has to be sent before anything else (ringway_lwep_send_long).
pub const RINGWAY_E_IN_MESSAGE: c_int = -15;

/// Returns the text of an error code. The text is constant.
#[unsafe(no_mangle)]
pub extern "C" fn ringway_strerror(code: c_int) -> *const c_char {
    let text = match code {
        0.. => c"no error",
        RINGWAY_E_ARGUMENT => c"an argument is NULL or out of range",
        RINGWAY_E_NAME => c"the name is not that of a port or a link",
        RINGWAY_E_SHAPE => c"the shape is not possible",
        RINGWAY_E_UNREACHABLE => c"no switch listens at the socket",
        RINGWAY_E_REFUSED => c"the switch refused the request",
        RINGWAY_E_ENDED => c"the port or the link has ended",
        RINGWAY_E_SYSTEM => c"the dialogue with the switch failed",
        RINGWAY_E_MEMORY => c"the shared memory is not what the port needs",
        RINGWAY_E_LENGTH => c"the frame or the message is too long",
        RINGWAY_E_OFFLOAD => c"the offload header contradicts itself",
        RINGWAY_E_INTERRUPTED => c"a signal has ended the wait",
        RINGWAY_E_OVER => c"the connection is over",
        RINGWAY_E_CONNECTIONS => c"the endpoint takes no further connection, or has this one",
        RINGWAY_E_INTERFACE => c"the network interface cannot be used",
        RINGWAY_E_IN_MESSAGE => c"the rest of a long message has to be sent before anything else",
        _ => c"unknown error code",
    };
    text.as_ptr()
}

/// Returns the code of an error in attaching.
pub(crate) fn code(error: &AttachError) -> c_int {
    match error {
        AttachError::Name(ringway_abi::attach::MessageError::Shape(_)) => RINGWAY_E_SHAPE,
        AttachError::Name(_) => RINGWAY_E_NAME,
        AttachError::Unreachable { .. } => RINGWAY_E_UNREACHABLE,
        AttachError::Refused(_) => RINGWAY_E_REFUSED,
        AttachError::Interrupted => RINGWAY_E_INTERRUPTED,
        AttachError::Dialogue(_) => RINGWAY_E_SYSTEM,
        AttachError::Memory(_) => RINGWAY_E_MEMORY,
    }
}

/// Copies a text into the caller's buffer, if there is one: cut to its size, and ended by a NUL.
///
/// # Safety
/// `buffer` is NULL, or `size` bytes can be written there.
pub(crate) unsafe fn copy_text(text: &str, buffer: *mut c_char, size: usize) {
    let Some(room) = size.checked_sub(1) else { return };
    if buffer.is_null() {
        return;
    }
    let end = text.floor_char_boundary(room.min(text.len()));
    // SAFETY: `end` and the NUL are at most `size` bytes, which the caller vouches for; `text` is not in the caller's buffer.
    unsafe {
        buffer.copy_from_nonoverlapping(text.as_ptr().cast(), end);
        buffer.add(end).write(0);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    #[test]
    fn every_code_has_a_text_of_its_own() {
        // SAFETY: the texts are constant.
        let text = |code| unsafe { CStr::from_ptr(ringway_strerror(code)) }.to_str().unwrap();
        let texts: std::collections::BTreeSet<_> = (-16..=0).map(text).collect();
        assert_eq!(texts.len(), 17, "{texts:?}");
        assert_eq!(text(-17), text(i32::MIN));
    }

    #[test]
    fn a_text_is_cut_to_the_buffer_at_the_start_of_a_character() {
        let cut = |text: &str, size| {
            let mut buffer = [0x7f; 8];
            // SAFETY: no more than the buffer's size.
            unsafe { copy_text(text, buffer.as_mut_ptr(), size) };
            buffer.map(|byte| byte as u8)
        };
        assert_eq!(&cut("lan0", 8)[..5], b"lan0\0");
        assert_eq!(&cut("lan0", 4)[..5], b"lan\0\x7f");
        assert_eq!(&cut("l\u{e4}n", 3)[..3], b"l\0\x7f");
        assert_eq!(cut("lan0", 0), [0x7f; 8]);
        // SAFETY: NULL is allowed.
        unsafe { copy_text("lan0", std::ptr::null_mut(), 8) };
    }
}
