//! The driver against a small device in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_abi::e1000::register as reg;
use ringway_abi::e1000::transmit::{DATA, DEXT, DONE, EOP, RS};
use ringway_memory::{Buffer, Mapping};

use super::bring_up::Model;
use super::driver::{Card, Driver};
use super::nic::Nic;
use super::offload::tests::tcp_frame;
use super::options::E1000Options;
use crate::pci::{Dma, HUGE_PAGE, Registers};

const MAC: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];
const OPTIONS: E1000Options =
    E1000Options { slots: 16, buffer: 2112, buffers: 32, mtu: None, offload: false, csb: true };

/// The device: it sees its registers, and the driver's memory at the addresses of this process.
struct Device {
    registers: Registers,
    memory: Arc<Mapping>,
    model: Model,
    csb: bool,
    /// Context descriptors.
    contexts: Vec<[u64; 2]>,
    /// Address and bytes of each piece of each frame.
    sent: Vec<Vec<(u64, Vec<u8>)>>,
    /// The last of these frames has ended.
    ended: bool,
}

fn scene(model: Model, options: E1000Options) -> (Driver, Device) {
    let registers = Registers::local(0x2_0000).unwrap();
    registers.write32(reg::RAL0 as usize, u32::from_le_bytes([0x52, 0x54, 0, 0]));
    registers.write32(reg::RAH0 as usize, u32::from_le_bytes([0, 1, 0, 0x80]));
    let dma = Dma::local(Driver::memory(&options), None).unwrap();
    let memory = Arc::clone(dma.mapping());
    let mut nic = Nic::new(registers.clone(), model, "0000:00:04.0".to_owned());
    assert_eq!(nic.address().unwrap(), MAC);
    let card = Card { csb: options.csb, segments: options.offload };
    let driver = Driver::new(nic, dma, MAC, &options, card).unwrap();
    (driver, Device { registers, memory, model, csb: options.csb, contexts: Vec::new(), sent: Vec::new(), ended: true })
}

impl Device {
    fn get(&self, register: u32) -> u32 {
        self.registers.read32(register as usize)
    }

    fn set(&self, register: u32, value: u32) {
        self.registers.write32(register as usize, value);
    }

    fn address(&self, low: u32) -> u64 {
        u64::from(self.get(low)) | u64::from(self.get(low + 4)) << 32
    }

