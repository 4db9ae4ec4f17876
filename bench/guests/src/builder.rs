//! The settings of a guest, and the command that starts the guest.

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::driver::OwnDriver;
use crate::error::{Error, at};
use crate::guest::Guest;
use crate::initramfs;
use crate::kernel::{Kernel, Release};
use crate::nic::Nic;
use crate::programs::{SETPRIV, find};
use crate::qemu::{ANY, Accel, Qemu, VFIO_USER, Version};

/// Kernel arguments for a short and silent boot. The clock is not the TSC: a busy host spoils its calibration, and then
/// the guest's seconds have a wrong length. An emulated processor that does not run on a busy host is no lockup and no stall.
const KERNEL_ARGS: &str = "console=ttyS0 quiet panic=0 tsc=unstable clocksource=hpet lpj=4000000 no_timer_check nokaslr \
                           mitigations=off cryptomgr.notests random.trust_cpu=on audit=0 apparmor=0 net.ifnames=0 \
                           nowatchdog rcupdate.rcu_cpu_stall_timeout=300";

/// Kernel arguments for a CPU that is not emulated, where the clock can be the best one.
const KVM_KERNEL_ARGS: &str =
    "console=ttyS0 quiet panic=0 mitigations=off random.trust_cpu=on audit=0 apparmor=0 net.ifnames=0";

/// Bytes of an archive for which every guest has the memory.
const SMALL_ARCHIVE: usize = 48 << 20;

/// Returns the MiB that a guest needs for a longer archive: Linux has the archive and the files at the same time, and the files have half of
/// the memory that the archive leaves.
fn for_archive(bytes: usize) -> u32 {
    u32::try_from((3 * bytes.saturating_sub(SMALL_ARCHIVE)) >> 20).unwrap_or(u32::MAX / 2)
}

/// A guest to be started. Each start makes a new guest.
#[derive(Debug, Clone)]
pub struct Builder {
    name: String,
    accel: Accel,
    release: Release,
    memory_mib: u32,
    cpus: u16,
    nics: Vec<Nic>,
    programs: Vec<PathBuf>,
    own_driver: Option<OwnDriver>,
    more: Vec<String>,
    kernel_args: Vec<String>,
    oldest: Version,
    iommu: bool,
    goes_first: bool,
}

impl Guest {
    /// Starts the description of a guest.
    pub fn builder(name: &str) -> Builder {
        Builder::new(name)
    }

    /// Migrates the running guest to another QEMU, which is started for it. `to` must describe the same machine, but
    /// its NICs may have other back ends.
    pub fn migrate(self, to: &Builder) -> Result<Guest, Error> {
        self.ready()?;
        self.migrate_into(to.clone().arg("-incoming").arg("defer").start()?)
    }
}

impl Builder {
    fn new(name: &str) -> Builder {
        Builder {
            name: name.to_owned(),
            accel: Accel::default(),
            release: Release::default(),
            memory_mib: 256,
            cpus: 1,
            nics: Vec::new(),
            programs: Vec::new(),
            own_driver: None,
            more: Vec::new(),
            kernel_args: Vec::new(),
            oldest: ANY,
            iommu: false,
            goes_first: false,
        }
    }

    /// Sets what executes the CPUs. Default: emulation.
    pub fn accel(mut self, accel: Accel) -> Builder {
        self.accel = accel;
        self
    }

    /// Sets the kernel. Default: that of Debian 12.
    pub fn kernel(mut self, release: Release) -> Builder {
        self.release = release;
        self
    }

    /// Sets the memory. Default: 256 MiB. A guest that brings long programs has more.
    pub fn memory_mib(mut self, memory: u32) -> Builder {
        self.memory_mib = memory;
        self
    }

    /// Sets the number of CPUs. Default: 1.
    pub fn cpus(mut self, cpus: u16) -> Builder {
        self.cpus = cpus;
        self
    }

    /// Adds a NIC. The first one is `eth0`.
    pub fn nic(mut self, nic: Nic) -> Builder {
        self.nics.push(nic);
        self
    }

    /// Adds a program of the host, with its libraries. The guest has it in `/usr/bin`.
    pub fn program(mut self, path: impl Into<PathBuf>) -> Builder {
        self.programs.push(path.into());
        self
    }

    /// Gives the guest the driver of Linux guests (`guest/linux`), with these parameters of the module: `combine=on csb=off`. It takes
    /// the NICs of ports with `csb = true`. The kernel's e1000 takes others.
    pub fn own_driver(mut self, parameters: &str) -> Builder {
        self.own_driver = Some(OwnDriver { parameters: parameters.to_owned(), all: false });
        self
    }

    /// Gives the guest the driver of Linux guests, as [`Builder::own_driver`] does, for every 82540EM that is there when it boots.
    pub fn own_driver_for_all(mut self, parameters: &str) -> Builder {
        self.own_driver = Some(OwnDriver { parameters: parameters.to_owned(), all: true });
        self
    }

    /// Uses the QEMU that a vfio-user NIC needs, for guests that are compared with a guest with such a NIC.
    pub fn vfio_user_qemu(mut self) -> Builder {
        self.oldest = VFIO_USER;
        self
    }

