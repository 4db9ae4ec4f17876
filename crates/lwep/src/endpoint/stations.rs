//! What each station has of an endpoint. A station is an address: what one takes must not lack for the next one.

use std::collections::HashMap;

use super::share;
use crate::wire::Mac;

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
    /// Bytes of long messages that are not complete.
    long: usize,
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
    /// How many have long messages that are not complete, and these messages' bytes.
    long_holders: usize,
    long: usize,
}

impl Stations {
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

    /// A station's long messages have so many bytes more, or less.
    pub fn change_long(&mut self, number: u32, more: usize, less: usize) {
        let station = &mut self.stations[number as usize];
        let had = usize::from(station.long > 0);
        station.long = station.long + more - less;
        self.long = self.long + more - less;
        self.long_holders = self.long_holders + usize::from(station.long > 0) - had;
    }

    /// Returns true if a station's long messages may have so many bytes more, where those of all may have `most`.
    pub fn may_be_longer(&self, number: u32, most: usize, bytes: usize) -> bool {
        share::may_take(self.stations[number as usize].long, most - self.long, most, bytes)
    }

    /// Returns true if a station's long messages have more than an equal part: each of the stations that have some, and one more, could
    /// have as much.
    pub fn has_much_long(&self, number: u32, most: usize) -> bool {
        self.stations[number as usize].long > most / (self.long_holders + 1)
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
