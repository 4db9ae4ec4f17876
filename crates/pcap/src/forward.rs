//! The exported functions that libpcap serves whatever the device.

use std::ffi::c_void;

use libc::{FILE, addrinfo, c_char, c_int, c_long, c_uchar, c_uint};

use crate::abi::*;
use crate::real::export;

export! {
    fn bpf_dump(program: *const bpf_program, option: c_int);
    fn bpf_filter(program: *const bpf_insn, data: *const c_uchar, len: c_uint, present: c_uint) -> c_uint;
    fn bpf_image(instruction: *const bpf_insn, number: c_int) -> *mut c_char;
    fn bpf_validate(program: *const bpf_insn, len: c_int) -> c_int;
    fn pcap_compile_nopcap(snaplen: c_int, linktype: c_int, program: *mut bpf_program, filter: *const c_char, optimise: c_int, mask: c_uint) -> c_int;
    fn pcap_datalink_name_to_val(name: *const c_char) -> c_int;
    fn pcap_datalink_val_to_description(dlt: c_int) -> *const c_char;
    fn pcap_datalink_val_to_description_or_dlt(dlt: c_int) -> *const c_char;
    fn pcap_datalink_val_to_name(dlt: c_int) -> *const c_char;
    fn pcap_dump(user: *mut c_uchar, header: *const pcap_pkthdr, data: *const c_uchar);
    fn pcap_dump_close(dump: *mut pcap_dumper_t);
    fn pcap_dump_file(dump: *mut pcap_dumper_t) -> *mut FILE;
    fn pcap_dump_flush(dump: *mut pcap_dumper_t) -> c_int;
    fn pcap_dump_ftell(dump: *mut pcap_dumper_t) -> c_long;
    fn pcap_dump_ftell64(dump: *mut pcap_dumper_t) -> i64;
    fn pcap_ether_aton(text: *const c_char) -> *mut c_uchar;
    fn pcap_ether_hostton(name: *const c_char) -> *mut c_uchar;
    fn pcap_fopen_offline(file: *mut FILE, errbuf: *mut c_char) -> *mut pcap_t;
    fn pcap_fopen_offline_with_tstamp_precision(file: *mut FILE, precision: c_uint, errbuf: *mut c_char) -> *mut pcap_t;
    fn pcap_freecode(program: *mut bpf_program);
    fn pcap_init(options: c_uint, errbuf: *mut c_char) -> c_int;
    fn pcap_lookupdev(errbuf: *mut c_char) -> *mut c_char;
    fn pcap_nametoaddr(name: *const c_char) -> *mut *mut c_uint;
    fn pcap_nametoaddrinfo(name: *const c_char) -> *mut addrinfo;
    fn pcap_nametoeproto(name: *const c_char) -> c_int;
    fn pcap_nametollc(name: *const c_char) -> c_int;
    fn pcap_nametonetaddr(name: *const c_char) -> c_uint;
    fn pcap_nametoport(name: *const c_char, port: *mut c_int, protocol: *mut c_int) -> c_int;
    fn pcap_nametoportrange(name: *const c_char, first: *mut c_int, last: *mut c_int, protocol: *mut c_int) -> c_int;
    fn pcap_nametoproto(name: *const c_char) -> c_int;
    fn pcap_next_etherent(file: *mut FILE) -> *mut c_void;
    fn pcap_offline_filter(program: *const bpf_program, header: *const pcap_pkthdr, data: *const c_uchar) -> c_int;
    fn pcap_open_dead(linktype: c_int, snaplen: c_int) -> *mut pcap_t;
    fn pcap_open_dead_with_tstamp_precision(linktype: c_int, snaplen: c_int, precision: c_uint) -> *mut pcap_t;
    fn pcap_open_offline(name: *const c_char, errbuf: *mut c_char) -> *mut pcap_t;
    fn pcap_open_offline_with_tstamp_precision(name: *const c_char, precision: c_uint, errbuf: *mut c_char) -> *mut pcap_t;
    fn pcap_statustostr(status: c_int) -> *const c_char;
    fn pcap_strerror(error: c_int) -> *const c_char;
    fn pcap_tstamp_type_name_to_val(name: *const c_char) -> c_int;
    fn pcap_tstamp_type_val_to_description(kind: c_int) -> *const c_char;
    fn pcap_tstamp_type_val_to_name(kind: c_int) -> *const c_char;
}
