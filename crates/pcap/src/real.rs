//! libpcap itself: one function here for each of its functions, which calls it or, without libpcap, returns a given value.
#![allow(clippy::too_many_arguments)]

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, addrinfo, c_char, c_int, c_long, c_uchar, c_uint};

use crate::abi::*;
use crate::text;

/// Every function of libpcap with its arguments, its result, and the result without libpcap.
macro_rules! real {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? { $missing:expr })*) => {
        /// The addresses of libpcap's functions.
        #[derive(Clone, Copy)]
        struct Table {
            $($name: Option<unsafe extern "C-unwind" fn($($type),*) $(-> $result)?>,)*
        }

        impl Table {
            fn new(handle: *mut c_void) -> Self {
                // SAFETY: the handle is libpcap's, and the types are those that its manual pages give.
                unsafe { Self { $($name: std::mem::transmute::<*mut c_void, Option<unsafe extern "C-unwind" fn($($type),*) $(-> $result)?>>(symbol(handle, concat!(stringify!($name), "\0"))),)* } }
            }
        }

        $(
            /// libpcap's own function.
            ///
            /// # Safety
            /// As libpcap's manual page requires.
            pub unsafe fn $name($($arg: $type),*) $(-> $result)? {
                match table().and_then(|table| table.$name) {
                    // SAFETY: passed on.
                    Some(function) => unsafe { function($($arg),*) },
                    None => $missing,
                }
            }
        )*
    };
}

/// Exports functions that need nothing of ours.
macro_rules! export {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(
            /// See libpcap's manual page.
            ///
            /// # Safety
            /// As libpcap's manual page requires.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $result)? {
                // SAFETY: passed on.
                unsafe { crate::real::$name($($arg),*) }
            }
        )*
    };
}
pub(crate) use export;

fn symbol(handle: *mut c_void, name: &str) -> *mut c_void {
    // SAFETY: the handle is open, and the name ends with a zero.
    unsafe { libc::dlsym(handle, name.as_ptr().cast()) }
}

/// The library and its functions, or why there is none.
type Loaded = Result<Table, String>;

/// Null until libpcap is wanted. Threads may open it at the same time, and the first one's is kept. None waits for another: the child of
/// a fork would wait for a thread that it does not have.
static LOADED: AtomicPtr<Loaded> = AtomicPtr::new(null_mut());

fn known() -> Option<&'static Loaded> {
    // SAFETY: published, and never freed.
    unsafe { LOADED.load(Ordering::Acquire).as_ref() }
}

fn loaded() -> &'static Loaded {
    known().unwrap_or_else(load)
}

#[cold]
fn load() -> &'static Loaded {
    let own = Box::into_raw(Box::new(crate::find::open().map(Table::new)));
    match LOADED.compare_exchange(null_mut(), own, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: published, and never freed.
        Ok(_) => unsafe { &*own },
        Err(others) => {
            // SAFETY: made above, and not published.
            drop(unsafe { Box::from_raw(own) });
            // SAFETY: published, and never freed.
            unsafe { &*others }
        }
    }
}

#[inline]
fn table() -> Option<&'static Table> {
    loaded().as_ref().ok()
}

/// Writes why libpcap is missing into a program's error buffer.
fn say(errbuf: *mut c_char) {
    if let Some(Err(why)) = known() {
        // SAFETY: the caller's buffer has the size that libpcap requires.
        unsafe { text::to_errbuf(errbuf, why) };
    }
}

/// Why there is no libpcap, or `None`.
pub fn missing() -> Option<String> {
    loaded().as_ref().err().cloned()
}

const NULL_TEXT: *const c_char = std::ptr::null();
const NONE: &CStr = c"libpcap itself is not installed";

