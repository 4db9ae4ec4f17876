//! The libraries of `ringway exec`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The variable with the folder of the libraries.
const VARIABLE: &str = "RINGWAY_LIB_DIR";
/// libpcap's interface, below the folder of the libraries: the folder holds links of libpcap's names.
const PCAP: (&str, &str) = ("libpcap", "libpcap.so.0.8");
/// netmap's interface as it is installed, and as it is built: cargo puts it into `deps` also when it builds it for tests.
const NETMAP: [&str; 2] = ["libringway-netmap.so", "deps/libringway_netmap.so"];

/// The names that netmap's library has there.
const NETMAP_NAMES: [&str; 2] = ["libringway-netmap.so", "libringway_netmap.so"];

/// What a program is executed with.
#[derive(Debug, PartialEq, Eq)]
pub struct Libraries {
    /// The folder with a library of libpcap's names.
    pub pcap: PathBuf,
    /// The library that is preloaded, if it is there.
    pub netmap: Option<PathBuf>,
}

/// Finds the libraries.
///
/// # Errors
/// What was looked for, and where.
pub fn find() -> Result<Libraries, String> {
    let folders = match env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) {
        Some(folder) => vec![std::path::absolute(&folder).unwrap_or_else(|_| folder.into())],
        None => beside_own(env::current_exe().ok().as_deref()),
    };
    find_in(&folders)
}

/// Returns a list of preloaded libraries without netmap's library of another Ringway: within `ringway exec` of another version, a program
/// meets one library, the one that belongs to the command that executes it.
pub fn without_netmap(list: &OsStr) -> OsString {
    let is_other = |path: &&[u8]| {
        let name = Path::new(OsStr::from_bytes(path)).file_name();
        !path.is_empty() && !NETMAP_NAMES.iter().any(|netmap| name == Some(OsStr::new(netmap)))
    };
    // The dynamic linker separates by both.
    let libraries = list.as_bytes().split(|byte| matches!(byte, b' ' | b':')).filter(is_other);
    OsString::from_vec(libraries.collect::<Vec<_>>().join(&b' '))
}

/// The folders beside this program.
fn beside_own(own: Option<&Path>) -> Vec<PathBuf> {
    let Some(folder) = own.and_then(Path::parent) else { return Vec::new() };
    let installed = folder.parent().map(|above| above.join("lib/ringway"));
    [Some(folder.to_owned()), installed].into_iter().flatten().collect()
}

fn find_in(folders: &[PathBuf]) -> Result<Libraries, String> {
    let (folder, name) = PCAP;
    let Some(found) = folders.iter().find(|candidate| candidate.join(folder).join(name).is_file()) else {
        let looked: Vec<String> =
            folders.iter().map(|candidate| candidate.join(folder).join(name).display().to_string()).collect();
        return Err(format!(
            "Ringway's library for libpcap programs is not there: looked for {}. Install Ringway's libraries, or name their folder in \
             {VARIABLE}",
            looked.join(" and ")
        ));
    };
    let text = found.to_string_lossy();
    if text.contains([':', ';', ' ']) {
        return Err(format!(
            "the libraries are in {text:?}: the dynamic linker takes no folder whose name has a colon, a semicolon or a space"
        ));
    }
    let netmap = NETMAP.iter().map(|name| found.join(name)).find(|library| library.is_file());
    Ok(Libraries { pcap: found.join(folder), netmap })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(parent: &Path, name: &str, files: &[&str]) -> PathBuf {
        let folder = parent.join(name);
        for file in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        folder
    }

    #[test]
    fn libraries_are_found_in_the_first_folder_that_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let empty = folder(dir.path(), "empty", &["other"]);
        let pcap = folder(dir.path(), "a", &["libpcap/libpcap.so.0.8"]);
        let both = folder(dir.path(), "b", &["libpcap/libpcap.so.0.8", "libringway-netmap.so"]);
        let found = find_in(&[empty.clone(), pcap.clone(), both.clone()]);
        assert_eq!(found, Ok(Libraries { pcap: pcap.join("libpcap"), netmap: None }));
        let found = find_in(&[empty.clone(), both.clone()]);
        assert_eq!(
            found,
            Ok(Libraries { pcap: both.join("libpcap"), netmap: Some(both.join("libringway-netmap.so")) })
        );
        let said = find_in(std::slice::from_ref(&empty)).unwrap_err();
        assert!(said.contains(&format!("looked for {}/libpcap/libpcap.so.0.8", empty.display())), "{said}");
        assert!(said.contains("RINGWAY_LIB_DIR"), "{said}");
    }

    #[test]
    fn a_folder_that_the_dynamic_linker_would_cut_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let spaced = folder(dir.path(), "a b", &["libpcap/libpcap.so.0.8"]);
        assert!(find_in(&[spaced]).unwrap_err().contains("a space"));
    }

    #[test]
    fn the_library_of_another_command_is_not_preloaded() {
        let without = |list: &str| without_netmap(OsStr::new(list));
        assert_eq!(without("/usr/local/lib/ringway/libringway-netmap.so"), "");
        assert_eq!(without("/a/libringway_netmap.so:/b/other.so libringway-netmap.so /c.so"), "/b/other.so /c.so");
        assert_eq!(without(""), "");
    }

    #[test]
    fn the_libraries_beside_a_command_come_before_installed_ones() {
        let dir = tempfile::tempdir().unwrap();
        let own = folder(dir.path(), "bin", &["libpcap/libpcap.so.0.8", "deps/libringway_netmap.so"]);
        folder(dir.path(), "lib/ringway", &["libpcap/libpcap.so.0.8", "libringway-netmap.so"]);
        let found = find_in(&beside_own(Some(&own.join("ringway"))));
        let netmap = Some(own.join("deps/libringway_netmap.so"));
        assert_eq!(found, Ok(Libraries { pcap: own.join("libpcap"), netmap }));
    }

    #[test]
    fn an_installed_command_looks_in_lib_ringway() {
        let folders = beside_own(Some(Path::new("/usr/local/bin/ringway")));
        assert_eq!(folders, [PathBuf::from("/usr/local/bin"), PathBuf::from("/usr/local/lib/ringway")]);
    }
}
