//! Ends that were closed and have not left: their number is bounded, and threads of their own move their last frames.

use ringway_port::front_end::{ClosingQueue, Process};
use ringway_runtime::call;

/// Ends whose last frames are moved, in steps. Each touches memory of clients, and calls them.
pub(super) static ENDS: ClosingQueue = ClosingQueue::new(8, 2, call::prepare);
/// Most ends of one process whose close has not ended while it may still open others.
const MOST_OF_PROCESS: usize = 64;
/// Most ends of all processes whose close has not ended while a process with one among them may still open others.
const MOST_OF_CLOSERS: usize = 256;
/// Most ends of all processes whose close has not ended while anyone may still open others.
const MOST_OF_ALL: usize = 512;

/// Returns the number of ends of pipes that were closed and have not left.
pub fn unclosed_pipes() -> usize {
    ENDS.count(None).1
}

/// Checks that a process may open an end of a pipe, by the ends that were closed and have not left.
///
/// # Errors
/// Too many have not left. The text is for the process.
pub fn check_unclosed_pipes(process: Process) -> Result<(), String> {
    check(&ENDS, process)
}

fn check(queue: &ClosingQueue, process: Process) -> Result<(), String> {
    let text = "of pipes whose last frames are still moved: try again";
    let (own, all) = queue.count(process);
    let most = if own > 0 { MOST_OF_CLOSERS } else { MOST_OF_ALL };
    if own >= MOST_OF_PROCESS {
        Err(format!("the program has closed {own} ends {text}"))
    } else if all >= most {
        Err(format!("programs have closed {all} ends {text}"))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use ringway_port::front_end::pause_step;
    use ringway_testing::until;

    use super::*;

    #[test]
    fn a_process_that_has_closed_64_ends_opens_no_more_with_256_of_all_none_that_has_one_and_with_512_nobody() {
        let queue: &ClosingQueue = Box::leak(Box::new(ClosingQueue::new(8, 2, || true)));
        let ends = Arc::new(AtomicBool::new(false));
        let process = |number: u32| NonZeroU32::new(number + 1);
        let close = |number| {
            let (parties, ends) = ([process(number); 2], Arc::clone(&ends));
            let step = move || {
                pause_step();
                (!ends.load(Ordering::SeqCst)).then_some(parties)
            };
            queue.close_in_steps(parties, step);
        };
        for number in 0..3 {
            for _ in 0..MOST_OF_PROCESS {
                assert_eq!(check(queue, process(number)), Ok(()));
                close(number);
            }
            let refused = check(queue, process(number)).expect_err("too many");
            assert!(refused.starts_with("the program has closed 64 ends of pipes"), "{refused}");
        }
        (0..MOST_OF_PROCESS - 1).for_each(|_| close(3));
        assert_eq!(check(queue, process(3)), Ok(()));
        close(4);
        for number in [3, 4] {
            let refused = check(queue, process(number)).expect_err("many of all, and some of its own");
            assert!(refused.starts_with("programs have closed"), "{refused}");
        }
        assert_eq!(check(queue, process(5)), Ok(()), "the closes of others concern nobody else");
        (5..9).for_each(|number| (0..MOST_OF_PROCESS).for_each(|_| close(number)));
        let refused = check(queue, process(9)).expect_err("too many of all");
        assert!(refused.starts_with("programs have closed"), "{refused}");
        ends.store(true, Ordering::SeqCst);
        until("all may open ends again", || (0..10).all(|number| check(queue, process(number)).is_ok()));
    }
}
