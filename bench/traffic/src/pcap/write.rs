//! Writing pcap and pcapng.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use super::format::{
    BLOCK_INTERFACE, BLOCK_PACKET, BLOCK_SECTION, BYTE_ORDER, ETHERNET, MAX_SNAP, OPTION_END, OPTION_TSRESOL,
    PCAP_NANOS,
};

/// A file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// pcap with times in nanoseconds.
    Pcap,
    /// pcapng with times in nanoseconds.
    #[default]
    Pcapng,
}

impl Format {
    /// Selects by the end of the file's name: `.pcap` or `.cap` for pcap, pcapng for all others.
    #[must_use]
    pub fn of(path: &Path) -> Format {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("pcap" | "cap") => Format::Pcap,
            _ => Format::Pcapng,
        }
    }
}

/// Writes Ethernet frames to a capture file, in little-endian byte order.
pub struct Recorder {
    output: BufWriter<Box<dyn Write + Send>>,
    name: String,
    format: Format,
    snap: usize,
}

impl Recorder {
    /// Creates the file, in the format that its name selects. Stores at most `snap` bytes of each frame (at most
    /// 262,144).
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: &Path, snap: usize) -> io::Result<Recorder> {
        let name = path.display().to_string();
        let file = File::create(path).map_err(|error| named(&name, &error))?;
        Recorder::new(Box::new(file), &name, Format::of(path), snap)
    }

    /// Writes to `output`. `name` is its name in errors.
    ///
    /// # Errors
    /// The header cannot be written.
    pub fn new(output: Box<dyn Write + Send>, name: &str, format: Format, snap: usize) -> io::Result<Recorder> {
        let snap = snap.min(MAX_SNAP);
        let output = BufWriter::with_capacity(1 << 18, output);
        let mut recorder = Recorder { output, name: name.to_owned(), format, snap };
        let header = match format {
            Format::Pcap => pcap_header(snap as u32),
            Format::Pcapng => pcapng_header(snap as u32),
        };
        recorder.put(&header)?;
        Ok(recorder)
    }

    /// Adds one frame that was received at `time` since 1970.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, time: Duration, frame: &[u8]) -> io::Result<()> {
        let kept = &frame[..frame.len().min(self.snap)];
        match self.format {
            Format::Pcap => {
                let header = [time.as_secs() as u32, time.subsec_nanos(), kept.len() as u32, frame.len() as u32];
                self.put(&words(&header))?;
                self.put(kept)
            }
            Format::Pcapng => {
                let padding = kept.len().next_multiple_of(4) - kept.len();
                let block_len = (28 + kept.len() + padding + 4) as u32;
                let nanos = time.as_nanos() as u64;
                let (high, low) = ((nanos >> 32) as u32, nanos as u32);
                self.put(&words(&[BLOCK_PACKET, block_len, 0, high, low, kept.len() as u32, frame.len() as u32]))?;
                self.put(kept)?;
                self.put(&[0; 3][..padding])?;
                self.put(&words(&[block_len]))
            }
        }
    }

    /// Flushes all buffered data to the operating system.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush().map_err(|error| named(&self.name, &error))
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.write_all(bytes).map_err(|error| named(&self.name, &error))
    }
}

fn named(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

fn words<const N: usize>(words: &[u32; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pcap_header(snap: u32) -> Vec<u8> {
    let version = 2 | 4 << 16;
    words(&[PCAP_NANOS, version, 0, 0, snap, u32::from(ETHERNET)])
}

fn pcapng_header(snap: u32) -> Vec<u8> {
    let unknown_section_length = u32::MAX;
    let version = 1;
    let section = [BLOCK_SECTION, 28, BYTE_ORDER, version, unknown_section_length, unknown_section_length, 28];
    let nanoseconds = u32::from(OPTION_TSRESOL) | 1 << 16;
    let interface = [BLOCK_INTERFACE, 32, u32::from(ETHERNET), snap, nanoseconds, 9, u32::from(OPTION_END), 32];
    [words(&section), words(&interface)].concat()
}
