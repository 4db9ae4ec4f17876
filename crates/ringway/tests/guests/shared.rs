//! Scenes that tests share, because a guest takes seconds to boot.
//!
//! A scene begins with the first of its tests and ends with the last one that this run of the program has. Tests use it one after the other. Each
//! leaves it as it was; after a test that fails, the next one gets a new scene.

use std::collections::HashSet;
use std::ops::{Deref, DerefMut};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use crate::scene::{Turn, turn};

/// A scene, its tests, and how it is made.
pub struct Shared<T> {
    tests: &'static [&'static str],
    make: fn() -> T,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// Tests that have not ended yet. None before the first.
    left: Option<usize>,
    running: Option<Running<T>>,
}

struct Running<T> {
    scene: T,
    keeper: Keeper,
}

/// The thread that has started the scene: a QEMU ends with the thread that starts it, and a test's thread ends with the test.
struct Keeper {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl<T: Send + 'static> Shared<T> {
    /// A scene for these tests, with their names as the test program lists them.
    pub const fn new(tests: &'static [&'static str], make: fn() -> T) -> Shared<T> {
        Shared { tests, make, state: Mutex::new(State { left: None, running: None }) }
    }

    /// Waits for the turn of a test of this scene. Returns `None` if guests are skipped.
    pub fn turn(&self) -> Option<Use<'_, T>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        // A test that is not listed would find the scene gone, or end it before others.
        assert!(
            self.tests.contains(&name.as_str()) || name == "main",
            "{name} is not in the list of its scene's tests"
        );
        state.left.get_or_insert_with(|| self.tests.iter().filter(|test| of_this_run().contains(**test)).count());
        let turn = turn();
        // Before the scene is made, so that a test whose scene cannot be made has used it.
        let mut its = Use { state, _turn: turn };
        its._turn.as_ref()?;
        if its.state.running.is_none() {
            its.state.running = Some(start(self.make));
        }
        Some(its)
    }
}

/// Makes a scene on a thread of its own.
fn start<T: Send + 'static>(make: fn() -> T) -> Running<T> {
    let (made, scene) = channel();
    let (end, ended) = channel();
    let thread = std::thread::spawn(move || {
        let _ = made.send(make());
        let _ = ended.recv();
    });
    match scene.recv() {
        Ok(scene) => Running { scene, keeper: Keeper { end, thread } },
        Err(_) => match thread.join() {
            Err(why) => std::panic::resume_unwind(why),
            Ok(()) => unreachable!("a scene that is made is sent"),
        },
    }
}

/// A test's use of a scene.
pub struct Use<'a, T> {
    state: MutexGuard<'a, State<T>>,
    _turn: Option<Turn>,
}

impl<T> Drop for Use<'_, T> {
    fn drop(&mut self) {
        let left = self.state.left.map_or(0, |left| left.saturating_sub(1));
        self.state.left = Some(left);
        if left == 0 || std::thread::panicking() {
            let Some(Running { scene, keeper }) = self.state.running.take() else { return };
            drop(scene);
            drop(keeper.end);
            let _ = keeper.thread.join();
        }
    }
}

impl<T> Deref for Use<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.state.running.as_ref().expect("a scene while a test uses it").scene
    }
}

impl<T> DerefMut for Use<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.state.running.as_mut().expect("a scene while a test uses it").scene
    }
}

/// Returns the names of the tests that this program runs: it is asked again, with the same arguments.
fn of_this_run() -> &'static HashSet<String> {
    static TESTS: OnceLock<HashSet<String>> = OnceLock::new();
    TESTS.get_or_init(|| of_run(&std::env::args().skip(1).collect::<Vec<_>>()))
}

/// Returns the names of the tests that this program runs with these arguments.
fn of_run(arguments: &[String]) -> HashSet<String> {
    let mut tests = list(arguments);
    if !arguments.iter().any(|argument| argument == "--ignored" || argument == "--include-ignored") {
        // libtest lists ignored tests among the others.
        let ignored = list(&[arguments, &["--ignored".to_owned()]].concat());
        tests.retain(|test| !ignored.contains(test));
    }
    tests
}

fn list(arguments: &[String]) -> HashSet<String> {
    let mut program = Command::new(std::env::current_exe().expect("this program has a path"));
    let said = program.args(arguments).arg("--list").output().expect("this program starts");
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[test]
fn a_scene_does_not_wait_for_tests_that_are_ignored() {
    let ignored = of_run(&["--ignored".to_owned()]);
    assert!(!ignored.is_empty() && of_run(&[]).is_disjoint(&ignored));
    assert!(of_run(&["--include-ignored".to_owned()]).is_superset(&ignored));
}

#[test]
fn each_test_of_a_shared_scene_is_a_test_of_this_program() {
    let all = list(&[]);
    for test in SCENES.concat() {
        assert!(all.contains(test), "{test} is no test");
    }
}

/// The tests of all scenes.
const SCENES: &[&[&str]] = &[crate::inside::TESTS, crate::own_nic::TESTS, crate::pair::TESTS, crate::restarts::TESTS];
