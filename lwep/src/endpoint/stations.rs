//! What each station has of an endpoint. A station is an address: what one takes must not lack for the next one.

use std::collections::{BTreeSet, HashMap};

use super::share;
use crate::connection::Nanos;
use crate::wire::Mac;

/// Long messages that are not complete have at most so many times the memory of the longest one, of all stations. An equal
/// part is never less than one.
const MOST_LONG: usize = 64;

/// What a buffer is used for that is not merely on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A message that is not acknowledged, or what the program has.
    Send,
    /// A message that has arrived and waits.
    Keep,
}

/// What one station has.
#[derive(Debug, Default)]
pub struct Station {
    mac: Mac,
    /// Buffers, by [`Use`].
    buffers: [u32; 2],
    pub connections: u32,
    /// Of these, those that are not complete.
    pub half_open: u32,
    /// Answers to what comes after the end of its connections.
    pub lingering: u32,
    /// Bytes of memory for long messages that are not complete.
    long: usize,
    /// When each of these began, and its connection.
    messages: BTreeSet<(Nanos, u32)>,
}

impl Station {
    fn is_gone(&self) -> bool {
        self.buffers == [0; 2] && self.connections == 0 && self.lingering == 0
    }
}

/// All stations that have something, by number.
#[derive(Debug, Default)]
pub struct Stations {
    stations: Vec<Station>,
    free: Vec<u32>,
    numbers: HashMap<Mac, u32>,
    /// Most bytes of a long message.
    longest: usize,
    /// How many have long messages that are not complete, and these messages' bytes.
    long_holders: usize,
    long: usize,
    /// Those that have more bytes of them than one message may have: fewer than [`MOST_LONG`].
    big: Vec<u32>,
}

impl Stations {
    /// For an endpoint that takes long messages of up to so many bytes.
    pub fn new(longest: u32) -> Self {
        Self { longest: longest as usize, ..Self::default() }
    }

    /// Returns the station with this address, if it has something.
    pub fn of(&self, mac: Mac) -> Option<&Station> {
        self.numbers.get(&mac).map(|number| &self.stations[*number as usize])
    }

    /// Returns the station with this number.
    #[inline]
    pub fn get(&mut self, number: u32) -> &mut Station {
        &mut self.stations[number as usize]
    }

