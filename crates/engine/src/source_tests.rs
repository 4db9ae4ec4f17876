//! An input between a thread that was relieved and the one that relieves it.

use ringway_runtime::Watch;
use ringway_switch::Touching;

use super::*;
use crate::quarantine::tests::Silent;

/// A poller, its thread, and one that can relieve it.
fn poller(number: usize) -> (Arc<PollerState>, [Arc<Shift>; 2]) {
    let shifts = [(); 2].map(|()| Shift::new(Touching::nowhere()));
    let poller = PollerState::new(number, None, 0).expect("a descriptor");
    poller.begin_shift(&shifts[0]);
    (poller, shifts)
}

#[test]
fn a_thread_that_was_relieved_takes_no_input_and_no_news_from_its_successor() {
    let source = Source::new(Box::new(Silent), Signal::Device(Watch::new()));
    let ((other, [holder, _]), (poller, [late, next])) = (poller(0), poller(1));
    assert!(source.take(&other, &holder));
    assert!(!source.take(&poller, &late), "another one has it");
    poller.begin_shift(&next);
    assert!(!source.take(&poller, &next), "the same");
    source.put_back(&holder);
    // The late thread comes first, in all that it does before it ends.
    let _ = poller.has_returned(&late);
    assert!(!source.take(&poller, &late));
    assert!(poller.has_returned(&next) && source.take(&poller, &next));
    source.put_back(&next);
    // It has looked already.
    assert!(!source.take(&poller, &late) && poller.has_returned(&next) && source.take(&poller, &next));
}
