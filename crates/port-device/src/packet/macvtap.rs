//! A macvtap by the path of its device: a network device on top of another one, whose frames a program reads and writes
//! (`drivers/net/tap.c` of Linux).
//!
//! A macvtap in passthru mode has all frames of the lower device, and in bridge mode those to its own address and group frames.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ringway_keeper::Guard;
use ringway_netdevice::requests;
use ringway_port::port_io::PortIo;
use ringway_runtime::{Signal, Watch};
use ringway_switch::{Armed, Batch, Discarded, Input, InputCapabilities, PortFault, WakeOn};
use rustix::fs::{Mode, OFlags};

use crate::device_closing::ClosedApart;
use crate::device_watch::{COLLECT, DeviceWatch, OpenWatch};
use crate::kept::{OpenDevice, numbers, unreadable};
use crate::socket_output::{NoBell, SocketOutput};
use crate::tap_file::{DeviceFile, Offloads, TapInput, set_offloads};

/// An open macvtap.
pub(super) struct OpenMacvtap {
    file: OwnedFd,
    offloads: Offloads,
    watch: OpenWatch,
}

impl OpenMacvtap {
    pub(super) fn open(path: &str) -> io::Result<Self> {
        // Opening anything else may have effects of its own: a tape is rewound, a watchdog begins to run.
        let number = path.strip_prefix("/dev/tap").filter(|number| !number.is_empty());
        if !number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(not_a_macvtap(path, io::ErrorKind::InvalidInput));
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file: OwnedFd =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|error| cannot_open(path, error.into()))?;
        let (name, address) = identify(&file).map_err(|error| not_a_macvtap(path, error.kind()))?;
        let failed = |what: &str, error: &io::Error| {
            io::Error::new(error.kind(), format!("macvtap {path} (\"{name}\"): cannot {what}: {error}"))
        };
        let watch = OpenWatch::open(&name, false)?;
        if watch.address() != address {
            let what = "it is in another network namespace: name that by \"netns\"";
            return Err(failed("use it", &io::Error::other(what)));
        }
        let mut request = requests::request(&name)?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        requests::ioctl(file.as_fd(), libc::TUNSETIFF, &mut request).map_err(|error| failed("set it up", &error))?;
        let offloads = set_offloads(file.as_fd()).map_err(|error| failed("set its offloads", &error))?;
        match requests::lengthen_queue(&name, watch.requests()) {
            // Setting it takes CAP_NET_ADMIN.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                return Err(failed("set its queue's length", &error));
            }
            _ => {}
        }
        requests::bring_up(&name, watch.requests()).map_err(|error| failed("bring it up", &error))?;
        Ok(Self { file, offloads, watch })
    }
}

impl OpenDevice for OpenMacvtap {
    type Port = PortIo;

    fn left(files: Vec<OwnedFd>, note: &str) -> io::Result<Self> {
        let mut files = files.into_iter();
        let (offloads, note) = note.split_once('\n').ok_or_else(unreadable)?;
        let [offloads] = numbers(offloads)?;
        let file = files.next().ok_or_else(unreadable)?;
        let watch = OpenWatch::left(&mut files, false, note)?;
        // If another device has its number now, the events tell of the end of this one. The file would tell only with the kernel's lock of network devices.
        watch.check()?;
        Ok(Self { file, offloads: Offloads::numbered(offloads)?, watch })
    }

    fn files(&self) -> Vec<BorrowedFd<'_>> {
        [self.file.as_fd()].into_iter().chain(self.watch.files()).collect()
    }

    fn note(&self) -> String {
        format!("{}\n{}", self.offloads.number(), self.watch.note())
    }

    fn port(self, kept: &Arc<Guard>) -> io::Result<PortIo> {
        let watch = DeviceWatch::new(self.watch)?;
        let file = Arc::new(ClosedApart::new(DeviceFile::new(self.file, kept)));
        let ready = Watch::new();
        ready.add(file.clone())?;
        watch.join(&ready)?;
        let input = MacvtapInput { frames: TapInput::new(Arc::clone(&file), self.offloads.header())?, watch };
        let output = SocketOutput::new(file, self.offloads);
        Ok(PortIo {
            input: Box::new(input),
            output: Box::new(output),
            bell: Box::new(NoBell),
            signal: Signal::Device(ready),
        })
    }
}

/// Returns the name and the address of the macvtap whose file this is.
fn identify(file: &OwnedFd) -> io::Result<(String, [u8; 6])> {
    let mut request = requests::request("?")?;
    requests::ioctl(file.as_fd(), libc::TUNGETIFF, &mut request)?;
    let name = requests::name_in(&request)?;
    let address = requests::address(&name, file.as_fd())?;
    Ok((name, address.ok_or(io::ErrorKind::InvalidData)?))
}

fn not_a_macvtap(path: &str, kind: io::ErrorKind) -> io::Error {
    let what = "it is not a macvtap: write the path of one, \"/dev/tap\" with its number in \"ip link\"";
    io::Error::new(kind, format!("cannot open macvtap {path}: {what}"))
}

fn cannot_open(path: &str, error: io::Error) -> io::Error {
    let help = match error.kind() {
        io::ErrorKind::NotFound => {
            ": make a macvtap (ip link add link DEVICE name NAME type macvtap mode passthru); its number in \"ip link\" is that of the path"
        }
        io::ErrorKind::PermissionDenied => ": this user may not open it: chown it to this user",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot open macvtap {path}: {error}{help}"))
}

/// The input of a macvtap. Reading does not tell that the device is gone: the watch does.
struct MacvtapInput {
    frames: TapInput,
    watch: DeviceWatch,
}

impl Input for MacvtapInput {
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        self.watch.report(batch)?;
        if self.watch.is_due(COLLECT) {
            self.watch.look(0);
        }
        self.frames.collect(batch)
    }

    fn release(&mut self) {
        self.frames.release();
    }

    fn capabilities(&self) -> InputCapabilities {
        self.frames.capabilities()
    }

    fn rewind(&mut self, frames: usize) {
        self.frames.rewind(frames);
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        self.frames.discard(most)
    }

    fn pending(&mut self) -> bool {
        self.watch.has_report() || self.frames.pending()
    }

    fn has_frames(&mut self) -> bool {
        self.frames.has_frames()
    }

    fn arm(&mut self, wake_on: WakeOn) -> Armed {
        self.watch.look(0);
        Armed::with_kick(self.watch.has_report() || wake_on == WakeOn::Frames && self.frames.pending())
    }

    fn disarm(&mut self) {}
}

#[cfg(test)]
mod tests {
    use ringway_switch::Offload;

    use super::*;
    use crate::tap_file::Header;
    use ringway_port::testing::{frame_sockets, is_readable, visit_until_asleep, with_pair};

    #[test]
    fn a_macvtap_is_pending_until_a_read_finds_nothing() {
        with_pair(|| {
            let (device, stack) = frame_sockets();
            let frames = TapInput::new(
                Arc::new(ClosedApart::new(DeviceFile::of_test(device.try_clone().expect("a descriptor")))),
                Header::Plain,
            )
            .expect("memory");
            let mut input = MacvtapInput {
                frames,
                watch: DeviceWatch::new(OpenWatch::open("x0", false).expect("a device")).expect("a device"),
            };
            for (frames, most) in [(0, 4), (3, 4), (9, 4)] {
                (0..frames).for_each(|_| {
                    rustix::io::write(&stack, &[0; Offload::BYTES + 60]).expect("a frame");
                });
                assert_eq!(visit_until_asleep(&mut input, || is_readable(&device), most), frames);
            }
        });
    }
}