real! {
    fn bpf_dump(program: *const bpf_program, option: c_int) { () }
    fn bpf_filter(program: *const bpf_insn, data: *const c_uchar, len: c_uint, present: c_uint) -> c_uint { 0 }
    fn bpf_image(instruction: *const bpf_insn, number: c_int) -> *mut c_char { std::ptr::null_mut() }
    fn bpf_validate(program: *const bpf_insn, len: c_int) -> c_int { 0 }
    fn pcap_activate(p: *mut pcap_t) -> c_int { PCAP_ERROR }
    fn pcap_breakloop(p: *mut pcap_t) { () }
    fn pcap_bufsize(p: *mut pcap_t) -> c_int { 0 }
    fn pcap_can_set_rfmon(p: *mut pcap_t) -> c_int { PCAP_ERROR }
    fn pcap_close(p: *mut pcap_t) { () }
    fn pcap_compile(p: *mut pcap_t, program: *mut bpf_program, filter: *const c_char, optimise: c_int, mask: c_uint) -> c_int { PCAP_ERROR }
    fn pcap_compile_nopcap(snaplen: c_int, linktype: c_int, program: *mut bpf_program, filter: *const c_char, optimise: c_int, mask: c_uint) -> c_int { PCAP_ERROR }
    fn pcap_create(device: *const c_char, errbuf: *mut c_char) -> *mut pcap_t { { say(errbuf); std::ptr::null_mut() } }
    fn pcap_datalink(p: *mut pcap_t) -> c_int { PCAP_ERROR }
    fn pcap_datalink_ext(p: *mut pcap_t) -> c_int { PCAP_ERROR }
    fn pcap_datalink_name_to_val(name: *const c_char) -> c_int { PCAP_ERROR }
    fn pcap_datalink_val_to_description(dlt: c_int) -> *const c_char { NULL_TEXT }
    fn pcap_datalink_val_to_description_or_dlt(dlt: c_int) -> *const c_char { NONE.as_ptr() }
    fn pcap_datalink_val_to_name(dlt: c_int) -> *const c_char { NULL_TEXT }
    fn pcap_dispatch(p: *mut pcap_t, count: c_int, callback: pcap_handler, user: *mut c_uchar) -> c_int { PCAP_ERROR }
    fn pcap_dump(user: *mut c_uchar, header: *const pcap_pkthdr, data: *const c_uchar) { () }
    fn pcap_dump_close(dump: *mut pcap_dumper_t) { () }
    fn pcap_dump_file(dump: *mut pcap_dumper_t) -> *mut FILE { std::ptr::null_mut() }
    fn pcap_dump_flush(dump: *mut pcap_dumper_t) -> c_int { PCAP_ERROR }
    fn pcap_dump_fopen(p: *mut pcap_t, file: *mut FILE) -> *mut pcap_dumper_t { std::ptr::null_mut() }
    fn pcap_dump_ftell(dump: *mut pcap_dumper_t) -> c_long { -1 }
    fn pcap_dump_ftell64(dump: *mut pcap_dumper_t) -> i64 { -1 }
    fn pcap_dump_open(p: *mut pcap_t, name: *const c_char) -> *mut pcap_dumper_t { std::ptr::null_mut() }
    fn pcap_dump_open_append(p: *mut pcap_t, name: *const c_char) -> *mut pcap_dumper_t { std::ptr::null_mut() }
    fn pcap_ether_aton(text: *const c_char) -> *mut c_uchar { std::ptr::null_mut() }
    fn pcap_ether_hostton(name: *const c_char) -> *mut c_uchar { std::ptr::null_mut() }
    fn pcap_file(p: *mut pcap_t) -> *mut FILE { std::ptr::null_mut() }
    fn pcap_fileno(p: *mut pcap_t) -> c_int { PCAP_ERROR }
    fn pcap_findalldevs(devices: *mut *mut pcap_if_t, errbuf: *mut c_char) -> c_int { { say(errbuf); PCAP_ERROR } }
    fn pcap_fopen_offline(file: *mut FILE, errbuf: *mut c_char) -> *mut pcap_t { { say(errbuf); std::ptr::null_mut() } }
    fn pcap_fopen_offline_with_tstamp_precision(file: *mut FILE, precision: c_uint, errbuf: *mut c_char) -> *mut pcap_t { { say(errbuf); std::ptr::null_mut() } }
    fn pcap_freealldevs(devices: *mut pcap_if_t) { () }
    fn pcap_freecode(program: *mut bpf_program) { () }
    fn pcap_get_required_select_timeout(p: *mut pcap_t) -> *const libc::timeval { std::ptr::null() }
    fn pcap_get_selectable_fd(p: *mut pcap_t) -> c_int { PCAP_ERROR }
    fn pcap_get_tstamp_precision(p: *mut pcap_t) -> c_int { 0 }
    fn pcap_geterr(p: *mut pcap_t) -> *mut c_char { NONE.as_ptr().cast_mut() }
    fn pcap_getnonblock(p: *mut pcap_t, errbuf: *mut c_char) -> c_int { PCAP_ERROR }
    fn pcap_init(options: c_uint, errbuf: *mut c_char) -> c_int { { say(errbuf); PCAP_ERROR } }
    fn pcap_inject(p: *mut pcap_t, data: *const c_void, len: usize) -> c_int { PCAP_ERROR }
    fn pcap_is_swapped(p: *mut pcap_t) -> c_int { 0 }
    fn pcap_lib_version() -> *const c_char { NONE.as_ptr() }
    fn pcap_list_datalinks(p: *mut pcap_t, list: *mut *mut c_int) -> c_int { PCAP_ERROR }
    fn pcap_list_tstamp_types(p: *mut pcap_t, list: *mut *mut c_int) -> c_int { PCAP_ERROR }
    fn pcap_lookupdev(errbuf: *mut c_char) -> *mut c_char { { say(errbuf); std::ptr::null_mut() } }
    fn pcap_lookupnet(device: *const c_char, net: *mut c_uint, mask: *mut c_uint, errbuf: *mut c_char) -> c_int { { say(errbuf); PCAP_ERROR } }
    fn pcap_loop(p: *mut pcap_t, count: c_int, callback: pcap_handler, user: *mut c_uchar) -> c_int { PCAP_ERROR }
    fn pcap_major_version(p: *mut pcap_t) -> c_int { 2 }
    fn pcap_minor_version(p: *mut pcap_t) -> c_int { 4 }
    fn pcap_nametoaddr(name: *const c_char) -> *mut *mut c_uint { std::ptr::null_mut() }
    fn pcap_nametoaddrinfo(name: *const c_char) -> *mut addrinfo { std::ptr::null_mut() }
    fn pcap_nametoeproto(name: *const c_char) -> c_int { 0xffff }
    fn pcap_nametollc(name: *const c_char) -> c_int { PCAP_ERROR }
    fn pcap_nametonetaddr(name: *const c_char) -> c_uint { 0 }
    fn pcap_nametoport(name: *const c_char, port: *mut c_int, protocol: *mut c_int) -> c_int { 0 }
    fn pcap_nametoportrange(name: *const c_char, first: *mut c_int, last: *mut c_int, protocol: *mut c_int) -> c_int { 0 }
    fn pcap_nametoproto(name: *const c_char) -> c_int { PCAP_ERROR }
    fn pcap_next(p: *mut pcap_t, header: *mut pcap_pkthdr) -> *const c_uchar { std::ptr::null() }
    fn pcap_next_etherent(file: *mut FILE) -> *mut c_void { std::ptr::null_mut() }
    fn pcap_next_ex(p: *mut pcap_t, header: *mut *mut pcap_pkthdr, data: *mut *const c_uchar) -> c_int { PCAP_ERROR }
    fn pcap_offline_filter(program: *const bpf_program, header: *const pcap_pkthdr, data: *const c_uchar) -> c_int { 0 }
    fn pcap_open_dead(linktype: c_int, snaplen: c_int) -> *mut pcap_t { std::ptr::null_mut() }
    fn pcap_open_dead_with_tstamp_precision(linktype: c_int, snaplen: c_int, precision: c_uint) -> *mut pcap_t { std::ptr::null_mut() }
    fn pcap_open_live(device: *const c_char, snaplen: c_int, promisc: c_int, timeout: c_int, errbuf: *mut c_char) -> *mut pcap_t { { say(errbuf); std::ptr::null_mut() } }
    fn pcap_open_offline(name: *const c_char, errbuf: *mut c_char) -> *mut pcap_t { { say(errbuf); std::ptr::null_mut() } }
    fn pcap_open_offline_with_tstamp_precision(name: *const c_char, precision: c_uint, errbuf: *mut c_char) -> *mut pcap_t { { say(errbuf); std::ptr::null_mut() } }
    fn pcap_perror(p: *mut pcap_t, prefix: *const c_char) { () }
    fn pcap_sendpacket(p: *mut pcap_t, data: *const c_uchar, len: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_buffer_size(p: *mut pcap_t, bytes: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_datalink(p: *mut pcap_t, dlt: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_immediate_mode(p: *mut pcap_t, immediate: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_promisc(p: *mut pcap_t, promisc: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_protocol_linux(p: *mut pcap_t, protocol: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_rfmon(p: *mut pcap_t, rfmon: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_snaplen(p: *mut pcap_t, snaplen: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_timeout(p: *mut pcap_t, timeout: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_tstamp_precision(p: *mut pcap_t, precision: c_int) -> c_int { PCAP_ERROR }
    fn pcap_set_tstamp_type(p: *mut pcap_t, kind: c_int) -> c_int { PCAP_ERROR }
    fn pcap_setdirection(p: *mut pcap_t, direction: c_uint) -> c_int { PCAP_ERROR }
    fn pcap_setfilter(p: *mut pcap_t, program: *mut bpf_program) -> c_int { PCAP_ERROR }
    fn pcap_setnonblock(p: *mut pcap_t, nonblock: c_int, errbuf: *mut c_char) -> c_int { PCAP_ERROR }
    fn pcap_snapshot(p: *mut pcap_t) -> c_int { PCAP_ERROR }
    fn pcap_stats(p: *mut pcap_t, stat: *mut pcap_stat) -> c_int { PCAP_ERROR }
    fn pcap_statustostr(status: c_int) -> *const c_char { NONE.as_ptr() }
    fn pcap_strerror(error: c_int) -> *const c_char { NONE.as_ptr() }
    fn pcap_tstamp_type_name_to_val(name: *const c_char) -> c_int { PCAP_ERROR }
    fn pcap_tstamp_type_val_to_description(kind: c_int) -> *const c_char { NULL_TEXT }
    fn pcap_tstamp_type_val_to_name(kind: c_int) -> *const c_char { NULL_TEXT }
}
