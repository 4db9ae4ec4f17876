//! A handle's filter, which libpcap's interpreter runs on each frame.
//!
//! libpcap compiles `inbound`, `outbound` and `ifindex` into loads from places that no frame has. The kernel's sockets put what they
//! know about a frame there; libpcap's interpreter in user space accepts no frame then. A port knows the direction alone.

use libc::{c_int, c_uint};

use crate::abi::bpf_insn;
use crate::real;
use crate::source::{Frame, Way};

/// Most instructions of a filter (`BPF_MAXINSNS`).
const MAX_INSTRUCTIONS: c_uint = 4096;
/// `BPF_LD | BPF_ABS`, and the bits that an instruction has these in.
const LOAD_FIXED: u16 = 0x20;
const CLASS_AND_MODE: u16 = 0xe7;
/// `BPF_LD | BPF_IMM`.
const LOAD_NUMBER: u16 = 0;
/// Where the kernel puts what it knows about a frame (`SKF_AD_OFF`), and the frame's direction there (`SKF_AD_PKTTYPE`).
const BESIDE_FRAME: u32 = 0xffff_f000;
const PACKET_TYPE: u32 = BESIDE_FRAME + 4;
/// What stands there: `PACKET_HOST` and `PACKET_OUTGOING`.
const HOST: u32 = 0;
const OUTGOING: u32 = 4;
/// Why a filter is refused.
const NOT_KNOWN: &str = "the filter asks for what only the kernel knows about a frame of its own interfaces (\"ifindex\", for one): \
                         ports have \"inbound\" and \"outbound\" and the frame's bytes";

/// A filter; the default accepts every frame.
#[derive(Default)]
pub struct Filter {
    /// The program for frames from the port's client and for frames to it: a constant stands for the direction.
    incoming: Vec<bpf_insn>,
    outgoing: Vec<bpf_insn>,
}

/// Returns an error if instructions load what no frame of a port has.
pub fn check(instructions: &[bpf_insn]) -> Result<(), String> {
    let is_known = |one: &bpf_insn| !is_beside_frame(one) || one.k == PACKET_TYPE;
    if instructions.iter().all(is_known) { Ok(()) } else { Err(NOT_KNOWN.to_owned()) }
}

fn is_beside_frame(instruction: &bpf_insn) -> bool {
    instruction.code & CLASS_AND_MODE == LOAD_FIXED && instruction.k >= BESIDE_FRAME
}

impl Filter {
    /// Takes a copy of a program.
    pub fn of(program: &[bpf_insn]) -> Result<Filter, String> {
        let len = c_uint::try_from(program.len()).unwrap_or(c_uint::MAX);
        if !(1..=MAX_INSTRUCTIONS).contains(&len) {
            return Err(format!("setfilter: a filter has 1 to {MAX_INSTRUCTIONS} instructions, not {len}"));
        }
        check(program).map_err(|why| format!("setfilter: {why}"))?;
        let with = |direction| {
            let replaced = |one: &bpf_insn| match is_beside_frame(one) {
                true => bpf_insn { code: LOAD_NUMBER, jt: 0, jf: 0, k: direction },
                false => *one,
            };
            program.iter().map(replaced).collect::<Vec<_>>()
        };
        let filter = Filter { incoming: with(HOST), outgoing: with(OUTGOING) };
        // SAFETY: `len` instructions. Those for the other direction differ in a constant alone.
        if unsafe { real::bpf_validate(filter.incoming.as_ptr(), len as c_int) } == 0 {
            return Err(real::missing().unwrap_or_else(|| "setfilter: the filter is not a valid program".to_owned()));
        }
        Ok(filter)
    }

    /// Returns true if the filter accepts the frame.
    pub fn accepts(&self, frame: &Frame) -> bool {
        let program = match frame.way {
            Way::In => &self.incoming,
            Way::Out => &self.outgoing,
        };
        if program.is_empty() {
            return true;
        }
        // SAFETY: the program was validated, and the frame has `present` bytes.
        unsafe { real::bpf_filter(program.as_ptr(), frame.data, frame.len as c_uint, frame.present as c_uint) != 0 }
    }
}
