//! The archive that a kernel unpacks as its first file system.

/// A cpio archive in the format "newc" (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;

impl Archive {
    /// Adds a directory. Paths are relative to the root, without a leading slash. Parents must be added first.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, FILE, content);
    }

    /// Adds an executable file.
    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    /// Returns the whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        // Fields: inode, mode, uid, gid, links, mtime, size, device (2), device of a device file (2), length of the
        // name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn cpio_unpacks_what_is_packed() {
        let mut archive = Archive::default();
        archive.directory("a");
        archive.file("a/text", b"hello");
        archive.program("a/empty", b"");
        let dir = tempfile::tempdir().unwrap();
        let mut cpio = Command::new("cpio");
        cpio.args(["-i", "--quiet", "--no-absolute-filenames"]).current_dir(dir.path()).stdin(Stdio::piped());
        let mut cpio = cpio.spawn().expect("cpio is a Debian package");
        cpio.stdin.take().unwrap().write_all(&archive.finish()).unwrap();
        assert!(cpio.wait().unwrap().success());
        assert_eq!(std::fs::read(dir.path().join("a/text")).unwrap(), b"hello");
        assert_eq!(std::fs::read(dir.path().join("a/empty")).unwrap(), b"");
        use std::os::unix::fs::PermissionsExt;
        let mode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("a/empty"), mode("a/text")), (0o755, 0o644));
    }
}
