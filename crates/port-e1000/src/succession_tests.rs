//! A NIC goes on in a successor of the process that was killed.

use std::sync::Arc;

use crate::device_tests::{Nic, settings};
use crate::kept::State;
use crate::offsets::*;
use crate::settings::Model;
use crate::vfio_user::{CONFIG_REGION, Function, Mode};
use ringway_port::front_end::testing::{count, new_eventfd};

const BOTH: [Model; 2] = [Model::E1000, Model::E1000e];
/// MDIC: operations on a register of the PHY.
const PHY_WRITE: u32 = 1 << 26 | 1 << 21;
const PHY_READ: u32 = 2 << 26 | 1 << 21;

fn noting(model: Model) -> (Nic, Arc<State>) {
    let (nic, state) = (Nic::new(model), Arc::new(State::new(false).expect("memory")));
    nic.device.note_in(&state);
    (nic, state)
}

fn successor(nic: Nic, state: &Arc<State>) -> Nic {
    let (model, mapped) = (nic.device.model, nic.device.mapped);
    let Ok(nic) = nic.successor(&settings(model, mapped)) else { panic!("a NIC of these settings") };
    nic.device.note_in(state);
    nic
}

#[test]
fn registers_are_as_the_driver_left_them() {
    for model in BOTH {
        let (nic, state) = noting(model);
        nic.up();
        for (offset, value) in [(MTA + 8, 0x1234_5678), (RA + 8, 0xaabb_ccdd), (VFTA, 5), (ITR, 77), (IMS, TXDW | LSC)]
        {
            nic.write(offset, value);
        }
        nic.write(MDIC, PHY_WRITE | 4 << 16 | 0x0de0);
        nic.write(ICS, 1 << 16);
        nic.device.write(CONFIG_REGION, 0x3c, &[11]).expect("the interrupt line");
        let all = |nic: &Nic| {
            let mut config = [0; 256];
            nic.device.read(CONFIG_REGION, 0, &mut config).expect("a configuration space");
            let mut words: Vec<u32> = [CTRL, STATUS, CTRL_EXT, RCTL, TCTL, MTA + 8, RA, RA + 4, RA + 8, VFTA, ITR, IMS]
                .map(|offset| nic.read(offset))
                .into();
            words.extend((RING_PAGES..RING_PAGES_END).step_by(4).map(|offset| nic.read(offset)));
            nic.write(EERD, 1);
            words.push(nic.read(EERD));
            nic.write(MDIC, PHY_READ | 4 << 16);
            words.push(nic.read(MDIC));
            (config, words)
        };
        let before = all(&nic);
        let nic = successor(nic, &state);
        nic.device.resume();
        assert!(all(&nic) == before, "{model:?}");
        assert_ne!(nic.read(ICR) & 1 << 16, 0, "{model:?}: what was pending is pending");
    }
}

#[test]
fn the_poller_goes_on_with_the_next_frame_and_the_driver_is_told_of_the_others() {
    for model in BOTH {
        let (mut nic, state) = noting(model);
        nic.up();
        nic.write(IMS, TXDW | RXT0);
        nic.send(5);
        assert_eq!(nic.pass(), 5);
        nic.put(nic.transmit, 9);
        nic.write(TDT, 9);
        let mut nic = successor(nic, &state);
        assert_eq!(nic.pass(), 0, "it rests before it has memory and interrupts");
        nic.device.ring(None, true);
        let call = new_eventfd();
        nic.device.interrupts().set(
            Mode::Intx,
            1,
            0,
            [Some(call.try_clone().expect("a descriptor").into())].into_iter(),
        );
        nic.device.resume();
        assert_eq!(count(&call), 1, "what a poller has raised when there was no eventfd is raised");
        assert_eq!((nic.pass(), nic.pass()), (4, 0), "{model:?}");
        assert_eq!(nic.read(TDH), 9);
        assert_ne!(nic.read(ICR) & (TXDW | RXT0), 0, "{model:?}");
        assert!(nic.told().is_empty());
    }
}

#[test]
fn a_nic_of_other_settings_is_refused() {
    for model in BOTH {
        let (mut nic, _state) = noting(model);
        nic.up();
        let same = settings(model, false);
        let other = if model == Model::E1000 { Model::E1000e } else { Model::E1000 };
        for other in [
            crate::Settings { csb: false, ..same.clone() },
            crate::Settings { model: other, ..same.clone() },
            crate::Settings { mac: [2; 6], ..same.clone() },
        ] {
            let Err(same) = nic.successor(&other) else { panic!("{other:?}") };
            nic = *same;
        }
    }
}

#[test]
fn a_cable_that_was_pulled_meanwhile_is_a_cause() {
    for model in BOTH {
        let (nic, state) = noting(model);
        nic.up();
        nic.write(IMS, LSC);
        let without = crate::Settings { link: false, ..settings(model, false) };
        let Ok(nic) = nic.successor(&without) else { panic!("the same NIC") };
        nic.device.note_in(&state);
        nic.device.resume();
        assert_eq!(nic.read(STATUS) & STATUS_LU, 0);
        assert_ne!(nic.read(ICR) & LSC, 0, "{model:?}");
    }
}

#[test]
fn no_bytes_of_a_record_make_a_process_fail() {
    for model in BOTH {
        let (nic, _state) = noting(model);
        nic.up();
        let mut saved = Vec::new();
        nic.device.save(&mut saved);
        let file = || nic.device.memory_file().expect("a descriptor");
        for len in 0..saved.len() {
            assert!(!nic.device.restore(&saved[..len], file()), "{len} bytes");
        }
        for at in 9..saved.len() {
            let mut altered = saved.clone();
            altered[at] = !altered[at];
            if nic.device.restore(&altered, file()) {
                nic.device.resume();
            }
        }
        assert!(!nic.device.restore(&saved, None));
        assert!(nic.device.restore(&saved, file()));
    }
}
