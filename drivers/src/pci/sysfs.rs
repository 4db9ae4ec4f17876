//! PCI functions in sysfs (Linux, Documentation/ABI/testing/sysfs-bus-pci).

use std::fs;
use std::path::{Path, PathBuf};

use super::error::PciError;

/// Device addresses in sysfs.
const DEVICES: &str = "/sys/bus/pci/devices";
/// Drivers in sysfs.
const DRIVERS: &str = "/sys/bus/pci/drivers";
/// The driver without an IOMMU.
pub const UIO: &str = "uio_pci_generic";
/// The driver with one.
pub const VFIO: &str = "vfio-pci";

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its address: `0000:00:04.0`.
    pub address: String,
    /// Its folder.
    pub dir: PathBuf,
}

impl Function {
    /// Finds a function.
    pub fn find(text: &str) -> Result<Function, PciError> {
        let address = parse(text).ok_or_else(|| PciError::Address(text.to_owned()))?;
        let dir = Path::new(DEVICES).join(&address);
        if !dir.exists() {
            return Err(PciError::Absent { address, others: network_devices() });
        }
        Ok(Function { address, dir })
    }

    /// Returns a number that sysfs tells: `vendor`, `device`.
    pub fn number(&self, name: &str) -> Result<u32, PciError> {
        let path = self.dir.join(name);
        let text = fs::read_to_string(&path).map_err(PciError::of(path.display().to_string()))?;
        Ok(hexadecimal(&text).unwrap_or(0) as u32)
    }

    /// Returns start, bytes and flags of a BAR, as the kernel has set it up.
    pub fn resource(&self, bar: usize) -> Option<(u64, usize, u64)> {
        let text = fs::read_to_string(self.dir.join("resource")).ok()?;
        let mut numbers = text.lines().nth(bar)?.split_whitespace().map(hexadecimal);
        let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let bytes = usize::try_from(end.checked_sub(start)?).ok()?.checked_add(1)?;
        (flags != 0).then_some((start, bytes, flags))
    }

    /// Returns the group that the IOMMU has the function in.
    pub fn iommu_group(&self) -> Option<String> {
        link_name(&self.dir.join("iommu_group"))
    }

    /// Returns the driver that gives the function to programs: the one that has it, else the one that can have it, which then gets it.
    pub fn driver(&self) -> Result<&'static str, PciError> {
        let address = || self.address.clone();
        match link_name(&self.dir.join("driver")).as_deref() {
            Some(UIO) => return Ok(UIO),
            Some(VFIO) => return Ok(VFIO),
            Some(driver) => return Err(PciError::Bound { address: address(), driver: driver.to_owned() }),
            None => {}
        }
        let is_loaded = |driver: &str| Path::new(DRIVERS).join(driver).exists();
        let driver = match () {
            () if is_loaded(VFIO) && self.iommu_group().is_some() => VFIO,
            () if is_loaded(UIO) => UIO,
            () => return Err(PciError::NoDriver(address())),
        };
        let write =
            |path: PathBuf, text: &str| fs::write(&path, text).map_err(PciError::of(path.display().to_string()));
        write(self.dir.join("driver_override"), driver)?;
        // Another program may have been faster: then this fails, and the driver below tells.
        let bound = write(Path::new(DRIVERS).join(driver).join("bind"), &self.address);
        match link_name(&self.dir.join("driver")) {
            Some(has) if has == driver => Ok(driver),
            _ => Err(bound.err().unwrap_or(PciError::NotTaken { address: address(), driver: driver.to_owned() })),
        }
    }
}

/// Returns the last part of the path that a link leads to.
fn link_name(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
}

/// Returns the addresses of network devices, for messages.
fn network_devices() -> String {
    let Ok(entries) = fs::read_dir(DEVICES) else { return "none, as there is no PCI bus".to_owned() };
    let is_network = |dir: &Path| fs::read_to_string(dir.join("class")).is_ok_and(|class| class.starts_with("0x02"));
    let mut found: Vec<String> = entries
        .flatten()
        .filter(|entry| is_network(&entry.path()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    if found.is_empty() { "none".to_owned() } else { found.join(", ") }
}

/// Returns the full address: `00:04.0` is in domain 0.
fn parse(text: &str) -> Option<String> {
    let (rest, function) = text.rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0000"));
    let number = |text: &str, most: u32| {
        let is_short = (1..=8).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(text, 16).ok().filter(|&value| is_short && value <= most)
    };
    let (domain, bus) = (number(domain, u32::MAX)?, number(bus, 0xff)?);
    let (device, function) = (number(device, 0x1f)?, number(function, 7)?);
    parts.next().is_none().then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.{function}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_their_domain() {
        assert_eq!(parse("0000:00:04.0").as_deref(), Some("0000:00:04.0"));
        assert_eq!(parse("00:1F.7").as_deref(), Some("0000:00:1f.7"));
        assert_eq!(parse("10000:e1:00.0").as_deref(), Some("10000:e1:00.0"));
        for wrong in ["", "eth0", "04.0", "00:04", "00:04.8", "00:20.0", "100:04.0", "1:2:3:4.0", "00:+4.0", "../../x"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_function_that_is_not_there_is_named_with_those_that_are() {
        let error = Function::find("ffff:ff:1f.7").unwrap_err().to_string();
        assert!(error.contains("no PCI device ffff:ff:1f.7 is here; network devices: "), "{error}");
        let error = Function::find("eth0").unwrap_err().to_string();
        assert!(error.contains("0000:00:04.0"), "{error}");
    }
}
