//! The frames to send.

use std::collections::BTreeMap;

use ringway_traffic::{FrameSpec, Frames, MAX_FLOWS, MAX_FRAME, MIN_FRAME, Mac, Source};

use super::report::GenError;

/// The sizes of frames, in the order they are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<usize>);

/// The simple Internet mix: IP packets of 40, 576 and 1500 bytes, 7 to 4 to 1.
const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 60, 590, 60, 1514, 60, 590];

impl Sizes {
    /// Reads `60`, `60,1514`, `60-128` (each size in turn) or `imix`.
    pub fn parse(text: &str) -> Result<Sizes, String> {
        if text == "imix" {
            return Ok(Sizes(IMIX.to_vec()));
        }
        let wrong = || {
            format!(
                "write bytes from {MIN_FRAME} to {MAX_FRAME} without FCS, like 60, 60,1514 or 60-128 (each in turn), or imix"
            )
        };
        let size = |text: &str| {
            let size = text.parse().map_err(|_| wrong())?;
            if (MIN_FRAME..=MAX_FRAME).contains(&size) { Ok(size) } else { Err(wrong()) }
        };
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                None => sizes.push(size(part)?),
                Some((low, high)) => {
                    let (low, high) = (size(low)?, size(high)?);
                    if low > high {
                        return Err(wrong());
                    }
                    sizes.extend(low..=high);
                }
            }
        }
        Ok(Sizes(sizes))
    }

    /// The largest.
    pub fn largest(&self) -> usize {
        self.0.iter().copied().max().unwrap_or(0)
    }

    /// The only one, if all frames are of one size.
    pub fn single(&self) -> Option<usize> {
        match self.0[..] {
            [size] => Some(size),
            _ => None,
        }
    }
}

/// Frames of one or several sizes. Each size is a stream of its own, as sequence numbers go by stream and flow.
pub struct Mix {
    streams: Vec<Frames>,
    /// Which stream sends, by turn.
    order: Vec<usize>,
    turn: usize,
}

impl Mix {
    /// Frames like `spec`, of these sizes.
    pub fn new(spec: &FrameSpec, sizes: &Sizes) -> Result<Mix, GenError> {
        let usage = |error: ringway_traffic::FrameSpecError| GenError::Usage(error.to_string());
        let mut numbers = BTreeMap::new();
        for &size in &sizes.0 {
            let number = numbers.len();
            numbers.entry(size).or_insert(number);
        }
        let flows = numbers.len().saturating_mul(spec.destinations.len()).saturating_mul(spec.flows);
        if flows > MAX_FLOWS {
            let (sizes, destinations) = (numbers.len(), spec.destinations.len());
            let what =
                format!("{sizes} sizes, {destinations} destinations and {} flows make {flows} flows", spec.flows);
            return Err(GenError::Usage(format!("{what}: there can be up to {MAX_FLOWS}")));
        }
        let first = Frames::new(spec).map_err(usage)?.stream();
        let mut streams: Vec<(usize, Frames)> = Vec::new();
        for (&size, &number) in &numbers {
            let spec = FrameSpec { size, stream: Some(first.wrapping_add(number as u16)), ..spec.clone() };
            streams.push((number, Frames::new(&spec).map_err(usage)?));
        }
        streams.sort_by_key(|(number, _)| *number);
        let order = sizes.0.iter().map(|size| numbers[size]).collect();
        Ok(Mix { streams: streams.into_iter().map(|(_, frames)| frames).collect(), order, turn: 0 })
    }
}

impl Source for Mix {
    #[inline]
    fn next_len(&self) -> Option<usize> {
        Some(self.streams[self.order[self.turn]].size())
    }

    #[inline]
    fn fill(&mut self, frame: &mut [u8]) {
        self.streams[self.order[self.turn]].write(frame);
        self.turn = if self.turn + 1 == self.order.len() { 0 } else { self.turn + 1 };
    }
}

/// Returns a frame from `source` to `destination` that makes the switch learn the source address.
pub fn introduction(source: Mac, destination: Mac) -> Result<Vec<u8>, GenError> {
    let spec = FrameSpec { source, destinations: vec![destination], ..FrameSpec::default() };
    Frames::new(&spec).map(|mut frames| frames.next_frame()).map_err(|error| GenError::Usage(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_one_some_a_range_or_the_mix() {
        assert_eq!(Sizes::parse("60").unwrap().single(), Some(60));
        assert_eq!(Sizes::parse("60,1514,60"), Ok(Sizes(vec![60, 1514, 60])));
        assert_eq!(Sizes::parse("60-62,100"), Ok(Sizes(vec![60, 61, 62, 100])));
        assert_eq!(Sizes::parse("imix").unwrap().largest(), 1514);
        for wrong in ["", "13", "65536", "60-", "62-60", "60,", "big", "60-65536"] {
            assert!(Sizes::parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_mix_is_in_order_for_its_receiver() {
        use ringway_traffic::{Checker, Level, Origin};
        let mut mix =
            Mix::new(&FrameSpec { flows: 3, ..FrameSpec::default() }, &Sizes::parse("imix").unwrap()).unwrap();
        let mut checker = Checker::new(Level::Full, Origin::Zero);
        let mut bytes = 0;
        for _ in 0..120 {
            let mut frame = vec![0; mix.next_len().unwrap()];
            mix.fill(&mut frame);
            bytes += frame.len();
            checker.see(&frame);
        }
        let report = checker.report();
        assert!(report.is_clean(), "{report}");
        assert_eq!((report.flows, bytes), (9, 10 * (7 * 60 + 4 * 590 + 1514)));
    }

    #[test]
    fn too_many_flows_are_refused_with_the_limit() {
        let spec = FrameSpec { flows: 40_000, ..FrameSpec::default() };
        let Err(GenError::Usage(what)) = Mix::new(&spec, &Sizes::parse("60,61").unwrap()) else { panic!() };
        assert!(what.contains("2 sizes, 1 destinations and 40000 flows make 80000 flows: there can be up to 65536"));
    }
}
