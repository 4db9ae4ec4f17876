//! Programs of the host.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// A program and its Debian package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    pub name: &'static str,
    package: &'static str,
}

impl Program {
    pub const fn new(name: &'static str, package: &'static str) -> Program {
        Program { name, package }
    }
}

pub const QEMU: Program = Program::new("qemu-system-x86_64", "qemu-system-x86");
pub const SETPRIV: Program = Program::new("setpriv", "util-linux");
pub const BUSYBOX: Program = Program::new("busybox", "busybox-static");
pub const LDD: Program = Program::new("ldd", "libc-bin");
/// Programs in guests, in addition to busybox.
pub const IN_GUESTS: [Program; 2] = [Program::new("ethtool", "ethtool"), Program::new("iperf3", "iperf3")];

/// Returns the path of a program.
pub fn find(program: Program) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(usual)
        .map(|dir| Path::new(&dir).join(program.name))
        .find(|file| file.is_file())
        .ok_or_else(|| Error::Missing { program: program.name.to_owned(), package: program.package.to_owned() })
}

/// Returns which programs for guests are missing, apart from kernels.
pub fn missing() -> Vec<Error> {
    [QEMU, SETPRIV, BUSYBOX, LDD].into_iter().chain(IN_GUESTS).filter_map(|program| find(program).err()).collect()
}
