//! A client that writes anything anywhere in its memory, between two that follow the rules.
//!
//! The input is a list of writes and passes. Whatever it does: nothing panics, the others' frames arrive exactly, no
//! byte of the others' buffers beyond them changes, and every frame is delivered to somebody or counted as lost.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use libfuzzer_sys::fuzz_target;
use ringway_abi::doorbell::{INDEX, PAIR_BYTES, RX_CLIENT, RX_SWITCH, TX_CLIENT};
use ringway_abi::layout::netmap_ring::SLOTS;
use ringway_abi::{Layout, Shape, Slot};
use ringway_memory::{Mapping, View};
use ringway_port_process as process;
use ringway_switch::{FloodPolicy, Input, Mac, MacMap, MacTable, Member, Owner, Port, Switch, Time, Workspace, pass};

const HOSTILE: u16 = 0;
const SENDER: u16 = 1;
const RECEIVER: u16 = 2;
const RING: u32 = 16;
const BUFFER: usize = 192;
const GUARD: u8 = 0xa5;

fn mac(n: u16) -> Mac {
    Mac::new([2, 0, 0, 0, 0, n as u8])
}

struct Client {
    memory: Arc<Mapping>,
    layout: Layout,
    input: Box<dyn Input>,
}

impl Client {
    fn view(&self, at: usize, len: usize) -> View<'_> {
        self.memory.view(at, len).expect("inside the layout")
    }

    fn word(&self, pair: u16, word: usize) -> &std::sync::atomic::AtomicU32 {
        &self.view(self.layout.doorbell(pair), PAIR_BYTES).words32().expect("aligned")[word]
    }

    fn slot(&self, ring_at: usize, slot: u32) -> &std::sync::atomic::AtomicU64 {
        &self.view(ring_at + SLOTS + slot as usize * 16, 16).words64().expect("aligned")[0]
    }

    fn buffer(&self, index: u32) -> View<'_> {
        self.view(self.layout.buffers + index as usize * BUFFER, BUFFER)
    }
}

/// Bytes of the input, zeroes after its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((first, others)) = self.0.split_first() else { return 0 };
        self.0 = others;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.next(), self.next(), self.next(), self.next()])
    }
}

