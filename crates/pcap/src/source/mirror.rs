//! A tap on another port: the daemon's capture of it, as `ringway capture` reads it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ringway_api::http::{Body, Failure};

use super::descriptors::Descriptors;
use super::frame::{Frame, Way};
use crate::abi::MAXIMUM_SNAPLEN;
use crate::daemon;
use crate::pcapng::{self, Block};

/// Bytes that are read before frames are looked for.
const PIECE: usize = 256 << 10;

/// A running capture.
#[derive(Debug)]
pub struct Mirror {
    body: Body,
    data: Vec<u8>,
    /// Where the next block begins.
    at: usize,
    /// Bytes of the block that the program has.
    held: usize,
    ended: Option<String>,
    /// Frames that were not read fast enough. Written by this mirror alone.
    pub lost: Arc<AtomicU64>,
}

impl Mirror {
    /// Starts a capture of `port`. `buffer` is the size that the program asks for, in bytes; 0: the daemon's default. Frames come
    /// whole: the program's filter judges them before they are cut.
    pub fn start(port: &str, buffer: usize) -> Result<Mirror, Failure> {
        let buffer = match buffer {
            0 => String::new(),
            bytes => format!("&buffer={}KiB", (bytes >> 10).clamp(256, 1 << 20)),
        };
        let path = format!("/v1/ports/{port}/capture?direction=both&snaplen={MAXIMUM_SNAPLEN}{buffer}");
        Ok(Mirror::of(daemon::get(&path)?))
    }

    /// Reads a capture from an answer's body.
    pub fn of(body: Body) -> Mirror {
        Mirror { body, data: Vec::new(), at: 0, held: 0, ended: None, lost: Arc::default() }
    }

    pub fn next(&mut self) -> Option<Frame> {
        self.release();
        loop {
            let block = self.data.get(self.at..).unwrap_or_default();
            match pcapng::read(block) {
                Ok(Block::Part) => return None,
                Ok(Block::Other(len)) => self.at += len,
                Ok(Block::Frame(frame, len)) => {
                    self.held = len;
                    let lost = self.lost.load(Ordering::Relaxed).saturating_add(frame.lost);
                    self.lost.store(lost, Ordering::Relaxed);
                    let data = block.get(frame.data)?;
                    let way = if frame.way == 2 { Way::Out } else { Way::In };
                    let (present, len) = (data.len(), frame.len as usize);
                    return Some(Frame { data: data.as_ptr(), present, len, time: frame.time, way });
                }
                Err(what) => {
                    self.ended = Some(what.to_owned());
                    self.at = self.data.len();
                    return None;
                }
            }
        }
    }

    pub fn release(&mut self) {
        self.at += self.held;
        self.held = 0;
    }

    pub fn look(&mut self) -> bool {
        self.release();
        self.data.drain(..self.at.min(self.data.len()));
        self.at = 0;
        let before = self.data.len();
        while self.ended.is_none() && self.data.len() < before + PIECE {
            match self.body.read(&mut self.data) {
                Ok(false) => {}
                Ok(true) => self.ended = Some("the capture has ended".to_owned()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.ended = Some("the switch is gone".to_owned()),
            }
        }
        self.data.len() > before
    }

    /// Looks for frames only while no whole block is there: a program that takes single frames and waits for the next by the
    /// descriptor would otherwise have more and more of the capture in its memory. A block that is not whole waits for the socket,
    /// which is readable when the rest has come.
    pub fn arm(&mut self) -> bool {
        self.has_block() || (self.look() && self.has_block())
    }

    /// Returns true if `next` finds a frame, or what it has to skip or to report.
    fn has_block(&self) -> bool {
        !matches!(pcapng::read(self.data.get(self.at..).unwrap_or_default()), Ok(Block::Part))
    }

    pub fn descriptors(&self) -> Descriptors<'_> {
        Descriptors { calls: None, end: self.body.as_fd() }
    }

    pub fn ended(&self) -> Option<String> {
        self.ended.clone()
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
