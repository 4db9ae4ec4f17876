//! Access by `uio_pci_generic` (Linux, Documentation/driver-api/uio-howto.rst). Without an IOMMU: the device reaches all memory.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use ringway_memory::Mapping;

use super::error::PciError;
use super::sysfs::Function;

/// The flag of an I/O port in sysfs' `resource` (IORESOURCE_IO).
const IO_PORT: u64 = 0x100;

/// A function by UIO.
#[derive(Debug)]
pub struct Uio {
    function: Function,
    config: File,
    /// `/dev/uioN`: its count of interrupts. The kernel ends bus mastering when it is closed.
    interrupts: File,
}

impl Uio {
    /// Opens a function that the driver has.
    pub fn open(function: &Function) -> Result<Uio, PciError> {
        let path = function.dir.join("uio");
        let number = fs::read_dir(&path).map_err(PciError::of(path.display().to_string()))?.flatten().next();
        let name = number.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let path = format!("/dev/{}", name.unwrap_or_else(|| "uio0".to_owned()));
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let interrupts = options.clone().custom_flags(libc::O_NONBLOCK).open(&path).map_err(PciError::of(path))?;
        let path = function.dir.join("config");
        let config = options.open(&path).map_err(PciError::of(path.display().to_string()))?;
        Ok(Uio { function: function.clone(), config, interrupts })
    }

    /// Maps a BAR.
    pub fn bar(&self, bar: usize) -> Result<Mapping, PciError> {
        let lacks = |what: String| PciError::Lacks { address: self.function.address.clone(), what };
        let resource = self.function.resource(bar);
        let (_, bytes, flags) = resource.ok_or_else(|| lacks(format!("has no BAR {bar}")))?;
        if flags & IO_PORT != 0 {
            return Err(lacks(format!("has I/O ports in BAR {bar}, which are not supported")));
        }
        let path = self.function.dir.join(format!("resource{bar}"));
        let name = path.display().to_string();
        let file = File::options().read(true).write(true).open(&path).map_err(PciError::of(&name))?;
        Mapping::shared(file.as_fd(), bytes).map_err(PciError::of(name))
    }

    /// Reads configuration space.
    pub fn config_read(&self, at: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        self.config.read_exact_at(bytes, at)
    }

    /// Writes configuration space.
    pub fn config_write(&self, at: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.config.write_all_at(bytes, at)
    }

    /// Returns the descriptor that becomes readable after an interrupt.
    pub fn interrupt(&self) -> BorrowedFd<'_> {
        self.interrupts.as_fd()
    }

    /// Takes interrupts that have come. Returns false if none has.
    pub fn take(&self) -> bool {
        let mut count = [0; 4];
        (&self.interrupts).read(&mut count).is_ok_and(|read| read > 0)
    }

    /// A function whose configuration space is this file.
    #[cfg(test)]
    pub fn local(config: File) -> std::io::Result<Uio> {
        let interrupts = config.try_clone()?;
        let function = Function { address: "0000:00:04.0".into(), dir: "/nonexistent".into() };
        Ok(Uio { function, config, interrupts })
    }
}
