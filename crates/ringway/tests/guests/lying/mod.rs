//! A NIC that lies to the driver of the guest: a server of vfio-user in this process, which is an honest 82540EM until a test
//! tells it a lie.
//!
//! - `chip`: registers, EEPROM, PHY; `rings`: frames in descriptor rings; `station`: who answers them; `card`: all of that on
//!   a socket.
//! - `lie`: what the card lies about; `cases`: the lies that are told.
//!
//! Frames flow both ways all the time. A lie ends when it was told often enough. Then the guest's kernel has nothing to complain of, its
//! driver has said what was wrong once and counted it, and frames flow again. The kernel's own e1000 does not stand all of them: a
//! frame longer than its buffer, for one, ends the guest.

mod card;
mod cases;
mod chip;
mod lie;
mod rings;
mod station;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ringway_guests::{Guest, Qemu};
use ringway_testing::{PATIENCE, skip, snmp, until};
use tempfile::TempDir;

use crate::scene;
use card::{Card, PLAIN, WITH_BLOCK};
use cases::{CASES, Case, Mended, Mode, While};

/// The driver that must stand all lies.
const OWN: &str = "ringway_e1000";
/// The card's address, and that of the station behind it.
const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 9];
const STATION: &str = "10.9.0.2";

/// Kernel arguments. The kernel finds writes beyond an object and to freed memory. It copies what a device writes, in the lengths that
/// drivers name. After an oops the guest ends.
const CHECKED: &str = "slub_debug=FZP page_poison=1 init_on_free=1 swiotlb=force oops=panic panic=-1";
/// Memory of the guest, which poisons all of it. Bounce buffers take half.
const MEMORY_MIB: u32 = 192;
/// Seconds between two pings. More pings keep an emulated processor busy all the time.
const INTERVAL: &str = "0.05";
/// Time between two questions whether something has happened: a guest that is asked all the time does nothing else.
const PAUSE: Duration = Duration::from_millis(20);
/// What a kernel says when something is wrong with the kernel itself.
const WRONG: &[&str] = &[
    "Oops",
    "BUG",
    "WARNING",
    "Call Trace",
    "blocked for more than",
    "KASAN",
    "UBSAN",
    "lockup",
    "stall",
    "general protection",
    "unable to handle",
    "nobody cared",
    "corrupt",
    "overwritten",
    "refcount",
    "use-after-free",
    "swiotlb buffer is full",
    "overflow",
    "DMA-API",
    "page allocation failure",
];
/// How the driver begins the line about a NIC that does what it must not.
const MISBEHAVES: &str = "the device misbehaves";
/// Lines that a driver may write about one lie, among them those of the link.
const MOST_LINES: usize = 12;
/// How often a lie is told, unless the driver does not ask for it in time.
const ENOUGH: u64 = 200;
const LONGEST: Duration = Duration::from_millis(300);
/// Time for which a NIC stands still, longer than the kernel waits for a transmitter.
const STILL: Duration = Duration::from_secs(8);
/// KiB of memory that may be in use after all lies and was not before: a fraction of what a ring's buffers take.
const LEAK: u64 = 4096;

/// Waits for this test's turn. Returns `None` if these guests cannot run on this machine.
fn turn() -> Option<scene::Turn> {
    let turn = scene::turn()?;
    if let Some(why) = Qemu::no_vfio_user() {
        skip::note(format!("needs a QEMU with vfio-user: {why}"));
        return None;
    }
    Some(turn)
}

/// A guest with the card.
struct Scene {
    card: Card,
    guest: Guest,
    driver: &'static str,
    /// The card's place in the guest's `/sys/bus/pci`.
    place: String,
    mtu: u32,
    _dir: TempDir,
}

type Checked<T = ()> = Result<T, String>;

