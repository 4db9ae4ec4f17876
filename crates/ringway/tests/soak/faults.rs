//! What happens to the switch, its clients and their devices.

use std::fs::File;
use std::time::{Duration, Instant};

use ringway_testing::child::{self, is_running};
use ringway_testing::random::Random;
use ringway_testing::until;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{Pid, Signal, kill_process};

use crate::members::{Kind, MEMBERS};
use crate::scene::{Scene, all_of, program};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    KillSwitch,
    AbortSwitch,
    SegfaultSwitch,
    /// Successors die, too, before they serve or soon after.
    KillSuccessors,
    Upgrade,
    ReplaceKeeper,
    StopSwitch,
    /// The switch gets no more memory for a while.
    NoMemory,
    KillMember,
    StopMember,
    /// Pages of a member's memory become zeroes.
    PunchMemory,
    DeleteTap,
    RemakeNamespace,
    RemakeVeth,
    Reload,
    SetPort,
    AddAndDeletePort,
    DeleteAndAddPort,
    FullLog,
}

/// Each as often as it stands here.
const ALL: [What; 25] = [
    What::KillSwitch,
    What::KillSwitch,
    What::KillSwitch,
    What::AbortSwitch,
    What::SegfaultSwitch,
    What::KillSuccessors,
    What::KillSuccessors,
    What::Upgrade,
    What::Upgrade,
    What::ReplaceKeeper,
    What::StopSwitch,
    What::NoMemory,
    What::KillMember,
    What::KillMember,
    What::KillMember,
    What::StopMember,
    What::PunchMemory,
    What::DeleteTap,
    What::RemakeNamespace,
    What::RemakeVeth,
    What::Reload,
    What::SetPort,
    What::AddAndDeletePort,
    What::DeleteAndAddPort,
    What::FullLog,
];

/// In these the switch may be killed.
const KILLED_IN: [What; 11] = [
    What::Upgrade,
    What::ReplaceKeeper,
    What::KillMember,
    What::PunchMemory,
    What::DeleteTap,
    What::RemakeNamespace,
    What::RemakeVeth,
    What::Reload,
    What::SetPort,
    What::AddAndDeletePort,
    What::DeleteAndAddPort,
];

/// A fault, with numbers that say where and how much.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub what: What,
    /// The switch is killed meanwhile.
    pub has_kill: bool,
    whom: u64,
    much: u64,
}

impl Fault {
    /// The next one of a seed, whatever the ones before have done. `RINGWAY_SOAK_ONLY` names those that may be drawn.
    pub fn draw(random: &mut Random) -> Self {
        let only = std::env::var("RINGWAY_SOAK_ONLY").unwrap_or_default();
        let allowed: Vec<What> =
            ALL.into_iter().filter(|what| only.is_empty() || only.contains(&format!("{what:?}"))).collect();
        let [what, whom, much] = [random.bits() >> 8, random.bits() >> 8, random.bits() >> 8];
        let what = allowed[what as usize % allowed.len()];
        Self { what, has_kill: KILLED_IN.contains(&what) && (whom >> 32).is_multiple_of(3), whom, much }
    }

    /// The member that it is about.
    pub fn member(&self) -> Option<usize> {
        let of = |members: Vec<usize>| Some(members[self.whom as usize % members.len()]);
        match self.what {
            What::KillMember | What::StopMember => of(all_of(|_| true)),
            What::PunchMemory => of(all_of(|kind| !kind.is_device() && kind != Kind::Stream)),
            What::DeleteTap | What::RemakeNamespace => of(all_of(|kind| kind == Kind::Tap)),
            What::RemakeVeth => of(all_of(Kind::is_veth)),
            What::SetPort => of(all_of(|kind| kind != Kind::OnDemand)),
            What::DeleteAndAddPort => of(all_of(|kind| kind != Kind::OnDemand)),
            _ => None,
        }
    }

