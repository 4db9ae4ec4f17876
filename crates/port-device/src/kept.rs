//! Devices outlive the switch: the keeper has copies of a device's descriptors, and a note of what they do not say themselves.
//!
//! To open a device takes privileges, and the network namespace of the device. Its result is a [`OpenDevice`], which is as good as its descriptors and its
//! note. To make a port of that takes neither: a successor does so with what its predecessor left.

use std::fmt::Debug;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use ringway_keeper::{Guard, Inherited, Link};
use ringway_runtime::warn_limited;

/// Longest wait for the keeper to close a device, which waits for the kernel's lock of network devices.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// An open device of one kind.
pub(crate) trait OpenDevice: Sized {
    /// What the switch and the engine take.
    type Port;

    /// The device that a predecessor left: these descriptors and this note of it.
    ///
    /// # Errors
    /// The device is gone or not as it was, or the predecessor has written something else.
    fn left(files: Vec<OwnedFd>, note: &str) -> io::Result<Self>;

    /// The descriptors, in the order in which the keeper closes them.
    fn files(&self) -> Vec<BorrowedFd<'_>>;

    /// What the descriptors do not say.
    fn note(&self) -> String;

    /// Makes a port, which holds `kept` until its descriptors are closed.
    ///
    /// # Errors
    /// The kernel refuses, or memory that outlived a predecessor says what cannot be.
    fn port(self, kept: &Arc<Guard>) -> io::Result<Self::Port>;
}

/// Makes a port of the device that a predecessor had open with the same `settings`, or of the one that `open` opens. A device is the same by `name` and the
/// network namespace of the calling thread, whatever port it was. `kind` begins the name of what is kept.
///
/// # Errors
/// The device cannot be opened. The error says why, and what would help.
pub(crate) fn port<D: OpenDevice>(
    keeper: &Link,
    kind: &str,
    name: &str,
    settings: &impl Debug,
    open: impl FnOnce() -> io::Result<D>,
) -> io::Result<D::Port> {
    let place = format!("{kind}/{name} {:?}", namespace());
    // One line, whatever is in it.
    let settings = format!("{settings:?}");
    if let Some(Inherited { name: whole, note, files }) = keeper.inherit(&place) {
        let kept = Arc::new(Guard::of(keeper, whole, Some(CLOSED_WITHIN)));
        match go_on::<D>(files, &note, &settings, &kept) {
            Ok(port) => return Ok(port),
            Err(why) => {
                warn_limited(&format!("network device \"{name}\" is opened anew after the switch before: {why}"))
            }
        }
        // The keeper closes the last descriptors here: another program or socket would keep the device busy.
    }
    let device = open()?;
    let note = format!("{settings}\n{}", device.note());
    let kept = Guard::new(keeper, &place, note.as_bytes(), &device.files(), Some(CLOSED_WITHIN));
    let kept = kept
        .map_err(|why| io::Error::new(why.kind(), format!("network device \"{name}\": cannot have it kept: {why}")))?;
    device.port(&Arc::new(kept))
}

fn go_on<D: OpenDevice>(files: Vec<OwnedFd>, note: &[u8], settings: &str, kept: &Arc<Guard>) -> io::Result<D::Port> {
    let note = std::str::from_utf8(note).ok().and_then(|note| note.split_once('\n')).ok_or_else(unreadable)?;
    let device = D::left(files, note.1)?;
    if note.0 != settings {
        return Err(io::Error::other("its settings have changed"));
    }
    device.port(kept)
}

/// The error for a note, or memory, that no switch of this version has written.
pub(crate) fn unreadable() -> io::Error {
    io::Error::other("what was left of it cannot be read")
}

/// Reads the numbers of a note.
///
/// # Errors
/// There are others, or not so many.
pub(crate) fn numbers<const N: usize>(note: &str) -> io::Result<[u128; N]> {
    let numbers: Option<Vec<u128>> = note.split(' ').map(|word| word.parse().ok()).collect();
    numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(unreadable)
}

/// The number of the network namespace of the calling thread.
fn namespace() -> (u64, u64) {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net");
    namespace.map_or((0, 0), |namespace| (namespace.dev(), namespace.ino()))
}
