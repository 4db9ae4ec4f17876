//! The layout for segmentation hardware (VPE §4.7.2): the header in the fields of IPv4 and TCP.

use std::net::Ipv4Addr;

use ringway_abi::Offload;
use ringway_abi::offload::Gso;

use super::checksum;
use super::ethernet::ETHERNET_BYTES;
use super::header::{Header, Kind, Malformed, VERSION};

/// Bytes of the headers behind the Ethernet header.
pub const BYTES: usize = IP + TCP;
/// Bytes before the data.
pub const HEADERS: usize = ETHERNET_BYTES + BYTES;
const IP: usize = 20;
const TCP: usize = 40;
const TCP_PROTOCOL: u8 = 6;
/// TCP's ports.
const PORT: u16 = 0x88b5;
/// The option's kind, length and identifier (RFC 4727, RFC 6994).
const OPTION: [u8; 4] = [253, 18, 0x88, 0xb5];
/// Flag: the messages of the buffer are fragments of one.
const FRAGMENTS: u8 = 4;
/// Offset of TCP's checksum from its header.
const CHECKSUM_AT: usize = 16;

/// The messages of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train {
    /// Of the first message. `length` is 0, `selective` is 0, `remaining` is that of the first message.
    pub header: Header,
    /// Bytes of each message but the last one.
    pub part: usize,
    /// Messages.
    pub count: usize,
    /// They are fragments of one message.
    pub fragments: bool,
}

/// The two ends' IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Source.
    pub from: Ipv4Addr,
    /// Destination.
    pub to: Ipv4Addr,
}

impl Addresses {
    /// Returns the sum of TCP's pseudo-header.
    fn pseudo_sum(&self, tcp_bytes: usize) -> u16 {
        let sum = checksum::ones_sum(&self.from.octets(), 0);
        let sum = checksum::ones_sum(&self.to.octets(), sum);
        let sum = checksum::ones_sum(&[0, TCP_PROTOCOL], sum);
        checksum::ones_sum(&(tcp_bytes as u16).to_be_bytes(), sum)
    }
}

impl Train {
    /// Writes the headers of a buffer with `data` bytes, behind the Ethernet header. The checksum of TCP holds the sum of the
    /// pseudo-header: the returned offload request asks for the rest, and for segmentation if there are several messages.
    pub fn encode(&self, addresses: &Addresses, data: usize, bytes: &mut [u8; BYTES]) -> Offload {
        let header = &self.header;
        let total = BYTES + data;
        let mut ip = [0; IP];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&(header.number as u16).to_be_bytes());
        ip[6] = 0x40;
        ip[8] = 64;
        ip[9] = TCP_PROTOCOL;
        ip[12..16].copy_from_slice(&addresses.from.octets());
        ip[16..20].copy_from_slice(&addresses.to.octets());
        let sum = !checksum::ones_sum(&ip, 0);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut tcp = [0; TCP];
        tcp[0..2].copy_from_slice(&PORT.to_be_bytes());
        tcp[2..4].copy_from_slice(&PORT.to_be_bytes());
        tcp[8..12].copy_from_slice(&header.acknowledgement.to_be_bytes());
        tcp[12] = (TCP as u8 / 4) << 4;
        tcp[13] = 0x10;
        tcp[14..16].copy_from_slice(&header.window.to_be_bytes());
        tcp[16..18].copy_from_slice(&addresses.pseudo_sum(TCP + data).to_be_bytes());
        tcp[20..24].copy_from_slice(&OPTION);
        tcp[24..28].copy_from_slice(&header.connection.to_be_bytes());
        tcp[28..32].copy_from_slice(&header.token.to_be_bytes());
        tcp[32..34].copy_from_slice(&((header.number >> 16) as u16).to_be_bytes());
        tcp[34] = VERSION << 4 | Kind::Data as u8;
        if self.fragments {
            tcp[35] = FRAGMENTS;
            tcp[36..38].copy_from_slice(&(header.number as u16).wrapping_add(header.remaining).to_be_bytes());
        }
        tcp[38..40].fill(1);
        bytes[..IP].copy_from_slice(&ip);
        bytes[IP..].copy_from_slice(&tcp);
        Offload {
            needs_csum: true,
            gso: if self.count > 1 { Gso::Tcp4 } else { Gso::None },
            ecn: false,
            hdr_len: HEADERS as u16,
            gso_size: if self.count > 1 { self.part as u16 } else { 0 },
            csum_start: (ETHERNET_BYTES + IP) as u16,
            csum_offset: CHECKSUM_AT as u16,
            tunnel: None,
        }
    }

    /// Reads what follows the Ethernet header. `part` is the segment size of a buffer that was not cut, and `is_summed` says that its
    /// checksum is right or not there yet. Returns the messages, their addresses and the data.
    ///
    /// # Errors
    /// `None`: the frame is other IPv4 traffic. See [`Malformed`].
    pub fn decode(
        bytes: &[u8],
        part: Option<usize>,
        is_summed: bool,
    ) -> Result<(Self, Addresses, &[u8]), Option<Malformed>> {
        let (head, rest) = bytes.split_first_chunk::<BYTES>().ok_or(None)?;
        let (ip, tcp) = head.split_at(IP);
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        // No IPv4 options, no fragment of IPv4.
        let is_ours = ip[0] == 0x45
            && ip[9] == TCP_PROTOCOL
            && half(6) & 0x3fff == 0
            && half(IP) == PORT
            && half(IP + 2) == PORT
            && tcp[12] >> 4 == TCP as u8 / 4
            && tcp[20..24] == OPTION;
        if !is_ours {
            return Err(None);
        }
        if tcp[34] >> 4 != VERSION {
            return Err(Some(Malformed::Version { is_open: false }));
        }
        if tcp[34] & 0xf != Kind::Data as u8 {
            return Err(Some(Malformed::Kind));
        }
        // With segmentation of more than 65,535 bytes the length can be 0: the frame tells it.
        let length = match usize::from(half(2)) {
            0 if part.is_some() => rest.len(),
            total => total.checked_sub(BYTES).ok_or(Some(Malformed::Short))?,
        };
        let data = rest.get(..length).ok_or(Some(Malformed::Short))?;
        let addresses = Addresses { from: word(12).into(), to: word(16).into() };
        if !is_summed {
            let sum = checksum::ones_sum(tcp, addresses.pseudo_sum(TCP + length));
            if checksum::ones_sum(data, sum) != 0xffff || checksum::ones_sum(ip, 0) != 0xffff {
                return Err(Some(Malformed::Checksum));
            }
        }
        let number = u32::from(half(IP + 32)) << 16 | u32::from(half(4));
        let part = part.unwrap_or(length).max(1);
        let count = length.div_ceil(part).max(1);
        let fragments = tcp[35] & FRAGMENTS != 0;
        let remaining = if fragments { half(IP + 36).wrapping_sub(half(4)) } else { 0 };
        if fragments && usize::from(remaining) + 1 < count
            || u16::try_from(count - 1).ok().and_then(|more| half(4).checked_add(more)).is_none()
        {
            return Err(Some(Malformed::Fields));
        }
        let header = Header {
            kind: Kind::Data,
            flags: 0,
            length: 0,
            connection: word(IP + 24),
            token: word(IP + 28),
            number,
            acknowledgement: word(IP + 8),
            window: half(IP + 14),
            remaining,
            selective: 0,
        };
        Ok((Self { header, part, count, fragments }, addresses, data))
    }
}