    /// A station has one more connection. Returns the station's number.
    pub fn join(&mut self, mac: Mac) -> u32 {
        let Self { stations, free, numbers, .. } = self;
        let number = *numbers.entry(mac).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                stations.push(Station::default());
                stations.len() as u32 - 1
            })
        });
        let station = &mut stations[number as usize];
        station.mac = mac;
        station.connections += 1;
        number
    }

    /// A station has one connection less.
    pub fn leave(&mut self, number: u32) {
        self.get(number).connections -= 1;
        self.tidy(number);
    }

    /// Forgets a station that has nothing more.
    pub fn tidy(&mut self, number: u32) {
        let station = &self.stations[number as usize];
        if station.is_gone() {
            self.numbers.remove(&station.mac);
            self.free.push(number);
        }
    }

    /// Returns how many buffers a station has for this use.
    #[inline]
    pub fn held(&self, number: u32, used: Use) -> usize {
        self.stations[number as usize].buffers[used as usize] as usize
    }

    /// A station has one more buffer.
    #[inline]
    pub fn add(&mut self, number: u32, used: Use) {
        self.stations[number as usize].buffers[used as usize] += 1;
    }

    /// A station has one buffer less.
    #[inline]
    pub fn put_back(&mut self, number: u32, used: Use) {
        let station = &mut self.stations[number as usize];
        station.buffers[used as usize] -= 1;
        if station.connections == 0 {
            self.tidy(number);
        }
    }

    /// A long message begins on this connection.
    pub fn begin_long(&mut self, number: u32, since: Nanos, connection: u32) {
        self.get(number).messages.insert((since, connection));
    }

    /// A station's long message has so many bytes more.
    pub fn add_long(&mut self, number: u32, bytes: usize) {
        self.change_long(number, |had| had + bytes);
    }

    /// The long message that began on this connection, with so many bytes, is over.
    pub fn end_long(&mut self, number: u32, since: Nanos, connection: u32, bytes: usize) {
        self.get(number).messages.remove(&(since, connection));
        self.change_long(number, |had| had - bytes);
    }

    fn change_long(&mut self, number: u32, change: impl FnOnce(usize) -> usize) {
        let station = &mut self.stations[number as usize];
        let had = station.long;
        station.long = change(had);
        let has = station.long;
        self.long = self.long + has - had;
        self.long_holders = self.long_holders + usize::from(has > 0) - usize::from(had > 0);
        match (had > self.longest, has > self.longest) {
            (false, true) => self.big.push(number),
            (true, false) => self.big.retain(|big| *big != number),
            _ => {}
        }
    }

    /// Most bytes of long messages that are not complete.
    fn most_long(&self) -> usize {
        MOST_LONG * self.longest
    }

    /// An equal part of these: each station that has some could have as much, this one, and one more. At least one message.
    fn part_of_long(&self, number: u32) -> usize {
        let asks = usize::from(self.stations[number as usize].long == 0);
        self.most_long() / (self.long_holders + asks + 1).min(MOST_LONG)
    }

    /// Returns true if a station's long messages have no more than an equal part with so many bytes more.
    pub fn is_within_part(&self, number: u32, bytes: usize) -> bool {
        self.stations[number as usize].long + bytes <= self.part_of_long(number)
    }

    /// Returns true if a station's long messages may have so many bytes more: up to an equal part what is left, then less and less.
    pub fn may_be_longer(&self, number: u32, bytes: usize) -> bool {
        let (most, held) = (self.most_long(), self.stations[number as usize].long);
        let left = most - self.long;
        bytes <= left && (self.is_within_part(number, bytes) || share::may_take(held, left, most, bytes))
    }

    /// Returns true if a station's long messages have more than the equal part of station `asking`.
    pub fn has_much_long(&self, number: u32, asking: u32) -> bool {
        self.stations[number as usize].long > self.part_of_long(asking)
    }

    /// Returns the connection whose long message began first, of those stations that have more than the equal part of `asking`.
    pub fn oldest_beyond_part(&self, asking: u32) -> Option<u32> {
        let big = self.big.iter().filter(|number| self.has_much_long(**number, asking));
        let oldest = big.filter_map(|number| self.stations[*number as usize].messages.first());
        oldest.min().map(|(_, connection)| *connection)
    }

    /// Checks the bytes of long messages, by what each station's connections have.
    ///
    /// # Errors
    /// What is wrong.
    pub fn audit(&self, long: &HashMap<u32, usize>) -> Result<(), String> {
        for (number, station) in (0..).zip(&self.stations) {
            let has = long.get(&number).copied().unwrap_or_default();
            if has != station.long {
                return Err(format!("station {number} counts {} bytes of long messages and has {has}", station.long));
            }
        }
        let sum: usize = self.stations.iter().map(|station| station.long).sum();
        if sum == self.long { Ok(()) } else { Err(format!("{} bytes of long messages are {sum}", self.long)) }
    }

    /// Returns how many stations have buffers for this use.
    pub fn holders(&self, used: Use) -> usize {
        self.stations.iter().filter(|station| station.buffers[used as usize] > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_is_forgotten_with_the_last_thing_that_it_has() {
        let mut stations = Stations::default();
        let (one, two) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let first = stations.join(one);
        assert_eq!((stations.join(one), stations.join(two)), (first, first + 1));
        stations.add(first, Use::Keep);
        stations.leave(first);
        stations.leave(first);
        assert!(stations.of(one).is_some() && stations.holders(Use::Keep) == 1 && stations.holders(Use::Send) == 0);
        stations.put_back(first, Use::Keep);
        assert!(stations.of(one).is_none() && stations.of(two).is_some());
        assert_eq!(stations.join([2, 0, 0, 0, 0, 3]), first, "its number is used again");
    }
}
