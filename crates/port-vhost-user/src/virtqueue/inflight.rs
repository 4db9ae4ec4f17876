//! The note of frames in flight: the range of a queue that was taken from the guest and not given back yet.
//!
//! A batch is delivered before its buffers go back. A process that is killed between the two leaves buffers that a successor
//! would deliver a second time. A poller therefore notes the range of a batch before delivery, with one store per batch, in
//! memory that outlives the process:
//!
//! - in memory that the front end keeps (vhost-user, "Inflight I/O tracking", INFLIGHT_SHMFD; the layout is the back end's
//!   own),
//! - or in a file of one page in the runtime directory (`.inflight-SOCKET`), for front ends that keep no such memory for
//!   network devices, as QEMU. The file belongs to the socket, because a front end keeps its socket when its port is
//!   renamed. The runtime directory is best on a tmpfs, as `/run` is, because the page is written all the time.
//!
//! Frames are taken and given back in order, so two numbers describe a queue: the position of the first frame that was not
//! given back, and the position behind the last frame that was taken. A successor that begins at the first position gives
//! those buffers back unsent, because they may have been delivered: nothing is delivered twice. A successor that begins at
//! the second position knows that the buffers were given back. What was taken and not delivered is lost.
//!
//! The note is a hint. It counts only if it agrees with the ring: a front end can write its own memory, and a file may
//! describe another guest, or a guest that has booted since. The file therefore also names the ring: the file of the guest's
//! memory (every QEMU has one of its own), the ring's addresses and its size. One case stays undetected: a guest that booted
//! again in the same QEMU while no switch was there begins at position 0, and the noted range may begin there, too. A switch
//! dies in that one of thousands of batches; the guest then loses the frames of one batch.
//!
//! # Packed rings
//!
//! A packed ring does not say how far it is. QEMU (7.2) does not know after a lost connection either: it repeats the position
//! of the first connection. For packed rings the note is therefore also the successor's starting position, in both directions
//! ([`crate::virtqueue::Packed`]), if the ring was served before: some descriptor has USED set, or a range was given back. (A
//! guest that has booted since has cleared the ring.) What is given back there becomes visible with its first descriptor.
//! That word is noted as well, and a successor completes what a predecessor left half given back (`Packed::take_over`).
//!
//! An orderly end of the process or of the port leaves an equally good note: a file that describes a packed ring is set aside
//! as `.left.inflight-SOCKET` until a port with that socket exists again. The 1,024 newest such files are kept.
//!
//! While there is no switch, QEMU (7.2) discards what the guest sends. In a packed ring QEMU discards from the last position
//! that QEMU knew, wherever the guest is. If such descriptors are ahead, a successor gives back unsent what is before them
//! and goes on behind them.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringway_keeper::opener::{Answered, Ask, Identity, Refusal, Reply, Said, of_process};
use ringway_keeper::{Guard, Inherited, Link};
use ringway_memory::{Kept, MapError, Mapping, OverQuota, Quota};
use rustix::fs::{FlockOperation, MemfdFlags, Mode, OFlags, SealFlags, flock};
use rustix::io::Errno;

use crate::settings::MOST_QUEUES;
use ringway_port::guest::{Area, check_backing};
use ringway_runtime::warn_limited;

/// Longest wait for the opener.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Bytes for each queue: a cache line, as another poller may write each.
const STRIDE: usize = 64;
/// Words of a queue's line.
const WORDS: usize = STRIDE / 8;
const PAGE: u64 = 4096;
/// Indices of the words in a queue's line. `RANGE`: the range in flight, two positions of 32 bits. `WHOSE`: the hash of
/// the ring, 0 for none. `HELD`: the word that is written last, at the first position.
const RANGE: usize = 0;
const WHOSE: usize = 1;
const HELD: usize = 2;
/// The hash of any ring, for memory that belongs to one guest only.
pub const ANY_RING: u64 = 0x5257_4e4f;

