//! The identity of a port in tables and policies.

/// Most ports of one switch.
pub const MAX_PORTS: usize = 4096;

/// Bits of a port index.
const INDEX_BITS: u32 = 12;

/// A port index (12 bits) and its generation (4 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(u16);

impl Owner {
    /// Owner `index` (below [`MAX_PORTS`]; higher bits are dropped) in `generation` (modulo 16).
    #[must_use]
    pub const fn new(index: u16, generation: u8) -> Owner {
        Owner((generation as u16) << INDEX_BITS | (index & (MAX_PORTS as u16 - 1)))
    }

    /// The port's index in its switch.
    #[inline]
    #[must_use]
    pub const fn index(self) -> u16 {
        self.0 & (MAX_PORTS as u16 - 1)
    }

    /// The generation.
    #[must_use]
    pub const fn generation(self) -> u8 {
        (self.0 >> INDEX_BITS) as u8
    }

    /// Generation and index, as stored in a table entry.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// The owner with these bits.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Owner {
        Owner(bits)
    }
}

/// Whose shares and debts at receivers a port's are. An index passes on to other ports, and a port gets other generations and even another
/// index when its client connects again. So the shares of a sender are those of its account, which is its own for as long as it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account(u32);

impl Account {
    /// The account with this number. Ports of one switch have different numbers.
    #[must_use]
    pub const fn new(number: u32) -> Account {
        Account(number)
    }
}

/// A port that sends to another, and its weight among the senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    /// The port's index.
    pub(crate) index: u16,
    /// Its account.
    pub(crate) account: Account,
    /// Its share of a bucket or a port's limit, relative to other senders; at least 1.
    pub(crate) weight: u32,
}
