//! Open vSwitch with DPDK (Debian package openvswitch-switch-dpdk): a learning bridge in user space between vhost-user
//! ports, with its own database and run directory.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::child::Program;
use crate::patience::PATIENCE;
use crate::peers::cable::{Cable, WIRE};
use crate::peers::hugepages::HugePages;
use crate::peers::netns;
use crate::peers::program::find_program;
use crate::peers::vhost::VhostSwitch;
use crate::placement::Cores;
use crate::scratch::Scratch;

/// Debian's paths of the switch that is built with DPDK, and of its database's schema.
const SWITCH: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// Devices that [`OvsDpdk::inside`] has as ports.
pub const NEAR: [&str; 2] = ["near0", "near1"];
/// Name of the bridge.
const BRIDGE: &str = "br0";
/// Its memory, in MiB: it makes 262,144 packet buffers.
const MEMORY_MIB: usize = 1024;

/// A running switch.
pub struct OvsDpdk {
    // The switch ends before its database, and both before the folder is removed and the memory is returned.
    switch: Program,
    _database: Program,
    own: Own,
    _scratch: Scratch,
    _pages: Option<HugePages>,
}

impl OvsDpdk {
    /// Starts a bridge that learns (the `NORMAL` action), its polling thread on the switch's core.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(cores: Cores) -> io::Result<OvsDpdk> {
        Self::start_with(cores, 2)
    }

    /// Starts a bridge with this number of ports.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start_with(cores: Cores, ports: usize) -> io::Result<OvsDpdk> {
        Self::start_in(cores, ports, Place::Alone)
    }

    /// Starts a bridge in `namespace` with its devices [`NEAR`] as ports, by packet sockets.
    ///
    /// # Errors
    /// It is not installed, does not start, or `nsenter` is not installed.
    pub fn inside(cores: Cores, namespace: &File) -> io::Result<OvsDpdk> {
        Self::start_in(cores, 0, Place::Inside(namespace))
    }

    /// Starts a bridge with one port and the near end of `cable`, by AF_XDP.
    ///
    /// # Errors
    /// It is not installed, does not start, or `nsenter` is not installed.
    pub fn on_cable(cores: Cores, cable: &Cable) -> io::Result<OvsDpdk> {
        Self::start_in(cores, 1, Place::OnCable(cable))
    }

    fn start_in(cores: Cores, ports: usize, place: Place) -> io::Result<OvsDpdk> {
        if !Path::new(SWITCH).is_file() || find_program("ovsdb-server").is_none() {
            let words = "Open vSwitch with DPDK is not installed (Debian: apt-get install openvswitch-switch-dpdk)";
            return Err(io::Error::new(io::ErrorKind::NotFound, words));
        }
        let scratch = Scratch::new("ovs")?;
        let own =
            Own { folder: scratch.path(""), cores, ports: (0..ports).map(|number| format!("p{number}")).collect() };
        own.run("ovsdb-tool", &["create", &own.path("conf.db"), SCHEMA])?;
        let mut database = own.command("ovsdb-server");
        database.args([&own.path("conf.db"), &format!("--remote=punix:{}", own.path("db.sock"))]);
        // The socket is there a moment before it listens.
        let listens = |_: &str| UnixStream::connect(own.folder.join("db.sock")).is_ok();
        let mut database = own.start(&mut database, "ovsdb-server", listens)?;
        let pages = HugePages::reserve(MEMORY_MIB);
        own.configure(pages.is_some(), &place.ports()).map_err(|error| match database.child().try_wait() {
            Ok(Some(status)) => io::Error::other(format!("ovsdb-server ended: {status}")),
            _ => error,
        })?;
        // The bridge has a device of its own name: no other network may have one of that name.
        let (program, namespace) = match place.namespace() {
            None => ("unshare", String::from("--net")),
            Some(namespace) => ("nsenter", format!("--net={}", netns::path(namespace).display())),
        };
        let mut switch = own.command(program);
        switch.args([&namespace, SWITCH, &format!("unix:{}", own.path("db.sock"))]);
        let others: Vec<String> = place.ports().into_iter().map(|(name, _)| name.to_owned()).collect();
        let serves =
            |said: &str| own.ports.iter().chain(&others).all(|port| said.contains(&format!("assigned port '{port}'")));
        let switch = own.start(&mut switch, "ovs-vswitchd", serves)?;
        Ok(OvsDpdk { switch, _database: database, own, _scratch: scratch, _pages: pages })
    }

    /// Limits the senders at all ports but the first to a rate in kbit/s and a burst in kbit, each. The switch has to be running.
    ///
    /// # Errors
    /// The switch refuses.
    pub fn police(&self, rate: usize, burst: usize) -> io::Result<()> {
        let set = |port: &String| {
            format!("-- set interface {port} ingress_policing_rate={rate} ingress_policing_burst={burst}")
        };
        let database = self.own.database();
        let settings: Vec<String> = self.own.ports.iter().skip(1).map(set).collect();
        let mut arguments = vec![database.as_str(), "--timeout=300"];
        arguments.extend(settings.iter().flat_map(|words| words.split(' ')));
        self.own.run("ovs-vsctl", &arguments)
    }

    /// Holds what comes from the first of [`NEAR`] to a rate in kbit/s and a burst in kbit, by a meter. The switch has to be running.
    ///
    /// # Errors
    /// The switch refuses.
    pub fn meter(&self, rate: usize, burst: usize) -> io::Result<()> {
        let bridge = format!("unix:{}", self.own.path(&format!("{BRIDGE}.mgmt")));
        let meter = format!("meter=1,kbps,burst,band=type=drop,rate={rate},burst_size={burst}");
        let of = |arguments: &[&str]| self.own.run("ovs-ofctl", &[&["-O", "OpenFlow13"], arguments].concat());
        of(&["del-flows", &bridge])?;
        of(&["del-meters", &bridge])?;
        of(&["add-meter", &bridge, &meter])?;
        of(&["add-flow", &bridge, &format!("priority=2,in_port={},actions=meter:1,NORMAL", NEAR[0])])?;
        of(&["add-flow", &bridge, "priority=1,actions=NORMAL"])
    }

    /// Replaces the rules of the bridge, by default one that learns, by these OpenFlow rules. The switch has to be running.
    ///
    /// # Errors
    /// The switch refuses a rule.
    pub fn set_rules(&self, rules: &str) -> io::Result<()> {
        let (file, bridge) = (self.own.path("rules"), format!("unix:{}", self.own.path(&format!("{BRIDGE}.mgmt"))));
        fs::write(&file, rules)?;
        self.own.run("ovs-ofctl", &["del-flows", &bridge])?;
        self.own.run("ovs-ofctl", &["add-flows", &bridge, &file])
    }
}

