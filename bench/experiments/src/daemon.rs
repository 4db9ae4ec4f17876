//! A Ringway daemon that an experiment starts with a configuration of its own.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringway_client::{Port, Shape};
use ringway_link::{ProcessLink, ProcessOptions};
use ringway_traffic::{ProcessEndpoint, Split, VirtioOptions};
use rustix::process::{Pid, Signal, kill_process};

use crate::child::Program;
use crate::machine::{self, ContextSwitches};
use crate::network::{Network, wait_for_fd};
use crate::patience::PATIENCE;
use crate::peers::vhost::{Vhost, VhostSwitch};
use crate::placement::Cores;
use crate::scratch::Scratch;

/// Name of the switch that all ports are attached to.
pub const SWITCH: &str = "bench";
/// Names of the e1000 ports.
const E1000_PORTS: [&str; 2] = ["nic0", "nic1"];
/// Names of the TAP ports and their devices.
pub const TAPS: [&str; 2] = ["tap0", "tap1"];
/// Ring and buffer sizes of the ports that carry traffic.
pub const BUSY: Shape = Shape {
    tx_rings: 1,
    rx_rings: 1,
    tx_slots: 512,
    rx_slots: 512,
    buffer_size: 2112,
    extra_buffers: 0,
    offload: false,
};
/// Longer rings, for experiments with batches of up to 1,024 frames.
pub const LONG: Shape = Shape { tx_slots: 2048, rx_slots: 2048, ..BUSY };
/// Ring and buffer sizes of ports that carry nothing.
pub const IDLE: Shape = Shape { tx_slots: 4, rx_slots: 4, buffer_size: 128, ..BUSY };

/// Configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The `ringway` command.
    pub program: PathBuf,
    /// Core of the poller; `None` leaves it to the scheduler.
    pub core: Option<usize>,
    /// Idle policy.
    pub idle: &'static str,
    /// Most frames of one batch.
    pub batch: usize,
    /// Forwarding function, as a value of TOML.
    pub forwarding: String,
    /// Ring and buffer sizes of process ports.
    pub shape: Shape,
    /// The drivers at vhost-user ports.
    pub virtio: VirtioOptions,
    /// Pacing of busy rings: `adaptive` or `off`.
    pub pacing: &'static str,
    /// Number of vhost-user ports; they listen.
    pub vhost_user: usize,
    /// Keys of the first ports, port by port: of the vhost-user ports, or of process ports where there are no vhost-user ports.
    pub keys: Vec<String>,
    /// Keys of both e1000 ports; `None`: there are no e1000 ports.
    pub e1000: Option<&'static str>,
    /// Keys of an uplink port; `None`: there is none.
    pub uplink: Option<String>,
    /// Keys of each TAP port. Their devices are called as [`TAPS`].
    pub taps: Vec<String>,
    /// Keys of the bucket "shared"; `None`: there is no bucket.
    pub bucket: Option<&'static str>,
    /// A keeper starts the switch, and another one when it ends, and the switch has given up its privileges. Otherwise it is one process.
    pub is_kept: bool,
}

impl Settings {
    /// A daemon for throughput: one poller that never sleeps on the switch's core.
    #[must_use]
    pub fn spinning(program: PathBuf, cores: Cores) -> Settings {
        let core = Some(cores.switch);
        let (idle, forwarding, pacing) = ("spin", String::from("\"learning\""), "adaptive");
        let (vhost_user, keys, e1000, uplink, taps, bucket) = (0, Vec::new(), None, None, Vec::new(), None);
        let (batch, shape, virtio) = (256, BUSY, VirtioOptions::default());
        Settings {
            program,
            core,
            idle,
            batch,
            forwarding,
            shape,
            virtio,
            pacing,
            vhost_user,
            keys,
            e1000,
            uplink,
            taps,
            bucket,
            is_kept: false,
        }
    }

