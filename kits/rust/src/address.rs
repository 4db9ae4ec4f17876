//! Addresses as text and as words that compare fast.

use core::str::FromStr;

/// An IPv4 or IPv6 address: its 16 bytes as two words. An IPv4 address is the IPv6 address `::ffff:a.b.c.d` (RFC 4291, 2.5.5.2). The order of
/// addresses is none that people know: it only serves to sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub u64, pub u64);

impl Address {
    /// The address of these 16 bytes.
    #[inline]
    #[must_use]
    pub fn v6(bytes: [u8; 16]) -> Address {
        let number = u128::from_le_bytes(bytes);
        Address(number as u64, (number >> 64) as u64)
    }

    /// The address of these 4 bytes.
    #[inline]
    #[must_use]
    pub fn v4(bytes: [u8; 4]) -> Address {
        Address(0, u64::from(u32::from_le_bytes(bytes)) << 32 | 0xffff_0000)
    }

    /// The address with only the bits of this mask.
    #[inline]
    #[must_use]
    pub fn masked(self, mask: Address) -> Address {
        Address(self.0 & mask.0, self.1 & mask.1)
    }
}

/// Not an address, a prefix or a MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoAddress;

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Address, NoAddress> {
        if text.contains(':') {
            v6(text).map(Address::v6).ok_or(NoAddress)
        } else {
            v4(text).map(Address::v4).ok_or(NoAddress)
        }
    }
}

/// The addresses that begin with the same bits: `10.0.0.0/8`, `2001:db8::/32`, or one address. `any` is all of both kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// Its first address.
    pub address: Address,
    /// The bits that count.
    pub mask: Address,
}

impl Prefix {
    /// All addresses.
    pub const ANY: Prefix = Prefix { address: Address(0, 0), mask: Address(0, 0) };

    /// Returns true if an address has this prefix.
    #[inline]
    #[must_use]
    pub fn has(&self, address: Address) -> bool {
        address.masked(self.mask) == self.address
    }
}

impl FromStr for Prefix {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Prefix, NoAddress> {
        if text == "any" {
            return Ok(Prefix::ANY);
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| NoAddress)?)),
            None => (text, None),
        };
        let width = if address.contains(':') { 128 } else { 32 };
        let bits = bits.unwrap_or(width);
        if bits > width {
            return Err(NoAddress);
        }
        let free = width - bits;
        let mask = Address::v6(u128::MAX.checked_shl(free).unwrap_or(0).to_be_bytes());
        Ok(Prefix { address: address.parse::<Address>()?.masked(mask), mask })
    }
}

/// Reads a MAC address: `02:00:00:00:00:01`.
///
/// # Errors
/// The text is something else.
pub fn mac(text: &str) -> Result<[u8; 6], NoAddress> {
    let mut bytes = [0; 6];
    fill(&mut bytes, text.split(':'), |part| if part.len() == 2 { u8::from_str_radix(part, 16).ok() } else { None })
        .map(|()| bytes)
        .ok_or(NoAddress)
}

/// Fills an array with exactly as many parts.
fn fill<'a, T>(to: &mut [T], parts: impl Iterator<Item = &'a str>, read: impl Fn(&str) -> Option<T>) -> Option<()> {
    let mut places = to.iter_mut();
    for part in parts {
        *places.next()? = read(part).filter(|_| !part.starts_with('+'))?;
    }
    if places.next().is_none() {
        Some(())
    } else {
        None
    }
}

fn v4(text: &str) -> Option<[u8; 4]> {
    let mut bytes = [0; 4];
    let read = |part: &str| if part.len() > 1 && part.starts_with('0') { None } else { part.parse().ok() };
    fill(&mut bytes, text.split('.'), read).map(|()| bytes)
}