/// Why the memory cannot be used. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum InflightError {
    /// Size or offset do not fit the file or the number of queues.
    #[error("inflight memory of {size} bytes at offset {offset} of a file of {file} bytes for {queues} queues")]
    Place {
        /// Size in bytes.
        size: u64,
        /// Offset in the file.
        offset: u64,
        /// Length of the file in bytes.
        file: u64,
        /// Number of queues.
        queues: u16,
    },
    /// The memory would exceed the limit of the port or of all ports together.
    #[error("{0}")]
    Limit(OverQuota),
    /// The kernel refuses the mapping.
    #[error("inflight memory cannot be had: {0}")]
    Map(#[from] io::Error),
}

impl From<MapError> for InflightError {
    fn from(error: MapError) -> InflightError {
        match error {
            MapError::Limit(over) => InflightError::Limit(over),
            MapError::Kernel(error) => InflightError::Map(error),
        }
    }
}

/// In-flight memory for all queues of a device.
#[derive(Debug)]
pub struct Inflight {
    mapping: Arc<Mapping>,
}

impl Inflight {
    /// Makes in-flight memory for `queues` queues, which the front end will keep. The file is sealed: it can neither
    /// shrink nor grow.
    ///
    /// # Errors
    /// The kernel has no memory or descriptors left.
    pub fn create(queues: u16) -> io::Result<(Area, OwnedFd)> {
        let size = bytes(queues);
        let file = rustix::fs::memfd_create("ringway-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&file, size)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Area { size, offset: 0 }, file))
    }

    /// Maps in-flight memory that the front end has kept.
    ///
    /// # Errors
    /// The area is too small, not aligned or outside the file, the port would exceed its memory limit, or the kernel
    /// refuses.
    pub fn map(quota: &Arc<Quota>, file: &OwnedFd, area: Area, queues: u16) -> Result<Inflight, InflightError> {
        let Area { size, offset } = area;
        check_backing(file)?;
        let has = u64::try_from(rustix::fs::fstat(file).map_err(io::Error::from)?.st_size).unwrap_or(0);
        let inside = offset.checked_add(size).is_some_and(|end| end <= has);
        if !inside || !offset.is_multiple_of(PAGE) || size < bytes(queues) {
            return Err(InflightError::Place { size, offset, file: has, queues });
        }
        Ok(Inflight { mapping: Arc::new(Mapping::given(file.as_fd(), offset, bytes(queues) as usize, quota)?) })
    }
}

/// In-flight memory in a file, for a port whose front end has no INFLIGHT_SHMFD. When it is dropped, the file is
/// removed, unless a line holds the position of a packed ring: then the file is renamed and kept, because the guest may
/// continue and nothing else holds that position.
///
/// The file is locked. The next port with the same socket may be opened before this one has gone: it then makes another
/// file, and this one leaves that alone.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    file: OwnedFd,
    pub memory: Arc<Inflight>,
    /// The keeper has the file, too: a dead switch has it locked until the kernel has closed it.
    _kept: Option<Guard>,
}

impl Record {
    /// Makes the file, or opens the one that a predecessor has left.
    ///
    /// # Errors
    /// The file cannot be made at `path`.
    #[cfg(test)]
    pub fn open(path: &Path, queues: u16) -> io::Result<Record> {
        Self::open_kept(path, queues, &Link::default(), "")
    }

