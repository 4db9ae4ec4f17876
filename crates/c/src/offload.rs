//! The offload header.

use std::ffi::{c_int, c_void};
use std::slice;

use ringway_client::Gso;

use crate::error::{RINGWAY_E_ARGUMENT, RINGWAY_E_OFFLOAD};

/// Bytes of the offload header before each frame of a port with `offload`.
pub const RINGWAY_OFFLOAD_BYTES: usize = 12;
const _: () = assert!(RINGWAY_OFFLOAD_BYTES == ringway_abi::offload::PREFIX_BYTES);

/// A kind of segmentation: none.
pub const RINGWAY_GSO_NONE: u32 = 0;
/// A kind of segmentation: TCP over IPv4.
pub const RINGWAY_GSO_TCP4: u32 = 1;
/// A kind of segmentation: UDP into IP fragments.
pub const RINGWAY_GSO_UDP_FRAGMENTS: u32 = 3;
/// A kind of segmentation: TCP over IPv6.
pub const RINGWAY_GSO_TCP6: u32 = 4;
/// A kind of segmentation: UDP into datagrams.
pub const RINGWAY_GSO_UDP: u32 = 5;

/// What remains to be done before a frame can go onto a wire.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Offload {
    /// 1: the ones' complement sum from `csum_start` to the frame's end goes `csum_offset` bytes after `csum_start`. The sum of the
    /// pseudo-header is there now.
    pub needs_csum: u8,
    /// 1: a TCP frame that reports congestion; only its first segment has CWR set.
    pub ecn: u8,
    /// One of RINGWAY_GSO_*.
    pub gso: u16,
    /// Most bytes of a segment after its headers.
    pub gso_size: u16,
    /// Bytes of all headers of a frame to be segmented. The switch sets it, and ignores it from senders.
    pub header_length: u16,
    /// Offset in the frame at which the summed bytes begin.
    pub csum_start: u16,
    /// Offset of the checksum from `csum_start`.
    pub csum_offset: u16,
}

impl Offload {
    /// Returns the request, `None` if nothing is left to be done, or the error code of one that contradicts itself.
    pub(crate) fn request(&self) -> Result<Option<ringway_client::Offload>, c_int> {
        let gso = match u32::from(self.gso) {
            RINGWAY_GSO_NONE => Gso::None,
            RINGWAY_GSO_TCP4 => Gso::Tcp4,
            RINGWAY_GSO_UDP_FRAGMENTS => Gso::Udp4Frag,
            RINGWAY_GSO_TCP6 => Gso::Tcp6,
            RINGWAY_GSO_UDP => Gso::UdpL4,
            _ => return Err(RINGWAY_E_OFFLOAD),
        };
        let request = ringway_client::Offload {
            needs_csum: self.needs_csum != 0,
            gso,
            ecn: self.ecn != 0,
            hdr_len: self.header_length,
            gso_size: self.gso_size,
            csum_start: self.csum_start,
            csum_offset: self.csum_offset,
            tunnel: None,
        };
        // What the switch would find wrong.
        let seen = ringway_client::Offload::decode(&ringway_client::Offload::encode(Some(&request)));
        seen.map(|seen| seen.map(|_| request)).map_err(|_| RINGWAY_E_OFFLOAD)
    }

    fn from_request(request: Option<ringway_client::Offload>) -> Offload {
        let request = request.unwrap_or_default();
        let gso = match request.gso {
            Gso::None => RINGWAY_GSO_NONE,
            Gso::Tcp4 => RINGWAY_GSO_TCP4,
            Gso::Udp4Frag => RINGWAY_GSO_UDP_FRAGMENTS,
            Gso::Tcp6 => RINGWAY_GSO_TCP6,
            Gso::UdpL4 => RINGWAY_GSO_UDP,
        };
        Offload {
            needs_csum: request.needs_csum.into(),
            ecn: request.ecn.into(),
            gso: gso as u16,
            gso_size: request.gso_size,
            header_length: request.hdr_len,
            csum_start: request.csum_start,
            csum_offset: request.csum_offset,
        }
    }
}

/// Writes RINGWAY_OFFLOAD_BYTES bytes of header in front of a frame in a reserved buffer. `offload` may be NULL: then nothing is left
/// to be done. Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_offload_encode(offload: *const Offload, header: *mut c_void) -> c_int {
    if header.is_null() {
        return RINGWAY_E_ARGUMENT;
    }
    // SAFETY: NULL or the caller's.
    let request = match unsafe { offload.as_ref() }.map(Offload::request).transpose() {
        Ok(request) => request.flatten(),
        Err(code) => return code,
    };
    let mut bytes = [0; RINGWAY_OFFLOAD_BYTES];
    bytes[..ringway_client::Offload::BYTES].copy_from_slice(&ringway_client::Offload::encode(request.as_ref()));
    // SAFETY: the caller's, not NULL.
    unsafe { header.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    0
}

/// Reads the header in front of a received frame into `*offload`. Returns 1 if something is left to be done, 0 if nothing is: then
/// all members are 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_offload_decode(header: *const c_void, offload: *mut Offload) -> c_int {
    if header.is_null() || offload.is_null() {
        return RINGWAY_E_ARGUMENT;
    }
    // SAFETY: RINGWAY_OFFLOAD_BYTES bytes of the caller.
    let bytes = unsafe { slice::from_raw_parts(header.cast::<u8>(), ringway_client::Offload::BYTES) };
    let Some(Ok(request)) = bytes.first_chunk().map(ringway_client::Offload::decode) else { return RINGWAY_E_OFFLOAD };
    // SAFETY: the caller's, not NULL.
    unsafe { *offload = Offload::from_request(request) };
    request.is_some().into()
}
