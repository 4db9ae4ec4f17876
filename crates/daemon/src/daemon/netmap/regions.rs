//! The memories that netmap ports lie in: one for each family of processes.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use ringway_abi::netmap::{Family, Wish};
use ringway_port_process::{Process, Region, RegionError};

/// The regions of families that have ports.
#[derive(Debug, Default)]
pub struct Regions {
    regions: HashMap<Family, Weak<Region>>,
    last: u16,
}

impl Regions {
    pub(in crate::daemon) fn of(&self, family: &Family) -> Option<Arc<Region>> {
        self.regions.get(family)?.upgrade()
    }

    /// Returns the family's region. Makes one if the family has none.
    pub(in crate::daemon) fn take(
        &mut self,
        (family, process): (Family, Process),
        wish: &Wish,
        most: u64,
    ) -> Result<Arc<Region>, RegionError> {
        self.regions.retain(|_, region| region.strong_count() > 0);
        if let Some(region) = self.of(&family) {
            return Ok(region);
        }
        let region = Region::new(self.free_number()?, wish, most)?;
        region.set_owner(process);
        self.regions.insert(family, Arc::downgrade(&region));
        Ok(region)
    }

    /// Returns a number that no region has: not 0, and as late as possible one that another region had.
    fn free_number(&mut self) -> Result<u16, RegionError> {
        let used: HashSet<u16> = self.regions.values().filter_map(|region| Some(region.upgrade()?.id())).collect();
        for _ in 0..=u16::MAX {
            self.last = self.last.wrapping_add(1).max(1);
            if !used.contains(&self.last) {
                return Ok(self.last);
            }
        }
        Err(RegionError::NoRoom("a region's number"))
    }
}
