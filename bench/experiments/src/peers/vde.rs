//! VDE: `vde_switch` (Debian package vde2) on the switch's core, and a port that speaks its socket protocol.
//!
//! A client connects a stream socket to `DIR/ctl`, binds a datagram socket of its own and sends one request: magic number and
//! version 3 as 32-bit words, the request type as an `int`, the address of its datagram socket as a `sockaddr_un`, and a
//! description of up to 128 bytes. The switch answers with its `sockaddr_un` for frames. From then on one
//! datagram is one frame, in either direction; the port lives as long as the stream.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringway_traffic::Endpoint;

use crate::child::Program;
use crate::network::{Network, wait_for_fd};
use crate::patience::PATIENCE;
use crate::peers::program::find_program;
use crate::placement::Cores;
use crate::scratch::Scratch;

const MAGIC: u32 = 0xfeed_face;
const VERSION: u32 = 3;
/// Request type: a new port, any number.
const NEW_PORT: u32 = 0;
/// Bytes of a `sockaddr_un`: the family and 108 bytes of path.
const ADDRESS_LEN: usize = 110;
const DESCRIPTION_LEN: usize = 128;
/// Longest frame `vde_switch` handles, with room to see that one is longer.
const BUFFER_LEN: usize = 9216 + 18;
/// Frames a port keeps while the switch does not take them.
const STAGED: usize = 64;

/// A running `vde_switch`.
pub struct Vde {
    // Ended before its folder is removed.
    switch: Program,
    scratch: Scratch,
    attached: usize,
}

impl Vde {
    /// Starts a switch with `ports` ports, held still.
    ///
    /// # Errors
    /// It is not installed or does not start.
    pub fn start(cores: Cores, ports: usize) -> io::Result<Vde> {
        let program = find_program("vde_switch").ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "vde_switch is not installed (Debian: apt-get install vde2)")
        })?;
        let scratch = Scratch::new("vde")?;
        let mut command = Command::new(program);
        command.arg("-s").arg(scratch.path("switch")).args(["-n", &ports.to_string()]);
        // The console is on standard input; its end would be the switch's end.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut switch = Program::start_on(&[cores.switch], &mut command)?;
        let start = Instant::now();
        while UnixStream::connect(scratch.path("switch").join("ctl")).is_err() {
            if start.elapsed() > PATIENCE || switch.child().try_wait()?.is_some() {
                return Err(io::Error::other("vde_switch does not open its control socket"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Vde { switch, scratch, attached: 0 })
    }
}

impl Network for Vde {
    type Port = VdePort;

    fn attach(&mut self, count: usize) -> io::Result<Vec<VdePort>> {
        self.switch.resume()?;
        let attach = |number| VdePort::open(&self.scratch.path("switch"), &self.scratch.path(&format!("port{number}")));
        let ports = (self.attached..self.attached + count).map(attach).collect();
        self.attached += count;
        ports
    }

    fn hold(&mut self) -> io::Result<()> {
        self.switch.hold()
    }

    fn resume(&mut self) -> io::Result<()> {
        self.switch.resume()
    }
}

/// One port of a VDE switch.
pub struct VdePort {
    /// The port is closed with it.
    _control: UnixStream,
    data: UnixDatagram,
    buffer: Box<[u8]>,
    staged: Vec<Vec<u8>>,
    /// How many of `staged` hold frames, and how many of these are sent.
    filled: usize,
    sent: usize,
}

impl VdePort {
    /// Opens a port of the switch in folder `switch`; `own` names the datagram socket to make.
    ///
    /// # Errors
    /// There is no switch, or it does not answer as described above.
    pub fn open(switch: &Path, own: &Path) -> io::Result<VdePort> {
        let mut control = UnixStream::connect(switch.join("ctl"))?;
        control.set_read_timeout(Some(PATIENCE))?;
        let data = UnixDatagram::bind(own)?;
        control.write_all(&request(own, "ringway bench"))?;
        let mut reply = [0; ADDRESS_LEN];
        control.read_exact(&mut reply)?;
        data.connect(address_path(&reply)?)?;
        data.set_nonblocking(true)?;
        let staged = vec![Vec::new(); STAGED];
        Ok(VdePort { _control: control, data, buffer: vec![0; BUFFER_LEN].into(), staged, filled: 0, sent: 0 })
    }

    fn send_staged(&mut self) {
        while self.sent < self.filled && self.data.send(&self.staged[self.sent]).is_ok() {
            self.sent += 1;
        }
        if self.sent == self.filled {
            (self.sent, self.filled) = (0, 0);
        }
    }
}

fn request(own: &Path, description: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(12 + ADDRESS_LEN + DESCRIPTION_LEN);
    for word in [MAGIC, VERSION, NEW_PORT] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(rustix::net::AddressFamily::UNIX.as_raw().to_ne_bytes());
    bytes.extend(own.as_os_str().as_bytes());
    bytes.resize(12 + ADDRESS_LEN, 0);
    bytes.extend(description.as_bytes());
    bytes.resize(12 + ADDRESS_LEN + DESCRIPTION_LEN, 0);
    bytes
}

fn address_path(address: &[u8; ADDRESS_LEN]) -> io::Result<PathBuf> {
    let path = address[2..].split(|&byte| byte == 0).next().unwrap_or_default();
    if path.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "vde_switch answered with an address without a path"));
    }
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
}

impl Endpoint for VdePort {
    fn tx_room(&mut self) -> usize {
        if self.filled == STAGED {
            self.send_staged();
        }
        STAGED - self.filled
    }

    fn tx_push(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> bool {
        if self.tx_room() == 0 {
            return false;
        }
        let frame = &mut self.staged[self.filled];
        frame.resize(len, 0);
        fill(frame);
        self.filled += 1;
        true
    }

    fn tx_flush(&mut self) {
        self.send_staged();
    }

    fn rx_batch(&mut self, max: usize, mut take: impl FnMut(&[u8])) -> usize {
        for taken in 0..max {
            match self.data.recv(&mut self.buffer) {
                Ok(len) => take(&self.buffer[..len]),
                Err(_) => return taken,
            }
        }
        max
    }

    fn wait(&mut self, for_rx: bool, timeout: Duration) -> io::Result<()> {
        self.send_staged();
        wait_for_fd(self.data.as_fd(), for_rx, timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_layout_the_switch_expects() {
        let bytes = request(Path::new("/tmp/x"), "me");
        assert_eq!(bytes.len(), 250);
        assert_eq!(bytes[..8], [0xce, 0xfa, 0xed, 0xfe, 3, 0, 0, 0]);
        assert_eq!(bytes[12..22], *b"\x01\x00/tmp/x\0\0");
        assert_eq!(bytes[122..125], *b"me\0");
    }

    #[test]
    fn an_answer_without_a_path_is_refused() {
        assert!(address_path(&[0; ADDRESS_LEN]).is_err());
        let mut answer = [0; ADDRESS_LEN];
        answer[2..6].copy_from_slice(b"/a/b");
        assert_eq!(address_path(&answer).unwrap(), Path::new("/a/b"));
    }
}
