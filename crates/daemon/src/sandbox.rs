//! What the switch gives up at its start, in stages. A machine that does not allow one has the others.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ringway_config::kinds::access::may_give_away;
use ringway_keeper::opener::use_in_process;
use ringway_keeper::{Link, NotStarted};
use ringway_memory::can_limit_holes;
use ringway_runtime::{log, prepare_descriptors};
use ringway_sandbox::{Files, Missing, Refusal, give_up_calls, give_up_files, give_up_privileges};
use rustix::system::uname;
use rustix::thread::{CapabilitySet, capabilities};

use crate::inject;

/// The version of Linux from which on another process can map the rings of an XDP socket.
const SEPARATE_RINGS: (u32, u32) = (6, 4);

/// Gives up privileges and files, once, and starts the threads that hear the log's lines, the keeper and the opener. A successor does this before it
/// looks at anything that was left: the switch before may have been in a client's hands.
///
/// # Errors
/// There can be no thread.
pub fn begin(keeper: &Link) -> Result<(), NotStarted> {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if BEGUN.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let given_up = keeper.is_kept().then(given_up);
    if given_up.is_some_and(|given_up| given_up.keeps_privileges) {
        keeper.open_here();
    }
    log::start();
    given_up.iter().flat_map(|given_up| &given_up.missing).for_each(|missing| tracing::warn!("{missing}"));
    keeper.listen()?;
    use_in_process(keeper.opener());
    Ok(())
}

/// Gives up privileges and files, and starts the closer, before there is a link: in a process that will be the switch once another one has ended.
pub fn begin_ahead(closer: fn() -> std::process::Command) {
    // What fails is told by the switch.
    let _ = prepare_descriptors();
    given_up();
    ringway_port::start_closer(closer);
}

/// What came of giving up privileges and files.
struct GivenUp {
    /// What the machine does not allow.
    missing: Vec<Missing>,
    keeps_privileges: bool,
}

/// Gives up privileges and files, once.
fn given_up() -> &'static GivenUp {
    static GIVEN_UP: OnceLock<GivenUp> = OnceLock::new();
    GIVEN_UP.get_or_init(|| match keeps_privileges() {
        Some(why) => GivenUp { missing: vec![why], keeps_privileges: true },
        None => GivenUp { missing: give_up_first(), keeps_privileges: false },
    })
}

/// Says why the switch of this machine keeps its privileges: before Linux 6.4, the rings of a bound XDP socket are mapped by the process that has made it.
/// Without privileges there are no XDP ports to be opened.
fn keeps_privileges() -> Option<Missing> {
    let is_privileged = capabilities(None).is_ok_and(|has| has.effective.contains(CapabilitySet::NET_RAW));
    let release = uname();
    let release = release.release().to_str().unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (is_privileged && version < SEPARATE_RINGS).then(|| {
        format!("the switch keeps its privileges and its access to files: Linux {release} is older than 6.4, and XDP ports need both")
    })
}

/// Gives up privileges and files. This process has one thread yet: what others would keep, they would have for all.
fn give_up_first() -> Vec<Missing> {
    // What is decided by privileges that the opener still has, and what is opened once.
    let _ = (may_give_away(), can_limit_holes());
    let files = Files { write: inject::directories(), ..Files::default() };
    [only_thread(), give_up_privileges(), give_up_files(&files)].into_iter().filter_map(Result::err).collect()
}

/// Gives up system calls, when all processes have been started that the switch starts itself.
pub fn give_up_rest(keeper: &Link) -> Vec<Missing> {
    if !keeper.has_opener() {
        return Vec::new();
    }
    give_up_calls(refusal(Refusal::Signal)).err().into_iter().collect()
}

fn refusal(of_users: Refusal) -> Refusal {
    if inject::kills() { Refusal::Kill } else { of_users }
}

fn only_thread() -> Result<(), Missing> {
    match std::fs::read_dir("/proc/self/task").map(Iterator::count) {
        Ok(1) => Ok(()),
        _ => Err("the switch keeps its access to files: other threads were started before it was given up".to_owned()),
    }
}

/// Gives up everything that a process needs no more which only says whether it could go on with what was left.
pub fn give_up_to_check() {
    let _ = may_give_away();
    let files = Files { read: ["/etc/passwd", "/etc/group"].map(PathBuf::from).to_vec(), write: inject::directories() };
    // What the machine does not allow has been told by the switch.
    let _ = (give_up_privileges(), give_up_files(&files), give_up_calls(refusal(Refusal::Error)));
    inject::at("check");
}

/// Is a closer, which needs nothing but the descriptors that it gets.
pub fn run_closer() {
    ringway_port::run_closer(|| {
        // What the machine does not allow has been told by the switch.
        let _ = (give_up_privileges(), give_up_files(&Files::default()), give_up_calls(refusal(Refusal::Error)));
    });
}
