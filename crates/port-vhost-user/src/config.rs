//! The device's configuration space (virtio 1.3, 5.1.4), for front ends that leave it to the back end (protocol feature CONFIG).
//! QEMU's virtio-net and Cloud Hypervisor have a space of their own and do not ask; QEMU 7.1.0 to 7.2.2 crashes where CONFIG is offered.

use super::message::ConfigRange;
use super::settings::Settings;

/// Bytes of the space, the most that a front end may ask for (QEMU, `VHOST_USER_MAX_CONFIG_SIZE`).
pub const CONFIG_BYTES: usize = 256;

/// `VIRTIO_NET_S_LINK_UP`.
const LINK_UP: u16 = 1;
/// Speed and duplex mode, as they are while they are unknown.
const SPEED_AND_DUPLEX: [u8; 5] = [0xff; 5];

/// The space of a port. The bytes after the known fields are zero.
#[derive(Debug)]
pub struct ConfigSpace([u8; CONFIG_BYTES]);

impl ConfigSpace {
    pub fn new(settings: &Settings) -> ConfigSpace {
        let mut space = [0; CONFIG_BYTES];
        space[..6].copy_from_slice(&settings.mac.unwrap_or_default());
        space[6..8].copy_from_slice(&LINK_UP.to_le_bytes());
        space[8..10].copy_from_slice(&settings.queues.to_le_bytes());
        space[10..12].copy_from_slice(&settings.mtu.unwrap_or(0).to_le_bytes());
        space[12..17].copy_from_slice(&SPEED_AND_DUPLEX);
        ConfigSpace(space)
    }

    /// Returns the bytes of a range, or `None` if the range is empty or not inside.
    pub fn read(&self, range: ConfigRange) -> Option<&[u8]> {
        let (from, size) = (usize::try_from(range.offset).ok()?, usize::try_from(range.size).ok()?);
        self.0.get(from..from.checked_add(size)?).filter(|bytes| !bytes.is_empty())
    }
}
