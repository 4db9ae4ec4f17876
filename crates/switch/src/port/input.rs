//! Frames from a port's client.

use super::fault::PortFault;
use crate::batch::Batch;

/// The side of a port that frames come in by. Belongs to one poller at a time.
pub trait Input: Send {
    /// Takes up to `batch.room()` frames, without giving their memory back yet.
    ///
    /// # Errors
    /// The client broke the rules; frames already in the batch may still be delivered.
    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault>;

    /// Gives the memory of the last collected frames back to the client. Called once after every `collect`, also when that
    /// took nothing or failed: what one of them locks the other may unlock.
    fn release(&mut self);

    /// Whether it does what [`Input::keep`] says.
    fn keeps(&self) -> bool {
        false
    }

    /// Has the release of the last collect, of which no frame was refused, give back the first `frames` frames only: the
    /// others stay with the client, to be collected again.
    fn keep(&mut self, frames: usize) {
        let _ = frames;
    }

    /// Takes up to `most` frames and gives them back at once, without looking into them: they are dropped.
    ///
    /// # Errors
    /// The client broke the rules.
    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault>;

    /// As [`Input::discard`], of frames that begin with these bytes, both their addresses, up to the first that does not. One of
    /// which that cannot be told at once ends it, too: one in several pieces, one that leaves work to others.
    ///
    /// # Errors
    /// The client broke the rules.
    fn discard_like(&mut self, addresses: &[u8; 12], most: usize) -> Result<Discarded, PortFault> {
        let _ = (addresses, most);
        Ok(Discarded::default())
    }

    /// Whether it does what [`Input::discard_like`] says.
    fn discards_like(&self) -> bool {
        false
    }

    /// Whether there may be frames, as far as memory tells. Kinds that only a descriptor can tell say false.
    fn pending(&mut self) -> bool;

    /// Whether there are frames, also where only a descriptor can tell, by a system call.
    fn has_frames(&mut self) -> bool {
        self.pending()
    }

    /// Asks the client for a kick when it has frames; true when it has some already, so that nobody may sleep.
    fn arm(&mut self) -> bool;

    /// No kicks are needed: memory is being watched.
    fn disarm(&mut self);

    /// Whether something but frames came up that the port's own client may want to be told, since this was asked. Asked when
    /// nothing was taken, and while the frames that there are wait; its [`super::Bell`] is rung then.
    fn has_news(&mut self) -> bool {
        false
    }

    /// While the frames that there are wait: asks for a kick when there is such news, until it is disarmed; true when there is
    /// some already.
    fn arm_for_news(&mut self) -> bool {
        false
    }

    /// Whether no kick comes even when one was asked for, so that its memory has to be looked at now and then. Asked when it
    /// is armed.
    fn needs_looks(&mut self) -> bool {
        false
    }
}

/// What [`Input::discard`] dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// How many frames.
    pub frames: u64,
    /// How long they were together, as far as that can be told.
    pub bytes: u64,
}
