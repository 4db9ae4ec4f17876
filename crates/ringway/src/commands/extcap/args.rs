//! The options of `ringway extcap`.

use std::path::PathBuf;

use crate::commands::capture::Direction;

/// Show the ports in Wireshark and tshark, as interfaces to capture from
///
/// Installed once, Wireshark calls this command at each start by its extcap protocol: each port of a running switch is an
/// interface named ringway-SWITCH:PORT. The options that begin with --extcap, --capture and --fifo are Wireshark's.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  ringway extcap --install
  ringway extcap --extcap-interfaces
  ringway extcap --uninstall

Installed in Wireshark:
  tshark -i ringway-lan0:vm1 -c 10 -f 'arp or icmp'")]
pub struct Args {
    /// Put a link to this program into Wireshark's extcap folder: the user's own folder if this Wireshark has one (version 4.2 and
    /// newer), or else the folder for all users. With --runtime-dir the ports are those of the daemon there
    #[arg(long, conflicts_with_all = ["uninstall", "capture"], help_heading = "Installation")]
    pub install: bool,
    /// Remove what --install put there
    #[arg(long, conflicts_with = "capture", help_heading = "Installation")]
    pub uninstall: bool,
    /// Install for this user alone
    #[arg(long, conflicts_with = "system", help_heading = "Installation")]
    pub user: bool,
    /// Install for all users
    #[arg(long, help_heading = "Installation")]
    pub system: bool,
    /// Install into this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["user", "system"], help_heading = "Installation")]
    pub dir: Option<PathBuf>,
    /// List the interfaces; none if no daemon runs
    #[arg(long, help_heading = "Wireshark's questions")]
    pub extcap_interfaces: bool,
    /// Say the version; Wireshark gives its own
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true, default_missing_value = "",
        help_heading = "Wireshark's questions")]
    pub extcap_version: Option<String>,
    /// The interface that a question or a capture is about
    #[arg(long, value_name = "INTERFACE", help_heading = "Wireshark's questions")]
    pub extcap_interface: Option<String>,
    /// List the link types of the interface
    #[arg(long, help_heading = "Wireshark's questions")]
    pub extcap_dlts: bool,
    /// List the options of a capture from the interface
    #[arg(long, help_heading = "Wireshark's questions")]
    pub extcap_config: bool,
    /// Accepted and ignored: no process outlives a capture
    #[arg(long, help_heading = "Wireshark's questions")]
    pub extcap_cleanup_postkill: bool,
    /// The frames to capture, in the language of pcap-filter(7); without --capture: says what is wrong with the filter
    #[arg(long, value_name = "FILTER", allow_hyphen_values = true, help_heading = "Capture")]
    pub extcap_capture_filter: Option<String>,
    /// Capture from the interface into the fifo
    #[arg(long, requires = "fifo", requires = "extcap_interface", help_heading = "Capture")]
    pub capture: bool,
    /// The fifo that Wireshark reads
    #[arg(long, value_name = "FIFO", help_heading = "Capture")]
    pub fifo: Option<PathBuf>,
    /// Which way: in, from the port's client; out, to it
    #[arg(long, value_enum, default_value_t = Direction::Both, help_heading = "Capture")]
    pub direction: Direction,
    /// Most bytes of each frame [default: all]
    #[arg(long, value_name = "BYTES", help_heading = "Capture")]
    pub snaplen: Option<String>,
    /// Capture also frames that were lost, with the reason as a comment
    #[arg(long, help_heading = "Capture")]
    pub drops: bool,
    /// Memory for what Wireshark has not read yet, 256KiB to 1GiB [default: 16MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Capture")]
    pub buffer: Option<String>,
}
