//! Frames of a pcapng stream by a filter.
//!
//! The stream is that of ringway-capture: little-endian, one section, one interface. Blocks that are neither an interface nor a
//! frame pass unchanged.

use std::io::{self, Write};

/// Interface Description Block, Enhanced Packet Block.
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

/// Bytes of a block before its body: type and length. The length stands at the block's end once more.
const HEAD: usize = 8;
/// Bytes of an Interface Description Block's body before its options.
const INTERFACE_FIXED: usize = 8;
/// Bytes of an Enhanced Packet Block's body before its data: interface, time, captured length, length.
const PACKET_FIXED: usize = 20;

const OPT_END: u16 = 0;
const EPB_DROPCOUNT: u16 = 4;
const IF_FILTER: u16 = 11;

/// Longest block, in bytes: the longest frame with its options and room to spare.
const BLOCK_MAX: usize = 1 << 20;

/// A stream whose frames pass if a filter accepts them.
#[derive(Debug)]
pub struct Select<W, F> {
    to: W,
    accepts: F,
    expression: String,
    snaplen: u32,
    /// The beginning of a block whose rest has not come yet.
    part: Vec<u8>,
    /// Frames that were lost before frames that the filter refused.
    lost: u64,
    out: Vec<u8>,
}

impl<W: Write, F: Fn(&[u8], u32) -> bool> Select<W, F> {
    /// Writes to `to` the frames that `accepts` (by a frame's bytes and its length), cut to `snaplen` bytes.
    pub fn new(to: W, accepts: F, expression: &str, snaplen: u32) -> Self {
        Self { to, accepts, expression: expression.to_owned(), snaplen, part: Vec::new(), lost: 0, out: Vec::new() }
    }

    /// Takes whole blocks off the front of the bytes. Returns the number of bytes taken.
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut at = 0;
        while let Some(len) = bytes.get(at + 4..at + HEAD).map(|len| word(len) as usize) {
            if !(HEAD + 4..=BLOCK_MAX).contains(&len) || !len.is_multiple_of(4) {
                return Err(broken(&format!("a block of {len} bytes")));
            }
            let Some(block) = bytes.get(at..at + len) else { break };
            self.block(block)?;
            at += len;
        }
        Ok(at)
    }

    fn block(&mut self, block: &[u8]) -> io::Result<()> {
        let body = &block[HEAD..block.len() - 4];
        match word(block) {
            INTERFACE => {
                let (fixed, options) =
                    body.split_at_checked(INTERFACE_FIXED).ok_or_else(|| broken("a short interface"))?;
                let snaplen = word(&fixed[4..]).min(self.snaplen);
                let mut new = [&fixed[..4], &snaplen.to_le_bytes()].concat();
                each_option(options, |code, value| option(&mut new, code, value))?;
                // Text in the language of pcap-filter(7) is kind 0.
                option(&mut new, IF_FILTER, &[&[0], self.expression.as_bytes()].concat());
                option(&mut new, OPT_END, &[]);
                self.put(INTERFACE, &new);
            }
            PACKET => self.packet(block, body)?,
            _ => self.out.extend_from_slice(block),
        }
        Ok(())
    }

    fn packet(&mut self, block: &[u8], body: &[u8]) -> io::Result<()> {
        let (fixed, rest) = body.split_at_checked(PACKET_FIXED).ok_or_else(|| broken("a short frame"))?;
        let (captured, len) = (word(&fixed[12..]) as usize, word(&fixed[16..]));
        let padded = captured.checked_next_multiple_of(4).filter(|padded| *padded <= rest.len());
        let (data, options) = rest.split_at(padded.ok_or_else(|| broken("a frame beyond its block"))?);
        let data = &data[..captured];
        let is_accepted = (self.accepts)(data, len);
        let is_whole = captured <= self.snaplen as usize;
        if is_accepted && is_whole && self.lost == 0 {
            self.out.extend_from_slice(block);
            return Ok(());
        }
        let mut rest = Vec::new();
        each_option(options, |code, value| match (code, value.try_into()) {
            (EPB_DROPCOUNT, Ok(count)) => self.lost = self.lost.saturating_add(u64::from_le_bytes(count)),
            _ => option(&mut rest, code, value),
        })?;
        if is_accepted {
            let kept = &data[..captured.min(self.snaplen as usize)];
            let mut new = [&fixed[..12], &(kept.len() as u32).to_le_bytes(), &fixed[16..], kept].concat();
            new.resize(new.len().next_multiple_of(4), 0);
            new.extend(rest);
            if self.lost > 0 {
                option(&mut new, EPB_DROPCOUNT, &self.lost.to_le_bytes());
                self.lost = 0;
            }
            option(&mut new, OPT_END, &[]);
            self.put(PACKET, &new);
        }
        Ok(())
    }

    fn put(&mut self, kind: u32, body: &[u8]) {
        let len = ((HEAD + body.len() + 4) as u32).to_le_bytes();
        self.out.extend([&kind.to_le_bytes(), &len[..], body, &len].concat());
    }
}

impl<W: Write, F: Fn(&[u8], u32) -> bool> Write for Select<W, F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut part = std::mem::take(&mut self.part);
        if part.is_empty() {
            let taken = self.take(bytes)?;
            part.extend_from_slice(&bytes[taken..]);
        } else {
            part.extend_from_slice(bytes);
            let taken = self.take(&part)?;
            part.drain(..taken);
        }
        self.part = part;
        let result = self.to.write_all(&self.out);
        self.out.clear();
        result.map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Returns the first 32-bit word. The caller has checked that it is there.
fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the capture is not pcapng: {what}"))
}

/// Calls `with` for each option, without the end of the options.
fn each_option(mut options: &[u8], mut with: impl FnMut(u16, &[u8])) -> io::Result<()> {
    while let Some((head, rest)) = options.split_at_checked(4) {
        let (code, len) = (u16::from_le_bytes([head[0], head[1]]), usize::from(u16::from_le_bytes([head[2], head[3]])));
        if code == OPT_END {
            return Ok(());
        }
        let (value, rest) =
            rest.split_at_checked(len.next_multiple_of(4)).ok_or_else(|| broken("an option beyond its block"))?;
        with(code, &value[..len]);
        options = rest;
    }
    Ok(())
}

/// Adds an option, its value cut to what an option can hold.
fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    to.extend(code.to_le_bytes());
    to.extend((value.len() as u16).to_le_bytes());
    to.extend(value);
    to.resize(to.len().next_multiple_of(4), 0);
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
