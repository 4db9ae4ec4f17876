//! The steady state allocates nothing, whatever the frames look like.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use ringway_memory::Mapping;
use ringway_switch::policy::{Bound, Domain, Rules};
use ringway_switch::{
    Armed, Batch, Bell, CallReason, CallResult, Counters, Discarded, DropReason, FloodPolicy, Frames, Gso, Input,
    InputCapabilities, Judging, Learning, MAX_BATCH, Mac, MacTable, Member, Offload, OnFault, Output, Owner, Port,
    PortFault, Program, ProgramFailed, Programmed, Switch, Time, View, WakeOn, Workspace, pass,
};

struct Counting;

thread_local! {
    /// Allocations of this thread. Other threads belong to the test harness.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: passes all calls to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PIECE: usize = 1000;

/// A TCP frame over IPv4 with an offload.
const SEGMENTED: Offload = Offload {
    needs_csum: true,
    gso: Gso::Tcp4,
    ecn: false,
    hdr_len: 0,
    gso_size: 700,
    csum_start: 34,
    csum_offset: 16,
    tunnel: None,
};
/// Its EtherType, its IPv4 header, and the needed part of its TCP header.
const HEADERS: [u8; 35] =
    [8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50];

/// An input that offers some frames of 64 pieces and then whole ones, as many as there is room for.
struct Endless {
    memory: Mapping,
    /// Number of frames of the batch in pieces.
    in_pieces: usize,
    /// True if the receivers need software offload.
    unfinished: bool,
    destinations: u32,
    number: u32,
    /// True if frames can wait.
    waits: bool,
}

impl Input for Endless {
    fn capabilities(&self) -> InputCapabilities {
        InputCapabilities { rewind: self.waits, ..InputCapabilities::default() }
    }

    fn discard(&mut self, most: usize) -> Result<Discarded, PortFault> {
        Ok(Discarded { frames: most as u64, bytes: 0 })
    }

    fn collect<'m>(&'m mut self, batch: &mut Batch<'m>) -> Result<(), PortFault> {
        let whole = self.memory.view(0, 1514).expect("inside");
        let mut pieces = [whole; 64];
        pieces.fill(self.memory.view(0, PIECE).expect("inside"));
        for _ in 0..self.in_pieces {
            if batch.room() > 0 {
                if self.unfinished {
                    batch.push_pieces_offloaded(pieces, SEGMENTED);
                } else {
                    batch.push_pieces(pieces);
                }
            }
        }
        // A port fills all the room it was told of.
        for _ in 0..batch.room() {
            self.number += 1;
            let to = (self.number % self.destinations).to_be_bytes();
            assert!(whole.sub(2, 4).expect("inside").write(&to));
            if self.unfinished {
                batch.push_offloaded(whole, 1514, SEGMENTED);
            } else {
                batch.push(whole, 1514);
            }
        }
        Ok(())
    }

    fn release(&mut self) {}

    fn pending(&mut self) -> bool {
        true
    }

    fn arm(&mut self, _: WakeOn) -> Armed {
        Armed::Pending
    }

    fn disarm(&mut self) {}
}

struct Count;

impl Output for Count {
    fn deliver(&mut self, frames: Frames<'_, '_>, counters: &Counters) -> Result<(), PortFault> {
        for frame in frames {
            counters.add_out(1, frame.len() as u64);
        }
        Ok(())
    }
}

impl Bell for Count {
    fn ring(&self, _: CallReason) -> CallResult {
        CallResult::Unwanted
    }
}

#[test]
fn a_workspace_allocates_nothing_after_its_first_pass() {
    let member = |index: u16| {
        Member::new(Owner::new(index, 0), Arc::new(Port::new(format!("p{index}"), Box::new(Count), Box::new(Count))))
    };
    let table = Arc::new(MacTable::new(8192, 1024, [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3211]));
    let present = |_: Owner| true;
    for station in 1..1000u16 {
        let [a, b] = station.to_be_bytes();
        // Every third station is unknown, so that its frames are flooded.
        if station % 3 != 0 {
            table.learn(Mac::new([2, 0, 0, 0, a, b]), Owner::new(station, 0), 1, present);
        }
    }
    let switch = Switch::new("lan0", (0..1000).map(member), table, Box::new(Learning), FloodPolicy::default());
    let from = switch.member(0).expect("a port");

    let memory = Mapping::private(1 << 16).expect("memory");
    assert!(memory.whole().write(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0x88, 0xb5]));
    assert!(memory.view(12, HEADERS.len()).expect("inside").write(&HEADERS));
    let mut input = Endless { memory, in_pieces: 0, unfinished: false, destinations: 1, number: 0, waits: false };
    let now = Time::at_second(1);
    let mut moved = 0;
    for limit in [1, 2, 64, 255, 256, 1024] {
        let mut work = Workspace::new(limit);
        pass(&switch, from, &mut input, &mut work, &now);
        let before = ALLOCATIONS.get();
        for in_pieces in 0..limit.min(80) {
            for destinations in [1, 2, 999] {
                (input.in_pieces, input.destinations) = (in_pieces, destinations);
                input.unfinished = in_pieces == 3 && destinations == 2;
                moved += pass(&switch, from, &mut input, &mut work, &now).frames;
            }
        }
        let allocations = ALLOCATIONS.get() - before;
        assert_eq!(allocations, 0, "batches of up to {limit} frames");
    }
    assert!(moved > 100_000, "{moved} frames moved");
    assert_eq!(from.port.counters().read().dropped(DropReason::BadOffload), 0);
}

/// Floods each frame.
struct Flooding;

impl Program for Flooding {
    fn judge(&self, batch: &mut Judging<'_, '_>) -> Result<(), ProgramFailed> {
        const WORDS: [[u8; 4]; MAX_BATCH] = [0x2_0000_u32.to_le_bytes(); MAX_BATCH];
        batch.decide(&WORDS.as_flattened()[..4 * batch.len()], &[]).map_err(|_| ProgramFailed)
    }
}

#[test]
fn a_poller_allocates_nothing_for_frames_that_wait_after_a_program_has_judged_them() {
    let member = |index: u16| {
        Member::new(Owner::new(index, 0), Arc::new(Port::new(format!("p{index}"), Box::new(Count), Box::new(Count))))
    };
    let table = || Arc::new(MacTable::new(64, 64, [0; 2]));
    let domain = Domain { bound: Bound::default(), rules: Rules::ALLOW, vlans: false };
    let forward = Programmed::new(Arc::new(Flooding), Arc::new(View::new([], 0, table(), domain)), OnFault::Drop);
    let switch = Switch::new("lan0", (0..1000).map(member), table(), Box::new(forward), FloodPolicy::default());
    let memory = Mapping::private(1 << 16).expect("memory");
    assert!(memory.whole().write(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0x88, 0xb5]));
    let mut input = Endless { memory, in_pieces: 0, unfinished: false, destinations: 999, number: 0, waits: true };
    let (now, mut work) = (Time::at_second(1), Workspace::new(MAX_BATCH));
    pass(&switch, switch.member(0).expect("a port"), &mut input, &mut work, &now);
    let before = ALLOCATIONS.get();
    for from in 1..4 {
        for look in 0..8 {
            // The same frames, or others.
            input.number = look / 2;
            let passed = pass(&switch, switch.member(from).expect("a port"), &mut input, &mut work, &now);
            assert!(passed.is_exhausted, "frames wait");
        }
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);
}
