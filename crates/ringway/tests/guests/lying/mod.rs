//! A NIC that lies to the driver of the guest: a server of vfio-user in this process, which is an honest 82540EM until a test
//! tells it a lie.
//!
//! - `chip`: registers, EEPROM, PHY; `rings`: frames in descriptor rings; `station`: who answers them; `card`: all of that on
//!   a socket.
//! - `lie`: what the card lies about; `cases`: the lies that are told.

mod card;
mod cases;
mod chip;
mod lie;
mod rings;
mod station;

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use ringway_guests::{Guest, Qemu};
use ringway_testing::{PATIENCE, skip, until};
use tempfile::TempDir;

use crate::features::pings;
use crate::scene;
use card::Card;
use cases::{CASES, Case, Mended, While};
use lie::Lie;

/// Subsystems: of a card of Intel's, and of one with a status block.
const PLAIN: u16 = 0x001e;
const CSB: u16 = 0x1101;
/// The driver that must stand all lies.
const OWN: &str = "ringway_e1000";
/// The card's address, and that of the station behind it.
const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 9];
const STATION: &str = "10.9.0.2";

/// Kernel arguments: whoever writes beyond an object, or to freed memory, is found, and what a device writes reaches the guest by
/// copies, in the lengths that drivers name.
const CHECKED: &str = "slub_debug=FZPU page_poison=1 init_on_free=1 swiotlb=force panic=-1 oops=panic";
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
    "Buffer overflow",
    "DMA-API",
    "page allocation failure",
];
/// Lines that a driver may write about one lie.
const MOST_LINES: usize = 10;
/// How often a lie is told.
const ENOUGH: u64 = 100;

/// Waits for this test's turn. Returns `None` if these guests cannot run on this machine.
fn turn() -> Option<MutexGuard<'static, ()>> {
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
    _dir: TempDir,
}

impl Scene {
    fn start(subsystem: u16, driver: &'static str, parameters: &str) -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let card = Card::start(&dir.path().join("card.sock"), MAC, subsystem);
        let builder = Guest::builder("lied-to").nic(card.nic()).kernel_args(CHECKED).arg("-no-reboot");
        let builder = if driver == OWN { builder.own_driver(parameters) } else { builder };
        let guest = builder.start().unwrap();
        guest.ok("echo 10 >/proc/sys/kernel/hung_task_timeout_secs; dmesg -n 8").unwrap();
        let place = guest.ok("basename $(readlink -f /sys/class/net/eth0/device)").unwrap().trim().to_owned();
        let scene = Scene { card, guest, driver, place, _dir: dir };
        scene.open().unwrap();
        scene.recovered().unwrap();
        let load = format!("while :; do ping -i 0.002 -c 200 -s 4000 -W 1 {STATION} || sleep 0.01; done");
        scene.guest.start(&format!("{{ {load}; }} >/dev/null")).unwrap();
        scene
    }

    fn open(&self) -> Result<(), String> {
        self.tell("ip link set eth0 up && { ip addr add 10.9.0.1/24 dev eth0 2>/dev/null || :; }")
    }

    fn reopen(&self) -> Result<(), String> {
        self.tell("ip link set eth0 down")?;
        self.open()
    }

    /// Takes the driver off the card, and binds it again.
    fn bind(&self) -> Result<(), String> {
        let Scene { driver, place, .. } = self;
        self.tell(&format!(
            "cd /sys/bus/pci/drivers/{driver}; [ ! -e {place} ] || echo {place} >unbind; echo {place} >bind"
        ))?;
        self.open()
    }

    fn tell(&self, command: &str) -> Result<(), String> {
        self.guest.ok(command).map(drop).map_err(|error| error.to_string())
    }

    /// Waits until frames pass both ways.
    fn recovered(&self) -> Result<(), String> {
        let ping = format!("ping -c 1 -W 1 {STATION}");
        self.guest.until(&ping, Duration::from_secs(20)).map_err(|error| error.to_string())
    }

    /// Returns the kernel's messages since the last call.
    fn log(&self) -> String {
        self.guest.ok("dmesg -c").unwrap()
    }

    /// Tells a lie. Returns what was wrong with the guest.
    fn lie(&self, case: &Case) -> Result<(), String> {
        let Scene { card, guest, .. } = self;
        self.log();
        card.tell((case.lie)());
        match case.during {
            While::Up => {}
            // These may fail, but must end.
            While::Reopened => drop(self.reopen()),
            While::Bound => drop(self.bind()),
        }
        let deadline = Instant::now() + Duration::from_millis(500);
        while card.told() < ENOUGH && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let told = card.told();
        guest.run("ip -s link; ethtool eth0; ethtool -S eth0; ethtool -d eth0").map_err(|error| error.to_string())?;
        card.be_honest();
        let mended = match case.mended {
            Mended::Itself => self.recovered(),
            Mended::Reopened => self.reopen().and_then(|()| self.recovered()),
            Mended::Bound => self.bind().and_then(|()| self.recovered()),
        };
        println!("  told {told} times");
        mended
    }

    /// Returns what is wrong in the kernel's messages.
    fn examine(&self) -> Result<(), String> {
        let log = self.log();
        let wrong: Vec<_> = log.lines().filter(|line| WRONG.iter().any(|word| line.contains(word))).collect();
        let lines = log.lines().filter(|line| line.contains(self.driver)).count();
        if !wrong.is_empty() {
            return Err(format!("the kernel is not well:\n{log}"));
        }
        if lines > MOST_LINES {
            return Err(format!("{lines} lines about one lie:\n{log}"));
        }
        log.lines().for_each(|line| println!("  {line}"));
        Ok(())
    }
}

#[test]
fn a_card_that_does_not_lie_carries_frames_for_an_unmodified_driver() {
    let Some(_turn) = turn() else { return };
    let scene = Scene::start(PLAIN, "e1000", "");
    pings(&scene.guest, STATION, &[64, 4000]).unwrap();
    assert_eq!(scene.card.faults(), [""; 0]);
}

#[test]
fn trial() {
    let Some(_turn) = turn() else { return };
    let (subsystem, driver, parameters) = match std::env::var("RINGWAY_LIED_TO").unwrap_or_default().as_str() {
        "e1000" => (PLAIN, "e1000", ""),
        "off" => (CSB, OWN, "csb=off"),
        _ => (CSB, OWN, ""),
    };
    let begin = || Scene::start(subsystem, driver, parameters);
    let mut scene = begin();
    println!("block: {}", scene.card.uses_block());
    let only = std::env::var("RINGWAY_ONLY").unwrap_or_default();
    for case in CASES.iter().filter(|case| case.name.contains(&only)) {
        let start = Instant::now();
        println!("{}", case.name);
        let result = scene.lie(case);
        if let Err(why) = &result {
            println!("  FAILED {why}");
        }
        if scene.guest.run("true").is_err() {
            println!("  PANIC");
            scene = begin();
            continue;
        }
        if let Err(why) = scene.examine() {
            println!("  SAID {why}");
        }
        if result.is_err()
            && let Err(why) = scene.bind().and_then(|()| scene.recovered())
        {
            println!("  LOST {why}");
            scene = begin();
        }
        println!("  {:?}", start.elapsed());
    }
}
