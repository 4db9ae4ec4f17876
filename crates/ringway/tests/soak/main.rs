//! All kinds of ports at one daemon for as long as you like, with a fault a second, and an oracle: no frame arrives altered, twice, out of
//! order within its flow, or where it may not; whoever was not hit keeps its port, and everybody hears everybody again.
//!
//! `make soak` runs it: `RINGWAY_SOAK_SECONDS` (60), `RINGWAY_SEED` (a new one each time). The same seed has the same faults. It needs root.
//!
//! | file | holds |
//! |---|---|
//! | `members.rs` | the ports, and who may hear whom |
//! | `frame.rs` | what a frame says of itself |
//! | `member.rs` | the process at a port: it sends, receives and checks |
//! | `stream.rs` | the peer of a stream port |
//! | `notes.rs` | words by which such a process and the judge know of each other |
//! | `scene.rs` | the daemon, its log, namespaces, the processes |
//! | `faults.rs` | what is done to all that |
//! | `judge.rs` | what must hold |

mod faults;
mod frame;
mod judge;
mod member;
mod members;
mod notes;
mod scene;
mod stream;

use std::hash::BuildHasher as _;
use std::time::{Duration, Instant};

use faults::Fault;
use judge::Judge;
use ringway_testing::random::Random;
use ringway_testing::skip;
use scene::Scene;

/// Time from one fault to the next.
const EVERY: Duration = Duration::from_secs(1);
/// Faults between two looks at everything.
const FAULTS_BETWEEN: usize = 5;
/// Resources are compared with those after this time, or after a third of the run.
const SETTLED_AFTER: Duration = Duration::from_secs(60);

#[test]
#[ignore = "make soak"]
fn everything_outlives_seeded_faults() {
    if !skip::is_root() {
        skip!("network namespaces need root");
    }
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let span = Duration::from_secs(variable("RINGWAY_SOAK_SECONDS").unwrap_or(60));
    let seed = variable("RINGWAY_SEED").unwrap_or_else(|| std::hash::RandomState::new().hash_one(0) >> 32);
    println!("soak: seed {seed}, {} s", span.as_secs());
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut scene = Scene::start(seed);
    let mut judge = Judge::default();
    judge.look(&mut scene);
    let begun = Instant::now();
    let every = variable("RINGWAY_SOAK_EVERY_MS").map_or(EVERY, Duration::from_millis);
    let mut next = begun + every;
    for number in 1.. {
        if begun.elapsed() >= span {
            break;
        }
        let fault = Fault::draw(&mut random);
        judge.begin_fault(&mut scene, number, fault);
        fault.happen(&mut scene);
        while Instant::now() < next {
            judge.watch(&mut scene);
            std::thread::sleep(Duration::from_millis(10));
        }
        next = (next + every).max(Instant::now());
        if number.is_multiple_of(FAULTS_BETWEEN) {
            judge.look(&mut scene);
            judge.note_resources(&scene, begun.elapsed() >= SETTLED_AFTER.min(span / 3));
            judge.progress(&scene, begun.elapsed());
            next = Instant::now() + every;
        }
    }
    judge.look(&mut scene);
    judge.progress(&scene, begun.elapsed());
    judge.resources_are_as_before(&scene);
    judge.summary();
    scene.end();
}

/// Not a test: what the soak executes for each member.
#[test]
#[ignore = "a process of the soak"]
fn member_of_the_soak() {
    if let Ok(told) = std::env::var(member::VARIABLE) {
        std::process::exit(member::run(&told));
    }
}
