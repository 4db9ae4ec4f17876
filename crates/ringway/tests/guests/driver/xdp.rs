//! XDP programs in the driver.

use ringway_client::Port;
use ringway_scenes::{receive, send};
use ringway_testing::frame::patterned;

use super::settings::{fails, with_netconsole};
use super::*;
use crate::e1000::talk;

const SENDER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const FRAMES: u32 = 50;

/// The address of the first guest's NIC (see [`mac`]).
fn here(nic: usize) -> [u8; 6] {
    [0x52, 0x54, 0, 0, nic as u8, 1]
}

/// Receives the next frame that is not the guest's own.
fn next(port: &mut Port) -> Result<Vec<u8>, String> {
    for _ in 0..1000 {
        let frame = receive(port, PATIENCE).ok_or("no frame comes")?;
        if frame.windows(2).any(|two| two == ringway_testing::frame::ETHERTYPE) {
            return Ok(frame);
        }
    }
    Err("only other frames come".to_owned())
}

fn swapped(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}

fn equal(what: &str, came: &[u8], expected: &[u8]) -> Result<(), String> {
    if came == expected { Ok(()) } else { Err(format!("{what}: came {came:02x?}, expected {expected:02x?}")) }
}

/// Programs that drop, send back, redirect and pass, with headers that grow and shrink.
pub fn programs(daemon: &Daemon, guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    let guest = &guests[0];
    let attach = |nic: usize| daemon.attach(&format!("lan{nic}:probe")).map_err(|error| error.to_string());
    let mut probe = attach(nic)?;
    let sizes = [60, 61, 300, 1514];
    let sent = |number: u32| patterned(here(nic), SENDER, sizes[number as usize % sizes.len()], number);

    while_inside(guest, &format!("xdp eth{nic} pass"), || talk(guests, nic))?;
    while_inside(guest, &format!("xdp eth{nic} drop"), || {
        let before = count(guest, nic, "rx_xdp_dropped")?;
        (0..FRAMES).for_each(|number| send(&mut probe, &sent(number)));
        until("the program has dropped the frames", || {
            count(guest, nic, "rx_xdp_dropped").unwrap() >= before + u64::from(FRAMES)
        });
        Ok(())
    })?;
    while_inside(guest, &format!("xdp eth{nic} tx"), || {
        for number in 0..FRAMES {
            send(&mut probe, &sent(number));
            equal("sent back", &next(&mut probe)?, &swapped(&sent(number)))?;
        }
        Ok(())
    })?;
    while_inside(guest, &format!("xdp eth{nic} grow"), || {
        for number in 0..FRAMES {
            let sent = patterned(here(nic), SENDER, 60 + 20 * number as usize, number);
            send(&mut probe, &sent);
            let expected = [&swapped(&sent)[..14], &sent[..]].concat();
            equal("sent back with one more header", &next(&mut probe)?, &expected)?;
        }
        Ok(())
    })?;
    let other = 1 - nic;
    let mut beyond = attach(other)?;
    while_inside(guest, &format!("xdp eth{nic} redirect eth{other}"), || {
        for number in 0..FRAMES {
            send(&mut probe, &sent(number));
            equal("redirected", &next(&mut beyond)?, &sent(number))?;
        }
        Ok(())
    })?;
    // The inner frame asks for an address of the guest. The guest answers it.
    while_inside(guest, &format!("xdp eth{nic} shrink"), || {
        let [a, b, c, d] = [10, 77, nic as u8, 1];
        let question = [
            &[0xff; 6][..],
            &SENDER,
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1],
            &SENDER,
            &[10, 77, nic as u8, 99],
            &[0; 6],
            &[a, b, c, d],
            &[0; 18],
        ];
        send(&mut probe, &[&patterned(here(nic), SENDER, 14, 0), &question.concat()[..]].concat());
        let answer =
            [&SENDER[..], &here(nic), &[8, 6, 0, 1, 8, 0, 6, 4, 0, 2], &here(nic), &[a, b, c, d], &SENDER].concat();
        for _ in 0..1000 {
            let frame = receive(&mut probe, PATIENCE).ok_or("no answer")?;
            if frame.starts_with(&answer) {
                return Ok(());
            }
        }
        Err("no answer among many frames".to_owned())
    })?;
    // Frames are too long for a program, and programs for a NIC with long frames.
    tell(guest, &format!("ip link set eth{nic} mtu 9000"))?;
    let refused = while_inside(guest, &format!("xdp eth{nic} pass"), || Ok(()));
    tell(guest, &format!("ip link set eth{nic} mtu 1500"))?;
    if refused.is_ok() {
        return Err("a program was attached to a NIC with long frames".to_owned());
    }
    linked(guest, nic)?;
    while_inside(guest, &format!("xdp eth{nic} pass"), || {
        fails(guest, &format!("ip link set eth{nic} mtu 9000")).map(drop)
    })?;
    talk(guests, nic)
}

/// The kernel sends its messages, with interrupts off, while frames of a program are in the ring.
pub fn with_netpoll(daemon: &Daemon, guests: &[Guest; 2], nic: usize) -> Result<(), String> {
    let mut probe = daemon.attach(&format!("lan{nic}:probe")).map_err(|error| error.to_string())?;
    while_inside(&guests[0], &format!("xdp eth{nic} tx"), || {
        with_netconsole(guests, nic, || {
            for number in 0..10 * FRAMES {
                let sent = patterned(here(nic), SENDER, 100, number);
                send(&mut probe, &sent);
                equal("sent back", &next(&mut probe)?, &swapped(&sent))?;
            }
            Ok(())
        })
    })
}
