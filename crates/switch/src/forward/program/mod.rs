//! Forwarding programs: the function that decides where frames go is the user's (VALE §3.3.3, §7).
//!
//! - `verdict`: what a program may say of a frame.
//! - `view`: the ports and addresses of a switch, as a program sees them.
//! - `judging`: a batch in front of a program, and what its verdicts become. Policy is applied here.
//! - `programmed`: the forwarding function that asks a program.
//!
//! The switch knows a program by the trait [`Program`] only; `ringway-forwarding` implements it.

mod judging;
mod programmed;
mod verdict;
mod view;

#[cfg(test)]
mod program_tests;

pub use judging::{BadVerdict, Judging, Seen};
pub use programmed::{OnFault, Program, ProgramFailed, Programmed, Unprogrammed};
pub use verdict::{MAX_REASONS, MAX_SETS, Verdict};
pub use view::{View, ViewPort};
