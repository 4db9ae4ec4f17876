//! Frames to a descriptor that takes a frame with its header in each write: a TAP device, or a packet socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use ringway_memory::View;
use ringway_switch::{
    Accepts, Bell, CallReason, CallResult, Counters, DropReason, Frame, Frames, Offload, Output, OutputCapabilities,
    PortFault,
};

use crate::device_closing::ClosedApart;
use crate::tap_file::{DeviceFile, Header, Offloads};

/// Most pieces of a frame: the header, the head, and as many further pieces as a frame can have.
const MAX_PIECES: usize = 2 + u8::MAX as usize;

pub(crate) struct SocketOutput {
    device: Arc<ClosedApart<DeviceFile>>,
    accepts: Accepts,
    header: Header,
}

/// Why a frame was not written.
enum Refused {
    Dropped(DropReason),
    Lost,
}

/// Reads a byte of every page, which faults in missing pages.
#[cold]
fn touch(piece: &View<'_>) {
    const PAGE: usize = 4096;
    for at in (0..piece.len()).step_by(PAGE).chain([piece.len().saturating_sub(1)]) {
        let _ = piece.sub(at, 1).is_some_and(|byte| byte.read(&mut [0]));
    }
}

impl SocketOutput {
    pub(crate) fn new(device: Arc<ClosedApart<DeviceFile>>, offloads: Offloads) -> Self {
        Self { device, accepts: offloads.accepts(), header: offloads.header() }
    }

    /// Writes one frame. The kernel takes it as a whole or not at all.
    #[inline]
    fn write(&self, frame: &Frame<'_, '_>) -> Result<(), Refused> {
        let mut pieces = [const { MaybeUninit::<libc::iovec>::uninit() }; MAX_PIECES];
        let count = 2 + frame.rest().len();
        let Some(others) = pieces.get_mut(..count) else {
            return Err(Refused::Dropped(DropReason::ReceiverTooSmall));
        };
        let piece = |start: *const u8, bytes| libc::iovec { iov_base: start.cast_mut().cast(), iov_len: bytes };
        // Its first bytes are the plain header.
        let header = Offload::encode_tunnelled(frame.offload());
        others[0].write(piece(header.as_ptr(), self.header.bytes()));
        others[1].write(piece(frame.head().0.as_ptr(), frame.head_len()));
        for (other, rest) in others[2..].iter_mut().zip(frame.rest()) {
            other.write(piece(rest.as_ptr(), rest.len()));
        }
        let mut touched = false;
        loop {
            // SAFETY: the first `count` pieces are written. Each is a slice or view that is mapped while `frame` lives,
            // and is only read. Bytes that a client changes meanwhile arrive in the old or the new state.
            let written =
                unsafe { libc::writev(self.device.as_fd().as_raw_fd(), pieces.as_ptr().cast(), count as libc::c_int) };
            if written >= 0 {
                return Ok(());
            }
            return Err(match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => Refused::Dropped(DropReason::ReceiverFull),
                // A page of the sender's memory is not present yet, or was lost.
                Some(libc::EFAULT) if !std::mem::replace(&mut touched, true) => {
                    frame.rest().iter().for_each(touch);
                    continue;
                }
                Some(libc::EFAULT) => Refused::Dropped(DropReason::BadBuffer),
                // A header that the switch accepts and the kernel does not.
                Some(libc::EINVAL) if frame.offload().is_some() => Refused::Dropped(DropReason::ReceiverDown),
                Some(libc::EINVAL | libc::EMSGSIZE) => Refused::Dropped(DropReason::ReceiverTooSmall),
                // The device is gone: of a TAP device, of a packet socket.
                Some(libc::EBADFD | libc::ENXIO | libc::ENODEV) => Refused::Lost,
                // EIO, ENETDOWN: the device is down.
                _ => Refused::Dropped(DropReason::ReceiverDown),
            });
        }
    }
}

impl Output for SocketOutput {
    fn capabilities(&self) -> OutputCapabilities {
        OutputCapabilities { accepts: self.accepts, ..OutputCapabilities::default() }
    }

    fn deliver(&mut self, mut frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        let (mut delivered, mut bytes) = (0, 0);
        let mut lost = false;
        for frame in frames.by_ref() {
            match self.write(&frame) {
                Ok(()) => {
                    delivered += 1;
                    bytes += frame.len() as u64;
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
            // The frame that could not be written, and the frames that were not tried.
            counters.drop_out(DropReason::ReceiverDown, 1 + frames.count() as u64);
            return Err(PortFault::DeviceLost);
        }
        Ok(())
    }
}

/// A bell without effect: a write returns after the kernel has taken the frame, so there is nobody to wake.
pub(crate) struct NoBell;

impl Bell for NoBell {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}
