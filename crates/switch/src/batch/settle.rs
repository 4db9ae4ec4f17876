//! Destinations that a forwarding program sets, beside those of the built-in function.

use super::audience::{Audience, PortSet};
use super::destination::{Destination, Packed};
use super::settling::Settling;
use super::storage::{Batch, BatchStorage};
use crate::frame::DropReason;
use crate::time::Measure;

impl Batch<'_> {
    /// Begins a batch whose destinations a program sets: no frame has one, and every port hears flooded frames. Returns the number of
    /// frames that were not rejected.
    pub(crate) fn begin_settling(&mut self) -> usize {
        let parts = &mut *self.parts;
        let limit = parts.entries.len();
        let settling = parts.settling.get_or_insert_with(|| Box::new(Settling::new(limit)));
        settling.audience.clear();
        settling.is_listed = parts.rejected;
        settling.known.clear();
        settling.words.clear();
        // A program that failed may have set one destination for all.
        parts.same_destination = false;
        if !parts.rejected {
            return parts.count;
        }
        settling.settled.fill(None);
        settling.accepted.clear();
        let accepted = parts.entries[..parts.count].iter().enumerate();
        let accepted = accepted.filter(|(_, entry)| entry.destination.0 < Packed::REJECTED);
        settling.accepted.extend(accepted.map(|(index, _)| index as u16));
        settling.accepted.len()
    }

    /// The index of a frame that the program judges, by its place among them.
    #[inline]
    pub(crate) fn accepted(&self, place: usize) -> usize {
        match &self.parts.settling {
            Some(settling) if settling.is_listed => settling.accepted.get(place).copied().unwrap_or(0).into(),
            _ => place,
        }
    }

    /// Takes those frames out of what the program judges on which `find` knows its word. Returns the number of the others. Rejected frames keep
    /// their words: they may stay in the ring.
    #[cold]
    pub(crate) fn recall(&mut self, mut find: impl FnMut(&Self, usize) -> Option<u32>) -> usize {
        let Some(mut settling) = self.parts.settling.take() else { return 0 };
        if !settling.is_listed {
            settling.accepted.clear();
            settling.accepted.extend(0..self.parts.count as u16);
        }
        let (known, mut next) = (&mut settling.known, 0);
        let mut is_known = |index| {
            let word = find(self, usize::from(index));
            known.extend(word.map(|word| (index, word)));
            word.is_some()
        };
        settling.accepted.retain(|&index| {
            (next..index).for_each(|rejected| _ = is_known(rejected));
            next = index + 1;
            !is_known(index)
        });
        (next..self.parts.count as u16).for_each(|rejected| _ = is_known(rejected));
        settling.is_listed = settling.accepted.len() < self.parts.count;
        let count = settling.accepted.len();
        self.parts.settling = Some(settling);
        count
    }

    /// The frames that the program has judged before, and its words.
    #[inline]
    pub(crate) fn known(&self) -> &[(u16, u32)] {
        self.parts.settling.as_ref().map_or(&[], |settling| &settling.known)
    }

    /// Notes the program's words on the next frames.
    pub(crate) fn note_words(&mut self, words: impl Iterator<Item = u32>) {
        if let Some(settling) = &mut self.parts.settling {
            settling.words.extend(words);
        }
    }

    /// All words that are known or noted, with the frame's index, in the order of the frames.
    pub(crate) fn words(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let noted = self.parts.settling.iter().flat_map(|settling| &settling.words).enumerate();
        let mut noted = noted.map(|(place, word)| (self.accepted(place), *word)).peekable();
        let mut known = self.known().iter().map(|(index, word)| (usize::from(*index), *word)).peekable();
        std::iter::from_fn(move || match (known.peek(), noted.peek()) {
            (Some((first, _)), Some((second, _))) if second < first => noted.next(),
            (Some(_), _) => known.next(),
            (None, _) => noted.next(),
        })
    }

    /// Sets one destination for all frames. To be called only if no frame was rejected.
    pub(crate) fn settle_all(&mut self, destination: Destination) {
        let packed = Packed::new(destination);
        let count = self.parts.count;
        self.parts.entries[..count].iter_mut().for_each(|entry| entry.destination = packed);
        self.parts.same_destination = true;
    }

    /// Notes the destination of frame `index`, until [`Batch::end_settling`]. `None`: the built-in function decides.
    #[inline]
    pub(crate) fn settle(&mut self, index: usize, destination: Option<Destination>) {
        if let Some(settling) = &mut self.parts.settling
            && let Some(settled) = settling.settled.get_mut(index)
        {
            *settled = destination.map(Packed::new);
        }
    }

    /// Narrows a flooded frame to the ports of a set.
    pub(crate) fn narrow(&mut self, index: usize, number: usize, set: &PortSet) {
        if let Some(settling) = &mut self.parts.settling {
            settling.audience.narrow(index, number, set);
        }
    }

    /// Applies the noted destinations. `built_in` sets those of the other frames, if there are any.
    pub(crate) fn end_settling(&mut self, has_others: bool, built_in: impl FnOnce(&mut Self)) {
        let Some(settling) = self.parts.settling.take() else { return };
        let was_rejected = self.parts.rejected;
        let frames = self.parts.entries[..self.parts.count].iter_mut().zip(&settling.settled);
        if has_others {
            // The built-in function passes over the frames that have their destination.
            for (entry, _) in frames.filter(|(_, settled)| settled.is_some()) {
                entry.destination = Packed(Packed::REJECTED | DropReason::NoDestination as u32);
                self.parts.rejected = true;
            }
            built_in(self);
        }
        for (entry, settled) in self.parts.entries[..self.parts.count].iter_mut().zip(&settling.settled) {
            if let Some(destination) = settled {
                entry.destination = *destination;
            }
        }
        self.parts.rejected = was_rejected;
        self.parts.same_destination = false;
        self.parts.settling = Some(settling);
    }

    /// Measures the time of the program by this clock, until [`BatchStorage::take_program_time`].
    pub(crate) fn measure_program(&mut self, measure: Measure) {
        if let Some(settling) = &mut self.parts.settling {
            settling.clock = Some(measure);
        }
    }

    /// The present moment in nanoseconds, while the time of the program is measured.
    #[inline]
    pub(crate) fn program_now(&self) -> Option<u64> {
        Some(self.parts.settling.as_ref()?.clock?().nanoseconds)
    }

    /// Adds what passed since `began` to the time of the program.
    #[inline]
    pub(crate) fn add_program_time(&mut self, began: Option<u64>) {
        if let (Some(began), Some(now)) = (began, self.program_now())
            && let Some(settling) = &mut self.parts.settling
        {
            settling.program_ns = settling.program_ns.saturating_add(now.saturating_sub(began));
        }
    }

    /// The ports that hear each flooded frame, if a program narrowed any.
    #[inline]
    pub(crate) fn audience(&self) -> Option<&Audience> {
        self.parts.settling.as_ref().map(|settling| &settling.audience).filter(|audience| audience.is_narrow())
    }
}

impl BatchStorage {
    /// Nanoseconds that the program took of a measured batch. The next batch is not measured.
    pub(crate) fn take_program_time(&mut self) -> u64 {
        let Some(settling) = &mut self.0.parts.settling else { return 0 };
        settling.clock = None;
        std::mem::take(&mut settling.program_ns)
    }
}