    /// The same. The keeper has it under this name.
    ///
    /// # Errors
    /// The file cannot be made at `path`.
    pub fn open_kept(path: &Path, queues: u16, keeper: &Link, name: &str) -> io::Result<Record> {
        let size = bytes(queues);
        let (file, kept) = match left(keeper, name, path, size) {
            Some((file, kept)) => (Ok(file), Some(kept)),
            None => (open_anew(path, size), None),
        };
        let mapped = file.and_then(|file| Ok((Mapping::shared_at(file.as_fd(), 0, size as usize)?, file)));
        let (mapping, file) =
            mapped.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        // Without that, a successor opens it by its path.
        let keep = || {
            let kept = Guard::new(keeper, name, &[], &[file.as_fd()], None);
            kept.inspect_err(|why| warn_limited(&format!("{} will not outlive the switch: {why}", path.display()))).ok()
        };
        let kept = kept.or_else(keep);
        let memory = Arc::new(Inflight { mapping: Arc::new(mapping) });
        Ok(Record { path: path.to_owned(), file, memory, _kept: kept })
    }

    fn holds_a_position(&self) -> bool {
        let words = self.memory.mapping.whole().words64().unwrap_or_default();
        words.as_chunks::<WORDS>().0.iter().any(|line| line[WHOSE].load(Ordering::Acquire) != 0)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let Ok(own) = rustix::fs::fstat(&self.file) else { return };
        let (identity, keep) = ((own.st_dev, own.st_ino), self.holds_a_position());
        let ask = Ask::EndRecord { path: self.path.clone(), identity, keep };
        // If the file cannot be removed, it is harmless.
        if of_process().ask_done(&ask, &[], ANSWERED_WITHIN).is_none() {
            end_here(&self.path, identity, keep);
        }
        // The keeper closes its descriptor later.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// The file that a predecessor left with the keeper, if it is still the one at the path, and as long.
fn left(keeper: &Link, name: &str, path: &Path, size: u64) -> Option<(OwnedFd, Guard)> {
    let Inherited { name, files, .. } = keeper.inherit(name)?;
    let kept = Guard::of(keeper, name, None);
    let file = files.into_iter().next()?;
    let (own, there) = (rustix::fs::fstat(&file).ok()?, rustix::fs::lstat(path).ok()?);
    let fits = (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino) && own.st_size == size as i64;
    fits.then_some((file, kept))
}

fn open_anew(path: &Path, size: u64) -> io::Result<OwnedFd> {
    let ask = Ask::Record { path: path.to_owned(), size };
    match of_process().ask_done(&ask, &[], ANSWERED_WITHIN) {
        None => open_here(path, size),
        Some(files) => files?.into_iter().next().ok_or_else(|| io::ErrorKind::InvalidData.into()),
    }
}

/// Does what the switch asks the opener about records.
///
/// # Errors
/// The kernel refuses, or the question is about something else.
pub fn answer_about_record(ask: &Ask) -> Answered {
    let files = match ask {
        Ask::Record { path, size } if *size <= bytes(2 * MOST_QUEUES) => open_here(path, *size).map(|file| vec![file]),
        Ask::EndRecord { path, identity, keep } => {
            end_here(path, *identity, *keep);
            Ok(Vec::new())
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    };
    files.map(|files| Reply { said: Said::Done, files }).map_err(|why| Refusal::from(&why))
}

/// Makes the locked file of a record, or opens the one that a predecessor has left.
fn open_here(path: &Path, size: u64) -> io::Result<OwnedFd> {
    // Fails if no file was kept aside, which is the normal case.
    let _ = std::fs::rename(kept_path(path), path);
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let open = || rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
    let lock = |file: &OwnedFd| flock(file, FlockOperation::NonBlockingLockExclusive);
    let mut file = open()?;
    if lock(&file) == Err(Errno::WOULDBLOCK) {
        std::fs::remove_file(path)?;
        file = open()?;
        lock(&file)?;
    }
    if rustix::fs::fstat(&file)?.st_size != size as i64 {
        // Writes zeroes, so that the pages exist.
        rustix::fs::ftruncate(&file, 0)?;
        rustix::io::pwrite(&file, &vec![0; size as usize], 0)?;
    }
    Ok(file)
}

/// Removes the file at the path, or keeps it aside, if it is this one.
fn end_here(path: &Path, own: Identity, keep: bool) {
    if !rustix::fs::lstat(path).is_ok_and(|there| (there.st_dev, there.st_ino) == own) {
        return;
    }
    if keep {
        let _ = std::fs::rename(path, kept_path(path));
        remove_oldest(path);
    } else {
        let _ = std::fs::remove_file(path);
    }
}

/// Prefix of the names of files that are kept aside.
const KEPT_PREFIX: &str = ".left";
/// Most files kept aside in one directory; the newest are kept.
const MOST_KEPT: usize = 1024;

fn kept_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(KEPT_PREFIX);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Removes the oldest of the files kept aside next to `path`, if there are too many.
fn remove_oldest(path: &Path) {
    let Some(Ok(entries)) = path.parent().map(std::fs::read_dir) else { return };
    let mut files: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().starts_with(KEPT_PREFIX.as_bytes()))
        .filter_map(|entry| {
            Some((entry.metadata().ok().map(|about| (about.ctime(), about.ctime_nsec()))?, entry.path()))
        })
        .collect();
    files.sort();
    for (_, old) in files.iter().take(files.len().saturating_sub(MOST_KEPT)) {
        let _ = std::fs::remove_file(old);
    }
}

/// Returns the bytes of in-flight memory for `queues` queues.
fn bytes(queues: u16) -> u64 {
    u64::from(queues).saturating_mul(STRIDE as u64).next_multiple_of(PAGE).max(PAGE)
}

/// What a predecessor noted for one queue. Positions are in the format of GET_VRING_BASE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InflightRange {
    /// Position of the first chain that is not marked used.
    pub from: u32,
    /// Position after the last chain in flight.
    pub until: u32,
    /// The word that marks the first chain used, if chains after it may have been marked used before; 0 if there is no
    /// such word.
    pub held: u64,
}

/// The note of one queue: the range in flight, the hash of its ring, and the word that is written last.
#[derive(Debug)]
pub struct InflightNote {
    /// The queue's line, looked up once: a poller writes it several times for each batch.
    line: Kept<[AtomicU64; WORDS]>,
    ring: u64,
}

impl InflightNote {
    /// Returns the note of `queue`, whose ring has the hash `ring` (not 0). Returns `None` if the memory is for fewer
    /// queues.
    pub fn of(memory: &Arc<Inflight>, queue: u16, ring: u64) -> Option<InflightNote> {
        let offset = usize::from(queue).checked_mul(STRIDE)?;
        let line = Kept::new(&memory.mapping, |mapping| mapping.view(offset, STRIDE)?.words64()?.first_chunk())?;
        Some(InflightNote { line, ring })
    }

