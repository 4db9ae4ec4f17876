//! The kernel's sockets: TCP and UDP between two network namespaces on a Linux bridge, TCP by the loopback device, Unix sockets.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};

use super::messenger::Messenger;
use crate::peers::netns;

/// Bytes of a stream that are written or read at once.
const CHUNK: usize = 256 << 10;
/// Most datagrams that are sent before the far end takes some.
const BATCH: usize = 64;
/// Bytes of the sockets' queues.
const QUEUE: usize = 4 << 20;

/// Two connected sockets.
pub struct Sockets {
    near: OwnedFd,
    far: OwnedFd,
    /// Messages are parts of a stream, all of one size.
    streams: bool,
    buffer: Vec<u8>,
    /// Bytes of an incomplete message at the near end, and at the far end.
    begun: [usize; 2],
    /// Bytes of a message that is not wholly sent.
    unsent: usize,
    /// The namespaces that frames pass.
    _namespaces: Vec<File>,
}

impl Sockets {
    /// Connects TCP by the loopback device.
    ///
    /// # Errors
    /// The system refuses.
    pub fn loopback() -> io::Result<Sockets> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        Sockets::tcp(near, listener.accept()?.0, Vec::new())
    }

    /// Connects two Unix sockets that keep the messages' boundaries.
    ///
    /// # Errors
    /// The system refuses.
    pub fn unix() -> io::Result<Sockets> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None)?;
        Sockets::new(near, far, false, Vec::new())
    }

    /// Connects TCP through a Linux bridge.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn bridged_tcp() -> io::Result<Sockets> {
        let namespaces = bridge()?;
        let listener = netns::inside(&namespaces[2], || TcpListener::bind("10.77.0.2:7"))?;
        let near = netns::inside(&namespaces[1], || TcpStream::connect("10.77.0.2:7"))?;
        Sockets::tcp(near, listener.accept()?.0, namespaces)
    }

    /// Connects UDP through a Linux bridge.
    ///
    /// # Errors
    /// Not root, or `ip` (Debian package iproute2) fails.
    pub fn bridged_udp() -> io::Result<Sockets> {
        let namespaces = bridge()?;
        let ends = ["10.77.0.1:7", "10.77.0.2:7"].map(|end| end.parse::<SocketAddr>());
        let [Ok(one), Ok(other)] = ends else { return Err(io::ErrorKind::InvalidInput.into()) };
        let bind = |namespace, own: SocketAddr, peer: SocketAddr| {
            netns::inside(namespace, move || {
                let socket = UdpSocket::bind(own)?;
                socket.connect(peer)?;
                socket.set_nonblocking(true)?;
                Ok(OwnedFd::from(socket))
            })
        };
        let (near, far) = (bind(&namespaces[1], one, other)?, bind(&namespaces[2], other, one)?);
        Sockets::new(near, far, false, namespaces)
    }

    fn tcp(near: TcpStream, far: TcpStream, namespaces: Vec<File>) -> io::Result<Sockets> {
        for end in [&near, &far] {
            end.set_nodelay(true)?;
            end.set_nonblocking(true)?;
        }
        Sockets::new(near.into(), far.into(), true, namespaces)
    }

    fn new(near: OwnedFd, far: OwnedFd, streams: bool, namespaces: Vec<File>) -> io::Result<Sockets> {
        // TCP sizes its queues itself.
        for end in [&near, &far].into_iter().filter(|_| !streams) {
            sockopt::set_socket_send_buffer_size(end, QUEUE)?;
            sockopt::set_socket_recv_buffer_size(end, QUEUE)?;
        }
        let buffer = vec![0; CHUNK];
        Ok(Sockets { near, far, streams, buffer, begun: [0; 2], unsent: 0, _namespaces: namespaces })
    }

    /// Takes one message of `size` bytes, if it is there as a whole.
    fn take(&mut self, at_far: bool, size: usize) -> io::Result<bool> {
        let end = if at_far { &self.far } else { &self.near };
        let begun = &mut self.begun[usize::from(at_far)];
        let most = if self.streams { size - *begun } else { CHUNK };
        let Some(len) = ready(recv(end, &mut self.buffer[..most], RecvFlags::empty()).map(|(len, _)| len))? else {
            return Ok(false);
        };
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *begun += len;
        let is_whole = *begun >= size;
        if is_whole {
            *begun = 0;
        }
        Ok(is_whole)
    }
}

/// Returns `None` if a socket had nothing, or no room.
fn ready(done: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match done {
        Ok(len) => Ok(Some(len)),
        Err(Errno::AGAIN | Errno::NOBUFS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes a namespace with a bridge, and two whose veth devices are the bridge's ports.
fn bridge() -> io::Result<Vec<File>> {
    let empty = || {
        netns::inside_new(|| {
            // A kernel without IPv6 needs nothing.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            netns::current()
        })
    };
    let namespaces = vec![empty()?, empty()?, empty()?];
    netns::inside(&namespaces[0], || {
        netns::run("ip", "link add dev br0 type bridge")?;
        netns::run("ip", "link set dev br0 up")?;
        for (number, host) in namespaces[1..].iter().enumerate() {
            netns::run("ip", &format!("link add dev v{number} type veth peer name eth0"))?;
            netns::run("ip", &format!("link set dev eth0 netns {}", netns::path(host).display()))?;
            netns::run("ip", &format!("link set dev v{number} master br0 up"))?;
        }
        Ok(())
    })?;
    for (number, host) in namespaces[1..].iter().enumerate() {
        netns::inside(host, || {
            netns::run("ip", &format!("address add 10.77.0.{}/24 dev eth0", number + 1))?;
            netns::run("ip", "link set dev eth0 up")
        })?;
    }
    Ok(namespaces)
}

impl Messenger for Sockets {
    fn ask(&mut self, message: &[u8]) -> io::Result<bool> {
        Ok(ready(send(&self.near, message, SendFlags::NOSIGNAL))?.is_some())
    }

    fn answer(&mut self, message: &[u8]) -> io::Result<()> {
        if self.take(true, message.len())? {
            send(&self.far, message, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    fn is_answered(&mut self, size: usize) -> io::Result<bool> {
        self.take(false, size)
    }

    fn pass(&mut self, size: usize) -> io::Result<u64> {
        if self.streams {
            // Each message is written; the stream takes many at once.
            let whole = CHUNK / size * size;
            for message in self.buffer[..whole].chunks_exact_mut(size) {
                message.fill(0x55);
            }
            let from = self.unsent;
            if let Some(len) = ready(send(&self.near, &self.buffer[from..whole], SendFlags::NOSIGNAL))? {
                self.unsent = (from + len) % size;
            }
            let Some(len) = ready(recv(&self.far, &mut self.buffer[..], RecvFlags::empty()).map(|(len, _)| len))?
            else {
                return Ok(0);
            };
            let begun = self.begun[1] + len;
            self.begun[1] = begun % size;
            return Ok((begun / size) as u64);
        }
        for _ in 0..BATCH {
            self.buffer[..size].fill(0x55);
            if ready(send(&self.near, &self.buffer[..size], SendFlags::NOSIGNAL))?.is_none() {
                break;
            }
        }
        let mut messages = 0;
        while messages < BATCH as u64 && self.take(true, size)? {
            messages += 1;
        }
        Ok(messages)
    }
}
