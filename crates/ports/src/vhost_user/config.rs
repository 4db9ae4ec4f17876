//! The device's configuration space (virtio 1.3, 5.1.4), for front ends that leave it to the back end (protocol feature CONFIG).
//! QEMU's virtio-net and Cloud Hypervisor have a space of their own and do not ask.

use super::message::ConfigRange;
use super::settings::Settings;

/// Bytes of the space, the most that a front end may ask for (QEMU, `VHOST_USER_MAX_CONFIG_SIZE`).
pub const CONFIG_BYTES: usize = 256;

/// `VIRTIO_NET_S_LINK_UP`.
const LINK_UP: u16 = 1;
/// Speed and duplex mode, as they are while they are unknown.
const SPEED_AND_DUPLEX: [u8; 5] = [0xff; 5];
/// The field `mac`, the only one that a driver may write (virtio 1.3, 5.1.4.3).
const MAC_BYTES: usize = 6;

/// The space of one connection. The bytes after the known fields are zero.
#[derive(Clone, Debug)]
pub struct ConfigSpace([u8; CONFIG_BYTES]);

impl ConfigSpace {
    pub fn new(settings: &Settings) -> ConfigSpace {
        let mut space = [0; CONFIG_BYTES];
        space[..MAC_BYTES].copy_from_slice(&settings.mac.unwrap_or_default());
        space[6..8].copy_from_slice(&LINK_UP.to_le_bytes());
        space[8..10].copy_from_slice(&settings.queues.to_le_bytes());
        space[10..12].copy_from_slice(&settings.mtu.unwrap_or(0).to_le_bytes());
        space[12..17].copy_from_slice(&SPEED_AND_DUPLEX);
        ConfigSpace(space)
    }

    /// Returns the bytes of a range, or `None` if the range is empty or not inside.
    pub fn read(&self, range: ConfigRange) -> Option<&[u8]> {
        let (from, until) = bounds(range)?;
        self.0.get(from..until)
    }

    /// Writes a range. Fields that a driver can only read keep their values. Returns false if the range is empty or not inside.
    pub fn write(&mut self, range: ConfigRange, bytes: &[u8]) -> bool {
        let Some((from, until)) = bounds(range) else { return false };
        let writable = self.0.get_mut(from..until.min(MAC_BYTES)).unwrap_or_default();
        writable.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte);
        true
    }
}

fn bounds(range: ConfigRange) -> Option<(usize, usize)> {
    let (from, size) = (usize::try_from(range.offset).ok()?, usize::try_from(range.size).ok()?);
    let until = from.checked_add(size)?;
    (size > 0 && until <= CONFIG_BYTES).then_some((from, until))
}