    /// Starts the note of this ring at position `base`, with no chain in flight.
    pub fn begin(&self, base: u32) {
        self.clear();
        self.hold(0);
        self.note(base, base);
        self.line[WHOSE].store(self.ring, Ordering::Release);
    }

    /// Notes that the chains from position `from` up to `until` are in flight (format of GET_VRING_BASE). Called before
    /// any of their frames is delivered.
    #[inline]
    pub fn note(&self, from: u32, until: u32) {
        self.line[RANGE].store(u64::from(from) << 32 | u64::from(until), Ordering::Release);
    }

    /// Notes the word that will be written at the first position once everything after it is written.
    #[inline]
    pub fn hold(&self, word: u64) {
        self.line[HELD].store(word, Ordering::Release);
    }

    /// Returns the last note, if it belongs to this ring.
    #[inline]
    pub fn noted(&self) -> Option<InflightRange> {
        let range = self.line[RANGE].load(Ordering::Acquire);
        let held = self.line[HELD].load(Ordering::Acquire);
        let is_own = self.line[WHOSE].load(Ordering::Acquire) == self.ring;
        is_own.then_some(InflightRange { from: (range >> 32) as u32, until: range as u32, held })
    }

    /// Notes that no chain is in flight.
    pub fn clear(&self) {
        self.line[WHOSE].store(0, Ordering::Release);
    }
}
