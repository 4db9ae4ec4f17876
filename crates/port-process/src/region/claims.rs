//! Which registrations have which rings of a port.

use std::ops::Range;

use super::error::RegionError;

/// The rings that registrations have.
#[derive(Debug)]
pub(super) struct Claims {
    tx: Box<[Claim]>,
    rx: Box<[Claim]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    users: u32,
    exclusive: bool,
}

impl Claims {
    pub(super) fn new(tx_rings: u16, rx_rings: u16) -> Self {
        let free = |rings: u16| vec![Claim::default(); rings.into()].into();
        Self { tx: free(tx_rings), rx: free(rx_rings) }
    }

    /// Returns the claims of these rings. The caller has checked that the port has them.
    fn of(&mut self, tx: &Range<u16>, rx: &Range<u16>) -> impl Iterator<Item = &mut Claim> {
        let part = |rings: &Range<u16>| usize::from(rings.start)..usize::from(rings.end);
        self.tx[part(tx)].iter_mut().chain(&mut self.rx[part(rx)])
    }

    pub(super) fn take(&mut self, tx: &Range<u16>, rx: &Range<u16>, exclusive: bool) -> Result<(), RegionError> {
        if self.of(tx, rx).any(|claim| claim.exclusive || (exclusive && claim.users > 0)) {
            return Err(RegionError::Busy);
        }
        for claim in self.of(tx, rx) {
            claim.users += 1;
            claim.exclusive = exclusive;
        }
        Ok(())
    }

    pub(super) fn put_back(&mut self, tx: &Range<u16>, rx: &Range<u16>) {
        for claim in self.of(tx, rx) {
            claim.users -= 1;
            claim.exclusive = false;
        }
    }
}