    fn toml(&self) -> String {
        let Settings { core, idle, batch, forwarding, pacing, vhost_user, .. } = self;
        let cores = core.map_or(String::new(), |core| core.to_string());
        let mut text = format!(
            "[engine]\ncores = [{cores}]\nidle = \"{idle}\"\nbatch = {batch}\npacing = \"{pacing}\"\n\n\
             [attach]\ncreate = \"switches\"\nmax_ports = 2048\n\n\
             [switch.{SWITCH}]\nforwarding = {forwarding}\n"
        );
        if let Some(keys) = self.bucket {
            let _ = write!(text, "\n[bucket.shared]\n{keys}\n");
        }
        for number in 0..self.keys.len().max(*vhost_user) {
            let (name, kind) = match *vhost_user {
                0 => (Daemon::port_name(number), String::from("kind = \"process\"")),
                _ => {
                    let name = VhostUser::port_name(number);
                    let kind = format!("kind = \"vhost-user\"\nsocket = \"{name}.sock\"");
                    (name, kind)
                }
            };
            let keys = self.keys.get(number).map_or("", String::as_str);
            let _ = write!(text, "\n[port.{name}]\nswitch = \"{SWITCH}\"\n{kind}\n{keys}\n");
        }
        for name in self.e1000.iter().flat_map(|_| E1000_PORTS) {
            let keys = self.e1000.unwrap_or_default();
            let _ = write!(
                text,
                "\n[port.{name}]\nswitch = \"{SWITCH}\"\nkind = \"e1000\"\nsocket = \"{name}.sock\"\n{keys}\n"
            );
        }
        if let Some(keys) = &self.uplink {
            let _ = write!(text, "\n[port.uplink]\nswitch = \"{SWITCH}\"\nuplink = true\n{keys}\n");
        }
        for (name, keys) in TAPS.iter().zip(&self.taps) {
            let _ = write!(text, "\n[port.{name}]\nswitch = \"{SWITCH}\"\nkind = \"tap\"\n{keys}\n");
        }
        text
    }
}

/// A running daemon.
pub struct Daemon {
    // Dropped, and so ended, before its folder is removed.
    program: Program,
    /// The program that it was started from.
    command: PathBuf,
    scratch: Scratch,
    shape: Shape,
    vhost_user: usize,
    nics: bool,
    attached: usize,
    is_kept: bool,
}

