//! A TAP device as an endpoint: one system call for each frame, because Linux offers nothing else here.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::endpoint::Endpoint;
use crate::wire::MAX_FRAME;

/// Room that is reported. The kernel takes a frame at once or drops it; there is no ring to fill.
const ROOM: usize = 256;

/// A TAP device in the network namespace in which it was opened. Opening creates the device unless it exists; a created
/// device is removed with this.
pub struct Tap {
    file: File,
    name: String,
    tx: Box<[u8]>,
    rx: Box<[u8]>,
    /// Length of a frame in `tx` for which the kernel had no room.
    pending: Option<usize>,
    /// Why the device can no longer be used. The next wait returns the error.
    failed: Option<io::Error>,
}

impl Tap {
    /// Opens the device `name`. This needs CAP_NET_ADMIN, or a device that belongs to this user.
    ///
    /// # Errors
    /// The name is empty or longer than 15 bytes, or the device cannot be opened.
    pub fn open(name: &str) -> io::Result<Tap> {
        let fail = |error: io::Error| io::Error::new(error.kind(), format!("TAP device `{name}`: {error}"));
        let file = open_device(name, false).map_err(fail)?;
        let buffer = || vec![0; MAX_FRAME].into_boxed_slice();
        Ok(Tap { file, name: name.to_owned(), tx: buffer(), rx: buffer(), pending: None, failed: None })
    }

    /// Writes the frame in `tx`. Returns false when the kernel has no room for it.
    fn write(&mut self, len: usize) -> bool {
        loop {
            match self.file.write(&self.tx[..len]) {
                Ok(_) => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.fail(&error);
                    }
                    return false;
                }
            }
        }
    }

    fn send_pending(&mut self) -> bool {
        match self.pending {
            None => true,
            Some(len) => {
                let sent = self.failed.is_none() && self.write(len);
                if sent {
                    self.pending = None;
                }
                sent
            }
        }
    }

    fn fail(&mut self, error: &io::Error) {
        let down =
            if error.raw_os_error() == Some(libc::EIO) { " (set the device up: ip link set DEVICE up)" } else { "" };
        let name = &self.name;
        self.failed = Some(io::Error::new(error.kind(), format!("TAP device `{name}`: {error}{down}")));
    }
}

impl Endpoint for Tap {
    fn tx_room(&mut self) -> usize {
        if self.send_pending() { ROOM } else { 0 }
    }

    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if len > self.tx.len() || self.failed.is_some() || !self.send_pending() {
            return false;
        }
        fill(&mut self.tx[..len]);
        if !self.write(len) {
            self.pending = Some(len);
        }
        true
    }

    fn tx_flush(&mut self) {
        self.send_pending();
    }

    fn rx_batch(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while taken < max && self.failed.is_none() {
            match self.file.read(&mut self.rx) {
                Ok(0) => break,
                Ok(len) => {
                    take(&self.rx[..len]);
                    taken += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.fail(&error);
                    }
                    break;
                }
            }
        }
        taken
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let flags = if for_rx { PollFlags::IN } else { PollFlags::OUT };
        let mut fds = [PollFd::from_borrowed_fd(self.file.as_fd(), flags)];
        let timeout = Timespec::try_from(timeout).ok();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) if fds[0].revents().contains(PollFlags::ERR) => {
                Err(io::Error::other(format!("TAP device `{}` is down or was removed", self.name)))
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Opens the device `name` for a program that reads and writes it itself. `header`: each frame has the offload header
/// before it (IFF_VNET_HDR).
///
/// # Errors
/// Those of [`Tap::open`].
pub fn open_device(name: &str, header: bool) -> io::Result<File> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0', '%']) {
        let wrong = "the name must have 1 to 15 bytes, without `/` and `%`";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, wrong));
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(|error| io::Error::new(error.kind(), format!("/dev/net/tun: {error}")))?;
    attach(&file, name, if header { libc::IFF_VNET_HDR } else { 0 })?;
    Ok(file)
}

/// Attaches a descriptor of /dev/net/tun to the device (Linux, Documentation/networking/tuntap.rst).
#[allow(unsafe_code)]
fn attach(file: &File, name: &str, more: libc::c_int) -> io::Result<()> {
    // SAFETY: all zeroes is a valid ifreq: numbers, arrays of numbers, and pointers that the kernel does not follow.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0: the caller has checked that the name is shorter.
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | more) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call, and the kernel keeps no pointer to it.
    match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};

    /// A pipe replaces a device that is sometimes full: TAP devices of today's kernels drop frames instead.
    #[test]
    fn a_frame_the_kernel_has_no_room_for_is_kept_and_sent_later() {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK).expect("a pipe");
        let buffer = || vec![0; MAX_FRAME].into_boxed_slice();
        let (name, file) = (String::from("pipe"), File::from(write));
        let mut tap = Tap { file, name, tx: buffer(), rx: buffer(), pending: None, failed: None };
        let mut pushed = 0u64;
        while tap.tx_push(64, |frame| frame[..8].copy_from_slice(&pushed.to_be_bytes())) {
            pushed += 1;
            assert!(pushed < 1_000_000, "a pipe that is never full");
        }
        assert_eq!(tap.tx_room(), 0);
        let (mut read, mut arrived, mut frame) = (File::from(read), 0u64, [0; 64]);
        while arrived < pushed {
            match read.read(&mut frame) {
                Ok(len) => assert_eq!((len, frame[..8] == arrived.to_be_bytes()), (64, true), "frame {arrived}"),
                Err(error) => panic!("{arrived} of {pushed} frames arrived: {error}"),
            }
            arrived += 1;
            tap.tx_flush();
        }
        assert_eq!(tap.tx_room(), ROOM);
    }
}
