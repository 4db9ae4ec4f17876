//! A learning bridge: learns where addresses are, sends frames to known ones there, and all others to all ports.
#![no_std]

use ringway_program::{export, mac_lookup, Batch, DropReason, Program, Refused, Start, Verdict};

struct Bridge {
    group_source: DropReason,
}

impl Program for Bridge {
    // Destination and source address, and some more: multiples of 16 bytes cost least.
    type Head = [u8; 16];

    fn start(start: &mut Start) -> Result<Self, Refused> {
        Ok(Bridge { group_source: start.drop_reason("group_source") })
    }

    fn frames(&mut self, batch: Batch<'_, Self::Head>) {
        let mut before = None;
        let mut verdict = Verdict::FLOOD;
        for frame in batch {
            // Frames of one flow follow one another: the table is asked once for them.
            let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *frame.head;
            let (to, from) = ([d0, d1, d2, d3, d4, d5], [s0, s1, s2, s3, s4, s5]);
            if before != Some((to, from, frame.vlan())) {
                before = Some((to, from, frame.vlan()));
                verdict = if s0 & 1 != 0 {
                    Verdict::drop(self.group_source)
                } else {
                    frame.learn(&from);
                    mac_lookup(&to, frame.vlan()).map_or(Verdict::FLOOD, Verdict::port)
                };
            }
            frame.set(verdict);
        }
    }
}

export!(Bridge);
