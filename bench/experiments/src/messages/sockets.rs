//! The kernel's sockets: TCP and UDP between two network namespaces, TCP by the loopback device, Unix sockets.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};

use super::messenger::{Messenger, NAP};
use crate::peers::cable::{Cable, WIRE};
use crate::peers::netns;

/// Bytes that are read at once.
const CHUNK: usize = 256 << 10;
/// Most messages that are sent before the far end takes some.
const BATCH: usize = 128;
/// Bytes of the queues of sockets other than TCP's.
const QUEUE: usize = 4 << 20;
/// Addresses of the two hosts.
const HOSTS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
const PORT: u16 = 7;

/// What joins two hosts, which are network namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// A Linux bridge, to which each has a veth pair.
    Bridge,
    /// A veth pair without segmentation offload.
    Cable,
}

/// Two connected sockets.
pub struct Sockets {
    near: OwnedFd,
    far: OwnedFd,
    /// Messages are parts of a stream, all of one size.
    streams: bool,
    /// An end without anything to do sleeps.
    sleeps: bool,
    /// Most bytes of a stream that are written at once; a message is, if it is longer.
    write: usize,
    /// What the sender writes, and what the receiver has read.
    buffers: [Vec<u8>; 2],
    /// Bytes of an incomplete message at the near end, and at the far end.
    begun: [usize; 2],
    /// Bytes that are left of a message whose beginning is sent.
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
        Sockets::of_tcp(near, listener.accept()?.0, Vec::new())
    }

    /// Connects two Unix sockets that keep the messages' boundaries.
    ///
    /// # Errors
    /// The system refuses.
    pub fn unix() -> io::Result<Sockets> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::NONBLOCK, None)?;
        Sockets::new(near, far, false, Vec::new())
    }

    /// Connects TCP between two hosts.
    ///
    /// # Errors
    /// Not root, or `ip` or `ethtool` (Debian packages iproute2 and ethtool) fails.
    pub fn tcp(route: Route) -> io::Result<Sockets> {
        let namespaces = hosts(route)?;
        let listener = netns::inside(&namespaces[1], || TcpListener::bind((HOSTS[1], PORT)))?;
        let near = netns::inside(&namespaces[0], || TcpStream::connect((HOSTS[1], PORT)))?;
        Sockets::of_tcp(near, listener.accept()?.0, namespaces)
    }

    /// Connects UDP between two hosts.
    ///
    /// # Errors
    /// As [`Sockets::tcp`].
    pub fn udp(route: Route) -> io::Result<Sockets> {
        let namespaces = hosts(route)?;
        let ends = HOSTS.map(|host| host.parse().map(|address| SocketAddr::new(address, PORT)));
        let [Ok(one), Ok(other)] = ends else { return Err(io::ErrorKind::InvalidInput.into()) };
        let bind = |namespace, own: SocketAddr, peer: SocketAddr| {
            netns::inside(namespace, move || {
                let socket = UdpSocket::bind(own)?;
                socket.connect(peer)?;
                socket.set_nonblocking(true)?;
                Ok(OwnedFd::from(socket))
            })
        };
        let (near, far) = (bind(&namespaces[0], one, other)?, bind(&namespaces[1], other, one)?);
        Sockets::new(near, far, false, namespaces)
    }

    /// Writes many messages of a stream at once, up to `bytes`.
    #[must_use]
    pub fn writing(self, bytes: usize) -> Sockets {
        Sockets { write: bytes, ..self }
    }

    /// An end without anything to do sleeps.
    #[must_use]
    pub fn sleeping(self) -> Sockets {
        Sockets { sleeps: true, ..self }
    }

    fn of_tcp(near: TcpStream, far: TcpStream, namespaces: Vec<File>) -> io::Result<Sockets> {
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
        let buffers = [vec![0; CHUNK], vec![0; CHUNK]];
        let (begun, unsent, write, sleeps) = ([0; 2], 0, 0, false);
        Ok(Sockets { near, far, streams, sleeps, write, buffers, begun, unsent, _namespaces: namespaces })
    }

    /// Receives at one end. Returns the bytes, or `None` if there are none.
    fn receive(&mut self, at_far: bool, most: usize) -> io::Result<Option<usize>> {
        let end = if at_far { &self.far } else { &self.near };
        let [_, buffer] = &mut self.buffers;
        match ready(recv(end, &mut buffer[..most], RecvFlags::empty()).map(|(len, _)| len))? {
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            received => Ok(received),
        }
    }

    /// Takes one message of `size` bytes, if it is there as a whole.
    fn take(&mut self, at_far: bool, size: usize) -> io::Result<bool> {
        let most = if self.streams { size - self.begun[usize::from(at_far)] } else { CHUNK };
        let Some(len) = self.receive(at_far, most)? else { return Ok(false) };
        let begun = &mut self.begun[usize::from(at_far)];
        *begun += len;
        let is_whole = *begun >= size;
        if is_whole {
            *begun = 0;
        }
        Ok(is_whole)
    }

    /// Writes messages into a stream, and takes what has arrived.
    fn stream(&mut self, size: usize) -> io::Result<u64> {
        let write = (self.write / size).max(1) * size;
        let [outgoing, _] = &mut self.buffers;
        for _ in 0..(BATCH * size / write).max(1) {
            // Each message is written, but for the rest of one that is sent in part.
            let end = if self.unsent > 0 { self.unsent } else { write };
            if self.unsent == 0 {
                outgoing[..end].chunks_exact_mut(size).for_each(|message| message.fill(0x55));
            }
            let Some(len) = ready(send(&self.near, &outgoing[..end], SendFlags::NOSIGNAL))? else { break };
            self.unsent = (end - len) % size;
        }
        self.take_of_stream(size)
    }

    /// Takes what has arrived of a stream. Returns the messages that are whole with it.
    fn take_of_stream(&mut self, size: usize) -> io::Result<u64> {
        let Some(len) = self.receive(true, CHUNK)? else { return Ok(0) };
        let begun = self.begun[1] + len;
        self.begun[1] = begun % size;
        Ok((begun / size) as u64)
    }

    fn datagrams(&mut self, size: usize) -> io::Result<u64> {
        let [outgoing, _] = &mut self.buffers;
        for _ in 0..BATCH {
            outgoing[..size].fill(0x55);
            if ready(send(&self.near, &outgoing[..size], SendFlags::NOSIGNAL))?.is_none() {
                break;
            }
        }
        let mut messages = 0;
        while messages < 2 * BATCH as u64 && self.take(true, size)? {
            messages += 1;
        }
        Ok(messages)
    }

    /// Sleeps until either end can receive.
    fn sleep(&self) -> io::Result<()> {
        let mut ends = [&self.near, &self.far].map(|end| PollFd::new(end, PollFlags::IN));
        poll(&mut ends, Some(&NAP))?;
        Ok(())
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

/// Makes two hosts, and what joins them. Returns the namespaces of the hosts first.
fn hosts(route: Route) -> io::Result<Vec<File>> {
    let (namespaces, device) = match route {
        Route::Bridge => (bridged()?, "eth0"),
        Route::Cable => {
            let cable = Cable::start()?;
            let hosts = cable.hosts().iter().map(File::try_clone).collect::<io::Result<_>>()?;
            (hosts, WIRE)
        }
    };
    for (host, address) in namespaces.iter().zip(HOSTS) {
        netns::inside(host, || {
            netns::run("ip", &format!("address add {address}/24 dev {device}"))?;
            netns::run("ip", &format!("link set dev {device} up"))
        })?;
    }
    Ok(namespaces)
}

/// Makes two hosts, and a third namespace with a bridge to which they have veth pairs.
fn bridged() -> io::Result<Vec<File>> {
    let empty = || {
        netns::inside_new(|| {
            // A kernel without IPv6 needs nothing.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            netns::current()
        })
    };
    let namespaces = vec![empty()?, empty()?, empty()?];
    let [hosts @ .., bridge] = &namespaces[..] else { return Ok(namespaces) };
    netns::inside(bridge, || {
        netns::run("ip", "link add dev br0 type bridge")?;
        netns::run("ip", "link set dev br0 up")?;
        for (number, host) in hosts.iter().enumerate() {
            netns::run("ip", &format!("link add dev v{number} type veth peer name eth0"))?;
            netns::run("ip", &format!("link set dev eth0 netns {}", netns::path(host).display()))?;
            netns::run("ip", &format!("link set dev v{number} master br0 up"))?;
        }
        Ok(())
    })?;
    Ok(namespaces)
}

impl Messenger for Sockets {
    fn ask(&mut self, message: &[u8], _: Instant) -> io::Result<bool> {
        Ok(ready(send(&self.near, message, SendFlags::NOSIGNAL))?.is_some())
    }

    fn answer(&mut self, message: &[u8], _: Instant) -> io::Result<()> {
        if self.take(true, message.len())? {
            send(&self.far, message, SendFlags::NOSIGNAL)?;
        } else if self.sleeps {
            self.sleep()?;
        }
        Ok(())
    }

    fn is_answered(&mut self, size: usize, _: Instant) -> io::Result<bool> {
        self.take(false, size)
    }

    fn pass(&mut self, size: usize, _: Instant) -> io::Result<u64> {
        let messages = if self.streams { self.stream(size) } else { self.datagrams(size) }?;
        if messages == 0 && self.sleeps {
            self.sleep()?;
        }
        Ok(messages)
    }

    fn sleeps(&self) -> bool {
        self.sleeps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::messenger::is_patient;

    #[test]
    fn messages_of_a_stream_are_counted_whatever_is_written_at_once() {
        const SIZE: usize = 1400;
        for (write, sent) in [(0, BATCH), (4096, BATCH / 2 * 2), (64 << 10, (64 << 10) / SIZE * 2)] {
            let mut sockets = Sockets::loopback().unwrap().writing(write);
            let (began, mut messages) = (Instant::now(), sockets.pass(SIZE, Instant::now()).unwrap());
            while messages < sent as u64 {
                is_patient(began).unwrap();
                messages += sockets.take_of_stream(SIZE).unwrap();
            }
            let rest = sockets.take_of_stream(SIZE).unwrap();
            assert_eq!((messages, rest, sockets.begun), (sent as u64, 0, [0; 2]), "writes of {write} bytes");
        }
    }
}
