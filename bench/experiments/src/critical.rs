//! The critical rate: the highest rate at which a receiver loses no frame (Maffione, section 3.1.2).

use std::io;

/// Rates to try one after the other, in frames per second, up to far beyond what an emulated guest takes.
pub const LADDER: [u64; 9] = [2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000];
/// Rates to try in a quick run.
pub const COARSE: [u64; 2] = [LADDER[0], LADDER[8]];
/// Bisections of the gap between the highest rate that arrived and the lowest that did not.
const HALVINGS: usize = 3;

/// The critical rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Critical<T> {
    /// The highest rate offered that arrived, while every lower one did.
    pub rate: u64,
    /// The observation at that rate.
    pub seen: T,
}

/// Offers the rising rates of `ladder` up to the first that does not arrive, and then some in between. Each rate has two tries.
/// `offer` returns the observation and whether the frames arrived.
///
/// # Errors
/// `offer` fails, or not even the lowest rate arrives.
pub fn search<T>(ladder: &[u64], mut offer: impl FnMut(u64) -> io::Result<(T, bool)>) -> io::Result<Critical<T>> {
    let mut twice = |rate| {
        let first = offer(rate)?;
        if first.1 { Ok(first) } else { offer(rate) }
    };
    let mut best: Option<Critical<T>> = None;
    let mut lost = None;
    for &rate in ladder {
        let (seen, arrived) = twice(rate)?;
        if !arrived {
            lost = Some(rate);
            break;
        }
        best = Some(Critical { rate, seen });
    }
    let mut best = best.ok_or_else(|| io::Error::other("frames are lost at the lowest rate"))?;
    let Some(mut lost) = lost else { return Ok(best) };
    for _ in 0..HALVINGS {
        // The middle of two rates that are compared by their ratio.
        let rate = (best.rate as f64 * lost as f64).sqrt() as u64;
        let (seen, arrived) = twice(rate)?;
        if arrived { best = Critical { rate, seen } } else { lost = rate }
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_critical_rate_of_a_receiver_that_takes_so_many_is_found_within_a_tenth() {
        for takes in [2_000, 9_000, 100_000, 511_999] {
            let found = search(&LADDER, |rate| Ok((rate.min(takes), rate <= takes))).unwrap();
            assert!(found.rate <= takes && found.rate as f64 > takes as f64 / 1.1, "{takes}: {found:?}");
            assert_eq!(found.seen, found.rate);
        }
    }

    #[test]
    fn one_hiccup_is_no_loss_and_two_at_one_rate_are() {
        let mut asked = 0;
        let found = search(&LADDER, |_| {
            asked += 1;
            Ok(((), asked % 2 == 0))
        });
        assert_eq!((found.unwrap().rate, asked), (512_000, 18));
        assert!(search(&LADDER, |_| Ok(((), false))).unwrap_err().to_string().contains("lowest"));
    }

    #[test]
    fn a_receiver_that_takes_a_lot_again_beyond_its_first_loss_is_judged_by_that_loss() {
        let found = search(&LADDER, |rate| Ok(((), !(10_000..20_000).contains(&rate)))).unwrap();
        assert!(found.rate < 10_000);
    }
}