/// Where a switch runs, and its ports besides those for virtual machines.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// In a namespace of its own, without other ports.
    Alone,
    /// In that of the near end of a cable, with this end as a port.
    OnCable(&'a Cable),
    /// In this one, with two of its devices as ports.
    Inside(&'a File),
}

impl<'a> Place<'a> {
    fn namespace(self) -> Option<&'a File> {
        match self {
            Place::Alone => None,
            Place::OnCable(cable) => Some(&cable.hosts()[0]),
            Place::Inside(namespace) => Some(namespace),
        }
    }

    /// Names and settings of the other ports.
    fn ports(self) -> Vec<(&'static str, String)> {
        let device = |(number, name): (usize, &&'static str)| {
            (*name, format!("type=dpdk options:dpdk-devargs=net_af_packet{number},iface={name}"))
        };
        match self {
            Place::Alone => Vec::new(),
            Place::OnCable(_) => vec![(WIRE, String::from("type=afxdp"))],
            Place::Inside(_) => NEAR.iter().enumerate().map(device).collect(),
        }
    }
}

/// The folder with all files of this switch.
struct Own {
    folder: PathBuf,
    cores: Cores,
    ports: Vec<String>,
}

impl Own {
    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn database(&self) -> String {
        format!("--db=unix:{}", self.path("db.sock"))
    }