    fn view(&self, address: u64, len: usize) -> ringway_memory::View<'_> {
        let start = self.memory.whole().as_ptr().addr() as u64;
        self.memory.view((address - start) as usize, len).expect("an address of the driver's memory")
    }

    fn bytes(&self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.view(address, len).read(&mut bytes));
        bytes
    }

    fn word(&self, address: u64) -> u64 {
        self.view(address, 8).first_word().unwrap()
    }

    fn put(&self, address: u64, word: u64) {
        assert!(self.view(address, 8).write(&word.to_le_bytes()));
    }

    /// A word of the status block.
    fn block(&self, offset: u64) -> &AtomicU32 {
        &self.view(self.address(reg::CSBAL) + offset, 4).words32().unwrap()[0]
    }

    /// Returns what replaces a tail register.
    fn tail(&self, register: u32, offset: u64) -> u32 {
        if self.csb { self.block(offset).load(Ordering::Acquire) } else { self.get(register) }
    }

    /// Sends up to `most` descriptors before the tail.
    fn transmit(&mut self, most: u32) {
        let (base, size) = (self.address(reg::TDBAL), self.get(reg::TDLEN) / 16);
        for _ in 0..most {
            let head = self.get(reg::TDH);
            if head == self.tail(reg::TDT, 0) {
                break;
            }
            let at = base + u64::from(head) * 16;
            let [first, second] = [self.word(at), self.word(at + 8)];
            if second & (DEXT | DATA) == DEXT {
                self.contexts.push([first, second]);
            } else {
                let len = second & if second & DEXT == 0 { 0xffff } else { 0xf_ffff };
                if self.sent.is_empty() || self.ended {
                    self.sent.push(Vec::new());
                }
                let piece = (first, self.bytes(first, len as usize));
                self.sent.last_mut().unwrap().push(piece);
                self.ended = second & EOP != 0;
            }
            if second & RS != 0 {
                self.put(at + 8, second | DONE);
            }
            self.set(reg::TDH, (head + 1) % size);
            if self.csb {
                self.block(64).store((head + 1) % size, Ordering::Release);
            }
        }
    }

    /// Returns the frames sent since the last call.
    fn frames(&mut self) -> Vec<Vec<u8>> {
        let frames = std::mem::take(&mut self.sent);
        frames.into_iter().map(|pieces| pieces.into_iter().flat_map(|(_, bytes)| bytes).collect()).collect()
    }

    /// Returns true if there is a descriptor for a received frame.
    fn has_room(&self) -> bool {
        self.get(reg::RDH) != self.tail(reg::RDT, 16)
    }

    /// Writes a part of a frame, or its `end`.
    fn receive(&self, bytes: &[u8], end: bool) {
        self.receive_as(bytes, bytes.len(), end);
    }

    fn receive_as(&self, bytes: &[u8], len: usize, end: bool) {
        assert!(self.has_room());
        let (base, head) = (self.address(reg::RDBAL), self.get(reg::RDH));
        let at = base + u64::from(head) * 16;
        assert_eq!(self.word(at + 8), 0, "a descriptor that was written stays the driver's");
        assert!(self.view(self.word(at), bytes.len()).write(bytes));
        let (len, status) = (len as u64, 1 | u64::from(end) << 1);
        let word = match self.model {
            Model::Pro1000 => len | status << 32,
            Model::Express => {
                self.put(at, 0xeeee_eeee_eeee_eeee);
                status | len << 32
            }
        };
        self.put(at + 8, word);
        self.set(reg::RDH, (head + 1) % (self.get(reg::RDLEN) / 16));
    }
}

/// A frame of `len` bytes that count up from `first`.
fn frame(len: usize, first: u8) -> Vec<u8> {
    (0..len).map(|at| first.wrapping_add(at as u8)).collect()
}

/// A buffer in memory that the device does not reach.
fn foreign_buffer() -> Buffer {
    Dma::local(HUGE_PAGE, None).unwrap().buffers(1, 2112).unwrap().remove(0)
}

fn send(driver: &mut Driver, buffer: &mut Buffer, bytes: &[u8]) -> bool {
    buffer[..bytes.len()].copy_from_slice(bytes);
    driver.send(buffer, bytes.len(), None)
}

#[test]
fn frames_are_sent_from_their_buffers_in_order_with_one_tail_write_a_flush() {
    let (mut driver, mut device) = scene(Model::Pro1000, E1000Options { csb: false, ..OPTIONS });
    let mut buffers = driver.take_buffers();
    assert!(driver.take_buffers().is_empty());
    assert_eq!((buffers.len(), driver.room()), (32, 15));
    for lap in 0..10_u8 {
        for number in 0..7 {
            assert!(send(&mut driver, &mut buffers[usize::from(number)], &frame(60, lap + number)));
        }
        driver.flush();
        driver.flush();
        let sent = u64::from(lap) * 7;
        assert_eq!((driver.sent(), driver.room(), driver.counts().kicks), (sent, 8, u64::from(lap) + 1));
        device.transmit(3);
        assert_eq!((driver.sent(), driver.room()), (sent + 3, 11));
        device.transmit(9);
        assert_eq!(driver.sent(), sent + 7);
        assert_eq!(device.sent[0][0].0, buffers[0].as_ptr().addr() as u64, "no copy");
        assert_eq!(device.frames(), (0..7).map(|number| frame(60, lap + number)).collect::<Vec<_>>());
    }
    assert_eq!(driver.counts().accesses, 0);
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let (mut driver, _device) = scene(Model::Pro1000, E1000Options { csb: false, ..OPTIONS });
    let mut buffers = driver.take_buffers();
    let (tcp, offload) = tcp_frame(1000);
    buffers[0][..tcp.len()].copy_from_slice(&tcp);
    assert!(!driver.send(&buffers[0], tcp.len(), Some(&offload)), "this link has no offloads");
    assert!(!driver.send(&buffers[0], 1515, None) && driver.send(&buffers[0], 1514, None));
    let foreign = foreign_buffer();
    assert!(!driver.send(&foreign, 60, None), "memory that the device does not reach");
    (0..14).for_each(|_| assert!(driver.send(&buffers[1], 60, None)));
    assert!(!driver.send(&buffers[1], 60, None) && driver.room() == 0);
}

