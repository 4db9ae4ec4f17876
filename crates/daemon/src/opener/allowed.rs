//! What the switch may have: what the configuration file names, as the opener itself has read it, and what administrators have granted at run time.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ringway_api::paths::KEEPER_SOCKET;
use ringway_config::changes::section::{Id, Part, Section};
use ringway_config::kinds::contract::End;
use ringway_config::{Config, Host, Name, Port, ProgramKeys, Requests, load_text, load_with_doubts};
use ringway_keeper::opener::real;
use ringway_runtime::warn_limited;
use serde::Deserialize;

use super::room::Room;
use crate::state_file::StateFile;

/// Most bytes of grants.
const GRANTS_MOST: u64 = 1 << 20;
/// Where openers remember the path of the state file, and the text of the configuration file, and its most bytes.
const STATE_AT: u64 = GRANTS_MOST + 4096;
const TEXT_AT: u64 = 2 * GRANTS_MOST;
const TEXT_MOST: u64 = 8 << 20;

/// Something that the switch asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thing<'a> {
    /// A socket to listen on. Paths are [`real`]: what that takes is nobody else's time.
    Listener(&'a Path),
    /// A socket that is removed.
    Bound(&'a Path),
    /// The socket of a peer.
    Peer(&'a Path),
    /// A file to read.
    File(&'a Path),
    /// The file of an in-flight record.
    Record(&'a Path),
    /// The network device of a port with these settings.
    Device(&'a Port),
    /// A network namespace.
    Namespace(&'a str),
}

/// Most paths of sockets that are remembered after they were allowed as everything was.
const BOUND_MOST: usize = 4096;
/// Most characters of a name in the log.
const TOLD_MOST: usize = 300;

/// Files that every configuration may name things of.
const TABLES: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// The same, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Named {
    Listener(PathBuf),
    Peer(PathBuf),
    File(PathBuf),
    /// A device with all keys of its kind: they say what the switch gets of it.
    Device {
        kind: &'static str,
        name: String,
        netns: Option<String>,
        keys: String,
    },
}

/// A line of grants: a section of the configuration, as an administrator gave it to a command.
#[derive(Debug, Deserialize)]
struct Grant {
    #[serde(flatten)]
    of: Of,
    keys: serde_json::Map<String, serde_json::Value>,
}

/// Whose section it is.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Of {
    Port(String),
    Switch(String),
}

/// What the switch may have. What was allowed once stays so as long as the opener lives: the switch still closes and removes it.
#[derive(Debug)]
pub(super) struct Allowed {
    file: Option<PathBuf>,
    host: Host,
    grants: Option<File>,
    /// Bytes of the grants that were read.
    read: u64,
    named: HashSet<Named>,
    /// The state file, as the configuration names it.
    state: Option<PathBuf>,
    /// The grants, as they came.
    lines: BTreeSet<String>,
    /// Everything is allowed.
    is_any: bool,
    /// Paths of sockets that were allowed as everything was: they are removed though it is not any more.
    bound: HashSet<PathBuf>,
    room: Room,
    /// The configuration file, when it was read.
    seen: Option<Stamp>,
    /// When that was.
    taken_at: Option<Instant>,
    /// What was granted, when this was made.
    granted: Option<Stamp>,
    /// The runtime directory is there, and its path real.
    has_directory: bool,
}

/// A file that is as it was is not read again before, whatever is refused.
const TAKE_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What tells one state of a file from another: device, inode, size and time.
type Stamp = (u64, u64, u64, i64, i64);

fn stamp(meta: &Metadata) -> Stamp {
    (meta.dev(), meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec())
}

impl Allowed {
    pub(super) fn new(file: Option<PathBuf>, host: Host, grants: Option<File>) -> Self {
        let directory = host.runtime_dir.canonicalize();
        let has_directory = directory.is_ok();
        let host = Host { runtime_dir: directory.unwrap_or_else(|_| host.runtime_dir.clone()), ..host };
        let file = file.map(|file| std::path::absolute(&file).unwrap_or(file));
        let mut allowed = Self {
            file,
            host,
            grants,
            read: 0,
            named: HashSet::new(),
            state: None,
            lines: BTreeSet::new(),
            is_any: false,
            bound: HashSet::new(),
            room: Room::default(),
            seen: None,
            granted: None,
            taken_at: None,
            has_directory,
        };
        allowed.recall();
        allowed.look();
        // Of a daemon before, whose run-time ports this one has, too.
        let before = allowed.state_file().grants();
        before.lines().for_each(|line| allowed.grant(line));
        allowed.granted = allowed.granted_now();
        allowed
    }

    /// Returns true if the file is another one since this was made, or other openers were told something.
    pub(super) fn is_stale(&self) -> bool {
        let seen = self.file.as_deref().and_then(|file| file.metadata().ok()).as_ref().map(stamp);
        seen != self.seen || self.granted_now() != self.granted
    }

    fn granted_now(&self) -> Option<Stamp> {
        self.grants.as_ref()?.metadata().ok().as_ref().map(stamp)
    }

    /// Says whether the switch may have this. Returns the path by which it is used, if it has one.
    ///
    /// # Errors
    /// It may not: the reason, for users.
    pub(super) fn judge(&mut self, thing: Thing<'_>) -> Result<PathBuf, String> {
        // The switch makes the directory, perhaps after the start of this process.
        if !self.has_directory
            && let Ok(directory) = self.host.runtime_dir.canonicalize()
        {
            (self.host.runtime_dir, self.has_directory) = (directory, true);
        }
        // A reload: what the file names now holds for what comes next. And what it allowed wholesale, it may not allow any more.
        if self.is_any || matches!(thing, Thing::File(path) if self.is_own(path)) {
            self.look();
        }
        if let Some(path) = self.path_of(thing) {
            return Ok(path);
        }
        // Somebody may have allowed it since, or a folder or link that the file names may lead here now.
        if self.taken_at.is_none_or(|at| at.elapsed() >= TAKE_AGAIN_AFTER) {
            self.seen = None;
        }
        self.look();
        if let Some(path) = self.path_of(thing) {
            return Ok(path);
        }
        let what = match thing {
            Thing::Listener(path) | Thing::Bound(path) | Thing::Peer(path) => format!("socket {}", path.display()),
            Thing::File(path) | Thing::Record(path) => format!("file {}", path.display()),
            Thing::Namespace(name) => format!("network namespace {name}"),
            Thing::Device(port) => self.device_in_words(port),
        };
        let right = "use the command \"ringway\" as root or as Ringway's user, or name it in the configuration file and reload that";
        // The switch may say anything, and often.
        let what: String = what.chars().take(TOLD_MOST).collect();
        warn_limited(&format!("the switch may not have {what}: {right}"));
        Err(format!("the switch may not open {what}, because no administrator has allowed it: {right}"))
    }

    /// Says whether this is the configuration file.
    pub(super) fn is_own(&self, path: &Path) -> bool {
        self.file.as_deref().is_some_and(|own| path == own || path == real(own))
    }

    /// Where the keeper listens, and nobody connects for the switch.
    pub(super) fn keeper_socket(&self) -> PathBuf {
        self.host.runtime_dir.join(KEEPER_SOCKET)
    }

    /// Takes the room for another file in the runtime directory, if it is made there.
    ///
    /// # Errors
    /// There is none: the reason, for users.
    pub(super) fn take_room(&mut self, path: &Path) -> Result<(), String> {
        // A file elsewhere is not asked for: its file system may never answer.
        let is_there = self.in_runtime_dir(path).is_none() || path.symlink_metadata().is_ok();
        if is_there { Ok(()) } else { self.room.take(&self.host.runtime_dir) }
    }

    /// A device that is refused, for users.
    fn device_in_words(&self, port: &Port) -> String {
        let Some(Named::Device { kind, name, netns, keys }) = device_of(port) else {
            return "a device of a port without one".to_owned();
        };
        let place = netns.as_ref().map_or(String::new(), |netns| format!(" of network namespace {netns}"));
        let is_same = |named: &Named| matches!(named, Named::Device { kind: k, name: n, netns: s, .. } if (k, n, s) == (&kind, &name, &netns));
        let other = if self.named.iter().any(is_same) {
            format!(" with other keys than were allowed ({keys})")
        } else {
            String::new()
        };
        format!("device \"{name}\"{place}{other}")
    }

    /// Returns the path by which the thing is used: the one that was named, if it has one. The switch sent the same text, which can lead elsewhere a moment later:
    /// who uses it sees to that.
    fn path_of(&mut self, thing: Thing<'_>) -> Option<PathBuf> {
        if let Thing::Listener(path) = thing
            && self.is_any
            && self.bound.len() < BOUND_MOST
            && self.in_runtime_dir(path).is_none()
        {
            self.bound.insert(path.to_owned());
        }
        let named = |named: Named, path: PathBuf| (self.is_any || self.named.contains(&named)).then_some(path);
        match thing {
            Thing::Listener(path) | Thing::Bound(path) | Thing::Peer(path)
                if self.in_runtime_dir(path).as_deref() == Some(OsStr::new(KEEPER_SOCKET)) =>
            {
                None
            }
            Thing::Bound(path) if self.bound.contains(path) => Some(path.to_owned()),
            Thing::Listener(path) | Thing::Bound(path) => match self.in_runtime_dir(path) {
                Some(name) => Some(self.host.runtime_dir.join(name)),
                None => named(Named::Listener(path.to_owned()), path.to_owned()),
            },
            Thing::Peer(path) => named(Named::Peer(path.to_owned()), path.to_owned()),
            Thing::Record(path) => {
                let name = self.in_runtime_dir(path).filter(|name| name.as_bytes().starts_with(b".inflight-"));
                name.map(|name| self.host.runtime_dir.join(name))
            }
            Thing::File(path) if self.is_own(path) => self.file.clone(),
            Thing::File(path) if TABLES.iter().any(|table| path == Path::new(table)) => Some(path.to_owned()),
            // No file that only a request has named.
            Thing::File(path) => self.named.contains(&Named::File(path.to_owned())).then(|| path.to_owned()),
            Thing::Device(port) => device_of(port).and_then(|device| named(device, PathBuf::new())),
            Thing::Namespace(name) => {
                let is_its = |named: &Named| matches!(named, Named::Device { netns: Some(netns), .. } if netns == name);
                (self.is_any || self.named.iter().any(is_its)).then(PathBuf::new)
            }
        }
    }

    /// The name of a file in the runtime directory itself.
    fn in_runtime_dir(&self, path: &Path) -> Option<OsString> {
        path.file_name().filter(|_| path.parent() == Some(&self.host.runtime_dir)).map(OsStr::to_owned)
    }

    /// Returns the state file, and what is written beside it: what was granted outlives the daemon as long as there is a state.
    pub(super) fn kept(&self) -> (StateFile, String) {
        (self.state_file(), self.lines.iter().fold(String::new(), |all, line| all + line + "\n"))
    }

    /// The state file.
    fn state_file(&self) -> StateFile {
        StateFile::locate(self.state.as_deref().unwrap_or(Path::new("")), &self.host.runtime_dir, self.file.as_deref())
    }

    /// Reads the configuration file, and new grants.
    fn look(&mut self) {
        // A file with mistakes allows nothing new: no reload takes it either. One that is as it was is not read again.
        let seen = self.file.as_deref().and_then(|file| file.metadata().ok()).as_ref().map(stamp);
        let is_new = seen.is_none() || seen != self.seen;
        self.seen = seen;
        if let Some(loaded) =
            self.file.as_deref().filter(|_| is_new).and_then(|file| load_with_doubts(file, &self.host).ok())
        {
            self.remember(&loaded.text, TEXT_AT);
            self.take(&loaded.config);
            self.taken_at = Some(Instant::now());
        }
        let lines = self.new_grants();
        lines.lines().for_each(|line| self.grant(line));
    }

    /// Allows what is in a line. One of another version allows nothing.
    fn grant(&mut self, line: &str) {
        let Ok(Grant { of, keys }) = serde_json::from_str(line) else { return };
        if let Of::Switch(_) = of {
            // A command may give one key of a table alone, which is no whole section.
            let nested = keys.get("forwarding").and_then(|table| table.as_object()).into_iter().flatten();
            let alone = keys.iter().filter_map(|(key, value)| Some((key.strip_prefix("forwarding.")?, value)));
            let all = nested.map(|(key, value)| (key.as_str(), value)).chain(alone);
            let paths = all.filter(|(key, _)| ProgramKeys::PATHS.contains(key)).filter_map(|(_, value)| value.as_str());
            let named: Vec<_> = paths.map(|path| Named::File(real(Path::new(path)))).collect();
            self.named.extend(named);
            self.lines.insert(line.to_owned());
            return;
        }
        let mut config = Config::default();
        let mut section = Section(keys.into_iter().collect());
        let (part, name) = match of {
            Of::Port(name) => {
                // It can be in the port's name.
                section.0.entry("switch".to_owned()).or_insert_with(|| "any".into());
                (Part::Port, name)
            }
            Of::Switch(name) => (Part::Switch, name),
        };
        let Ok(name) = name.parse() else { return };
        if section.put(&Id { part, name }, &mut config).is_ok() {
            self.allow(&config);
            self.lines.insert(line.to_owned());
        }
    }

    fn take(&mut self, config: &Config) {
        self.allow(config);
        self.is_any = config.privileged.requests == Requests::Any;
        if self.state.is_none() {
            // It is the one of the start, as for the switch.
            self.remember(&config.state.file.to_string_lossy(), STATE_AT);
            self.state = Some(config.state.file.clone());
        }
    }

    /// Writes what the next opener needs if the file is no longer what it was: behind the grants, in memory that the switch does not have.
    fn remember(&self, text: &str, at: u64) {
        let Some(file) = &self.grants else { return };
        let bytes = [&(text.len() as u64).to_ne_bytes(), text.as_bytes()].concat();
        if let Err(why) = file.write_all_at(&bytes, at) {
            tracing::warn!("the next opener will not know what was allowed: {why}");
        }
    }

    /// Allows what the file named when the opener before read it.
    fn recall(&mut self) {
        let text = |at: u64| {
            let file = self.grants.as_ref()?;
            let mut length = [0; 8];
            file.read_exact_at(&mut length, at).ok()?;
            let length = u64::from_ne_bytes(length).min(TEXT_MOST);
            let mut bytes = vec![0; length as usize];
            file.read_exact_at(&mut bytes, at + 8).ok()?;
            String::from_utf8(bytes).ok()
        };
        let (state, text) = (text(STATE_AT), text(TEXT_AT).filter(|text| !text.is_empty()));
        let loaded = text.zip(self.file.as_deref()).and_then(|(text, file)| load_text(file, text, &self.host).ok());
        if let Some(loaded) = loaded {
            self.state = state.map(PathBuf::from);
            self.take(&loaded.config);
        }
    }

    /// The grants that came since the last look.
    fn new_grants(&mut self) -> String {
        let Some(file) = &self.grants else { return String::new() };
        let mut bytes = vec![0; (GRANTS_MOST - self.read) as usize];
        let Ok(length) = file.read_at(&mut bytes, self.read) else { return String::new() };
        // Whole lines; behind them the memory is empty, or has what openers remember.
        let end = bytes[..length].iter().position(|byte| *byte == 0).unwrap_or(length);
        let end = bytes[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.read += end as u64;
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    fn allow(&mut self, config: &Config) {
        let directory = &self.host.runtime_dir;
        let named = config.ports.values().filter_map(|port| match port.settings.own().end() {
            End::Socket { path, listens: true } => Some(Named::Listener(real(&directory.join(path)))),
            End::Socket { path, listens: false } => Some(Named::Peer(real(&directory.join(path)))),
            _ => device_of(port),
        });
        let named: Vec<_> = named.collect();
        self.named.extend(named);
        for switch in config.switches.values() {
            let keys = switch.forwarding.program().cloned();
            let paths =
                keys.into_iter().flat_map(|mut keys| keys.paths().map(|(_, path)| path.clone()).collect::<Vec<_>>());
            self.named.extend(paths.filter(|path| !path.as_os_str().is_empty()).map(|path| Named::File(real(&path))));
        }
    }
}

fn device_of(port: &Port) -> Option<Named> {
    match port.settings.own().end() {
        End::Device { device, netns } => {
            let kind = port.kind().as_str();
            let keys = port.settings.own().to_json().to_string();
            Some(Named::Device { kind, name: device.to_owned(), netns: netns.map(str::to_owned), keys })
        }
        _ => None,
    }
}

/// Reads a port's keys, by the same functions that read a file.
pub(super) fn port(name: &str, keys: &serde_json::Map<String, serde_json::Value>) -> Option<Port> {
    let mut config = Config::default();
    let name: Name = name.parse().ok()?;
    let section = Section(keys.clone().into_iter().collect());
    section.put(&Id { part: Part::Port, name: name.clone() }, &mut config).ok()?;
    config.ports.remove(&name)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    /// What is allowed by a configuration file, and grants, in a folder of the test's own.
    struct Scene {
        dir: tempfile::TempDir,
        grants: File,
    }

    impl Scene {
        fn new(config: &str) -> (Self, Allowed) {
            let grants = rustix::fs::memfd_create("grants", rustix::fs::MemfdFlags::CLOEXEC).expect("memory");
            let scene = Self { dir: tempfile::tempdir().expect("a folder"), grants: grants.into() };
            fs::create_dir(scene.path("run")).expect("a folder");
            scene.write(config);
            let grants = scene.grants.try_clone().expect("a descriptor");
            let host = Host::here(&scene.path("run"));
            let allowed = Allowed::new(Some(scene.path("c.toml")), host, Some(grants));
            (scene, allowed)
        }

        fn path(&self, name: &str) -> PathBuf {
            real(self.dir.path()).canonicalize().expect("a folder").join(name)
        }

        fn write(&self, config: &str) {
            fs::write(self.path("new"), config)
                .and_then(|()| fs::rename(self.path("new"), self.path("c.toml")))
                .expect("a file");
        }

        fn grant(&mut self, line: &serde_json::Value) {
            writeln!(self.grants, "{line}").expect("memory");
        }
    }

    fn wanted(keys: &serde_json::Value) -> Port {
        port("p", keys.as_object().expect("keys")).expect("a port")
    }

    #[test]
    fn a_device_is_allowed_with_the_keys_that_were_named_or_granted_and_with_no_others() {
        let (mut scene, mut allowed) = Scene::new(
            "[switch.a]\n[port.p]\nswitch = \"a\"\nkind = \"xdp\"\ndevice = \"eth0\"\nqueues = 2\n[port.t]\nswitch = \"a\"\nkind = \"tap\"\n",
        );
        let xdp = |host: bool| serde_json::json!({ "switch": "any", "kind": "xdp", "device": "eth0", "queues": 2, "host": host });
        allowed.judge(Thing::Device(&wanted(&xdp(true)))).expect("it is named");
        let why = allowed.judge(Thing::Device(&wanted(&xdp(false)))).expect_err("other frames");
        assert!(why.contains("device \"eth0\" with other keys than were allowed"), "{why}");
        for other in [
            serde_json::json!({ "switch": "any", "kind": "xdp", "device": "eth0" }),
            serde_json::json!({ "switch": "any", "kind": "xdp", "device": "eth0", "queues": 2, "mode": "generic" }),
            serde_json::json!({ "switch": "any", "kind": "tap", "device": "t", "mtu": 9000 }),
        ] {
            allowed.judge(Thing::Device(&wanted(&other))).expect_err("not named");
        }
        // Addresses are the switch's.
        let tap = serde_json::json!({ "switch": "any", "kind": "tap", "device": "t", "mac": ["52:54:00:00:00:01"] });
        allowed.judge(Thing::Device(&wanted(&tap))).expect("it is named");
        scene.grant(&serde_json::json!({ "port": "p", "keys": xdp(false) }));
        allowed.judge(Thing::Device(&wanted(&xdp(false)))).expect("it was granted");
    }

    #[test]
    fn what_was_allowed_wholesale_is_refused_once_the_file_takes_it_back_but_sockets_are_removed() {
        let any = "[privileged]\nrequests = \"any\"\n[switch.a]\n";
        let (scene, mut allowed) = Scene::new(any);
        let [first, other] = ["first.sock", "other.sock"].map(|name| scene.path(name));
        let tap = wanted(&serde_json::json!({ "switch": "any", "kind": "tap", "device": "t" }));
        for thing in [Thing::Listener(&first), Thing::Peer(&other), Thing::Device(&tap), Thing::Namespace("n")] {
            allowed.judge(thing).unwrap_or_else(|why| panic!("{why}"));
        }
        scene.write("[switch.a]\n");
        for thing in [Thing::Listener(&first), Thing::Peer(&other), Thing::Device(&tap), Thing::Namespace("n")] {
            allowed.judge(thing).expect_err("not any more");
        }
        assert_eq!(allowed.judge(Thing::Bound(&first)), Ok(first));
        allowed.judge(Thing::Bound(&other)).expect_err("it was never bound");
    }

    #[test]
    fn what_the_file_does_not_name_any_more_makes_what_was_read_stale() {
        let (scene, allowed) = Scene::new("[privileged]\nrequests = \"any\"\n");
        assert!(!allowed.is_stale());
        scene.write("");
        assert!(allowed.is_stale());
    }

    #[test]
    fn what_was_granted_since_makes_what_was_read_stale() {
        let (mut scene, allowed) = Scene::new("");
        assert!(!allowed.is_stale());
        scene.grant(&serde_json::json!({}));
        assert!(allowed.is_stale());
    }

    #[test]
    fn the_runtime_directory_gets_only_so_many_files() {
        let (scene, mut allowed) = Scene::new("");
        let path = |number: usize| scene.path("run").join(format!(".inflight-{number}"));
        let mut made = 0;
        while allowed.take_room(&path(made)).is_ok() {
            fs::write(path(made), "").expect("a file");
            made += 1;
            assert!(made <= super::super::room::FILES_MOST);
        }
        assert_eq!(made, super::super::room::FILES_MOST);
        allowed.take_room(&path(0)).expect("it is there already");
        allowed.take_room(&scene.path("elsewhere")).expect("not in the directory");
        fs::remove_file(path(0)).expect("it is there");
        allowed.take_room(&path(0)).expect("one has gone");
    }
}
