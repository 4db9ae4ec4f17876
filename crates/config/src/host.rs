//! Facts about the machine that a configuration is checked against.

use std::fs;
use std::path::{Path, PathBuf};

/// Facts about the machine that settings are checked against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Numbers of the CPUs that are online, ascending.
    pub cpus: Vec<u32>,
    /// The directory of the daemon's sockets.
    pub runtime_dir: PathBuf,
}

impl Host {
    /// Reads the facts from the kernel, for a daemon with this runtime directory.
    pub fn here(runtime_dir: &Path) -> Self {
        let online = fs::read_to_string("/sys/devices/system/cpu/online");
        let runtime_dir = std::path::absolute(runtime_dir).unwrap_or_else(|_| runtime_dir.to_owned());
        Self { cpus: cpu_list(online.as_deref().unwrap_or("0").trim()), runtime_dir }
    }
}

/// Reads the kernel's list format: `0-3,8`.
fn cpu_list(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_cpu_list_is_understood() {
        assert_eq!(cpu_list("0-1"), [0, 1]);
        assert_eq!(cpu_list("0,2-4,9"), [0, 2, 3, 4, 9]);
        assert!(!Host::here(Path::new("/run")).cpus.is_empty());
    }
}
