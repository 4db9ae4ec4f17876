//! Devices outlive the switch: the keeper has copies of a device's descriptors, and a note of what they do not say themselves.
//!
//! To open a device takes privileges, and the network namespace of the device. Its result is a [`OpenDevice`], which is as good as its descriptors and its
//! note. To make a port of that takes neither: a successor does so with what its predecessor left.

use std::fmt::Debug;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use ringway_keeper::{Guard, Inherited, Link};
use ringway_runtime::warn_limited;

use crate::device_closing::ClosedApart;

/// Longest wait for the keeper to close a device, which waits for the kernel's lock of network devices.
const CLOSED_WITHIN: Duration = Duration::from_secs(5);

/// An open device of one kind.
pub(crate) trait OpenDevice: Sized + 'static {
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

    /// Lets go of the device, which another process has now: nothing is set at it.
    fn let_go(self) {}

    /// Undoes what the predecessor has set at a device that nobody goes on with, and closes the descriptors.
    fn undo(files: Vec<OwnedFd>, note: &str) {
        let _ = (files, note);
    }

    /// Makes a port, which holds `kept` until its descriptors are closed.
    ///
    /// # Errors
    /// The kernel refuses, or memory that outlived a predecessor says what cannot be.
    fn port(self, kept: &Arc<Guard>) -> io::Result<Self::Port>;
}

/// The device of a port.
#[derive(Clone, Copy)]
pub(crate) struct Device<'a> {
    /// The beginning of the names of what is kept.
    pub(crate) kind: &'static str,
    /// Its name, or its path.
    pub(crate) name: &'a str,
    /// The name of the port, where several can have the same device: each goes on with its own descriptors. Otherwise empty.
    pub(crate) port: &'a str,
}

/// Makes a port of the device that a predecessor had open with the same `settings`, or of the one that `open` opens. A device is the same by its name and the
/// network namespace of the calling thread, whatever port it was.
///
/// # Errors
/// The device cannot be opened. The error says why, and what would help.
pub(crate) fn port<D: OpenDevice>(
    keeper: &Link,
    device: Device<'_>,
    settings: &impl Debug,
    open: impl FnOnce() -> io::Result<D>,
) -> io::Result<D::Port> {
    let place = device.place()?;
    if let Some(port) = left_at::<D>(keeper, &place, device, settings) {
        return Ok(port);
    }
    keep_open(keeper, &place, device, settings, open()?)
}

/// A device that was looked for with privileges, for a process that has none.
#[derive(Debug)]
pub struct Found {
    /// Where it is: the beginning of the name of what is kept.
    pub place: String,
    /// The note and the descriptors. None: a predecessor had it open.
    pub opened: Option<(String, Vec<OwnedFd>)>,
}

/// Opens a device in the network namespace of the calling thread, unless it is at one of the places in `left`.
///
/// # Errors
/// As of [`port`].
pub(crate) fn find<D: OpenDevice>(
    device: Device<'_>,
    left: &[String],
    open: impl FnOnce() -> io::Result<D>,
) -> io::Result<Found> {
    let place = device.place()?;
    if left.contains(&place) {
        return Ok(Found { place, opened: None });
    }
    let opened = open()?;
    let files = opened.files().into_iter().map(|file| file.try_clone_to_owned()).collect::<io::Result<_>>();
    let note = opened.note();
    opened.let_go();
    let opened = files.map(|files| (note, files));
    Ok(Found { place, opened: Some(opened?) })
}

/// Makes a port of a device that another process has found. `None`: a predecessor left it in a state that cannot be gone on with, and it has to be opened
/// anew.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn made<D: OpenDevice>(
    keeper: &Link,
    device: Device<'_>,
    settings: &impl Debug,
    found: Found,
) -> io::Result<Option<D::Port>> {
    let Found { place, opened } = found;
    let Some((note, files)) = opened else { return Ok(left_at::<D>(keeper, &place, device, settings)) };
    keep_open(keeper, &place, device, settings, D::left(files, &note)?).map(Some)
}

