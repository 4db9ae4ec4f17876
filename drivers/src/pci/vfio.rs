//! Access by VFIO (Linux, Documentation/driver-api/vfio.rst): the IOMMU keeps the device within the memory that this program maps for
//! it. Without an IOMMU, where the kernel has that mode, VFIO only gives access, as UIO does.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ringway_memory::Mapping;
use rustix::event::{EventfdFlags, eventfd};

use super::error::PciError;
use super::sysfs::Function;

// Requests (Linux, include/uapi/linux/vfio.h).
const CHECK_EXTENSION: u64 = 0x3b65;
const SET_IOMMU: u64 = 0x3b66;
const GROUP_GET_STATUS: u64 = 0x3b67;
const GROUP_SET_CONTAINER: u64 = 0x3b68;
const GROUP_GET_DEVICE: u64 = 0x3b6a;
const GET_REGION_INFO: u64 = 0x3b6c;
const SET_IRQS: u64 = 0x3b6e;
const MAP_DMA: u64 = 0x3b71;

const TYPE1: usize = 1;
const NO_IOMMU: usize = 8;
const GROUP_IS_VIABLE: u32 = 1;
const REGION_IS_MAPPABLE: u32 = 4;
const CONFIG_REGION: u32 = 7;
/// DATA_EVENTFD and ACTION_TRIGGER.
const SET_EVENTFD: u32 = 0x24;
/// DATA_NONE and ACTION_MASK.
const MASK: u32 = 0x9;
/// DATA_NONE and ACTION_UNMASK.
const UNMASK: u32 = 0x11;
/// The device may read and write.
const DMA_READ_WRITE: u32 = 3;
/// The first address that the device sees: above all that 32 bits address, where the IOMMU keeps a range for interrupts.
const FIRST_ADDRESS: u64 = 1 << 32;

#[repr(C)]
#[derive(Debug, Default)]
struct RegionInfo {
    bytes: u32,
    flags: u32,
    index: u32,
    capabilities: u32,
    size: u64,
    offset: u64,
}

#[repr(C)]
#[derive(Debug)]
struct IrqSet {
    bytes: u32,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    descriptor: i32,
}

#[repr(C)]
#[derive(Debug)]
struct DmaMap {
    bytes: u32,
    flags: u32,
    address: u64,
    bus: u64,
    size: u64,
}

/// A function by VFIO.
#[derive(Debug)]
pub struct Vfio {
    address: String,
    device: File,
    config: u64,
    call: OwnedFd,
    _group: File,
    container: File,
    /// The next address that the device will see; `None` without an IOMMU.
    next: Option<u64>,
}

impl Vfio {
    /// Opens a function that the driver has.
    pub fn open(function: &Function) -> Result<Vfio, PciError> {
        let address = function.address.clone();
        let lacks = |what: &str| PciError::Lacks { address: address.clone(), what: what.to_owned() };
        let open = |path: &str| File::options().read(true).write(true).open(path).map_err(PciError::of(path));
        let number = function.iommu_group().ok_or_else(|| lacks("has no IOMMU group"))?;
        let path = format!("/dev/vfio/{number}");
        let (path, iommu) = match Path::new(&path).exists() {
            true => (path, TYPE1),
            false => (format!("/dev/vfio/noiommu-{number}"), NO_IOMMU),
        };
        let (container, group) = (open("/dev/vfio/vfio")?, open(&path)?);
        let mut status = [8_u32, 0];
        // SAFETY: the kernel writes two words; the first one tells it so.
        unsafe { ioctl(&group, GROUP_GET_STATUS, status.as_mut_ptr().addr()) }.map_err(PciError::of(&path))?;
        if status[1] & GROUP_IS_VIABLE == 0 {
            return Err(lacks(&format!(
                "shares IOMMU group {number} with devices that other drivers have: unbind those in \
                 /sys/kernel/iommu_groups/{number}/devices"
            )));
        }
        let descriptor = container.as_raw_fd();
        let name = CString::new(address.as_str()).unwrap_or_default();
        // SAFETY: the kernel reads the descriptor, a number, and the name, which ends with a zero byte.
        let device = unsafe {
            ioctl(&group, GROUP_SET_CONTAINER, (&raw const descriptor).addr()).map_err(PciError::of(&path))?;
            let has = ioctl(&container, CHECK_EXTENSION, iommu).map_err(PciError::of(&path))?;
            if has == 0 {
                return Err(lacks(
                    "has an IOMMU for which VFIO has no driver: run \"modprobe vfio_iommu_type1\" as root",
                ));
            }
            match ioctl(&container, SET_IOMMU, iommu) {
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && iommu == TYPE1 => {
                    let parameter = "/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts";
                    return Err(lacks(&format!(
                        "is behind an IOMMU that does not remap interrupts: if only trusted programs get devices, run \"echo Y \
                         >{parameter}\" as root"
                    )));
                }
                set => set.map_err(PciError::of(&path))?,
            };
            let device = ioctl(&group, GROUP_GET_DEVICE, name.as_ptr().addr()).map_err(PciError::of(&path))?;
            File::from_raw_fd(device)
        };
        let call = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let call = call.map_err(|error| PciError::of("eventfd")(error.into()))?;
        let next = (iommu == TYPE1).then_some(FIRST_ADDRESS);
        let mut vfio = Vfio { address, device, config: 0, call, _group: group, container, next };
        vfio.config = vfio.region(CONFIG_REGION)?.offset;
        vfio.set_irq(SET_EVENTFD, vfio.call.as_raw_fd()).map_err(PciError::of("VFIO_DEVICE_SET_IRQS"))?;
        Ok(vfio)
    }