#[test]
fn the_status_block_replaces_registers_while_the_device_works() {
    let (mut driver, mut device) = scene(Model::Pro1000, OPTIONS);
    let mut buffers = driver.take_buffers();
    assert_eq!([12, 8, 4, 20].map(|at| device.block(at).load(Ordering::Relaxed)), [1, 0, 0, u32::MAX]);
    assert!(send(&mut driver, &mut buffers[0], &frame(60, 1)));
    driver.flush();
    assert_eq!((driver.counts().kicks, device.get(reg::TDT)), (1, 1), "the device sleeps");
    device.block(68).store(0, Ordering::Relaxed);
    for number in 0..100 {
        device.transmit(16);
        assert_eq!(driver.sent(), number + 1);
        assert!(send(&mut driver, &mut buffers[0], &frame(60, 2)));
        driver.flush();
        device.receive(&frame(60, 3), true);
        assert!(driver.peek().is_some());
        driver.release();
    }
    assert_eq!((driver.counts().kicks, driver.counts().accesses), (1, 0));
    driver.want(true, true);
    assert_eq!([8, 4].map(|at| device.block(at).load(Ordering::Relaxed)), [1, 1]);
}

#[test]
fn a_device_that_breaks_the_rules_ends_the_link() {
    for head in [5, 16, u32::MAX] {
        let (mut driver, device) = scene(Model::Pro1000, OPTIONS);
        let buffers = driver.take_buffers();
        assert!(driver.send(&buffers[0], 60, None));
        driver.flush();
        device.block(64).store(head, Ordering::Relaxed);
        assert_eq!((driver.sent(), driver.room(), driver.send(&buffers[0], 60, None)), (0, 0, false));
        let error = driver.check().unwrap_err().to_string();
        let wanted =
            format!("the device 0000:00:04.0 says that it is at transmit descriptor {head}, which it does not have");
        assert_eq!(error, wanted);
    }
    for model in [Model::Pro1000, Model::Express] {
        let (mut driver, device) = scene(model, E1000Options { csb: false, ..OPTIONS });
        device.receive_as(&[], 2049, true);
        assert!(driver.peek().is_none() && driver.is_ready(false));
        assert!(
            driver.check().unwrap_err().to_string().ends_with("says that it wrote 2049 bytes into a buffer of 2048")
        );
    }
}

#[test]
fn frames_are_received_in_order_and_buffers_go_back_with_few_tail_writes() {
    for model in [Model::Pro1000, Model::Express] {
        let (mut driver, device) = scene(model, E1000Options { csb: false, ..OPTIONS });
        let mut spares = driver.take_buffers();
        assert!(driver.peek().is_none() && !driver.is_ready(false));
        for round in 0..40_u8 {
            for number in 0..5 {
                device.receive(&frame(60 + usize::from(round), round + number), true);
            }
            assert!(driver.is_ready(false));
            for number in 0..5 {
                let wanted = frame(60 + usize::from(round), round + number);
                assert_eq!(driver.peek().unwrap(), wanted, "{model:?}");
                assert_eq!(driver.peek().unwrap(), wanted, "it stays");
                if number % 2 == 0 {
                    driver.release();
                    continue;
                }
                let (spare, before) = (&mut spares[usize::from(round) % 32], driver.peek().unwrap().as_ptr());
                let (at, len) = driver.exchange(spare);
                assert_eq!((&spare[at..at + len], spare.as_ptr()), (&wanted[..], before));
            }
            assert!(driver.peek().is_none());
        }
        // Two at a time.
        assert_eq!(driver.counts().accesses, 100);
        assert!(device.has_room());
    }
}