    /// Whether the switch ends by it.
    pub fn ends_switch(&self) -> bool {
        use What::{AbortSwitch, KillSuccessors, KillSwitch, NoMemory, SegfaultSwitch, Upgrade};
        self.has_kill
            || matches!(self.what, KillSwitch | AbortSwitch | SegfaultSwitch | KillSuccessors | Upgrade | NoMemory)
    }

    /// Whether the port of its member may end by it.
    pub fn ends_port(&self) -> bool {
        use What::{DeleteAndAddPort, DeleteTap, KillMember, PunchMemory, RemakeNamespace, RemakeVeth};
        matches!(self.what, DeleteAndAddPort | DeleteTap | KillMember | PunchMemory | RemakeNamespace | RemakeVeth)
    }

    /// Up to so many milliseconds.
    fn pause(&self, most: u64) -> Duration {
        Duration::from_millis(self.much % most)
    }

    pub fn happen(&self, scene: &mut Scene) {
        // At any moment of a batch.
        std::thread::sleep(Duration::from_micros(self.much % 20_000));
        if !self.has_kill {
            return self.take_place(scene);
        }
        let (switch, pause) = (process(scene.daemon.pid()), Duration::from_micros(self.much % 150_000));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(pause);
            let _ = kill_process(switch, Signal::KILL);
        });
        self.take_place(scene);
        killer.join().expect("no panic");
        scene.switch_died = Some(Instant::now());
    }

    fn take_place(&self, scene: &mut Scene) {
        let member = self.member().unwrap_or(0);
        let name = MEMBERS[member].name;
        match self.what {
            What::KillSwitch => kill(scene, Signal::KILL),
            What::AbortSwitch => kill(scene, Signal::ABORT),
            What::SegfaultSwitch => kill(scene, Signal::SEGV),
            What::KillSuccessors => {
                kill(scene, Signal::KILL);
                for number in 0..=self.whom % 4 {
                    let lives = Duration::from_millis((self.much >> (8 * number)) % 150);
                    let successor = scene.daemon.pid();
                    std::thread::sleep(lives);
                    let _ = kill_process(process(successor), Signal::KILL);
                    until("the successor is dead", || !is_running(successor));
                }
                scene.switch_died = Some(Instant::now());
            }
            What::Upgrade => {
                let said = scene.ringway(&["upgrade"]);
                scene.switch_died = Some(Instant::now());
                let is_done = said.code == Some(0) || self.has_kill || said.err.contains("died");
                assert!(is_done, "seed {}: {said:?}", scene.seed);
            }
            What::ReplaceKeeper => {
                let said = scene.ringway(&["upgrade", "--keeper"]);
                // One that was just started has to be waited for.
                let is_done = said.code == Some(0) || self.has_kill || said.err.contains("try again");
                assert!(is_done, "seed {}: {said:?}", scene.seed);
            }
            What::StopSwitch => {
                let switch = process(scene.daemon.pid());
                let _ = kill_process(switch, Signal::STOP);
                std::thread::sleep(self.pause(700));
                let _ = kill_process(switch, Signal::CONT);
            }
            What::NoMemory => self.no_memory(scene),
            What::KillMember => scene.members[member].child.signal(Signal::KILL),
            What::StopMember => {
                let child = &scene.members[member].child;
                child.signal(Signal::STOP);
                std::thread::sleep(self.pause(700));
                child.signal(Signal::CONT);
            }
            What::PunchMemory => self.punch(scene, member),
            What::DeleteTap => {
                let space = scene.spaces[member].as_ref().expect("a device has namespaces");
                // It may be gone already.
                let _ = space.device.run("ip", &["link", "del", name]);
            }
            What::RemakeNamespace => {
                let space = &scene.spaces[member].as_ref().expect("a device has namespaces").device;
                program("ip", &["netns", "del", &space.name]);
                scene.members[member].child.signal(Signal::KILL);
                std::thread::sleep(self.pause(100));
                program("ip", &["netns", "add", &space.name]);
                space.ok("sysctl", &["-qw", "net.ipv6.conf.default.disable_ipv6=1"]);
            }
            What::RemakeVeth => {
                let spaces = scene.spaces[member].as_ref().expect("a device has namespaces");
                spaces.device.ok("ip", &["link", "del", name]);
                std::thread::sleep(self.pause(100));
                spaces.join(member);
            }
            What::Reload => {
                scene.weight = 1 + self.much % 9;
                scene.configure(scene.weight, self.whom.is_multiple_of(2));
                let _ = scene.ringway(&["reload"]);
            }
            What::SetPort => _ = scene.ringway(&["port", "set", name, &format!("weight={}", 1 + self.much % 9)]),
            What::AddAndDeletePort => {
                let _ = scene.ringway(&["port", "add", "other", "switch=lan0", "kind=vhost-user", "vlan=20"]);
                std::thread::sleep(self.pause(100));
                let _ = scene.ringway(&["port", "del", "other"]);
            }
            What::DeleteAndAddPort => {
                let keys = scene.keys(member).expect("a port of the configuration");
                let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
                let _ = scene.ringway(&["port", "del", name]);
                std::thread::sleep(self.pause(100));
                // A switch that died may not have deleted it.
                until(&format!("port {name} is there"), || {
                    let said = scene.ringway(&[&["port", "add", name], &keys[..]].concat());
                    said.code == Some(0) || said.err.contains("exists") || {
                        assert!(self.has_kill, "seed {}: {said:?}", scene.seed);
                        false
                    }
                });
            }
            What::FullLog => scene.log.fill(Duration::from_secs(1) + self.pause(3000)),
        }
    }

    fn no_memory(&self, scene: &mut Scene) {
        let switch = scene.daemon.pid();
        let read = |file: &str| std::fs::read_to_string(format!("/proc/{switch}/{file}")).unwrap_or_default();
        let pages: u64 = read("statm").split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
        let limit = |bytes: &str| {
            let args = [format!("--pid={switch}"), format!("--as={bytes}:unlimited")];
            // The switch may have died of it.
            let _ = std::process::Command::new("prlimit").args(args).output();
        };
        limit(&(pages * 4096 + self.much % (1 << 20)).to_string());
        std::thread::sleep(self.pause(500));
        limit("unlimited");
        scene.switch_died = Some(Instant::now());
    }

    /// Takes pages out of a memory file that the member has mapped, and ends it soon.
    fn punch(&self, scene: &mut Scene, number: usize) {
        let member = &mut scene.members[number];
        let folder = format!("/proc/{}/fd", member.child.id());
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_memory = |path: &std::path::PathBuf| {
            std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("memfd:"))
        };
        let files: Vec<_> = files.filter(is_memory).collect();
        let Some(path) = files.get(self.much as usize % files.len().max(1)) else { return };
        let Ok(file) = File::options().read(true).write(true).open(path) else { return };
        member.punched.insert(member.incarnation);
        let pages = file.metadata().map_or(0, |about| about.len() / 4096).max(1);
        let (first, many) = (self.whom % pages, 1 + self.much % 16);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(&file, hole, 4096 * first, 4096 * many.min(pages - first));
        std::thread::sleep(self.pause(300));
        member.child.signal(Signal::KILL);
    }
}

fn process(id: u32) -> Pid {
    Pid::from_raw(id.cast_signed()).expect("a process")
}

/// Ends the switch, and waits until it is dead.
fn kill(scene: &mut Scene, signal: Signal) {
    let switch = scene.daemon.pid();
    until("the switch is dead", || {
        // The first SIGSEGV only ends the handler of Rust's library.
        if is_running(switch) {
            let _ = kill_process(process(switch), signal);
        }
        !child::is_child(switch, scene.daemon.keeper(), "ringway-switch")
    });
    scene.switch_died = Some(Instant::now());
}
