//! The end of a port's quarantine beside what another thread does with the port.

use ringway_runtime::Signal;
use ringway_runtime::watch::Watch;
use ringway_switch::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, Frames, Input, Output, PortFault, WakeOn,
};

use super::*;

/// A port whose client does nothing.
pub(crate) struct Silent;

impl Input for Silent {
    fn collect<'m>(&'m mut self, _: &mut Batch<'m>) -> Result<(), PortFault> {
        Ok(())
    }

    fn release(&mut self) {}

    fn discard(&mut self, _: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded::default())
    }

    fn pending(&mut self) -> bool {
        false
    }

    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::Silent
    }

    fn disarm(&mut self) {}
}

impl Output for Silent {
    fn deliver(&mut self, _: Frames<'_, '_>, _: &Counters) -> Result<(), PortFault> {
        Ok(())
    }
}

impl Bell for Silent {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

fn has_detour(port: &Port) -> bool {
    !port.begin_detour(Waker::noop().clone(), DetourRoom::Nothing, || ())
}

#[test]
fn a_port_that_is_shut_has_a_detour_whatever_it_had_before() {
    let source = Source::new(Box::new(Silent), Signal::Device(Watch::new()));
    let port = Port::new("p", Box::new(Silent), Box::new(Silent));
    let shut = || source.shut(|| port.begin_detour(Waker::noop().clone(), DetourRoom::Nothing, || ()));
    for _ in 0..2 {
        let begun = || source.set_quarantine_poller(Some(1));
        assert!(port.begin_detour(Waker::noop().clone(), DetourRoom::Nothing, begun));
        // The detour of its quarantine cannot end from the moment on at which the port is shut, before that looks for one.
        source.shut(|| {
            assert_eq!(end(&source, &port), DetourEnd::Used);
            assert!(has_detour(&port));
            false
        });
        // Again, as with each topology.
        shut();
        assert_eq!((end(&source, &port), source.quarantine_poller()), (DetourEnd::Used, Some(1)));
        assert!(source.open(|| unreachable!("the detour is that of its quarantine")) && has_detour(&port));
        assert_eq!((end(&source, &port), source.quarantine_poller()), (DetourEnd::Ended, None));
        // Without quarantine: one of its own, also if it is shut twice.
        (0..2).for_each(|_| shut());
        assert!(has_detour(&port));
        assert!(source.open(|| port.abandon_detour()));
        assert!(!source.open(|| unreachable!("it is open")));
    }
}
