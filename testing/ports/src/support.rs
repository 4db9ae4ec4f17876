//! A switch of process ports in this process, whose clients write arbitrary data into their memory.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, RX_SWITCH, TX_CLIENT, TX_SWITCH};
use ringway_abi::layout::netmap_ring::SLOTS;
use ringway_abi::slot::{NS_MOREFRAG, SLOT_BYTES};
use ringway_abi::{Shape, Slot};
use ringway_memory::View;
use ringway_port_process::{self as process, ClientHandles};
use ringway_switch::{
    CountersReading, DropReason, FloodPolicy, Input, Mac, MacMap, MacTable, Member, Owner, Passed, Port, PortFault,
    Switch, Time, Watch, Workspace, pass,
};
use ringway_testing::frame::station;

pub use ringway_testing::frame::between as frame;

/// Returns the MAC address of station `n`, which is bound to port `n`.
pub fn mac(n: u16) -> Mac {
    Mac::new(station(n))
}

/// A port and its client, which uses the memory only by the published layout.
pub struct Client {
    pub ends: ClientHandles,
    pub input: Box<dyn Input>,
    pub tx_head: Vec<u32>,
    pub rx_head: Vec<u32>,
}

impl Client {
    pub fn tx_word(&self, ring: u16, slot: u32) -> &AtomicU64 {
        self.word(self.ends.layout.tx_ring(ring), slot)
    }

    pub fn rx_word(&self, ring: u16, slot: u32) -> &AtomicU64 {
        self.word(self.ends.layout.rx_ring(ring), slot)
    }

    fn word(&self, ring_at: usize, slot: u32) -> &AtomicU64 {
        let place = self.ends.memory.mapping().view(ring_at + SLOTS + slot as usize * SLOT_BYTES, 8);
        &place.expect("a slot").words64().expect("aligned")[0]
    }

    pub fn doorbell(&self, pair: u16) -> &[AtomicU32] {
        let block = self.ends.memory.mapping().view(self.ends.layout.doorbell(pair), PAIR_BYTES);
        block.expect("a doorbell").words32().expect("aligned")
    }

    pub fn buffer(&self, index: u32) -> View<'_> {
        let layout = &self.ends.layout;
        let size = layout.shape.buffer_size as usize;
        self.ends.memory.mapping().view(layout.buffers + index as usize * size, size).expect("a buffer")
    }

    pub fn tx_slot(&self, ring: u16, slot: u32) -> Slot {
        Slot::from_word(self.tx_word(ring, slot).load(Ordering::Relaxed))
    }

    pub fn set_tx(&self, ring: u16, slot: u32, to: Slot) {
        self.tx_word(ring, slot).store(to.to_word(), Ordering::Relaxed);
    }

    pub fn set_tx_head(&self, ring: u16, head: u32) {
        self.doorbell(ring)[TX_CLIENT + INDEX].store(head, Ordering::Release);
    }

    pub fn set_rx_head(&self, ring: u16, head: u32) {
        self.doorbell(ring)[RX_CLIENT + INDEX].store(head, Ordering::Release);
    }

    /// Returns the number of slots that the client may fill.
    pub fn tx_room(&self, ring: u16) -> u32 {
        let (slots, tail) =
            (self.ends.layout.shape.tx_slots, self.doorbell(ring)[TX_SWITCH + INDEX].load(Ordering::Acquire));
        (tail + slots - self.tx_head[usize::from(ring)]) % slots
    }

    /// Fills slots with the frame, `piece` bytes each, without publishing them. Returns the number of slots.
    pub fn queue(&mut self, ring: u16, frame: &[u8], piece: usize) -> u32 {
        let slots = self.ends.layout.shape.tx_slots;
        let count = frame.chunks(piece).count();
        assert!(count <= self.tx_room(ring) as usize, "no room for the test's frame");
        for (number, part) in frame.chunks(piece).enumerate() {
            let at = self.tx_head[usize::from(ring)];
            let slot = self.tx_slot(ring, at);
            assert!(self.buffer(slot.buffer).write(part));
            let flags = if number + 1 < count { NS_MOREFRAG } else { 0 };
            self.set_tx(ring, at, Slot { len: part.len() as u16, flags, ..slot });
            self.tx_head[usize::from(ring)] = (at + 1) % slots;
        }
        count as u32
    }

    pub fn publish(&self, ring: u16) {
        self.set_tx_head(ring, self.tx_head[usize::from(ring)]);
    }

    pub fn send(&mut self, frame: &[u8]) {
        let piece = self.ends.layout.shape.buffer_size as usize;
        self.queue(0, frame, piece);
        self.publish(0);
    }

    /// Takes all received frames of a ring, and gives the slots back.
    pub fn receive(&mut self, ring: u16) -> Vec<Vec<u8>> {
        let slots = self.ends.layout.shape.rx_slots;
        let tail = self.doorbell(ring)[RX_SWITCH + INDEX].load(Ordering::Acquire);
        let (mut frames, mut whole) = (Vec::new(), Vec::new());
        let mut at = self.rx_head[usize::from(ring)];
        while at != tail {
            let slot = Slot::from_word(self.rx_word(ring, at).load(Ordering::Relaxed));
            let mut part = vec![0; slot.len.into()];
            assert!(self.buffer(slot.buffer).read(&mut part));
            whole.extend(part);
            if !slot.more() {
                frames.push(std::mem::take(&mut whole));
            }
            at = (at + 1) % slots;
        }
        assert!(whole.is_empty(), "a frame without its end");
        self.rx_head[usize::from(ring)] = at;
        self.set_rx_head(ring, at);
        frames
    }
}