#[test]
fn frames_in_several_buffers_are_dropped_and_counted() {
    for model in [Model::Pro1000, Model::Express] {
        let (mut driver, device) = scene(model, E1000Options { csb: false, ..OPTIONS });
        // A frame without an end for longer than the ring.
        for _ in 0..40 {
            device.receive(&frame(2048, 1), false);
            assert!(driver.peek().is_none());
        }
        device.receive(&frame(100, 1), true);
        device.receive(&frame(100, 7), true);
        assert_eq!(driver.peek().unwrap(), frame(100, 7));
        driver.release();
        assert_eq!(driver.counts().dropped, 1);
        assert!(driver.check().is_ok());
    }
}

#[test]
fn a_foreign_buffer_gets_a_copy_of_a_received_frame() {
    let (mut driver, device) = scene(Model::Pro1000, E1000Options { csb: false, ..OPTIONS });
    let mut foreign = foreign_buffer();
    let place = foreign.as_ptr();
    device.receive(&frame(300, 5), true);
    assert!(driver.peek().is_some());
    assert_eq!(driver.exchange(&mut foreign), (0, 300));
    assert_eq!((&foreign[..300], foreign.as_ptr()), (&frame(300, 5)[..], place));
    assert_eq!(driver.exchange(&mut foreign), (0, 0), "there is no other frame");
}

#[test]
fn a_large_frame_is_segmented_by_the_device_and_its_buffer_stays_as_it_is() {
    let options = E1000Options { csb: false, mtu: Some(1500), offload: true, buffer: 65_536, slots: 64, buffers: 4 };
    for model in [Model::Pro1000, Model::Express] {
        let (mut driver, mut device) = scene(model, options);
        assert_eq!((driver.abilities().segmented, driver.abilities().checksums), (65_536, true));
        assert_eq!(driver.abilities().longest, 1514, "the network decides, not the buffer");
        let mut buffers = driver.take_buffers();
        // 18 descriptors at most: so many frames fit, whatever they ask.
        assert_eq!(driver.room(), 3);
        for lap in 1..=20 {
            let (tcp, offload) = tcp_frame(65_482);
            buffers[0][..tcp.len()].copy_from_slice(&tcp);
            assert!(driver.send(&buffers[0], tcp.len(), Some(&offload)));
            assert!(driver.send(&buffers[1], 60, None));
            driver.flush();
            device.transmit(16);
            assert_eq!(driver.sent(), (lap - 1) * 2, "the last piece is not sent yet");
            device.transmit(64);
            assert_eq!(driver.sent(), lap * 2);
            assert_eq!(&buffers[0][..tcp.len()], tcp);
            let sent = std::mem::take(&mut device.sent);
            assert_eq!((sent.len(), sent[0].len(), sent[0][0].1.len()), (2, 17, 54));
            assert_eq!(sent[0][1].0, buffers[0].as_ptr().addr() as u64 + 54);
            assert!(sent[0].iter().all(|(_, bytes)| bytes.len() <= 4096));
            let payload: Vec<u8> = sent[0][1..].iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            assert_eq!(payload, tcp[54..]);
        }
        // The device keeps a context.
        assert_eq!(device.contexts.len(), 1);
        let (tcp, offload) = tcp_frame(100);
        buffers[0][..tcp.len()].copy_from_slice(&tcp);
        assert!(driver.send(&buffers[0], tcp.len(), Some(&offload)));
        driver.flush();
        device.transmit(64);
        assert_eq!((driver.sent(), device.contexts.len(), device.sent[0].len()), (41, 2, 2));
    }
}
