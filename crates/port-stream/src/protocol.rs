//! What a port's own thread does with one connection: it waits for the connection's end, and sends the rest of a frame that
//! the socket took in part. A peer that sends an impossible length loses its connection.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use ringway_port::front_end::{Connection, End, Kept, Peer, Protocol};
use ringway_switch::giving;
use rustix::event::{PollFd, PollFlags};

use super::connection::SharedConnection;

/// Serves the data path's connection to peers.
pub struct StreamProtocol {
    pub connection: Arc<SharedConnection>,
}

impl Protocol for StreamProtocol {
    const OUTLIVES: bool = true;

    fn open(&mut self, socket: &Arc<Connection>, kept: Option<&Kept>) -> io::Result<()> {
        self.connection.open(socket, kept.map(Kept::number))
    }

    fn serve(&mut self, peer: &Peer<'_>) -> Result<Infallible, End> {
        let mut has_rest = false;
        loop {
            let wake_fd = PollFd::from_borrowed_fd(self.connection.wake_fd(), PollFlags::IN);
            // Only while there is something to send. The input detects that the peer has disconnected, after the peer's
            // last frames.
            let room = has_rest.then(|| PollFd::new(&**peer.socket, PollFlags::OUT));
            let [told, _] = peer.wait([Some(wake_fd), room], None)?;
            if told {
                self.connection.clear_wake();
                if let Some(ended) = self.connection.ended() {
                    return Err(ended.into());
                }
            }
            if told || has_rest {
                // Other ports' clients chose the frames, so a panic here is not blamed on this port's client.
                has_rest = giving(|| self.connection.send_on())?;
            }
        }
    }

    fn close(&mut self, socket: Arc<Connection>) -> bool {
        self.connection.close(&socket);
        false
    }
}