    /// Returns a command of Open vSwitch that uses files of the folder only.
    fn command(&self, program: &str) -> Command {
        let program = find_program(program).unwrap_or_else(|| PathBuf::from(program));
        let mut command = Command::new(program);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, &self.folder);
        }
        command
    }

    /// Runs an administration command.
    fn run(&self, program: &str, arguments: &[&str]) -> io::Result<()> {
        let describe = |what: String| io::Error::other(format!("{program} {}: {what}", arguments.join(" ")));
        let output = self.command(program).args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| describe(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        Err(describe(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }

    /// Configures the switch by its database. Flows and addresses do not age while the switch is stopped, so that it has not to learn
    /// at the beginning of a window.
    fn configure(&self, huge_pages: bool, others: &[(&str, String)]) -> io::Result<()> {
        let mask = |core: usize| format!("{:#x}", 1_u128 << core);
        let extra = if huge_pages {
            String::from("--in-memory --single-file-segments --no-pci --no-telemetry")
        } else {
            // Without --legacy-mem the switch adds --in-memory, which excludes --no-huge.
            String::from("--no-huge --legacy-mem --no-pci --no-telemetry --no-shconf")
        };
        // Memory mapped and cleared later would delay the answer to a driver.
        let memory = if huge_pages { MEMORY_MIB } else { 2 * MEMORY_MIB };
        let settings = [
            format!("other_config:dpdk-socket-mem=\"{memory}\""),
            String::from("other_config:dpdk-init=true"),
            format!("other_config:dpdk-lcore-mask={}", mask(self.cores.generator)),
            format!("other_config:pmd-cpu-mask={}", mask(self.cores.switch)),
            String::from("other_config:max-idle=3600000"),
            format!("other_config:dpdk-extra=\"{extra}\""),
        ];
        let database = self.database();
        let mut arguments =
            vec![database.as_str(), "--no-wait", "--timeout=300", "init", "--", "set", "Open_vSwitch", "."];
        arguments.extend(settings.iter().map(String::as_str));
        let bridge =
            format!("-- add-br {BRIDGE} -- set bridge {BRIDGE} datapath_type=netdev other-config:mac-aging-time=3600");
        arguments.extend(bridge.split(' '));
        let add = |name: &String| format!("-- add-port {BRIDGE} {name} -- set interface {name} type=dpdkvhostuser");
        let other = |(name, settings): &(&str, String)| {
            format!("-- add-port {BRIDGE} {name} -- set interface {name} {settings}")
        };
        let ports: Vec<String> = self.ports.iter().map(add).chain(others.iter().map(other)).collect();
        arguments.extend(ports.iter().flat_map(|port| port.split(' ')));
        self.run("ovs-vsctl", &arguments)
    }

    /// Starts a server and waits until its log is `ready`.
    fn start(&self, command: &mut Command, name: &str, ready: impl Fn(&str) -> bool) -> io::Result<Program> {
        let log = self.folder.join(format!("{name}.log"));
        let out = File::create(&log)?;
        let control = format!("--unixctl={}", self.path(&format!("{name}.ctl")));
        command.args([control.as_str(), "--no-chdir", "-vsyslog:off", "-vfile:off", "-vconsole:info"]);
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let mut program = Program::start_on(&[self.cores.generator, self.cores.switch], command)?;
        let start = Instant::now();
        while !ready(&String::from_utf8_lossy(&fs::read(&log)?)) {
            if start.elapsed() > PATIENCE || program.child().try_wait()?.is_some() {
                return Err(io::Error::other(format!("{name} does not start: {}", complaint(&log))));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(program)
    }
}

/// Returns the last error in a log, or its last line.
fn complaint(log: &Path) -> String {
    let said = fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let complains = |line: &&str| ["|ERR|", "|EMER|", "|WARN|"].iter().any(|level| line.contains(level));
    said.lines().rev().find(complains).or(said.lines().last()).unwrap_or_default().to_owned()
}

impl VhostSwitch for OvsDpdk {
    fn sockets(&self) -> Vec<PathBuf> {
        self.own.ports.iter().map(|name| self.own.folder.join(name)).collect()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.switch.hold()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.switch.resume()
    }
}