fn hostile_step(client: &Client, bytes: &mut Bytes<'_>, tx_at: &mut u32) {
    let layout = &client.layout;
    let rings = layout.shape.tx_rings;
    let ring = u16::from(bytes.next()) % rings;
    match bytes.next() % 8 {
        // Any word of the doorbell.
        0 => client.word(ring, usize::from(bytes.next() % 64)).store(bytes.word(), Ordering::Release),
        // Any word of any slot, of either ring.
        1 => {
            let at = if bytes.next() % 2 == 0 { layout.tx_ring(ring) } else { layout.rx_ring(ring) };
            let word = u64::from(bytes.word()) | u64::from(bytes.word()) << 32;
            client.slot(at, u32::from(bytes.next()) % RING).store(word, Ordering::Relaxed);
        }
        // Any byte of the memory.
        2 => {
            let at = bytes.word() as usize % layout.bytes;
            assert!(client.view(at, 1).write(&[bytes.next()]));
        }
        // Heads near the ring's ends.
        3 => client.word(ring, TX_CLIENT + INDEX).store(u32::from(bytes.next()) % (RING + 2), Ordering::Release),
        4 => client.word(ring, RX_CLIENT + INDEX).store(u32::from(bytes.next()) % (RING + 2), Ordering::Release),
        // A slot that is nearly right.
        5 => {
            let at = if bytes.next() % 4 > 0 { layout.tx_ring(ring) } else { layout.rx_ring(ring) };
            let buffer = u32::from(bytes.next()) % (layout.buffer_count + 2);
            let (len, flags) = (u16::from(bytes.next()), u16::from(bytes.next()));
            let slot = Slot { buffer, len, flags };
            client.slot(at, u32::from(bytes.next()) % RING).store(slot.to_word(), Ordering::Relaxed);
        }
        // A frame to one of the others, so that there is something to deliver.
        _ => {
            let word = client.slot(layout.tx_ring(0), *tx_at);
            let buffer = 2 + *tx_at;
            let to = [mac(RECEIVER), mac(SENDER), Mac::BROADCAST][usize::from(bytes.next()) % 3];
            let head: Vec<u8> = to.octets().into_iter().chain(mac(HOSTILE).octets()).chain([0x88, 0xb6]).collect();
            assert!(client.buffer(buffer).write(&head));
            let slot = Slot { buffer, len: 14 + u16::from(bytes.next()) % 170, flags: u16::from(bytes.next() & 0x20) };
            word.store(slot.to_word(), Ordering::Relaxed);
            *tx_at = (*tx_at + 1) % RING;
            client.word(0, TX_CLIENT + INDEX).store(*tx_at, Ordering::Release);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let shape = Shape { tx_slots: RING, rx_slots: RING, buffer_size: BUFFER as u32, ..Shape::default() };
    let mut bytes = Bytes(data);
    let rings = 1 + u16::from(bytes.next()) % 3;
    let shapes = [Shape { tx_rings: rings, rx_rings: rings, ..shape }, shape, shape];
    let (mut clients, mut members) = (Vec::new(), Vec::new());
    for (index, shape) in (0..).zip(shapes) {
        let (sides, ends) = process::open("fuzz", shape, u32::from(index)).expect("a port");
        let port = Arc::new(Port::new("fuzz", sides.output, sides.bell));
        members.push(Member { macs: vec![mac(index)], ..Member::new(Owner::new(index, 0), port) });
        clients.push(Client { memory: Arc::clone(ends.memory.mapping()), layout: ends.layout, input: sides.input });
    }
    let forward = Box::new(MacMap::new(&members));
    let switch = Switch::new("fuzz", members, Arc::new(MacTable::new(64, 8, [3, 5])), forward, FloodPolicy::default());
    let mut work = Workspace::new(1 + usize::from(bytes.next()) % 40);
    let mut run = |clients: &mut Vec<Client>, from: u16| {
        let client = &mut clients[usize::from(from)];
        pass(&switch, switch.member(from).expect("a port"), &mut *client.input, &mut work, &Time::at_second(1))
    };
    let receiver_buffers = clients[2].layout.buffers;
    let receiver_bytes = clients[2].layout.bytes - receiver_buffers;

    let (mut hostile_at, mut sent, mut taken_from_hostile, mut ended) = (0, 0u32, 0, false);
    let (mut at, mut receive_at) = (0, 0);
    while !bytes.0.is_empty() {
        for _ in 0..bytes.next() % 8 {
            hostile_step(&clients[0], &mut bytes, &mut hostile_at);
        }
        assert!(clients[2].view(receiver_buffers, receiver_bytes).write(&vec![GUARD; receiver_bytes]));
        if !ended {
            let passed = run(&mut clients, HOSTILE);
            taken_from_hostile += passed.frames;
            // A poller lets go of an input that broke the rules.
            ended = passed.fault.is_some();
        }

        // A frame between the two others, in one or two slots, and one for the hostile client to receive.
        let len = 60 + sent as usize % (2 * BUFFER - 60);
        let own: Vec<u8> = mac(RECEIVER)
            .octets()
            .into_iter()
            .chain(mac(SENDER).octets())
            .chain([0x88, 0xb5])
            .chain((14..len).map(|n| (n as u32).wrapping_mul(13).wrapping_add(sent) as u8))
            .collect();
        for to in [HOSTILE, RECEIVER] {
            let mut frame = own.clone();
            frame[..6].copy_from_slice(&mac(to).octets());
            let parts = frame.chunks(BUFFER).count();
            for (number, part) in frame.chunks(BUFFER).enumerate() {
                let word = clients[1].slot(clients[1].layout.tx_ring(0), at);
                let slot = Slot::from_word(word.load(Ordering::Relaxed));
                assert!(clients[1].buffer(slot.buffer).write(part));
                let flags = if number + 1 < parts { 0x20 } else { 0 };
                word.store(Slot { len: part.len() as u16, flags, ..slot }.to_word(), Ordering::Relaxed);
                at = (at + 1) % RING;
            }
        }
        clients[1].word(0, TX_CLIENT + INDEX).store(at, Ordering::Release);
        sent += 1;
        while clients[1].input.pending() {
            assert_eq!(run(&mut clients, SENDER).fault, None, "the hostile client's doing is not the sender's");
        }

        // The receiver: the sender's frame is exact, and around all frames nothing has changed.
        let tail = clients[2].word(0, RX_SWITCH + INDEX).load(Ordering::Acquire);
        let (mut whole, mut exact) = (Vec::new(), 0);
        while receive_at != tail {
            let word = clients[2].slot(clients[2].layout.rx_ring(0), receive_at).load(Ordering::Relaxed);
            let slot = Slot::from_word(word);
            let mut buffer = [0; BUFFER];
            assert!(clients[2].buffer(slot.buffer).read(&mut buffer));
            let (part, beyond) = buffer.split_at(slot.len.into());
            assert!(beyond.iter().all(|&b| b == GUARD), "bytes beyond a frame were written");
            whole.extend_from_slice(part);
            if !slot.more() {
                exact += u32::from(whole == own);
                whole.clear();
            }
            receive_at = (receive_at + 1) % RING;
        }
        assert!(whole.is_empty(), "a frame has its end");
        let lost = switch.member(RECEIVER).expect("a port").port.counters().read().drops().count() > 0;
        assert!(
            exact >= 1 || lost,
            "the frame between the others arrived, or found the ring full of the hostile one's"
        );
        clients[2].word(0, RX_CLIENT + INDEX).store(receive_at, Ordering::Release);
        // The sender reads what was flooded to it, unseen.
        let tail = clients[1].word(0, RX_SWITCH + INDEX).load(Ordering::Acquire);
        clients[1].word(0, RX_CLIENT + INDEX).store(tail, Ordering::Release);
    }

    // Only the hostile client can have broken the rules, and every frame is somewhere.
    for index in [SENDER, RECEIVER] {
        assert_eq!(switch.member(index).expect("a port").port.fault(), None);
    }
    let counters: Vec<_> = switch.members().map(|member| member.port.counters().read()).collect();
    assert_eq!(counters[0].in_frames, taken_from_hostile);
    assert_eq!(counters[1].in_frames, 2 * u64::from(sent));
    let given: u64 = counters.iter().map(|c| c.out_frames).sum();
    let lost: u64 = counters.iter().flat_map(|c| c.drops().map(|(_, n)| n).collect::<Vec<_>>()).sum();
    let taken: u64 = counters.iter().map(|c| c.in_frames).sum();
    // A flooded frame may be given twice, and no frame can vanish.
    assert!(given + lost >= taken, "{given} given, {lost} lost, {taken} taken");
    assert!(given + lost <= 2 * taken_from_hostile + counters[1].in_frames);
});
