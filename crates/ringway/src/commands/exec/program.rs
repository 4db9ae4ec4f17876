//! Programs that load no library, told before they run without it.

use std::env;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Most scripts that interpret each other.
const MOST_SCRIPTS: usize = 5;
/// Most bytes of a program header table, of a section header table, of names, of notes.
const MOST_TABLE: u64 = 1 << 20;
/// This machine's `e_machine`.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NEEDED: u64 = 1;

/// Returns the path of a program as the shell finds it.
pub fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|path| path.exists());
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let is_program = |file: &PathBuf| fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0);
    env::split_paths(&path).map(|dir| dir.join(name)).find(is_program)
}

/// Checks that a program would load libraries.
///
/// # Errors
/// Why it would not.
pub fn check(path: &Path) -> Result<(), String> {
    check_within(path, MOST_SCRIPTS)
}

fn check_within(path: &Path, scripts: usize) -> Result<(), String> {
    let shown = path.display();
    let mut file = match File::open(path) {
        Ok(file) => file,
        // A program may be executable and not readable. The kernel decides.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        Err(error) => return Err(format!("{shown} cannot be read: {error}")),
    };
    let meta = file.metadata().map_err(|error| format!("{shown} cannot be read: {error}"))?;
    if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
        return Err(format!("{shown} is no program: it is not executable"));
    }
    let mut head = [0; 256];
    let len = read_up_to(&mut file, &mut head).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let head = &head[..len];
    if let Some(line) = head.strip_prefix(b"#!") {
        let Some((interpreter, argument)) = interpreter(line) else { return Ok(()) };
        if scripts == 0 {
            return Err(format!("{shown} is a script whose interpreters are scripts, too many"));
        }
        // What env executes is the interpreter.
        if interpreter.file_name() == Some(OsStr::new("env")) {
            let name = argument.filter(|name| !name.as_bytes().starts_with(b"-"));
            if let Some(path) = name.as_deref().and_then(find) {
                return check_within(&path, scripts - 1);
            }
        }
        return check_within(&interpreter, scripts - 1);
    }
    if !head.starts_with(b"\x7fELF") {
        return Ok(());
    }
    if let Some(why) = changes_identity(path, &meta) {
        return Err(format!(
            "{shown} {why}: the dynamic linker ignores LD_LIBRARY_PATH and LD_PRELOAD for such a program. Run \
                            it as the user that it runs as"
        ));
    }
    match elf(&mut file, head) {
        Ok(kind) => kind.refusal().map_or(Ok(()), |why| Err(format!("{shown} {why}"))),
        // The kernel says what is wrong with the file.
        Err(_) => Ok(()),
    }
}

/// Returns the program of a script's first line, and its argument.
fn interpreter(line: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = line.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let mut words = line.splitn(2, |byte| byte.is_ascii_whitespace());
    let program = words.next().filter(|word| !word.is_empty())?;
    let argument = words.next().map(|word| OsStr::from_bytes(word.trim_ascii()).to_owned());
    Some((PathBuf::from(OsStr::from_bytes(program)), argument))
}

/// Says how a program gets other rights than its caller's, if it does.
fn changes_identity(path: &Path, meta: &fs::Metadata) -> Option<&'static str> {
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    if meta.mode() & 0o4000 != 0 && meta.uid() != user.as_raw() {
        return Some("is a set-user-ID program");
    }
    if meta.mode() & 0o2010 == 0o2010 && meta.gid() != group.as_raw() {
        return Some("is a set-group-ID program");
    }
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    let has_capabilities = rustix::fs::getxattr(&*name, c"security.capability", &mut [0u8; 64][..]).is_ok();
    (has_capabilities && !user.is_root()).then_some("has file capabilities")
}

/// What kind of ELF program a file is.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// It loads libraries.
    Dynamic,
    /// It is for other machines, or has 32 bits.
    Foreign,
    /// It has no dynamic linker.
    Static,
    /// Its dynamic linker is musl's.
    Musl,
    /// It is written in Go, and uses no libpcap.
    Go,
}

impl Kind {
    fn refusal(&self) -> Option<&'static str> {
        match self {
            Kind::Dynamic => None,
            Kind::Foreign => Some("is a program for another kind of processor: it cannot load Ringway's libraries"),
            Kind::Static => Some(
                "is statically linked: it loads no library, so that it cannot meet Ringway's. Use a dynamically linked build",
            ),
            Kind::Musl => Some("is linked with musl: it cannot load Ringway's libraries, which need the GNU C library"),
            Kind::Go => Some(
                "is a Go program without libpcap: it calls the kernel itself, not by the C library, so that it cannot meet \
                 Ringway's libraries. Give it a TAP port",
            ),
        }
    }
}

