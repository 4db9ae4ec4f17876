//! Why a NIC cannot be used, and what to do.

use std::io;

/// Why a PCI function cannot be used. The texts are for users.
#[derive(Debug, thiserror::Error)]
pub enum PciError {
    /// Not an address.
    #[error("\"{0}\" is not the address of a PCI device: give one as \"lspci -D\" shows it, for example 0000:00:04.0")]
    Address(String),
    /// No device has the address.
    #[error("no PCI device {address} is here; network devices: {others}")]
    Absent {
        /// The address that was asked for.
        address: String,
        /// Addresses of network devices.
        others: String,
    },
    /// A driver of the kernel has the device.
    #[error(
        "{address} belongs to the driver {driver}: take its network interface down, then run \"echo {address} \
         >/sys/bus/pci/devices/{address}/driver/unbind\" as root"
    )]
    Bound {
        /// The device.
        address: String,
        /// The driver.
        driver: String,
    },
    /// No driver that gives devices to programs is there.
    #[error(
        "no driver gives {0} to programs: run \"modprobe uio_pci_generic\", or with an IOMMU \"modprobe vfio-pci\", as root"
    )]
    NoDriver(String),
    /// The driver did not take the device.
    #[error("the driver {driver} does not take {address}: \"dmesg\" says why")]
    NotTaken {
        /// The device.
        address: String,
        /// The driver.
        driver: String,
    },
    /// The kernel refuses access.
    #[error("may not use {what}: run as root (with CAP_SYS_ADMIN and CAP_SYS_RAWIO)")]
    Privilege {
        /// A path.
        what: String,
    },
    /// Physical addresses are hidden.
    #[error("the kernel hides physical addresses, which {0} needs without an IOMMU: run as root (with CAP_SYS_ADMIN)")]
    Addresses(String),
    /// There are too few huge pages.
    #[error(
        "{0} huge pages of 2 MiB are needed and not free: run \"echo {0} >/proc/sys/vm/nr_hugepages\" as root, or a larger number"
    )]
    HugePages(usize),
    /// The device lacks something.
    #[error("{address} {what}")]
    Lacks {
        /// The device.
        address: String,
        /// What it lacks, after its name.
        what: String,
    },
    /// The kernel refuses something else.
    #[error("{what}: {error}")]
    Kernel {
        /// A path or an action.
        what: String,
        /// Why.
        error: io::Error,
    },
}

impl PciError {
    /// Makes an error of the kernel's.
    pub fn of(what: impl Into<String>) -> impl FnOnce(io::Error) -> PciError {
        let what = what.into();
        |error| match error.kind() {
            io::ErrorKind::PermissionDenied => PciError::Privilege { what },
            _ => PciError::Kernel { what, error },
        }
    }
}

impl From<PciError> for io::Error {
    fn from(error: PciError) -> io::Error {
        io::Error::other(error)
    }
}