/// A map switch of process ports.
pub struct Lan {
    switch: Switch,
    pub clients: Vec<Client>,
    work: Workspace,
    /// The clock of the switch.
    pub second: u32,
}

impl Lan {
    pub fn new(shapes: &[Shape]) -> Lan {
        let (mut clients, mut members) = (Vec::new(), Vec::new());
        for (index, &shape) in shapes.iter().enumerate() {
            let (sides, ends) = process::open(&format!("p{index}"), shape, index as u32).expect("a port");
            let port = Port::new(format!("p{index}"), sides.output, sides.bell);
            let owner = Owner::new(index as u16, 0);
            members.push(Member { macs: vec![mac(index as u16)], ..Member::new(owner, Arc::new(port)) });
            let (tx_head, rx_head) = (vec![0; shape.tx_rings.into()], vec![0; shape.rx_rings.into()]);
            clients.push(Client { ends, input: sides.input, tx_head, rx_head });
        }
        let forward = Box::new(MacMap::new(&members));
        let table = Arc::new(MacTable::new(64, 64, [1, 2]));
        let switch = Switch::new("lan0", members, table, forward, FloodPolicy::default());
        Lan { switch, clients, work: Workspace::new(256), second: 1 }
    }

    /// Makes a switch of ports of the same shape.
    pub fn of(ports: usize, shape: Shape) -> Lan {
        Lan::new(&vec![shape; ports])
    }

    /// Makes a switch of these ports with changed members and with watches.
    pub fn changed(self, change: impl Fn(Member) -> Member, watches: impl IntoIterator<Item = (u16, Watch)>) -> Lan {
        let members: Vec<Member> = self.switch.members().cloned().map(change).collect();
        let forward = Box::new(MacMap::new(&members));
        let table = self.switch.table().clone();
        let switch = Switch::new("lan0", members, table, forward, FloodPolicy::default()).with_watches(watches);
        Lan { switch, ..self }
    }

    pub fn pass(&mut self, from: usize) -> Passed {
        let member = self.switch.member(from as u16).expect("a port");
        pass(&self.switch, member, &mut *self.clients[from].input, &mut self.work, &Time::at_second(self.second))
    }

    pub fn counters(&self, port: usize) -> CountersReading {
        self.switch.member(port as u16).expect("a port").port.counters().read()
    }

    pub fn dropped(&self, port: usize, reason: DropReason) -> u64 {
        self.counters(port).dropped(reason)
    }

    pub fn fault(&self, port: usize) -> Option<PortFault> {
        self.switch.member(port as u16).expect("a port").port.fault()
    }
}