impl Daemon {
    /// Starts a daemon and waits until it is ready.
    ///
    /// # Errors
    /// It does not start. The message has what it wrote to its standard error.
    pub fn start(cores: Cores, settings: &Settings) -> io::Result<Daemon> {
        let scratch = Scratch::new("bench")?;
        fs::write(scratch.path("ringway.toml"), settings.toml())?;
        let errors = scratch.path("stderr");
        let mut command = Command::new(&settings.program);
        command.arg("run").arg("--config").arg(scratch.path("ringway.toml"));
        command.arg("--runtime-dir").arg(scratch.path("run"));
        if !settings.is_kept {
            command.arg("--no-keeper");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&errors)?);
        let mut program = Program::start_on(&[cores.generator, cores.switch], &mut command)?;
        if !is_ready(&mut program)? {
            let words = fs::read_to_string(errors).unwrap_or_default();
            return Err(io::Error::other(format!("{} run is not ready: {}", settings.program.display(), words.trim())));
        }
        let (command, nics) = (settings.program.clone(), settings.e1000.is_some());
        let &Settings { shape, vhost_user, is_kept, .. } = settings;
        Ok(Daemon { program, command, scratch, shape, vhost_user, nics, attached: 0, is_kept })
    }

    /// Attaches `count` ports of another shape, which carry nothing.
    ///
    /// # Errors
    /// The daemon refuses one.
    pub fn attach_idle(&mut self, count: usize) -> io::Result<Vec<ProcessEndpoint>> {
        self.go_on()?;
        (0..count).map(|number| self.attach_as(&format!("idle{number}"), IDLE)).collect()
    }

    /// Returns a command that executes `program` as `ringway exec` does: with this daemon's ports as devices.
    #[must_use]
    pub fn exec(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.command);
        command.args(["exec", "--runtime-dir"]).arg(self.scratch.path("run")).arg("--").arg(program);
        command
    }

    /// Returns `ringway` as a command for this daemon.
    #[must_use]
    pub fn ringway(&self) -> Command {
        let mut command = Command::new(&self.command);
        command.arg("--runtime-dir").arg(self.scratch.path("run"));
        command
    }

    /// Has it stand still, the keeper before its switch.
    fn stand_still(&mut self) -> io::Result<()> {
        self.program.hold()?;
        if !self.is_kept {
            return Ok(());
        }
        let (switch, begun) = (self.switch()?, Instant::now());
        kill_process(switch, Signal::STOP)?;
        while !machine::is_stopped(switch)? {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the switch does not stop"));
            }
        }
        Ok(())
    }

    /// Has it go on.
    fn go_on(&mut self) -> io::Result<()> {
        if self.is_kept {
            kill_process(self.switch()?, Signal::CONT)?;
        }
        self.program.resume()
    }

    /// Returns the process below the keeper.
    ///
    /// # Errors
    /// There is none.
    pub fn switch(&mut self) -> io::Result<Pid> {
        machine::child_named(self.program.child().id(), "ringway-switch")
    }

    /// Waits until a switch waits for the death of the present one, with its closer.
    ///
    /// # Errors
    /// None does.
    pub fn until_one_waits(&mut self) -> io::Result<()> {
        let (keeper, begun) = (self.program.child().id(), Instant::now());
        loop {
            let ahead = machine::children_named(keeper, "ringway-next")?;
            let has_closer = |process: &Pid| {
                machine::child_named(process.as_raw_nonzero().get().unsigned_abs(), "ringway-closer").is_ok()
            };
            if ahead.iter().any(has_closer) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other("no switch waits for the death of the present one"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns true if there are e1000 ports.
    #[must_use]
    pub fn has_nics(&self) -> bool {
        self.nics
    }

    /// Sockets of the e1000 ports.
    #[must_use]
    pub fn nics(&self) -> [PathBuf; 2] {
        E1000_PORTS.map(|name| self.scratch.path("run").join(format!("{name}.sock")))
    }

    /// Changes a key of the e1000 ports, as `ringway port set` does.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn set_nics(&self, key: &str) -> io::Result<()> {
        E1000_PORTS.iter().try_for_each(|name| self.set(name, key))
    }

    /// Changes a key of a TAP port.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn set_tap(&self, name: &str, key: &str) -> io::Result<()> {
        self.set(name, key)
    }

    /// Changes a key of the vhost-user ports.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn set_vhost_user(&self, key: &str) -> io::Result<()> {
        (0..self.vhost_user).try_for_each(|number| self.set(&VhostUser::port_name(number), key))
    }

    fn set(&self, name: &str, key: &str) -> io::Result<()> {
        let mut command = Command::new(&self.command);
        command.args(["port", "set", name, key, "--runtime-dir"]).arg(self.scratch.path("run"));
        let said = command.stdin(Stdio::null()).output()?;
        let refused = || io::Error::other(String::from_utf8_lossy(&said.stderr).trim().to_owned());
        said.status.success().then_some(()).ok_or_else(refused)
    }

    /// Returns the daemon's status, as `ringway status --json` gives it.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self) -> io::Result<serde_json::Value> {
        let mut socket = UnixStream::connect(self.scratch.path("run").join("control.sock"))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.write_all(b"GET /v1/status HTTP/1.1\r\nHost: ringway\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        serde_json::from_str(body).map_err(io::Error::other)
    }

    /// Returns the seconds that all pollers have been busy, and those that they have been busy or free.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn times(&self) -> io::Result<(f64, f64)> {
        let status = self.status()?;
        let pollers = status["pollers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let sum = |key: &str| pollers.iter().filter_map(|poller| poller[key].as_f64()).sum::<f64>();
        Ok((sum("busy"), sum("busy") + sum("free")))
    }

    /// Returns the CPU time that it has used. It is stopped.
    ///
    /// # Errors
    /// It has ended.
    pub fn cpu_time(&mut self) -> io::Result<Duration> {
        machine::cpu_time_of(self.program.child().id())
    }

    /// Returns a counter of how often its poller loses its core and gets one.
    ///
    /// # Errors
    /// It has ended.
    pub fn poller_switches(&mut self) -> io::Result<ContextSwitches> {
        ContextSwitches::of(self.program.child().id(), "poller0")
    }

    /// Attaches a port as a link.
    ///
    /// # Errors
    /// The daemon refuses it.
    pub fn attach_link(&self, name: &str, options: &ProcessOptions) -> io::Result<ProcessLink> {
        let socket = self.scratch.path("run").join("attach.sock");
        ProcessLink::attach(socket, &format!("{SWITCH}:{name}"), options).map_err(io::Error::other)
    }

    fn attach_as(&self, name: &str, shape: Shape) -> io::Result<ProcessEndpoint> {
        let socket = self.scratch.path("run").join("attach.sock");
        let port = Port::attach(socket, &format!("{SWITCH}:{name}"), shape).map_err(io::Error::other)?;
        Ok(ProcessEndpoint::new(port))
    }
}

