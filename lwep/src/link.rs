//! What every link can do.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ringway_abi::Offload;
use ringway_memory::Buffer;

/// The EtherType of LWEP's frames: one for experiments within a network (IEEE 802).
pub const ETHERTYPE: u16 = 0x88b5;
/// Bytes of an Ethernet header.
pub const HEADER: usize = 14;

/// An interface that the program owns.
///
/// Only [`Link::wait`] may sleep; the other methods do not block. A frame is an Ethernet frame without FCS. In a buffer it begins
/// [`Interface::front`] bytes after the start: the bytes before are the link's, for headers of the device.
pub trait Link {
    /// Returns what the interface is.
    fn interface(&self) -> &Interface;

    /// Returns the buffers that nothing uses, once; later calls return none. They are for frames to send, and for [`Link::exchange`].
    fn take_buffers(&mut self) -> Vec<Buffer>;

    /// Returns how many frames can be queued now. The room may grow at any time.
    fn room(&mut self) -> usize;

    /// Queues the frame of `len` bytes in a buffer of this link. The device reads the bytes until [`Link::sent`] has reached the number
    /// of this frame, the first one being 1; changes before that are sent, or not. The buffer stays the caller's, who may queue it again
    /// meanwhile. Returns false when there is no room, the frame is longer than the interface takes, or the offload is not offered.
    fn send(&mut self, buffer: &mut Buffer, len: usize, offload: Option<&Offload>) -> bool;

    /// Hands over all queued frames, and wakes the device if it has asked for that.
    fn flush(&mut self);

    /// Returns how many of the queued frames the device no longer reads, since the link was opened: all up to this number.
    fn sent(&mut self) -> u64;

    /// Returns the next received frame, which stays in its place until [`Link::release`] or [`Link::exchange`].
    fn peek(&mut self) -> Option<Received<'_>>;

    /// Gives the buffer of the frame that [`Link::peek`] returned back to the device, at once or with later ones.
    fn release(&mut self);

    /// Takes the frame that [`Link::peek`] returned out of its place with its buffer, which comes in place of `spare`. Returns the
    /// place of the frame's first byte in the buffer and the number of its bytes.
    fn exchange(&mut self, spare: &mut Buffer) -> (usize, usize);

    /// Asks the device to wake this side when a frame is received, and with `room` also when a frame can be queued. Returns true when
    /// there is one already: then the caller must not sleep. To sleep, wait until [`Link::descriptor`] is readable; end with
    /// [`Link::awake`].
    fn want(&mut self, room: bool) -> bool;

    /// Returns the descriptor that becomes readable when the device wakes this side or the link ends.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// Withdraws what [`Link::want`] has asked for.
    fn awake(&mut self);

    /// Sleeps until a frame is received, with `room` also until one can be queued, or until `timeout` has passed.
    ///
    /// # Errors
    /// The link has ended: the message says why.
    fn wait(&mut self, room: bool, timeout: Duration) -> io::Result<()>;

    /// Checks that the link has not ended. May make a system call.
    ///
    /// # Errors
    /// The link has ended: the message says why.
    fn check(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Returns what the link has counted.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// What an interface is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// For messages to users.
    pub name: String,
    /// Its address.
    pub mac: [u8; 6],
    /// Most bytes of a frame that needs no segmentation: 14 more than the MTU.
    pub longest: usize,
    /// Most bytes of a frame to be segmented ([`Offload::gso`] for TCP over IPv4); 0 if the interface segments none.
    pub segmented: usize,
    /// The device computes checksums of frames to send ([`Offload::needs_csum`]).
    pub checksums: bool,
    /// Bytes of a buffer before the frame.
    pub front: usize,
    /// Bytes of a buffer.
    pub buffer: usize,
    /// Places for frames to send. The link uses them in turn. A program that sends as many buffers in turn sends each from the same
    /// place every time, and the link's ring stays as it is. 0: it makes no difference.
    pub places: usize,
    /// Frames that the device holds until this side looks at them, also while it has not given earlier ones back. More may be dropped.
    /// 0: not known.
    pub holds: usize,
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The frame.
    pub bytes: &'a [u8],
    /// What is still to be done with it: a checksum that is not there yet, or frames that were joined or never cut.
    pub offload: Option<Offload>,
}

/// What a link has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times that this side woke the device: system calls or register accesses.
    pub kicks: u64,
    /// Times that the device woke this side.
    pub calls: u64,
    /// Other register accesses.
    pub accesses: u64,
    /// Received frames that were dropped because they are longer than a buffer or not whole.
    pub dropped: u64,
    /// Frames that were received while there was no place for them.
    pub lost: u64,
    /// Queued frames that the device or the kernel refused.
    pub unsent: u64,
}
