//! Frames to a device.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use ringway_abi::layout::MAX_SLOTS_PER_FRAME;
use ringway_switch::{Counters, DropReason, Frame, Frames, Output, PortFault};

/// The head and the pieces of the rest.
const MAX_PIECES: usize = 1 + MAX_SLOTS_PER_FRAME;

pub(super) struct TapOutput {
    device: Arc<OwnedFd>,
}

/// Why a frame did not arrive.
enum Refused {
    Dropped(DropReason),
    Lost,
}

impl TapOutput {
    pub(super) fn new(device: Arc<OwnedFd>) -> Self {
        Self { device }
    }

    /// Hands one frame to the kernel, which takes it whole or not at all.
    #[inline]
    fn write(&self, frame: &Frame<'_, '_>) -> Result<(), Refused> {
        const NONE: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut pieces = [NONE; MAX_PIECES];
        let count = 1 + frame.rest.len();
        let Some(pieces) = pieces.get_mut(..count) else {
            return Err(Refused::Dropped(DropReason::ReceiverTooSmall));
        };
        pieces[0] = libc::iovec { iov_base: frame.head.0.as_ptr().cast_mut().cast(), iov_len: frame.head_len };
        for (piece, rest) in pieces[1..].iter_mut().zip(frame.rest) {
            *piece = libc::iovec { iov_base: rest.as_ptr().cast(), iov_len: rest.len() };
        }
        loop {
            // SAFETY: every piece is a slice or view that is mapped while `frame` lives, and is only read; `count` is at
            // most MAX_PIECES. Bytes that a client changes meanwhile arrive old or new.
            let written = unsafe { libc::writev(self.device.as_raw_fd(), pieces.as_ptr(), count as libc::c_int) };
            if written >= 0 {
                return Ok(());
            }
            return Err(match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Refused::Dropped(DropReason::ReceiverFull),
                // A page of the sender's memory cannot be had any more.
                Some(libc::EFAULT) => Refused::Dropped(DropReason::BadBuffer),
                Some(libc::EINVAL | libc::EMSGSIZE) => Refused::Dropped(DropReason::ReceiverTooSmall),
                Some(libc::EBADFD) => Refused::Lost,
                // EIO: it is down.
                _ => Refused::Dropped(DropReason::ReceiverDown),
            });
        }
    }
}

impl Output for TapOutput {
    fn deliver(&mut self, mut frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let (mut delivered, mut bytes) = (0, 0);
        let mut lost = false;
        for frame in frames.by_ref() {
            match self.write(&frame) {
                Ok(()) => {
                    delivered += 1;
                    bytes += frame.len as u64;
                }
                Err(Refused::Dropped(reason)) => counters.drop_out(reason, 1),
                Err(Refused::Lost) => {
                    lost = true;
                    break;
                }
            }
        }
        counters.add_out(delivered, bytes);
        if lost {
            // The one that could not be written, and those that were not tried.
            counters.drop_out(DropReason::ReceiverDown, 1 + frames.count() as u64);
            return Err(PortFault::DeviceLost);
        }
        Ok(())
    }
}
