//! Messages to clients. A client that does not read its messages is not waited for.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use ringway_abi::attach::{REPLY_FDS, Reply};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Sends a message with up to [`REPLY_FDS`] descriptors.
///
/// # Errors
/// The client cannot have it now.
pub(super) fn send_with_descriptors(
    socket: &OwnedFd,
    message: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REPLY_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[io::IoSlice::new(message)], &mut ancillary, flags).map(|_| ())
}

/// Returns the reason for which a client loses its connection that could not be sent an answer, if it can be told.
pub(super) fn unsent(error: Errno) -> Option<&'static str> {
    (error == Errno::TOOMANYREFS).then_some(
        "the kernel allows the switch's user no more descriptors in messages that were not read: try again when the programs that \
         hold such messages have gone",
    )
}

/// Sends the reason for which a connection of the attach dialogue ends.
pub(super) fn send_reason(socket: &OwnedFd, reason: &str) {
    let message = Reply::Refused(reason.to_owned()).encode();
    // The client may have disconnected, or may not read. In both cases the end of the connection tells it.
    let _ = rustix::net::send(socket, &message, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}