    fn region(&self, index: u32) -> Result<RegionInfo, PciError> {
        let mut info = RegionInfo { bytes: size_of::<RegionInfo>() as u32, index, ..RegionInfo::default() };
        // SAFETY: the kernel reads and writes the structure, whose first word is its length.
        unsafe { ioctl(&self.device, GET_REGION_INFO, (&raw mut info).addr()) }.map_err(PciError::of("VFIO region"))?;
        Ok(info)
    }

    fn set_irq(&self, flags: u32, descriptor: i32) -> io::Result<()> {
        let bytes = if flags == SET_EVENTFD { 24 } else { 20 };
        let set = IrqSet { bytes, flags, index: 0, start: 0, count: 1, descriptor };
        // SAFETY: the kernel reads the structure, whose first word is its length.
        unsafe { ioctl(&self.device, SET_IRQS, (&raw const set).addr()) }.map(drop)
    }

    /// Maps a BAR.
    pub fn bar(&self, bar: usize) -> Result<Mapping, PciError> {
        let region = self.region(bar as u32)?;
        if region.size == 0 || region.flags & REGION_IS_MAPPABLE == 0 {
            let what = format!("has no BAR {bar} that can be mapped");
            return Err(PciError::Lacks { address: self.address.clone(), what });
        }
        let mapped = Mapping::shared_at(self.device.as_fd(), region.offset, region.size as usize);
        mapped.map_err(PciError::of(format!("BAR {bar}")))
    }

    /// Reads configuration space.
    pub fn config_read(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.device.read_exact_at(bytes, self.config + at)
    }

    /// Writes configuration space.
    pub fn config_write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.device.write_all_at(bytes, self.config + at)
    }

    /// Returns the descriptor that becomes readable after an interrupt.
    pub fn interrupt(&self) -> BorrowedFd<'_> {
        self.call.as_fd()
    }

    /// Takes interrupts that have come. Returns false if none has.
    pub fn take(&self) -> bool {
        rustix::io::read(&self.call, &mut [0_u8; 8]).is_ok()
    }

    /// Holds interrupts back.
    pub fn mask(&self) -> io::Result<()> {
        self.set_irq(MASK, 0)
    }

    /// Lets the next interrupt come.
    pub fn unmask(&self) -> io::Result<()> {
        self.set_irq(UNMASK, 0)
    }

    /// Lets the device reach memory. Returns the address that the device sees it at, or `None` without an IOMMU.
    pub fn map(&mut self, memory: &Mapping) -> Result<Option<u64>, PciError> {
        let Some(bus) = self.next else { return Ok(None) };
        let (address, size) = (memory.whole().as_ptr().addr() as u64, memory.bytes() as u64);
        let map = DmaMap { bytes: size_of::<DmaMap>() as u32, flags: DMA_READ_WRITE, address, bus, size };
        // SAFETY: the kernel reads the structure, whose first word is its length, and keeps the pages until the container is closed.
        unsafe { ioctl(&self.container, MAP_DMA, (&raw const map).addr()) }
            .map_err(PciError::of("VFIO_IOMMU_MAP_DMA"))?;
        self.next = Some(bus + size);
        Ok(Some(bus))
    }
}

/// # Safety
/// `argument` is what the request asks for: a number, or the address of memory that the kernel may access as the request says.
unsafe fn ioctl(file: &File, request: u64, argument: usize) -> io::Result<i32> {
    // SAFETY: by this function's contract.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
