//! Where the installed compiler is, and whether others could replace it.
//!
//! What the compiler writes runs in this process: whoever can replace the compiler can do what this process can. So only those may be able to
//! who could replace this program, or anything, in any case: root, this user, the owner of this program, and the owner of the root folder
//! (root may have no number in a name space of users).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use rustix::process::geteuid;

use crate::unacceptable::Unacceptable;

/// The file name of the compiler.
pub const COMPILER: &str = "ringway-program-compiler";

/// Finds the compiler that belongs to this program.
///
/// # Errors
/// There is none, or others could replace it.
pub(super) fn installed() -> Result<PathBuf, Unacceptable> {
    let unknown = |error| Unacceptable::system(&format!("this program's folder is not known: {error}"));
    let own = env::current_exe().map_err(unknown)?;
    // Also if the file has been replaced, and the path leads nowhere.
    let owner = fs::metadata("/proc/self/exe").map_err(unknown)?.uid();
    let trusted = [0, geteuid().as_raw(), owner, fs::metadata("/").map_err(unknown)?.uid()];
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.to_owned(), folder.join("../libexec/ringway")];
    let Some(file) = places.iter().map(|place| place.join(COMPILER)).find(|file| file.symlink_metadata().is_ok())
    else {
        let [beside, libexec] = places.map(|place| place.display().to_string());
        return Err(Unacceptable::system(&format!(
            "forwarding programs need {COMPILER}, which is neither in {beside} nor in {libexec}: install it from Ringway's sources with \
             \"cargo install --path crates/forwarding --features compiler\", or with \"make build\" and \"make install\""
        )));
    };
    checked(&file, &trusted)
        .map_err(|why| Unacceptable::system(&format!("the compiler of forwarding programs is not used: {why}")))
}

/// Returns the path of an executable without symbolic links, if nobody but these users can replace the file, or a folder on the way to it.
///
/// # Errors
/// Others can. The error says what would be right.
fn checked(file: &Path, trusted: &[u32]) -> Result<PathBuf, String> {
    let cannot = |error| format!("cannot look at {}: {error}", file.display());
    // The folder of a link could be another's.
    if !file.symlink_metadata().map_err(cannot)?.is_file() {
        return Err(format!("{} is no regular file", file.display()));
    }
    let file = file.canonicalize().map_err(cannot)?;
    for place in file.ancestors() {
        judge(place, Some(place) == file.parent(), trusted)?;
    }
    Ok(file)
}

/// Checks that only these users can change a file, or what is in a folder.
fn judge(place: &Path, is_own_folder: bool, trusted: &[u32]) -> Result<(), String> {
    let here = place.display();
    // A link that somebody put in a folder's place meanwhile belongs to him.
    let about = place.symlink_metadata().map_err(|error| format!("cannot look at {here}: {error}"))?;
    if !trusted.contains(&about.uid()) {
        return Err(format!(
            "{here} belongs to user {}, who could put another program in its place: install the compiler as root or as this user",
            about.uid()
        ));
    }
    // In a folder like /tmp, others can add files, and replace only their own.
    let is_sticky = about.is_dir() && about.mode() & 0o1000 != 0 && !is_own_folder;
    // Many distributions give each user a group of the same number, and let this group write.
    let is_of_one_user = about.gid() == about.uid() && about.gid() != 0;
    let others = if is_of_one_user { 0o002 } else { 0o022 };
    if about.mode() & others != 0 && !is_sticky {
        return Err(format!("others can write to {here}, and put another program in its place: \"chmod go-w\" it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    /// A compiler in `above/folder`, and what is wrong with it.
    struct Installed(tempfile::TempDir);

    impl Installed {
        fn new() -> Installed {
            let installed = Installed(tempfile::tempdir().expect("a folder"));
            fs::create_dir_all(installed.path("above/folder")).expect("folders");
            fs::write(installed.path("above/folder/compiler"), "").expect("a file");
            for place in ["", "above", "above/folder", "above/folder/compiler"] {
                installed.set(place, 0o755);
            }
            installed
        }

        fn path(&self, place: &str) -> PathBuf {
            self.0.path().join(place)
        }

        fn set(&self, place: &str, mode: u32) {
            set_permissions(self.path(place), Permissions::from_mode(mode)).expect("a mode");
        }

        fn judged(&self) -> Result<PathBuf, String> {
            let own = geteuid().as_raw();
            let root = fs::metadata("/").expect("a folder").uid();
            checked(&self.path("above/folder/compiler"), &[0, own, root])
        }
    }

    #[test]
    fn a_compiler_that_only_its_users_can_replace_is_used() {
        let installed = Installed::new();
        assert_eq!(installed.judged(), Ok(installed.path("above/folder/compiler").canonicalize().expect("a file")));
        installed.set("above", 0o1777);
        installed.judged().expect("others cannot replace what is in a sticky folder");
    }

    #[test]
    fn a_compiler_that_others_can_replace_is_refused_with_the_place_and_what_to_do() {
        let installed = Installed::new();
        for place in ["above", "above/folder", "above/folder/compiler"] {
            for mode in [0o757, 0o777] {
                installed.set(place, mode);
                let why = installed.judged().expect_err("others can");
                let named = installed.path(place).canonicalize().expect("a place").display().to_string();
                assert!(why.starts_with(&format!("others can write to {named}, and")), "{mode:o} {why}");
                assert!(why.contains("\"chmod go-w\" it"), "{why}");
            }
            installed.set(place, 0o755);
        }
        installed.set("above/folder", 0o1777);
        installed.judged().expect_err("others can put a file there first");
    }

    #[test]
    fn a_group_may_write_only_if_it_is_a_users_own() {
        if !geteuid().is_root() {
            return;
        }
        let installed = Installed::new();
        for place in ["above", "above/folder/compiler"] {
            for (owner, group, is_used) in [(0, 0, false), (0, 100, false), (7, 7, true), (7, 100, false)] {
                chown(installed.path(place), Some(owner), Some(group)).expect("an owner");
                installed.set(place, 0o775);
                let judged = checked(&installed.path("above/folder/compiler"), &[0, 7]);
                assert_eq!(judged.is_ok(), is_used, "{place} of {owner}:{group}: {judged:?}");
            }
            chown(installed.path(place), Some(0), Some(0)).expect("an owner");
            installed.set(place, 0o755);
        }
    }

    #[test]
    fn a_compiler_of_another_user_or_in_his_folder_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let installed = Installed::new();
        for place in ["above", "above/folder", "above/folder/compiler"] {
            chown(installed.path(place), Some(65533), None).expect("an owner");
            let why = installed.judged().expect_err("another's");
            assert!(why.contains(" belongs to user 65533, who could put another program in its place"), "{why}");
            checked(&installed.path("above/folder/compiler"), &[0, 65533]).expect("trusted in any case");
            chown(installed.path(place), Some(0), None).expect("an owner");
        }
    }

    #[test]
    fn a_link_to_a_compiler_is_refused() {
        let installed = Installed::new();
        symlink(installed.path("above/folder/compiler"), installed.path("link")).expect("a link");
        let why = checked(&installed.path("link"), &[0, geteuid().as_raw()]).expect_err("a link");
        assert!(why.ends_with("/link is no regular file"), "{why}");
    }
}
