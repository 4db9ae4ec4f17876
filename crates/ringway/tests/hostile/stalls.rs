//! A client that keeps pollers in page faults of its memory: it punches a hole there with a thread that gets no processor.

use std::collections::HashSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ringway_client::Shape;
use ringway_scenes::until;
use rustix::fs::{FallocateFlags, fallocate, fstat};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::attacker::Attacker;
use crate::scene::Scene;

/// An attack lasts so long at most: it may hold a lock of the daemon's memory meanwhile.
const LONGEST: Duration = Duration::from_secs(2);
/// Threads that take the processor from the one that punches.
const BUSY: usize = 2;

/// Threads that punch holes into a file, and keep each other from getting on.
struct Punching {
    stop: Arc<AtomicBool>,
    began: Instant,
    threads: Vec<JoinHandle<()>>,
}

impl Punching {
    /// Punches a whole file, again and again.
    fn start(file: OwnedFd) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let allowed = sched_getaffinity(None).expect("this thread's processors");
        let last = (0..CpuSet::MAX_CPU).rfind(|&cpu| allowed.is_set(cpu)).expect("a processor");
        let mut processor = CpuSet::new();
        processor.set(last);
        let start = |run: Box<dyn Fn() + Send>| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                sched_setaffinity(None, &processor).expect("pinned");
                while !stop.load(Ordering::Relaxed) {
                    run();
                }
            })
        };
        let mut threads: Vec<_> = (0..BUSY).map(|_| start(Box::new(std::hint::spin_loop))).collect();
        let punch = move || {
            let parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: 0 is the calling thread; the parameters outlive the call. A thread may always choose SCHED_IDLE.
            unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
            let bytes = fstat(&file).map_or(0, |stat| stat.st_size as u64);
            // Refused once the port has ended.
            let _ = fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, bytes);
        };
        threads.push(start(Box::new(punch)));
        Self { stop, began: Instant::now(), threads }
    }

    fn goes_on(&self) -> bool {
        self.began.elapsed() < LONGEST
    }
}

impl Drop for Punching {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

/// The threads of the daemon's poller that wait in the kernel and cannot be woken (proc_pid_stat(5)).
fn kept(pid: u32) -> HashSet<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon lives").filter_map(Result::ok);
    let is_kept = |stat: &String| stat.contains("(poller0) D");
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok()).filter(is_kept);
    stats.filter_map(|stat| Some(stat.split_once(' ')?.0.to_owned())).collect()
}

/// Attaches a client whose memory is all there, so that to punch it takes long.
fn attach(scene: &Scene, number: usize) -> Attacker {
    let evil = scene.attach_as(&format!("evil{number}"), Shape { extra_buffers: 8192, ..Shape::default() });
    let file = evil.port.memory().file();
    let bytes = fstat(file).expect("a file").st_size as u64;
    fallocate(file, FallocateFlags::empty(), 0, bytes).expect("memory");
    evil
}

/// Keeps a poller in the memory of this client until `sees` has seen enough, or the attack ends. Returns what it has seen last.
fn attack(evil: &Attacker, mut sees: impl FnMut() -> bool) -> bool {
    let punching = Punching::start(evil.port.memory().file().try_clone_to_owned().expect("a descriptor"));
    while punching.goes_on() {
        if sees() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}

/// The poller looks at the port of the client all the time.
#[test]
fn a_client_that_punches_all_its_memory_holds_up_no_other() {
    let scene = Scene::start();
    let pid = scene.daemon.pid();
    let (mut number, mut most) = (0, 0);
    // On a busy machine an attack may end before anybody has noticed it: then there is another one.
    until("frames flow while a thread is kept", || {
        let evil = attach(&scene, number);
        number += 1;
        // The threads that have been kept since, and the frames that had moved then.
        let mut before: Option<(HashSet<String>, u64)> = None;
        attack(&evil, || {
            let (now, moved) = (kept(pid), scene.bystanders.moved());
            most = most.max(now.len());
            match &before {
                Some((then, moved_then)) if !then.is_disjoint(&now) => moved > moved_then + 1000,
                _ => {
                    before = Some((now, moved)).filter(|(now, _)| !now.is_empty());
                    false
                }
            }
        })
    });
    // The first one may be kept in the memory of either of two clients.
    assert!(most <= 3, "{most} threads were kept");
    let is_gone = |number: usize| scene.daemon.port(&format!("evil{number}")).is_null();
    until("the attackers are gone", || (0..number).all(is_gone));
    scene.end();
}

/// `cargo test --profile tests -p ringway --test hostile -- --ignored --nocapture how_long`
#[test]
#[ignore = "a measurement"]
fn how_long_others_stand_still_when_a_client_keeps_their_poller() {
    let scene = Scene::start();
    let mut gaps = Vec::new();
    for number in 0.. {
        let evil = attach(&scene, number);
        scene.bystanders.go_on(2000);
        let pid = scene.daemon.pid();
        let (mut last, mut longest, mut held) = ((scene.bystanders.moved(), Instant::now()), Duration::ZERO, false);
        attack(&evil, || {
            let (moved, now) = (scene.bystanders.moved(), Instant::now());
            longest = longest.max(now - last.1);
            if moved > last.0 {
                last = (moved, now);
            }
            held |= !kept(pid).is_empty();
            now - last.1 > Duration::from_secs(1)
        });
        // An attack that met nobody says nothing.
        if held && longest > Duration::from_millis(10) {
            gaps.push(longest);
        }
        drop(evil);
        if gaps.len() >= 25 || number >= 60 {
            break;
        }
    }
    gaps.sort_unstable();
    println!("{} attacks: {gaps:.1?}", gaps.len());
}