/// Waits for the line `ready`. Returns false if the daemon ends or takes too long.
fn is_ready(program: &mut Program) -> io::Result<bool> {
    let start = Instant::now();
    let Some(stdout) = program.child().stdout.as_mut() else { return Ok(false) };
    let mut said = Vec::new();
    while start.elapsed() < PATIENCE {
        wait_for_fd(stdout.as_fd(), true, PATIENCE.saturating_sub(start.elapsed()))?;
        let mut bytes = [0; 256];
        let len = stdout.read(&mut bytes)?;
        said.extend_from_slice(&bytes[..len]);
        if said.split(|&byte| byte == b'\n').any(|line| line.starts_with(b"ready")) {
            return Ok(true);
        }
        if len == 0 {
            return Ok(false);
        }
    }
    Ok(false)
}

impl Network for Daemon {
    type Port = ProcessEndpoint;

    fn attach(&mut self, count: usize) -> io::Result<Vec<ProcessEndpoint>> {
        self.go_on()?;
        let first = self.attached;
        self.attached += count;
        (first..self.attached).map(|number| self.attach_as(&Daemon::port_name(number), self.shape)).collect()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.stand_still()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.go_on()
    }
}

impl VhostSwitch for Daemon {
    fn sockets(&self) -> Vec<PathBuf> {
        let run = self.scratch.path("run");
        (0..self.vhost_user).map(|number| run.join(format!("{}.sock", VhostUser::port_name(number)))).collect()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.stand_still()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.go_on()
    }
}

/// A daemon with vhost-user ports only, and our driver at each.
pub type VhostUser = Vhost<Daemon, Split>;

/// A Ringway daemon as a network, with ports of one kind.
pub trait RingwayNetwork: Network + Sized + 'static {
    /// Name of its ports in titles.
    const PORTS: &'static str;
    /// Suffix of the names of its figures.
    const SUFFIX: &'static str;

    /// Name of a port, by its number.
    #[must_use]
    fn port_name(number: usize) -> String;

    /// Starts a daemon that will have `ports` ports.
    ///
    /// # Errors
    /// The daemon does not start. The message has what it wrote to its standard error.
    fn with_ports(cores: Cores, settings: &Settings, ports: usize) -> io::Result<Self>;

    /// The daemon itself.
    fn daemon(&mut self) -> &mut Daemon;
}

impl RingwayNetwork for Daemon {
    const PORTS: &'static str = "process ports";
    const SUFFIX: &'static str = "";

    fn port_name(number: usize) -> String {
        format!("p{number}")
    }

    fn with_ports(cores: Cores, settings: &Settings, _: usize) -> io::Result<Daemon> {
        Daemon::start(cores, settings)
    }

    fn daemon(&mut self) -> &mut Daemon {
        self
    }
}

impl RingwayNetwork for VhostUser {
    const PORTS: &'static str = "vhost-user ports";
    const SUFFIX: &'static str = "-vhost";

    fn port_name(number: usize) -> String {
        format!("vm{number}")
    }

    fn with_ports(cores: Cores, settings: &Settings, ports: usize) -> io::Result<VhostUser> {
        let daemon = Daemon::start(cores, &Settings { vhost_user: ports, ..settings.clone() })?;
        Ok(Vhost::new(daemon, settings.virtio.clone()))
    }

    fn daemon(&mut self) -> &mut Daemon {
        self.switch()
    }
}
