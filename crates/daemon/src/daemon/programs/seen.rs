//! What a program needs, as it was seen: a program is tried again when that has changed.

use std::fs::metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ringway_config::ProgramKeys;
use ringway_keeper::opener::open_to_read;

/// What a file is: device, inode, size, and the times of its last change and of the last change of its inode.
type FileState = Option<(u64, u64, u64, [i64; 4])>;

/// What a program needs, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    files: [FileState; 2],
    can_load: bool,
}

impl Seen {
    /// As if it needed nothing, and there were no compiler.
    pub fn nothing() -> Self {
        Self { files: [None; 2], can_load: false }
    }

    /// Looks at the files that a program needs. `can_load`: there is a compiler.
    pub fn now(keys: &ProgramKeys, can_load: bool) -> Self {
        let state = |path: &Path| {
            let about = metadata(path).or_else(|why| match why.kind() {
                // The opener may look into folders that this process may not.
                ErrorKind::PermissionDenied => open_to_read(path)?.metadata(),
                _ => Err(why),
            });
            let about = about.ok()?;
            let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
            Some((about.dev(), about.ino(), about.size(), times))
        };
        Self { files: [state(&keys.program), state(&keys.config_file)], can_load }
    }
}
