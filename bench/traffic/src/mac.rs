//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

/// An Ethernet address (IEEE 802-2014, section 8.2), most significant byte first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// The broadcast address.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Returns a locally administered unicast address that ends with `index`.
    #[must_use]
    pub const fn local(index: u32) -> Mac {
        let [a, b, c, d] = index.to_be_bytes();
        Mac([0x02, 0x52, a, b, c, d])
    }

    /// Returns true for a group address: multicast or broadcast.
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not an Ethernet address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an Ethernet address: write six bytes in hexadecimal, as in 52:54:00:00:00:01, or `broadcast`")]
pub struct MacError(String);

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Mac, MacError> {
        if text == "broadcast" {
            return Ok(Mac::BROADCAST);
        }
        let wrong = || MacError(text.to_owned());
        let mut bytes = [0; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(wrong)?;
            if part.len() != 2 || !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Mac(bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_back_as_it_is_shown() {
        let mac = Mac([0x52, 0x54, 0, 0xab, 0xcd, 0xef]);
        assert_eq!(mac.to_string(), "52:54:00:ab:cd:ef");
        assert_eq!(mac.to_string().parse(), Ok(mac));
        assert_eq!("52-54-00-AB-CD-EF".parse(), Ok(mac));
        assert_eq!("broadcast".parse(), Ok(Mac::BROADCAST));
    }

    #[test]
    fn text_that_is_no_address_is_named_in_the_error() {
        for wrong in ["", "52:54:00:00:00", "52:54:00:00:00:01:02", "+2:54:00:00:00:01", "xx:54:00:00:00:01"] {
            let error = wrong.parse::<Mac>().expect_err(wrong);
            assert!(error.to_string().contains(&format!("`{wrong}`")));
        }
    }
}
