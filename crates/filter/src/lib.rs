//! Filters in the language of pcap-filter(7), compiled and run by the host's libpcap.
//!
//! libpcap is opened when a filter is wanted, and only then: a host without it runs everything else. The language of the host's
//! other programs (tcpdump, Wireshark) and of these filters is the same one, as all are compiled by the same library.
#![deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]
#![deny(clippy::undocumented_unsafe_blocks)]

mod library;

use library::{Library, PacketHeader, Program};

/// Longest frame that a filter is compiled for, in bytes: a filter accepts frames by this length.
const SNAPLEN: i32 = 262_144;

/// Why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The expression has a mistake. The text is libpcap's.
    #[error("{what}: {expression:?} is not a filter in the language of pcap-filter(7)")]
    Mistake {
        /// The expression.
        expression: String,
        /// What is wrong with it.
        what: String,
    },
    /// The expression asks for more than a frame's bytes.
    #[error(
        "{0:?} asks for a direction or an interface, which a frame's bytes do not have: leave \"inbound\", \"outbound\" and \
         \"ifindex\" out, and choose the direction with --direction in or --direction out"
    )]
    NotInFrame(String),
    /// The library cannot be used.
    #[error("{0}: filters need libpcap; install it (Debian's package libpcap0.8), or capture without a filter")]
    NoLibrary(String),
}

/// A compiled filter for Ethernet frames.
#[derive(Debug)]
pub struct Filter {
    library: Library,
    program: Program,
}

impl Filter {
    /// Compiles an expression. The empty expression accepts every frame.
    ///
    /// # Errors
    /// The expression has a mistake or asks for a direction or an interface, or libpcap is not installed.
    pub fn compile(expression: &str) -> Result<Self, FilterError> {
        let library = Library::open(&library::NAMES).map_err(FilterError::NoLibrary)?;
        let program = library
            .compile(expression, SNAPLEN)
            .map_err(|what| FilterError::Mistake { expression: expression.to_owned(), what })?;
        let filter = Self { library, program };
        if filter.program.needs_kernel() {
            return Err(FilterError::NotInFrame(expression.to_owned()));
        }
        Ok(filter)
    }

    /// Returns true if the filter accepts a frame. `bytes` are the frame's first bytes, `len` is its whole length.
    #[must_use]
    pub fn accepts(&self, bytes: &[u8], len: u32) -> bool {
        let header = PacketHeader::new(u32::try_from(bytes.len()).unwrap_or(u32::MAX), len);
        self.library.accepts(&self.program, &header, bytes)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        self.library.free(&mut self.program);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an ARP request, 60 bytes long.
    fn arp() -> Vec<u8> {
        let mut frame = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
        frame.resize(60, 0);
        frame
    }

    #[test]
    fn a_filter_accepts_the_frames_that_it_describes_and_no_others() {
        for (expression, accepted) in [
            ("", true),
            ("arp", true),
            ("ether src 02:00:00:00:00:01", true),
            ("greater 60", true),
            ("ip or ip6", false),
            ("ether src 02:00:00:00:00:02", false),
            ("less 59", false),
        ] {
            let filter = Filter::compile(expression).unwrap();
            assert_eq!(filter.accepts(&arp(), 60), accepted, "{expression}");
        }
    }

    #[test]
    fn a_filter_reads_no_byte_beyond_those_given() {
        let filter = Filter::compile("ether[20:2] = 1").unwrap();
        assert!(filter.accepts(&arp(), 60));
        assert!(!filter.accepts(&arp()[..21], 60));
        assert!(!filter.accepts(&[], 60));
        assert!(Filter::compile("greater 60").unwrap().accepts(&[], 60), "the length is that of the whole frame");
    }

    #[test]
    fn a_mistake_is_named_as_libpcap_names_it() {
        let error = Filter::compile("tcp prot 80").unwrap_err().to_string();
        assert!(error.contains("syntax error") && error.contains("\"tcp prot 80\""), "{error}");
        let error = Filter::compile("a\0b").unwrap_err().to_string();
        assert!(error.contains("NUL"), "{error}");
    }

    #[test]
    fn a_filter_of_directions_or_interfaces_is_refused_and_not_deaf() {
        for expression in ["inbound", "outbound", "not outbound", "arp and inbound", "ifindex 1"] {
            let error = Filter::compile(expression).expect_err(expression).to_string();
            assert!(error.contains(&format!("{expression:?}")) && error.contains("--direction in"), "{error}");
        }
    }

    #[test]
    fn a_host_without_the_library_is_told_what_to_install() {
        let error = FilterError::NoLibrary(Library::open(&[c"libpcap-that-is-not-here.so.7"]).unwrap_err()).to_string();
        assert!(error.contains("libpcap-that-is-not-here.so.7") && error.contains("libpcap0.8"), "{error}");
        let error = Library::open(&[c"libc.so.6"]).unwrap_err();
        assert_eq!(error, "libc.so.6 has no function pcap_open_dead");
    }
}
