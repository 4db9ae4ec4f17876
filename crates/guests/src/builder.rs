//! The settings of a guest, and the command that starts the guest.

use std::fs::File;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::guest::Guest;
use crate::kernel::{Kernel, Release};
use crate::nic::Nic;
use crate::programs::{SETPRIV, find};
use crate::qemu::{ANY, Qemu, VFIO_USER, Version};
use crate::{Error, at, initramfs};

/// Keeps the boot short and silent. The clock is not the TSC: a busy host spoils its calibration, and the guest's seconds
/// would be any length.
const KERNEL_ARGS: &str = "console=ttyS0 quiet panic=0 tsc=unstable clocksource=hpet lpj=4000000 no_timer_check nokaslr \
                           mitigations=off random.trust_cpu=on audit=0 apparmor=0 net.ifnames=0";

/// With a CPU that is not emulated, the clock can be the best there is.
const KVM_KERNEL_ARGS: &str =
    "console=ttyS0 quiet panic=0 mitigations=off random.trust_cpu=on audit=0 apparmor=0 net.ifnames=0";

/// What does the work of the guest's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accel {
    /// QEMU itself: slow, and works everywhere.
    #[default]
    Tcg,
    /// The host's CPUs, by `/dev/kvm`. A machine may have that device and still not run stock guests.
    Kvm,
}

/// A guest to be started; each start makes a new one.
#[derive(Debug, Clone)]
pub struct Builder {
    name: String,
    accel: Accel,
    release: Release,
    memory_mib: u32,
    cpus: u16,
    nics: Vec<Nic>,
    more: Vec<String>,
    oldest: Version,
}

impl Builder {
    pub(crate) fn new(name: &str) -> Builder {
        let (nics, more, oldest) = (Vec::new(), Vec::new(), ANY);
        let (accel, release) = (Accel::default(), Release::default());
        Builder { name: name.to_owned(), accel, release, memory_mib: 256, cpus: 1, nics, more, oldest }
    }

    /// What does the CPUs' work; emulation if not said.
    pub fn accel(mut self, accel: Accel) -> Builder {
        self.accel = accel;
        self
    }

    /// The kernel; Debian 12's if not said.
    pub fn kernel(mut self, release: Release) -> Builder {
        self.release = release;
        self
    }

    /// Memory, 256 MiB if not said.
    pub fn memory_mib(mut self, memory: u32) -> Builder {
        self.memory_mib = memory;
        self
    }

    /// CPUs, 1 if not said.
    pub fn cpus(mut self, cpus: u16) -> Builder {
        self.cpus = cpus;
        self
    }

    /// Adds a NIC: the first is `eth0`.
    pub fn nic(mut self, nic: Nic) -> Builder {
        self.nics.push(nic);
        self
    }

    /// Has the QEMU that a vfio-user NIC would need, for guests that are compared with one that has such a NIC.
    pub fn vfio_user_qemu(mut self) -> Builder {
        self.oldest = VFIO_USER;
        self
    }

    /// Adds an argument for QEMU.
    pub fn arg(mut self, arg: impl Into<String>) -> Builder {
        self.more.push(arg.into());
        self
    }

    /// Starts QEMU: the host's, or a newer one where its NICs need that. The guest boots while the caller goes on; the first command waits for it. QEMU ends with the thread
    /// that calls this, if not before.
    pub fn start(&self) -> Result<Guest, Error> {
        let oldest = self.nics.iter().map(Nic::oldest_qemu).fold(self.oldest, Version::max);
        let qemu = Qemu::at_least(oldest)?;
        let kernel = Kernel::get(self.release)?;
        let dir = tempfile::Builder::new().prefix("ringway-guest-").tempdir().map_err(at(std::env::temp_dir()))?;
        let initramfs = dir.path().join("initramfs");
        std::fs::write(&initramfs, initramfs::make(&kernel)?).map_err(at(&initramfs))?;
        let listen = |name: &str| {
            let path = dir.path().join(name);
            UnixListener::bind(&path).map_err(at(path))
        };
        let (console, qmp) = (listen("console")?, listen("qmp")?);
        let log = dir.path().join("qemu.log");
        let stderr = File::create(&log).map_err(at(&log))?;

        // It does not outlive the thread that started it, even one that is killed.
        let mut command = Command::new(find(SETPRIV)?);
        command.args(["--pdeathsig", "KILL"]).arg(&qemu.path);
        command.args(self.args(dir.path(), &kernel.image(), qemu.version));
        // Ctrl-C is for who made the guest, which then ends it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let child = command.spawn().map_err(at(qemu.path))?;
        Guest::new(&self.name, child, dir, console, qmp)
    }

    fn args(&self, dir: &Path, image: &Path, qemu: Version) -> Vec<String> {
        let path = |name: &str| dir.join(name).display().to_string();
        let (accel, kernel_args) = match self.accel {
            Accel::Tcg => ("tcg", KERNEL_ARGS),
            Accel::Kvm => ("kvm", KVM_KERNEL_ARGS),
        };
        let mut args: Vec<String> = [
            "-name",
            &self.name,
            "-accel",
            accel,
            "-machine",
            "q35,memory-backend=memory",
            "-object",
            &format!("memory-backend-memfd,id=memory,size={}M,share=on", self.memory_mib),
            "-m",
            &format!("{}M", self.memory_mib),
            // Where there can be but one CPU, QEMU leaves out the barriers of locked instructions, and a guest that looks
            // whether to kick reads too early: the switch is another process, and would be left asleep.
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
            kernel_args,
        ]
        .map(str::to_owned)
        .into();
        if self.accel == Accel::Kvm {
            args.extend(["-cpu", "host"].map(str::to_owned));
        }
        args.extend(self.nics.iter().enumerate().flat_map(|(number, nic)| nic.args(number, self.accel, qemu)));
        args.extend(self.more.iter().cloned());
        args
    }
}
