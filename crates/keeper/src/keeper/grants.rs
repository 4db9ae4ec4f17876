//! What administrators let the switch have, beside what its configuration names: lines that only the opener understands.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

/// Most bytes of all of them.
const BYTES_MOST: usize = 1 << 20;

/// The lines, in a memory file that openers read. The switch has no descriptor of it.
#[derive(Debug)]
pub(super) struct Grants {
    file: File,
    bytes: usize,
    lines: HashSet<Vec<u8>>,
}

impl Grants {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { file: memfd_create("ringway-grants", MemfdFlags::CLOEXEC)?.into(), bytes: 0, lines: HashSet::new() })
    }

    /// What another keeper had in this file.
    pub(super) fn of(file: OwnedFd) -> io::Result<Self> {
        let file = File::from(file);
        let mut lines = vec![0; usize::try_from(file.metadata()?.len()).unwrap_or(0).min(BYTES_MOST)];
        file.read_exact_at(&mut lines, 0)?;
        let bytes = lines.len();
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_owned).collect();
        Ok(Self { file, bytes, lines })
    }

    /// The file, for another opener.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Adds a line.
    ///
    /// # Errors
    /// It is none, or there is no room: the reason, for users.
    pub(super) fn add(&mut self, line: &[u8]) -> Result<(), String> {
        // Openers read up to the first zero, behind which they have their own notes.
        if line.is_empty() || line.iter().any(|byte| matches!(byte, 0 | b'\n')) {
            return Err("what was granted is no line".to_owned());
        }
        if self.lines.contains(line) {
            return Ok(());
        }
        if self.bytes + line.len() + 1 > BYTES_MOST {
            return Err(
                "more was granted than there is room for: name ports in the configuration file, and restart".to_owned()
            );
        }
        let whole = [line, b"\n"].concat();
        self.file.write_all(&whole).map_err(|why| format!("the keeper has no memory left: {why}"))?;
        self.bytes += whole.len();
        self.lines.insert(line.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn a_line_that_would_hide_later_ones_is_refused() {
        let mut grants = Grants::new().expect("memory");
        for line in [&b""[..], b"a\nb", b"a\0b", b"\0"] {
            assert!(grants.add(line).is_err(), "{line:?}");
        }
        assert_eq!(grants.add(b"c"), Ok(()));
        let mut bytes = [0; 8];
        let read = grants.file().and_then(|file| file.read_at(&mut bytes, 0)).expect("the file");
        assert_eq!(&bytes[..read], b"c\n");
    }
}
