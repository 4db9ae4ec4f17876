//! The communication status block (Maffione 2012, section 4.4.2) in a driver's memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ringway_abi::csb::{BYTES, DriverCsb, WORDS};
use ringway_memory::{Kept, Mapping};

/// A block.
#[derive(Debug)]
pub struct Csb(Kept<[AtomicU32; WORDS]>);

impl Csb {
    /// Initializes a block at this offset of the memory.
    pub fn new(mapping: &Arc<Mapping>, at: usize) -> io::Result<Csb> {
        let words = Kept::new(mapping, |mapping| mapping.view(at, BYTES)?.words32()?.first_chunk());
        let csb = Csb(words.ok_or_else(|| io::Error::other("the status block has no place in the memory"))?);
        csb.driver().begin();
        Ok(csb)
    }

    /// Returns the driver's view.
    #[inline]
    pub fn driver(&self) -> DriverCsb<'_> {
        DriverCsb::new(&self.0)
    }
}
