//! A learning bridge: learns where addresses are, sends frames to known ones there, and all others to all ports.
#![no_std]

use ringway_program::{export, mac_lookup, Batch, DropReason, Frame, Program, Refused, Start, Verdict};

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
        // Frames of one flow follow one another: the table is asked once for them. One number compares faster than twelve bytes.
        let addresses = |head: &[u8; 16]| u128::from_le_bytes(*head) << 32;
        batch.judge_runs(
            |one, other| addresses(one.head) == addresses(other.head) && one.vlan() == other.vlan(),
            |frame| self.judge(frame),
        );
    }
}

impl Bridge {
    fn judge(&self, frame: &Frame<'_, [u8; 16]>) -> Verdict {
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *frame.head;
        if s0 & 1 != 0 {
            return Verdict::drop(self.group_source);
        }
        frame.learn(&[s0, s1, s2, s3, s4, s5]);
        mac_lookup(&[d0, d1, d2, d3, d4, d5], frame.vlan()).map_or(Verdict::FLOOD, Verdict::port)
    }
}

export!(Bridge);
