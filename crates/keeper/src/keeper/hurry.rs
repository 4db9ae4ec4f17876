//! A switch that takes the place of another one has the processors before other programs until it serves: clients wait. Where control groups or sessions share the
//! processors (cgroups(7), `CPUWeight=`; sched(7), autogroup), this counts within its group only.

use rustix::process::{Pid, getpriority_process, setpriority_process};

use super::opening::Opening;
use super::switch::Switch;

/// Its priority (nice(1)) until it serves.
const FIRST: i32 = -20;
/// Most looks at its threads: one may start another while they are looked at.
const LOOKS_MOST: usize = 4;

/// Sets the priority of a switch, its closer and its opener. Threads that they start later have it, too. Without the privilege, nothing changes.
pub(super) fn begin(switch: &Switch, opening: &Opening) {
    let own = getpriority_process(None);
    threads(switch, opening).filter(|thread| getpriority_process(Some(*thread)) == own).for_each(|thread| {
        let _ = setpriority_process(Some(thread), FIRST);
    });
}

/// Gives all their threads the keeper's own priority again.
pub(super) fn end(switch: &Switch, opening: &Opening) {
    let own = getpriority_process(None).unwrap_or(0);
    for _ in 0..LOOKS_MOST {
        let hurry = threads(switch, opening).filter(|thread| getpriority_process(Some(*thread)) == Ok(FIRST));
        if own == FIRST || hurry.filter(|thread| setpriority_process(Some(*thread), own).is_ok()).count() == 0 {
            return;
        }
    }
}

/// The threads of a switch, of its children, and of its opener.
fn threads(switch: &Switch, opening: &Opening) -> impl Iterator<Item = Pid> {
    let switch = switch.process_number();
    let children = tasks(switch).filter_map(move |thread| {
        // Without CONFIG_PROC_CHILDREN there is no such file.
        std::fs::read_to_string(format!("/proc/{}/task/{}/children", number(switch), number(thread))).ok()
    });
    let children: Vec<_> =
        children.flat_map(|all| all.split_ascii_whitespace().filter_map(parse).collect::<Vec<_>>()).collect();
    [switch].into_iter().chain(children).chain(opening.process_number()).flat_map(tasks)
}

/// The threads of a process.
fn tasks(process: Pid) -> impl Iterator<Item = Pid> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", number(process)));
    tasks.into_iter().flatten().filter_map(|entry| parse(entry.ok()?.file_name().to_str()?))
}

fn parse(number: &str) -> Option<Pid> {
    Pid::from_raw(number.parse().ok()?)
}

fn number(process: Pid) -> i32 {
    process.as_raw_nonzero().get()
}
