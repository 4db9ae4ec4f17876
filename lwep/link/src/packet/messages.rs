//! What sendmmsg(2) takes: a row of messages, each with a header of its own and a frame somewhere else.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

use ringway_abi::Offload;

/// `struct virtio_net_hdr`, which is before each frame (`PACKET_VNET_HDR`).
pub(super) type Header = [u8; Offload::BYTES];

/// A row of messages.
pub(super) struct Messages {
    headers: Box<[Header]>,
    /// Of each message: its header and its frame.
    pieces: Box<[[libc::iovec; 2]]>,
    messages: Box<[libc::mmsghdr]>,
}

// SAFETY: the pointers refer to `headers` and `pieces`, which move with them, and to frames. Nothing else refers to the
// former. The caller of `send` promises that the frames are there.
unsafe impl Send for Messages {}

impl Messages {
    pub(super) fn new(count: usize) -> Messages {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut headers = vec![[0; Offload::BYTES]; count].into_boxed_slice();
        let start = |header: &mut Header| libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() };
        let mut pieces: Box<[_]> = headers.iter_mut().map(|header| [start(header), nothing]).collect();
        let message = |pieces: &mut [libc::iovec; 2]| {
            // SAFETY: all zeroes is a valid message: numbers and null pointers.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = pieces.as_mut_ptr();
            message.msg_hdr.msg_iovlen = pieces.len() as _;
            message
        };
        let messages = pieces.iter_mut().map(message).collect();
        Messages { headers, pieces, messages }
    }

    /// Sets where the frame of a message is.
    #[inline]
    pub(super) fn set_frame(&mut self, at: usize, start: NonNull<u8>, len: usize) {
        self.pieces[at][1] = libc::iovec { iov_base: start.as_ptr().cast(), iov_len: len };
    }

    #[inline]
    pub(super) fn set_header(&mut self, at: usize, header: Header) {
        self.headers[at] = header;
    }

    /// Sends messages. Returns how many the kernel has taken.
    ///
    /// # Errors
    /// The kernel has not taken the first one.
    ///
    /// # Safety
    /// The frames of these messages are memory of this process.
    pub(super) unsafe fn send(&mut self, socket: &OwnedFd, range: Range<usize>) -> io::Result<usize> {
        let messages = &mut self.messages[range];
        let (count, flags) = (messages.len() as libc::c_uint, libc::MSG_DONTWAIT);
        // SAFETY: the messages refer to headers and pieces of this row, and to frames that are there by the caller's word.
        let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, flags as _) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