fn v6(text: &str) -> Option<[u8; 16]> {
    let mut groups = [0; 8];
    match text.split_once("::") {
        None => {
            if groups_of(text, &mut groups)? != 8 {
                return None;
            }
        }
        Some((before, after)) => {
            let begun = groups_of(before, &mut groups)?;
            let mut last = [0; 8];
            let ended = groups_of(after, &mut last)?;
            if begun + ended > 7 {
                return None;
            }
            groups[8 - ended..].copy_from_slice(&last[..ended]);
        }
    }
    let mut bytes = [0; 16];
    for (to, group) in bytes.chunks_exact_mut(2).zip(groups) {
        to.copy_from_slice(&group.to_be_bytes());
    }
    Some(bytes)
}

/// Reads groups of an IPv6 address. An IPv4 address may stand for the last two. Returns how many there are.
fn groups_of(text: &str, to: &mut [u16; 8]) -> Option<usize> {
    if text.is_empty() {
        return Some(0);
    }
    let mut count = 0;
    let mut parts = text.split(':').peekable();
    while let Some(part) = parts.next() {
        if part.contains('.') && parts.peek().is_none() {
            let [a, b, c, d] = v4(part)?;
            to.get_mut(count..count + 2)?.copy_from_slice(&[u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
            return Some(count + 2);
        }
        if part.is_empty() || part.len() > 4 || part.starts_with('+') {
            return None;
        }
        *to.get_mut(count)? = u16::from_str_radix(part, 16).ok()?;
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_the_standard_library_reads_them() {
        let texts = [
            "10.0.0.1",
            "255.255.255.255",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "256.1.1.1",
            "+1.2.3.4",
            "",
            "::",
            "::1",
            "1::",
            "2001:db8::1",
            "1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7::",
            "1:2:3:4:5:6:7:8::",
            "::ffff:10.0.0.1",
            "::10.0.0.1:1",
            "1:2:3:4:5:6:10.0.0.1",
            "1::2::3",
            ":1",
            "1:",
            "g::",
            "12345::",
            "::+1",
            "FE80::A",
            "1:::2",
            "1.2.3.4:",
        ];
        for text in texts {
            let wanted = match text.parse::<std::net::IpAddr>() {
                Ok(std::net::IpAddr::V4(address)) => Ok(Address::v4(address.octets())),
                Ok(std::net::IpAddr::V6(address)) => Ok(Address::v6(address.octets())),
                Err(_) => Err(NoAddress),
            };
            assert_eq!(text.parse::<Address>(), wanted, "{text}");
        }
    }

    #[test]
    fn an_ipv4_address_is_a_mapped_ipv6_address() {
        assert_eq!("::ffff:10.1.2.3".parse::<Address>(), "10.1.2.3".parse());
    }

    #[test]
    fn a_prefix_has_the_addresses_that_begin_like_it() {
        for (prefix, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.1", "11.0.0.0"),
            ("10.1.2.3/8", "10.0.0.0", "::a00:1"),
            ("10.0.0.1", "10.0.0.1", "10.0.0.0"),
            ("10.0.0.0/31", "10.0.0.1", "10.0.0.2"),
            ("0.0.0.0/0", "1.2.3.4", "::1"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
            ("::1", "::1", "::"),
        ] {
            let prefix: Prefix = prefix.parse().unwrap();
            assert!(prefix.has(inside.parse().unwrap()) && !prefix.has(outside.parse().unwrap()), "{prefix:?}");
        }
        for all in ["any", "::/0"] {
            let prefix: Prefix = all.parse().unwrap();
            assert!(["1.2.3.4", "::1"].iter().all(|address| prefix.has(address.parse().unwrap())));
        }
        for wrong in ["10.0.0.0/33", "::/129", "10.0.0.0/", "/8", "10.0.0.0/-1", "all"] {
            assert_eq!(wrong.parse::<Prefix>(), Err(NoAddress), "{wrong}");
        }
    }

    #[test]
    fn mac_addresses_have_six_pairs_of_digits() {
        assert_eq!(mac("02:00:00:0a:0B:ff"), Ok([2, 0, 0, 10, 11, 255]));
        for wrong in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:00:00",
            "2:00:00:00:00:01",
            "02-00-00-00-00-01",
            "0g:00:00:00:00:00",
            "+2:00:00:00:00:00",
        ] {
            assert_eq!(mac(wrong), Err(NoAddress), "{wrong}");
        }
    }
}
