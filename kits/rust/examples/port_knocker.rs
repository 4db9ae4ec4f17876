//! A port knocker: a server's port is closed until a client has sent something to a sequence of other ports. Then it is open for this client.
//!
//! `config`: the server's address, the port to open, and the ports to knock at in this order, for example `10.0.0.80 22 7000 8000 9000`. The next knock has ten
//! seconds, and an open port closes after a minute without frames. The message `close` closes all.
#![no_std]

use ringway_program::{ether_type, export, now, refuse, IPV4, IPV6, SECOND, TCP, UDP};
use ringway_program::{Address, Batch, Cache, Counter, DropReason, Flow, Program, Refused, Start, Verdict};

const BETWEEN_KNOCKS: u64 = 10 * SECOND;
const OPEN: u64 = 60 * SECOND;

struct Knocker {
    server: Address,
    door: u16,
    knocks: [u16; 16],
    /// Number of knocks that open the door.
    wanted: usize,
    /// By client: the number of right knocks in sequence.
    begun: Cache<2, usize>,
    open: Cache<2, ()>,
    closed: DropReason,
    opened: Counter,
}

impl Knocker {
    fn verdict(&mut self, flow: &Flow, now: u64) -> Verdict {
        let client = [flow.source.0, flow.source.1];
        if flow.destination != self.server || !matches!(flow.protocol, TCP | UDP) {
            return Verdict::BUILT_IN;
        }
        if flow.destination_port == self.door && flow.protocol == TCP {
            return self.open.get(&client, now).map_or(Verdict::drop(self.closed), |_| Verdict::BUILT_IN);
        }
        let knocks = &self.knocks[..self.wanted];
        let done = self.begun.get(&client, now).map_or(0, |done| *done);
        if knocks.get(done) == Some(&flow.destination_port) {
            if done + 1 == self.wanted {
                self.begun.remove(&client);
                self.open.insert(client, (), now);
                self.opened.add(1);
            } else {
                self.begun.insert(client, done + 1, now);
            }
        } else if knocks.contains(&flow.destination_port) && knocks[..done].last() != Some(&flow.destination_port) {
            // Out of sequence: from the beginning. A knock that is sent again, as TCP does, counts once.
            self.begun.remove(&client);
        }
        Verdict::BUILT_IN
    }
}

impl Program for Knocker {
    type Head = [u8; 96];

    fn start(start: &mut Start) -> Result<Self, Refused> {
        let mut words = start.config()?.split_ascii_whitespace();
        let form = "config: write the server's address, its port and 1 to 16 knocks: \"10.0.0.80 22 7000 8000 9000\"";
        let server = words.next().and_then(|word| word.parse().ok()).ok_or(form)?;
        let door = words.next().and_then(|word| word.parse().ok()).ok_or(form)?;
        let (mut knocks, mut wanted) = ([0; 16], 0);
        for word in words {
            let knock = word.parse().map_err(|_| refuse!("config: \"{}\" is no port, 0 to 65535", word))?;
            *knocks.get_mut(wanted).ok_or(form)? = knock;
            wanted += 1;
        }
        if wanted == 0 || knocks[..wanted].contains(&door) {
            return Err(form.into());
        }
        let begun = Cache::new(4096, BETWEEN_KNOCKS).ok_or("no memory for clients")?;
        let open = Cache::new(4096, OPEN).ok_or("no memory for clients")?;
        let (closed, opened) = (start.drop_reason("closed"), start.counter("opened"));
        Ok(Knocker { server, door, knocks, wanted, begun, open, closed, opened })
    }

    fn frames(&mut self, batch: Batch<'_, Self::Head>) {
        let now = now();
        for frame in batch {
            let verdict = match (Flow::read(frame.bytes()), ether_type(frame.bytes())) {
                (Some(flow), _) => self.verdict(&flow, now),
                // Nobody gets in by headers that the program cannot read.
                (None, Some((IPV4 | IPV6, _))) => Verdict::drop(self.closed),
                (None, _) => Verdict::BUILT_IN,
            };
            frame.set(verdict);
        }
    }

    fn tell(&mut self, message: &str) -> Result<(), Refused> {
        if message != "close" {
            return Err(refuse!("\"{}\" is no message of this program: it knows \"close\"", message));
        }
        self.open.clear();
        Ok(())
    }
}

export!(Knocker);