/// Returns true if a device of this kind and name, in whatever network namespace, is kept under this name.
#[must_use]
pub fn is_kept_of(name: &str, kind: &str, device: &str) -> bool {
    let rest = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('/')?.strip_prefix(device));
    rest.is_some_and(|rest| rest.starts_with(' '))
}

/// Has the keeper close devices that a predecessor left under `wanted` names and nobody has taken, after what the predecessor has set at them was undone: on a thread
/// of its own, as both wait for the kernel's lock of network devices.
pub(crate) fn let_go_of_left<D: OpenDevice>(keeper: &Link, wanted: impl Fn(&str) -> bool) {
    struct LetGo<D: OpenDevice>(Inherited, Link, PhantomData<fn() -> D>);

    impl<D: OpenDevice> Drop for LetGo<D> {
        fn drop(&mut self) {
            let Self(Inherited { name, note, files }, keeper, _) = self;
            if let Ok((_, note)) = read_note(note) {
                D::undo(std::mem::take(files), note);
            }
            files.clear();
            keeper.release(name);
        }
    }

    let all = keeper.inherit_where(wanted);
    all.into_iter().for_each(|left| drop(ClosedApart::new(LetGo::<D>(left, keeper.clone(), PhantomData))));
}

impl Device<'_> {
    /// The name under which it is kept, without a number.
    fn place(&self) -> io::Result<String> {
        let Device { kind, name, .. } = self;
        Ok(format!("{kind}/{name} {:?}", namespace()?))
    }
}

/// The port of what a predecessor left at this place. What cannot be used is closed.
fn left_at<D: OpenDevice>(keeper: &Link, place: &str, device: Device<'_>, settings: &impl Debug) -> Option<D::Port> {
    let is_own = |note: &[u8]| read_note(note).is_ok_and(|([_, port], _)| port == device.port);
    let Inherited { name: whole, note, files } = keeper.inherit_rather(place, is_own)?;
    let kept = Arc::new(Guard::of(keeper, whole, Some(CLOSED_WITHIN)));
    let gone_on = go_on::<D>(files, &note, &line(settings), &kept);
    // The keeper closes the last descriptors when `kept` is dropped: another program or socket would keep the device busy.
    let name = device.name;
    let say = |why| warn_limited(&format!("network device \"{name}\" is opened anew after the switch before: {why}"));
    gone_on.map_err(say).ok()
}

fn keep_open<D: OpenDevice>(
    keeper: &Link,
    place: &str,
    device: Device<'_>,
    settings: &impl Debug,
    opened: D,
) -> io::Result<D::Port> {
    let note = format!("{}\n{}\n{}", line(settings), device.port, opened.note());
    let kept = Guard::new(keeper, place, note.as_bytes(), &opened.files(), Some(CLOSED_WITHIN));
    let name = device.name;
    let kept = kept
        .map_err(|why| io::Error::new(why.kind(), format!("network device \"{name}\": cannot have it kept: {why}")))?;
    opened.port(&Arc::new(kept))
}

/// Settings in one line, whatever is in them.
fn line(settings: &impl Debug) -> String {
    format!("{settings:?}")
}

fn go_on<D: OpenDevice>(files: Vec<OwnedFd>, note: &[u8], settings: &str, kept: &Arc<Guard>) -> io::Result<D::Port> {
    let ([with, _], note) = read_note(note)?;
    // First: what the predecessor has set at the device is undone when this is dropped, before the device is opened anew.
    let device = D::left(files, note)?;
    if with != settings {
        return Err(io::Error::other("its settings have changed"));
    }
    device.port(kept)
}

/// The settings and the port in a note, and the device's own note.
fn read_note(note: &[u8]) -> io::Result<([&str; 2], &str)> {
    let lines = || {
        let (settings, rest) = std::str::from_utf8(note).ok()?.split_once('\n')?;
        let (port, own) = rest.split_once('\n')?;
        Some(([settings, port], own))
    };
    lines().ok_or_else(unreadable)
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
fn namespace() -> io::Result<(u64, u64)> {
    let path = "/proc/thread-self/ns/net";
    let namespace = std::fs::metadata(path).map_err(|why| io::Error::new(why.kind(), format!("{path}: {why}")))?;
    Ok((namespace.dev(), namespace.ino()))
}