    /// Gives the guest an IOMMU, which its kernel uses.
    pub fn iommu(mut self) -> Builder {
        self.iommu = true;
        self
    }

    /// Lets the guest run before other programs of the host if the user may do that. It is for a guest in which time is judged: an emulated
    /// processor does not see when it does not run.
    pub fn goes_first(mut self) -> Builder {
        self.goes_first = true;
        self
    }

    /// Adds arguments for the kernel: `init_on_free=1 swiotlb=force`.
    pub fn kernel_args(mut self, args: impl Into<String>) -> Builder {
        self.kernel_args.push(args.into());
        self
    }

    /// Adds an argument for QEMU.
    pub fn arg(mut self, arg: impl Into<String>) -> Builder {
        self.more.push(arg.into());
        self
    }

    /// Starts QEMU: the host's, or a newer one where the NICs need it. Returns while the guest boots; the first command
    /// waits for it. QEMU ends with the calling thread at the latest.
    pub fn start(&self) -> Result<Guest, Error> {
        let oldest = self.nics.iter().map(Nic::oldest_qemu).fold(self.oldest, Version::max);
        let qemu = Qemu::at_least(oldest)?;
        let kernel = Kernel::get(self.release)?;
        let dir = tempfile::Builder::new().prefix("ringway-guest-").tempdir().map_err(at(std::env::temp_dir()))?;
        let initramfs = dir.path().join("initramfs");
        let archive = initramfs::make(&kernel, &self.programs, self.own_driver.as_ref())?;
        std::fs::write(&initramfs, &archive).map_err(at(&initramfs))?;
        let memory_mib = self.memory_mib + for_archive(archive.len());
        let listen = |name: &str| {
            let path = dir.path().join(name);
            UnixListener::bind(&path).map_err(at(path))
        };
        let (console, qmp) = (listen("console")?, listen("qmp")?);
        let log = dir.path().join("qemu.log");
        let stderr = File::create(&log).map_err(at(&log))?;

        // QEMU must not outlive the thread that starts it, even if that is killed.
        let mut command = Command::new(find(SETPRIV)?);
        command.args(["--pdeathsig", "KILL"]);
        if self.goes_first {
            // Without the privilege, it says so and starts QEMU as it would be started otherwise.
            command.args(["nice", "-n", "-10"]);
        }
        command.arg(&qemu.path);
        command.args(self.args(dir.path(), &kernel.image(), qemu.version, memory_mib));
        // A Ctrl-C goes to the program that made the guest, which then ends QEMU.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().map_err(at(qemu.path))?;
        Guest::new(&self.name, child, dir, console, qmp)
    }

    fn args(&self, dir: &Path, image: &Path, qemu: Version, memory_mib: u32) -> Vec<String> {
        let path = |name: &str| dir.join(name).display().to_string();
        let (accel, kernel_args) = match self.accel {
            Accel::Tcg => ("tcg", KERNEL_ARGS),
            Accel::Kvm => ("kvm", KVM_KERNEL_ARGS),
        };
        let iommu = self.iommu.then_some("intel_iommu=on");
        let more = self.kernel_args.iter().map(String::as_str);
        let kernel_args = [kernel_args].into_iter().chain(iommu).chain(more).collect::<Vec<_>>().join(" ");
        let mut args: Vec<String> = [
            "-name",
            &self.name,
            "-accel",
            accel,
            "-machine",
            "q35,memory-backend=memory",
            "-object",
            &format!("memory-backend-memfd,id=memory,size={memory_mib}M,share=on"),
            "-m",
            &format!("{memory_mib}M"),
            // With a single possible CPU, QEMU leaves out the barriers of locked instructions. The guest would then
            // read too early whether to kick, and the switch, which is another process, would stay asleep.
            "-smp",
            &format!("{},maxcpus={}", self.cpus, self.cpus.max(2)),
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-serial",
            &format!("file:{}", path("kernel.log")),
            "-chardev",
            &format!("socket,id=console,path={}", path("console")),
            "-device",
            "virtio-serial-pci",
            "-device",
            "virtserialport,chardev=console,name=console",
            "-chardev",
            &format!("socket,id=qmp,path={}", path("qmp")),
            "-mon",
            "chardev=qmp,mode=control",
            "-kernel",
            &image.display().to_string(),
            "-initrd",
            &path("initramfs"),
            "-append",
            &kernel_args,
        ]
        .map(str::to_owned)
        .into();
        if self.iommu {
            // Before the devices that are behind it.
            args.splice(0..0, ["-device", "intel-iommu"].map(str::to_owned));
        }
        if self.accel == Accel::Kvm {
            args.extend(["-cpu", "host"].map(str::to_owned));
        }
        args.extend(self.nics.iter().enumerate().flat_map(|(number, nic)| nic.args(number, self.accel, qemu)));
        args.extend(self.more.iter().cloned());
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: usize = 80 << 20;

    #[test]
    fn a_guest_with_a_long_program_boots() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("long");
        // More than a guest unpacks in the memory that it has otherwise.
        std::fs::write(&long, vec![b'#'; LONG]).unwrap();
        let guest = Builder::new("long").program(&long).start().unwrap();
        assert_eq!(guest.ok("stat -c %s /usr/bin/long").unwrap().trim(), LONG.to_string());
    }
}