impl Scene {
    /// Starts a guest whose own driver has these parameters, or none, where the kernel's driver takes the card.
    fn start(parameters: Option<&str>, mtu: u32) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let subsystem = if parameters.is_some() { WITH_BLOCK } else { PLAIN };
        let card = Card::start(&dir.path().join("card.sock"), MAC, subsystem);
        let builder =
            Guest::builder("lied-to").memory_mib(MEMORY_MIB).nic(card.nic()).kernel_args(CHECKED).arg("-no-reboot");
        let (driver, builder) = match parameters {
            Some(parameters) => (OWN, builder.own_driver(parameters)),
            None => ("e1000", builder),
        };
        let guest = builder.start().unwrap();
        let place = guest.ok("basename $(readlink -f /sys/class/net/eth0/device)").unwrap().trim().to_owned();
        let scene = Scene { card, guest, driver, place, mtu, _dir: dir };
        scene.open().unwrap();
        scene.talk().unwrap();
        scene.recovered().unwrap();
        scene.log().unwrap();
        scene
    }

    /// Lets the guest send and receive all the time.
    fn talk(&self) -> Checked {
        for size in [64, 4000] {
            let ping = format!("ping -i {INTERVAL} -c 1000 -s {size} -W 1 {STATION} || sleep 0.01");
            let talk = format!("{{ while [ ! -e /tmp/quiet ]; do {ping}; done; }} >/dev/null");
            self.guest.start(&talk).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Ends that.
    fn be_quiet(&self) -> Checked {
        self.tell("touch /tmp/quiet; while killall ping 2>/dev/null; do sleep 0.1; done; rm /tmp/quiet")
    }

    fn open(&self) -> Checked {
        self.tell(&format!("ip link set eth0 mtu {} up", self.mtu))?;
        let [a, b, c, d, e, f] = station::MAC;
        let station = format!("arp -s {STATION} {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        self.tell(&format!("ip addr add 10.9.0.1/24 dev eth0 2>/dev/null; {station}"))
    }

    fn reopen(&self) -> Checked {
        self.tell("ip link set eth0 down")?;
        self.open()
    }

    /// Takes the driver off the card, and binds it again.
    fn bind(&self) -> Checked {
        let Scene { driver, place, .. } = self;
        let unbind = format!("[ ! -e {place} ] || echo {place} >unbind");
        self.tell(&format!("cd /sys/bus/pci/drivers/{driver}; {unbind}; echo {place} >bind"))?;
        self.open()
    }

    /// Removes the driver and loads it again.
    fn reload(&self, parameters: &str) -> Checked {
        self.tell(&format!("rmmod {OWN}; insmod /modules/{OWN}.ko {parameters}"))?;
        self.open()
    }

    /// Returns the memory in KiB that nobody uses, while there are no rings.
    fn free(&self) -> Checked<u64> {
        self.tell("ip link set eth0 down; sync; echo 3 >/proc/sys/vm/drop_caches")?;
        let said = self.guest.ok("awk '/^MemFree/ { print $2 }' /proc/meminfo").map_err(|error| error.to_string())?;
        self.open()?;
        said.trim().parse().map_err(|_| said)
    }

    fn tell(&self, command: &str) -> Checked {
        self.guest.ok(command).map(drop).map_err(|error| error.to_string())
    }

    /// Waits until pings are answered.
    fn recovered(&self) -> Checked {
        let deadline = Instant::now() + PATIENCE;
        let answers = || -> Checked<u64> {
            let counters = self.guest.ok("cat /proc/net/snmp").map_err(|error| error.to_string())?;
            snmp::counter(&counters, "Icmp", "InEchoReps").ok_or(counters)
        };
        let before = answers()?;
        while answers()? < before + 4 {
            if Instant::now() > deadline {
                let state = self.guest.run("dmesg; ethtool -S eth0").map(|output| output.text);
                return Err(format!("no frame passes any more: {}\n{}", self.card.state(), state.unwrap_or_default()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Returns the driver's counters, and lets all else that asks the driver ask it, too.
    fn ask(&self) -> Checked<HashMap<String, u64>> {
        let said = self.guest.run("ifconfig eth0; ethtool eth0; ethtool -d eth0; ethtool -S eth0");
        let said = said.map_err(|error| error.to_string())?.text;
        let counters = said.lines().filter_map(|line| line.trim().split_once(": "));
        Ok(counters.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }

    /// Returns the kernel's messages since the last call.
    fn log(&self) -> Checked<String> {
        self.guest.ok("dmesg -c").map_err(|error| error.to_string())
    }

    /// Tells a lie, for this time at least. Returns what was wrong with the guest or its driver.
    fn lie(&self, case: &Case, least: Duration) -> Checked {
        let before = if case.counted.is_some() { self.ask()? } else { HashMap::new() };
        self.card.tell((case.lie)(case.number));
        match case.during {
            While::Up => {}
            // These may fail, but must end.
            While::Reopened => drop(self.reopen()),
            While::Bound => drop(self.bind()),
        }
        let begun = Instant::now();
        while begun.elapsed() < least || self.card.told() < ENOUGH && begun.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_millis(2));
        }
        let grew =
            |after: &HashMap<String, u64>| case.counted.is_none_or(|counter| after.get(counter) > before.get(counter));
        let (mut after, deadline) = (self.ask()?, Instant::now() + PATIENCE);
        // The guest may not have had a processor meanwhile.
        while !grew(&after) && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
            after = self.ask()?;
        }
        let told = self.card.told();
        self.card.be_honest();
        match case.mended {
            Mended::Itself => {}
            Mended::Reopened => self.reopen()?,
            Mended::Bound => self.bind()?,
        }
        self.recovered()?;
        self.examine()?;
        if grew(&after) {
            Ok(())
        } else {
            Err(format!("told {told} times, but {:?} did not grow: {after:?}", case.counted))
        }
    }

    /// Returns what is wrong in the kernel's messages.
    fn examine(&self) -> Checked {
        let log = without_watchdog(&self.log()?);
        let count = |what: &str| log.lines().filter(|line| line.contains(what)).count();
        if WRONG.iter().any(|what| log.contains(what)) {
            return Err(format!("the kernel is not well:\n{log}"));
        }
        if count(MISBEHAVES) > 1 || count(self.driver) > MOST_LINES {
            return Err(format!("{} lines about one lie:\n{log}", count(self.driver)));
        }
        Ok(())
    }
}

/// Removes the warning of the kernel that a transmitter stands still, which is the truth.
fn without_watchdog(log: &str) -> String {
    let (mut kept, mut warning) = (String::new(), String::new());
    for line in log.split_inclusive('\n') {
        let begins = line.contains("[ cut here ]");
        match begins || !warning.is_empty() {
            true => warning.push_str(line),
            false => kept.push_str(line),
        }
        if line.contains("[ end trace") && !std::mem::take(&mut warning).contains("NETDEV WATCHDOG") {
            kept.push_str("WARNING\n");
        }
    }
    kept + &warning
}

/// Returns the time for which everything is at random. `make guests` sets more.
fn random_for() -> Option<Duration> {
    let seconds = std::env::var("RINGWAY_LYING_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("RINGWAY_LYING_SECONDS is a number")))
}

/// A guest whose driver is in one mode, and what was wrong with it so far.
struct Test {
    mode: Mode,
    scene: Scene,
    /// The guest's free memory when it was new.
    free: u64,
    wrong: Vec<String>,
}

impl Mode {
    fn parameters(self) -> &'static str {
        if self == Mode::Block { "csb=auto" } else { "csb=off" }
    }

    /// Starts a guest in this mode. A longer MTU has frames of several buffers.
    fn scene(self) -> (Scene, u64) {
        let scene = Scene::start(Some(self.parameters()), if self == Mode::Block { 1500 } else { 9000 });
        assert_eq!(scene.card.uses_block(), self == Mode::Block);
        let free = scene.free().unwrap();
        (scene, free)
    }
}

impl Test {
    fn start(mode: Mode) -> Test {
        let (scene, free) = mode.scene();
        Test { mode, scene, free, wrong: Vec::new() }
    }

    /// Tells a lie. If the guest does not stand it, the next lie is told to a good one.
    fn tell(&mut self, case: &Case, least: Duration) {
        let begun = Instant::now();
        // A driver that was lied to often gives the block up, or does so in the midst of this lie.
        let ready = if self.mode == Mode::Block { self.scene.reopen() } else { Ok(()) };
        let result = ready.and_then(|()| self.scene.lie(case, least));
        println!("{:?}: {} ({}): {:?}", self.mode, case.name, case.number, begun.elapsed());
        let Err(why) = result else { return };
        println!("{why}");
        self.wrong.push(format!("{:?}: {} ({}): {why}", self.mode, case.name, case.number));
        self.scene.card.be_honest();
        let mended = self.scene.bind().and_then(|()| self.scene.recovered());
        if mended.and_then(|()| self.scene.log()).is_err() {
            (self.scene, self.free) = self.mode.scene();
        }
    }

    /// Where the block does nothing but lie, frames flow without it in the end.
    fn gives_block_up(&self) -> Checked {
        let Scene { card, .. } = &self.scene;
        card.tell(cases::bad_block());
        until("the driver says that it gives the block up", || {
            self.scene.log().is_ok_and(|log| log.contains("goes on without the status block"))
        });
        self.scene.recovered()?;
        card.be_honest();
        self.scene.reopen()?;
        self.scene.recovered()?;
        if !card.uses_block() {
            return Err("not used again".to_owned());
        }
        self.scene.examine()
    }

    /// Frames that did not come have the driver wait elsewhere in the ring than where the NIC receives. Few frames come afterwards: without
    /// a reset the driver would see none of the next hundred.
    fn steps_back(&self) -> Checked {
        let Scene { guest, card, .. } = &self.scene;
        self.scene.be_quiet()?;
        card.tell(cases::hundred_received());
        until("frames that did not come are told of", || card.told() > 0);
        card.be_honest();
        let deadline = Instant::now() + PATIENCE;
        let mut lost = 0;
        while guest.ok(&format!("ping -c 1 -W 1 {STATION}")).is_err() {
            lost += 1;
            if Instant::now() > deadline {
                return Err(format!("{lost} answers did not arrive: {}", self.scene.card.state()));
            }
        }
        println!("{:?}: {lost} answers lost", self.mode);
        self.scene.talk()?;
        self.scene.recovered()?;
        self.scene.examine()
    }

    /// The card comes back without a status block, and with it again.
    fn comes_back_without_block(&self) -> Checked {
        for offered in [false, true] {
            self.scene.card.offer_block(offered);
            self.scene.reopen()?;
            self.scene.recovered()?;
            if self.scene.card.uses_block() != (offered && self.mode == Mode::Block) {
                return Err(format!("offered: {offered}, but the driver does otherwise"));
            }
        }
        self.scene.examine()
    }

    /// Tells all lies, and removes and loads the driver after them. Returns what was wrong.
    fn run(mut self) -> Vec<String> {
        let mode = self.mode;
        let long = random_for();
        let usual = CASES.iter().filter(|case| long.is_some() || case.is_usual);
        // For every change, what is a lie in both modes is told in one of them, by turns.
        let turn = usize::from(mode == Mode::Block);
        let is_told = |(number, case): &(usize, &Case)| match case.mode {
            Some(only) => only == mode,
            None => long.is_some() || number % 2 == turn,
        };
        for (_, case) in usual.enumerate().filter(is_told) {
            self.tell(case, Duration::ZERO);
        }
        // The NIC goes at any moment while the driver binds to it. A driver reads some 40 registers.
        let moments = if long.is_some() { 1..60 } else { 30..31 };
        for reads in moments {
            if long.is_some() || mode == Mode::Registers {
                self.tell(&cases::gone_after(reads), Duration::ZERO);
            }
            if long.is_some() || mode == Mode::Block {
                self.tell(&cases::gone_after(reads).opened(), Duration::ZERO);
            }
        }
        if long.is_some() {
            cases::STILL.iter().for_each(|case| self.tell(case, STILL));
        }
        let given_up = if mode == Mode::Block { self.gives_block_up() } else { Ok(()) };
        let begun = Instant::now();
        let mut seed = 0;
        while begun.elapsed() < long.unwrap_or(Duration::from_millis(1)) {
            seed += 1;
            self.tell(&cases::at_random(seed), Duration::from_millis(500));
        }
        let stepped = self.scene.reopen().and_then(|()| self.scene.recovered()).and_then(|()| self.steps_back());
        let other = self.comes_back_without_block();
        let mut check = |what: &str, result: Checked| {
            self.wrong.extend(result.err().map(|why| format!("{mode:?}: {what}: {why}")));
        };
        let reloaded = self.scene.reload(mode.parameters()).and_then(|()| self.scene.recovered());
        check("the driver is removed and loaded", reloaded.and_then(|()| self.scene.examine()));
        check("the status block is given up", given_up);
        check("the driver is where the NIC is not", stepped);
        check("the status block goes and comes", other);
        check(
            "memory",
            self.scene.free().and_then(|free| {
                println!("{mode:?}: free memory in KiB: {} before, {free} after", self.free);
                if free + LEAK > self.free { Ok(()) } else { Err(format!("{} KiB were free, now {free}", self.free)) }
            }),
        );
        self.wrong.extend(self.scene.card.faults());
        self.wrong
    }
}

#[test]
#[ignore = "a control: make guests"]
fn a_card_that_does_not_lie_carries_frames_for_an_unmodified_driver() {
    let Some(_turn) = turn() else { return };
    let scene = Scene::start(None, 1500);
    scene.guest.ok(&format!("for s in 64 4000; do ping -c 3 -i 0.02 -W 60 -s $s {STATION} || exit 1; done")).unwrap();
    assert_eq!(scene.card.faults(), [""; 0]);
}

/// A guest for each mode, at the same time: some lies of each kind. `make guests` tells all lies in both.
#[test]
#[ignore = "half a minute of processor time, for a driver that seldom changes: make guests"]
fn the_driver_of_linux_guests_stands_a_card_that_lies() {
    let Some(_turn) = turn() else { return };
    let wrong = std::thread::scope(|scope| {
        let tests = [Mode::Block, Mode::Registers].map(|mode| scope.spawn(move || Test::start(mode).run()));
        tests.map(|test| test.join().expect("no panic")).concat()
    });
    assert!(wrong.is_empty(), "{} lies were not stood:\n{}", wrong.len(), wrong.join("\n"));
}
