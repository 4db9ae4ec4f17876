//! Files: the switch opens only what is named here. What it has open stays.

use std::fs::File;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::missing::Missing;

/// What the rules are written for. Later kernels have more, which these do not use.
const KNOWN: ABI = ABI::V7;

/// Files that stay accessible, beside those that every process needs: what `/proc/self` has of itself, `/dev/null`, and its own executable with its libraries, for the
/// closer. No directory can be opened but those below `write`.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Files that are read.
    pub read: Vec<PathBuf>,
    /// Directories in which files are read, written, made and removed.
    pub write: Vec<PathBuf>,
}

/// Gives up all other files, signals to processes outside, and TCP ports, in this thread and those that it starts.
///
/// # Errors
/// The kernel has no Landlock, or not all of it.
pub fn give_up_files(files: &Files) -> Result<(), Missing> {
    match restrict(files) {
        Ok(RulesetStatus::FullyEnforced) => Ok(()),
        Ok(RulesetStatus::PartiallyEnforced) => {
            Err("the switch keeps some access to files and processes: this kernel is older than 6.12 (Landlock)".to_owned())
        }
        Ok(RulesetStatus::NotEnforced) => {
            Err("the switch keeps its access to files: this kernel has no Landlock (CONFIG_SECURITY_LANDLOCK, and \"landlock\" in lsm=)".to_owned())
        }
        Err(why) => Err(format!("the switch keeps its access to files: {why}")),
    }
}

fn restrict(files: &Files) -> Result<RulesetStatus, RulesetError> {
    let read = BitFlags::from(AccessFs::ReadFile);
    let load = BitFlags::from(AccessFs::ReadFile) | AccessFs::Execute;
    let all = AccessFs::from_all(KNOWN);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?;
    let device = BitFlags::from(AccessFs::ReadFile) | AccessFs::WriteFile;
    let own = [("/proc/self", read), ("/dev/null", device), ("/etc/ld.so.cache", read)];
    let own = own.into_iter().map(|(path, access)| (PathBuf::from(path), access));
    let read = files.read.iter().map(|path| (path.clone(), read));
    let loaded = loaded().into_iter().map(|path| (path, load));
    let write = files.write.iter().map(|path| (path.clone(), all & !BitFlags::from(AccessFs::Execute)));
    // Read-only, and of a file: whoever gets it comes nowhere by it.
    let pin = File::open("/proc/self/stat");
    for (path, access) in own.chain(read).chain(loaded).chain(write) {
        // What is not there cannot be opened either.
        if let Ok(file) = PathFd::new(&path) {
            rules = rules.add_rule(PathBeneath::new(file, access))?;
        }
    }
    // A rule is one for an inode, and the kernel makes another one of the same folder in `/proc` when it has forgotten that, for want of memory: not while a
    // file below it is open.
    std::mem::forget(pin);
    Ok(rules.restrict_self()?.ruleset)
}

/// The executable of this process, its loader and its libraries.
fn loaded() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| {
        let path = line.get(line.find('/')?..)?;
        line.split(' ').nth(1)?.contains('x').then(|| PathBuf::from(path))
    });
    let mut paths: Vec<_> = mapped.chain([PathBuf::from("/proc/self/exe")]).collect();
    paths.sort();
    paths.dedup();
    paths
}
