//! The command line of the demo.

/// Show a switch at work: virtual machines, network namespaces and process ports
///
/// Starts a switch of its own, apart from any other, and leaves nothing behind. It boots two small virtual machines (QEMU, a
/// Debian kernel, busybox) on vhost-user ports; as root it also connects two network namespaces by TAP ports. What it cannot
/// show for want of a program it names, with the package to install.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ringway demo --seconds 30\n  ringway demo --fetch-kernel")]
pub struct Args {
    /// How long it takes, more or less; the virtual machines take some seconds more to boot
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(5..=3600))]
    pub seconds: u32,
    /// Fetch Debian's kernel for the virtual machines if it is not here (70 MB, kept in ~/.cache/ringway/kernels)
    #[arg(long)]
    pub fetch_kernel: bool,
    /// Run the virtual machines by KVM; without, QEMU emulates their CPUs, which is slower and works everywhere
    #[arg(long)]
    pub kvm: bool,
}
