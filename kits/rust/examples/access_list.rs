//! An access list: rules by address, protocol and port. The first rule that a packet fits decides; answers to what was allowed pass.
//!
//! `config` has rules, one in a line or with `;` between them: `allow|deny [PROTOCOL] [from PREFIX] [to PREFIX] [port PORT]`,
//! for example `allow tcp from 10.0.0.0/8 to 10.0.0.80 port 443`. What no rule allows is dropped. ARP passes.
#![no_std]

use ringway_program::{bytes, ether_type, export, instances, map, now, refuse, ARP, SECOND};
use ringway_program::{Batch, Cache, DropReason, Flow, Prefix, Program, Refused, Rules, Start, Verdict};

const FORM: &str = "allow|deny [PROTOCOL] [from PREFIX] [to PREFIX] [port PORT]";
/// A connection is forgotten so long after its last packet.
const IDLE: u64 = 60 * SECOND;
/// Most combinations of prefix lengths, with or without protocol and port: each costs a look at the first packet of a connection.
const SHAPES: usize = 32;

struct AccessList {
    rules: Rules<bool>,
    /// When the map was told of a connection.
    connections: Cache<5, u64>,
    denied: DropReason,
    unreadable: DropReason,
}

/// Reads a rule: whether it allows, what it looks for, and in which bits.
fn read(rule: &str) -> Option<(bool, [u64; 5], [u64; 5])> {
    let (mut from, mut to, mut protocol, mut port) = (Prefix::ANY, Prefix::ANY, (0, 0), (0, 0));
    let mut words = rule.split_ascii_whitespace();
    let action = words.next().filter(|word| matches!(*word, "allow" | "deny"))?;
    while let Some(word) = words.next() {
        match word {
            "from" => from = words.next()?.parse().ok()?,
            "to" => to = words.next()?.parse().ok()?,
            "port" => port = (words.next()?.parse().ok()?, u16::MAX),
            name => protocol = (ringway_program::protocol(name)?, u8::MAX),
        }
    }
    let wanted = Flow::key_of(from.address, to.address, protocol.0, 0, port.0);
    Some((action == "allow", wanted, Flow::key_of(from.mask, to.mask, protocol.1, 0, port.1)))
}

impl AccessList {
    fn judge(&mut self, frame: &[u8], now: u64, several: bool) -> Verdict {
        let flow = match Flow::read(frame) {
            Some(flow) => flow,
            None if matches!(ether_type(frame), Some((ARP, _))) => return Verdict::BUILT_IN,
            None => return Verdict::drop(self.unreadable),
        };
        let connection = flow.connection();
        let told = self.connections.get(&connection, now).copied();
        // Another instance may have seen the first packet.
        let by_map = || map::get(bytes(&connection), &mut [0; 8]).map_or(false, |end| *end > now.to_be_bytes()[..]);
        if told.is_none() && self.rules.first(&flow.key()) != Some(true) && !(several && by_map()) {
            return Verdict::drop(self.denied);
        }
        if told.map_or(true, |told| several && now - told > IDLE / 4) {
            let forgotten = self.connections.insert(connection, now, now);
            if several {
                forgotten.map(|(key, _)| map::remove(bytes(&key)));
                let _ = map::set(bytes(&connection), &(now + IDLE).to_be_bytes());
            }
        }
        Verdict::BUILT_IN
    }
}

impl Program for AccessList {
    type Head = [u8; 96];

    fn start(start: &mut Start) -> Result<Self, Refused> {
        let lines = start.config()?.split(['\n', ';']).map(str::trim);
        let mut rules = Rules::new(lines.clone().count(), SHAPES).ok_or("no memory for so many rules")?;
        for (number, rule) in (1..).zip(lines).filter(|(_, rule)| !rule.is_empty()) {
            let read = read(rule).ok_or_else(|| refuse!("rule {} has not the form {}: {}", number, FORM, rule))?;
            if !rules.add(&read.1, &read.2, read.0) {
                return Err(refuse!("rule {}: more than {} combinations of prefix lengths", number, SHAPES));
            }
        }
        let connections = Cache::new(65_536 / instances() as usize, IDLE).ok_or("no memory for connections")?;
        let (denied, unreadable) = (start.drop_reason("denied"), start.drop_reason("unreadable"));
        Ok(AccessList { rules, connections, denied, unreadable })
    }

    fn frames(&mut self, batch: Batch<'_, Self::Head>) {
        let (now, several) = (now(), instances() > 1);
        batch.judge_runs(
            |one, other| Flow::is_same(one.bytes(), other.bytes()),
            |frame| self.judge(frame.bytes(), now, several),
        );
    }
}

export!(AccessList);
