//! libpcap's types and numbers, as its manual pages describe them.
#![allow(non_camel_case_types)]

use libc::{c_char, c_int, c_uchar, c_uint, c_ushort, timeval};

/// A handle. The program sees a pointer only: to a handle of ours or of libpcap's.
#[repr(C)]
pub struct pcap_t {
    _opaque: [u8; 0],
}

/// A dump file of libpcap's.
#[repr(C)]
pub struct pcap_dumper_t {
    _opaque: [u8; 0],
}

/// What comes with each frame.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pcap_pkthdr {
    /// Seconds, and micro- or nanoseconds.
    pub ts: timeval,
    /// Bytes that are present.
    pub caplen: c_uint,
    /// Bytes of the frame.
    pub len: c_uint,
}

/// Counters of a handle.
#[repr(C)]
pub struct pcap_stat {
    pub ps_recv: c_uint,
    pub ps_drop: c_uint,
    pub ps_ifdrop: c_uint,
}

/// An instruction of a filter.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bpf_insn {
    pub code: c_ushort,
    pub jt: c_uchar,
    pub jf: c_uchar,
    pub k: c_uint,
}

/// A compiled filter.
#[repr(C)]
pub struct bpf_program {
    pub bf_len: c_uint,
    pub bf_insns: *mut bpf_insn,
}

/// A device in a list.
#[repr(C)]
pub struct pcap_if_t {
    pub next: *mut pcap_if_t,
    pub name: *mut c_char,
    pub description: *mut c_char,
    pub addresses: *mut libc::c_void,
    pub flags: c_uint,
}

/// What is called for each frame.
pub type pcap_handler = Option<unsafe extern "C-unwind" fn(*mut c_uchar, *const pcap_pkthdr, *const c_uchar)>;

pub const PCAP_ERROR: c_int = -1;
pub const PCAP_ERROR_BREAK: c_int = -2;
pub const PCAP_ERROR_NOT_ACTIVATED: c_int = -3;
pub const PCAP_ERROR_ACTIVATED: c_int = -4;
pub const PCAP_ERROR_NO_SUCH_DEVICE: c_int = -5;
pub const PCAP_ERROR_RFMON_NOTSUP: c_int = -6;
pub const PCAP_ERROR_PERM_DENIED: c_int = -8;
pub const PCAP_ERROR_TSTAMP_PRECISION_NOTSUP: c_int = -12;
pub const PCAP_WARNING_TSTAMP_TYPE_NOTSUP: c_int = 3;

/// Bytes of an error buffer of a program.
pub const PCAP_ERRBUF_SIZE: usize = 256;
/// The longest length limit, and the one for programs that give none.
pub const MAXIMUM_SNAPLEN: c_int = 262_144;

pub const DLT_EN10MB: c_int = 1;
pub const PCAP_TSTAMP_HOST: c_int = 0;
pub const PCAP_TSTAMP_PRECISION_NANO: c_int = 1;

pub const PCAP_IF_UP: c_uint = 2;
pub const PCAP_IF_RUNNING: c_uint = 4;
pub const PCAP_IF_CONNECTION_STATUS_CONNECTED: c_uint = 0x10;
pub const PCAP_IF_CONNECTION_STATUS_DISCONNECTED: c_uint = 0x20;
pub const PCAP_IF_CONNECTION_STATUS_NOT_APPLICABLE: c_uint = 0x30;
