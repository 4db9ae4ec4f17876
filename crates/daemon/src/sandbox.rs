//! What the switch gives up at its start, in stages. A machine that does not allow one has the others.

use std::sync::atomic::{AtomicBool, Ordering};

use ringway_config::kinds::access::may_give_away;
use ringway_keeper::opener::use_in_process;
use ringway_keeper::{Link, NotStarted};
use ringway_memory::can_limit_holes;
use ringway_sandbox::{Files, Missing, Refusal, give_up_calls, give_up_files, give_up_privileges};

use ringway_runtime::log;

use crate::inject;

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
    let missing = if keeper.is_kept() { give_up_first() } else { Vec::new() };
    log::start();
    missing.iter().for_each(|missing| tracing::warn!("{missing}"));
    keeper.listen()?;
    use_in_process(keeper.opener());
    Ok(())
}

/// Gives up privileges and files. This process has one thread yet: what others would keep, they would have for all.
fn give_up_first() -> Vec<Missing> {
    // What is decided by privileges that the opener still has, and what is opened once.
    let _ = (may_give_away(), can_limit_holes());
    let files = Files { write: inject::directories() };
    [only_thread(), give_up_privileges(), give_up_files(&files)].into_iter().filter_map(Result::err).collect()
}

/// Gives up system calls, when all processes have been started that the switch starts itself.
pub fn give_up_rest() -> Vec<Missing> {
    let refusal = if inject::kills() { Refusal::Kill } else { Refusal::Error };
    give_up_calls(refusal).err().into_iter().collect()
}

fn only_thread() -> Result<(), Missing> {
    match std::fs::read_dir("/proc/self/task").map(Iterator::count) {
        Ok(1) => Ok(()),
        _ => Err("the switch keeps its access to files: other threads were started before it was given up".to_owned()),
    }
}

/// Is a closer, which needs nothing but the descriptors that it gets.
pub fn run_closer() {
    // What the machine does not allow has been told by the switch.
    let _ = (give_up_privileges(), give_up_files(&Files::default()));
    ringway_port::run_closer();
}
