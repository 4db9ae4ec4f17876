//! The forwarding function that asks a program, once a batch.

use std::sync::Arc;

use ringway_memory::HEAD_BYTES;

use super::judging::{Judging, seen};
use super::view::View;
use crate::batch::{Batch, Destination};
use crate::forward::learning::Learning;
use crate::frame::headers::is_outermost;
use crate::frame::{DropReason, Offload};
use crate::port::Known;
use crate::topology::{Forward, Member, Switch};

/// The program did not judge the batch. It has counted why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramFailed;

/// A forwarding program. Several pollers call it at the same time.
pub trait Program: Send + Sync {
    /// Returns false if the poller would have to wait for the program: the frames of the batch stay with their port. After true,
    /// [`Program::leave`] follows, however the pass ends.
    fn enter(&self) -> bool {
        true
    }

    /// The poller that has entered is done with the batch, or has panicked.
    fn leave(&self) {}

    /// Judges the frames of a batch: [`Judging::decide`] takes a verdict for each. Call it even if there are none: the batch may have frames that
    /// were judged before and waited since. A program that has to wait for something calls
    /// [`Judging::begin`] after that.
    ///
    /// # Errors
    /// The program failed, or has been taken out.
    fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed>;
}

/// Where the frames of a batch go if the program fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// Where the learning bridge sends them.
    #[default]
    Learning,
    /// Nowhere.
    Drop,
}

/// The forwarding function of a switch whose program is not there yet: it forwards nothing.
#[derive(Clone, Copy, Debug)]
pub struct Unprogrammed;

impl Forward for Unprogrammed {
    fn forward(&self, batch: &mut Batch<'_>, _: &Member, _: &Switch, _: u32) {
        batch.set_destinations(|_, _| Destination::Drop(DropReason::ProgramFault));
    }
}

/// A forwarding function that asks a program.
pub struct Programmed {
    program: Arc<dyn Program>,
    /// The same, for verdicts on frames that wait.
    known: Arc<Known>,
    view: Arc<View>,
    on_fault: OnFault,
}

impl Programmed {
    /// Asks this program, which sees the switch by `view`.
    #[must_use]
    pub fn new(program: Arc<dyn Program>, view: Arc<View>, on_fault: OnFault) -> Programmed {
        Programmed { known: Arc::clone(&program) as Arc<Known>, program, view, on_fault }
    }

    /// Has the program judge the frames. While passes are examined, its time is measured.
    #[inline]
    fn judge(&self, judging: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
        judging.begin();
        let judged = self.program.judge(judging);
        judging.note_time();
        judged
    }
}

/// Writes checksums that are still to be written where the program would read something else, in a tunnel perhaps: what is judged is what
/// is delivered. The checksum field of the outermost transport header is known to be one, and of a tunnel with segments in it the program is told. Counts as the program's time: frames that wait are
/// read again with each look.
#[inline]
fn finish_changes(batch: &mut Batch<'_>) {
    if batch.has_offloads() {
        let began = batch.program_now();
        for index in 0..batch.len() {
            let changes = batch.frame(index).offload().is_some_and(|offload| changes(batch.head(index), offload));
            if changes && !batch.is_rejected(index) && !batch.finish_checksum(index) {
                batch.reject(index, DropReason::BadOffload);
            }
        }
        batch.add_program_time(began);
    }
}

fn changes(head: &[u8; HEAD_BYTES], offload: &Offload) -> bool {
    let field = usize::from(offload.csum_start) + usize::from(offload.csum_offset);
    field < HEAD_BYTES && offload.tunnel.is_none() && !is_outermost(head, offload)
}

impl Forward for Programmed {
    fn forward(&self, batch: &mut Batch<'_>, from: &Member, switch: &Switch, now: u32) {
        finish_changes(batch);
        let mut judging = Judging::new(batch, from, switch, &self.view, now);
        let is_empty = judging.is_empty();
        judging.recall(&self.known);
        if is_empty {
            return;
        }
        if self.judge(&mut judging).is_ok() {
            judging.end(|batch| Learning.forward(batch, from, switch, now));
            return;
        }
        // Flooded frames are for every port again.
        batch.begin_settling();
        match self.on_fault {
            OnFault::Learning => Learning.forward(batch, from, switch, now),
            OnFault::Drop => batch.set_destinations(|_, _| Destination::Drop(DropReason::ProgramFault)),
        }
    }

    fn leave_behind(&self, batch: &Batch<'_>, len: usize, from: &Member, switch: &Switch) {
        if let Some(mut kept) = from.port.verdicts().lock() {
            let mut words = batch.words().skip_while(|(index, _)| *index < len).peekable();
            let waiting = (len..batch.len()).map(|index| {
                let (_, word) = words.next_if(|(of, _)| *of == index)?;
                Some((seen(batch, index, switch.has_vlans()).all(), word))
            });
            kept.keep(&self.known, waiting);
        }
    }

    fn narrows_floods(&self) -> bool {
        true
    }

    fn is_entered(&self) -> bool {
        true
    }

    fn enter(&self) -> bool {
        self.program.enter()
    }

    fn leave(&self) {
        self.program.leave();
    }
}