fn elf(file: &mut File, head: &[u8]) -> io::Result<Kind> {
    let bad = || io::Error::from(io::ErrorKind::InvalidData);
    if head.get(4..6) != Some(&[2, 1]) || u16_at(head, 18).ok_or_else(bad)? != MACHINE {
        return Ok(Kind::Foreign);
    }
    let table = |at: usize, size: usize, count: usize| -> Option<(u64, u64, usize)> {
        let size = u64::from(u16_at(head, size)?);
        Some((u64_at(head, at)?, size.checked_mul(u16_at(head, count)?.into())?, usize::try_from(size).ok()?))
    };
    let (at, bytes, size) = table(32, 54, 56).ok_or_else(bad)?;
    let segments = read_at(file, at, bytes)?;
    let mut interpreter = None;
    let mut dynamic = Vec::new();
    let mut loaded = Vec::new();
    for segment in segments.chunks_exact(size.max(56)) {
        let word = |at| u64_at(segment, at).unwrap_or(0);
        match u32_at(segment, 0) {
            Some(PT_INTERP) => interpreter = Some(read_at(file, word(8), word(32))?),
            Some(PT_DYNAMIC) => dynamic = read_at(file, word(8), word(32))?,
            Some(1) => loaded.push((word(16), word(8), word(32))),
            _ => {}
        }
    }
    let Some(interpreter) = interpreter else { return Ok(Kind::Static) };
    if interpreter.windows(7).any(|bytes| bytes == b"ld-musl") {
        return Ok(Kind::Musl);
    }
    let (at, bytes, size) = table(40, 58, 60).ok_or_else(bad)?;
    if is_go(file, head, (at, bytes, size)).unwrap_or(false) && !needs_libpcap(file, &dynamic, &loaded).unwrap_or(false)
    {
        return Ok(Kind::Go);
    }
    Ok(Kind::Dynamic)
}

/// Returns true if the program has the section that Go's linker writes.
fn is_go(file: &mut File, head: &[u8], (at, bytes, size): (u64, u64, usize)) -> Option<bool> {
    let sections = read_at(file, at, bytes).ok()?;
    let mut sections = sections.chunks_exact(size.max(64));
    let names = sections.clone().nth(u16_at(head, 62)?.into())?;
    let names = read_at(file, u64_at(names, 24)?, u64_at(names, 32)?).ok()?;
    let is_named = |section: &[u8]| {
        let at = u32_at(section, 0)? as usize;
        Some(names.get(at..)?.starts_with(b".note.go.buildid\0"))
    };
    Some(sections.any(|section| is_named(section).unwrap_or(false)))
}

/// Returns true if a dynamic section asks for libpcap. `loaded` has the address, place and size of each part of the file in memory.
fn needs_libpcap(file: &mut File, dynamic: &[u8], loaded: &[(u64, u64, u64)]) -> Option<bool> {
    let entries =
        || dynamic.chunks_exact(16).map(|entry| (u64_at(entry, 0).unwrap_or(0), u64_at(entry, 8).unwrap_or(0)));
    let find = |tag| entries().find(|entry| entry.0 == tag).map(|entry| entry.1);
    let (strings, size) = (find(5)?, find(10)?);
    let (address, place, _) =
        loaded.iter().find(|(address, _, size)| strings.checked_sub(*address).is_some_and(|offset| offset < *size))?;
    let strings = read_at(file, place.checked_add(strings - address)?, size).ok()?;
    let needed = entries().filter(|entry| entry.0 == DT_NEEDED);
    Some(needed.into_iter().any(|(_, at)| {
        strings.get(usize::try_from(at).unwrap_or(usize::MAX)..).is_some_and(|name| name.starts_with(b"libpcap.so"))
    }))
}

fn read_up_to(file: &mut File, into: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < into.len() {
        match file.read(&mut into[len..])? {
            0 => break,
            count => len += count,
        }
    }
    Ok(len)
}

fn read_at(file: &mut File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    if bytes > MOST_TABLE {
        return Err(io::ErrorKind::InvalidData.into());
    }
    file.seek(SeekFrom::Start(at))?;
    let mut buffer = vec![0; bytes as usize];
    file.read_exact(&mut buffer)?;
    Ok(buffer)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
