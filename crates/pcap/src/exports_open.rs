//! The exported functions that make, set up and end handles, and list devices.

use std::ffi::CStr;
use std::io::Write;
use std::sync::atomic::Ordering;

use libc::{c_char, c_int, c_uint};

use crate::abi::*;
use crate::device::Device;
use crate::devices;
use crate::handle::Handle;
use crate::real;
use crate::receiver::Receiver;
use crate::settings::Settings;
use crate::text::to_errbuf;

/// Returns the device of ours that a program names.
///
/// # Safety
/// `name` is null or ends with a zero.
unsafe fn device<'a>(name: *const c_char) -> Option<(&'a str, Device)> {
    if name.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) }.to_str().ok()?;
    Some((name, Device::parse(name)?))
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_create(name: *const c_char, errbuf: *mut c_char) -> *mut pcap_t {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        match device(name) {
            Some((_, device)) => Handle::create(device),
            None => real::pcap_create(name, errbuf),
        }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_activate(p: *mut pcap_t) -> c_int {
    // SAFETY: the program's handle is open, and nothing else of it is borrowed.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_activate(p) };
        activate(handle)
    }
}

/// # Safety
/// Nothing of the handle is borrowed.
unsafe fn activate(handle: &Handle) -> c_int {
    // SAFETY: by the caller's promise.
    let receiving = unsafe { handle.receiving() };
    if receiving.receiver.is_some() {
        return handle.fail(PCAP_ERROR_ACTIVATED, "this handle has been activated already");
    }
    if receiving.settings.rfmon {
        return handle.fail(PCAP_ERROR_RFMON_NOTSUP, "a port of a switch has no monitor mode");
    }
    match Receiver::open(&receiving.device, &receiving.settings, &handle.shared) {
        Ok((receiver, activated)) => {
            receiving.receiver = Some(receiver);
            handle.shared.activate(activated);
            0
        }
        Err((status, text)) => handle.fail(status, &text),
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_open_live(
    name: *const c_char,
    snaplen: c_int,
    promisc: c_int,
    timeout: c_int,
    errbuf: *mut c_char,
) -> *mut pcap_t {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some((name, device)) = device(name) else {
            return real::pcap_open_live(name, snaplen, promisc, timeout, errbuf);
        };
        let p = Handle::create(device);
        pcap_set_snaplen(p, snaplen);
        pcap_set_timeout(p, timeout);
        if pcap_activate(p) >= 0 {
            return p;
        }
        let text = CStr::from_ptr(pcap_geterr(p)).to_string_lossy().into_owned();
        to_errbuf(errbuf, &format!("{name}: {text}"));
        Handle::free(p);
        std::ptr::null_mut()
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_close(p: *mut pcap_t) {
    // SAFETY: nothing uses the handle afterwards.
    unsafe {
        match Handle::ours(p) {
            Some(_) => Handle::free(p),
            None => real::pcap_close(p),
        }
    }
}

/// Setters of handles that are not activated.
macro_rules! setters {
    ($(fn $name:ident($value:ident: c_int) = |$settings:ident| $change:expr;)*) => {
        $(
            /// See libpcap's manual page.
            ///
            /// # Safety
            /// As libpcap's manual page requires.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(p: *mut pcap_t, $value: c_int) -> c_int {
                // SAFETY: the program's handle is open, and nothing else of it is borrowed.
                unsafe {
                    match Handle::ours(p) {
                        Some(handle) => handle.set(|$settings: &mut Settings| $change),
                        None => real::$name(p, $value),
                    }
                }
            }
        )*
    };
}

setters! {
    fn pcap_set_snaplen(value: c_int) = |settings| {
        settings.snaplen = if (1..=MAXIMUM_SNAPLEN).contains(&value) { value } else { MAXIMUM_SNAPLEN };
    };
    // A port gets all frames that the switch delivers to it. Their destination addresses do not matter.
    fn pcap_set_promisc(_value: c_int) = |_settings| {};
    fn pcap_set_rfmon(value: c_int) = |settings| settings.rfmon = value != 0;
    fn pcap_set_timeout(value: c_int) = |settings| settings.timeout = value;
    fn pcap_set_buffer_size(value: c_int) = |settings| if value > 0 { settings.buffer_size = value };
    // A frame can be read as soon as it is in the ring.
    fn pcap_set_immediate_mode(_value: c_int) = |_settings| {};
    fn pcap_set_protocol_linux(_value: c_int) = |_settings| {};
}

/// See libpcap's manual page. Time stamps of ports are the host's.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_set_tstamp_type(p: *mut pcap_t, kind: c_int) -> c_int {
    // SAFETY: the program's handle is open, and nothing else of it is borrowed.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_set_tstamp_type(p, kind) };
        match (handle.set(|_| {}), kind) {
            (0, PCAP_TSTAMP_HOST) => 0,
            (0, _) => PCAP_WARNING_TSTAMP_TYPE_NOTSUP,
            (status, _) => status,
        }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_set_tstamp_precision(p: *mut pcap_t, precision: c_int) -> c_int {
    // SAFETY: the program's handle is open, and nothing else of it is borrowed.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_set_tstamp_precision(p, precision) };
        if !(0..=PCAP_TSTAMP_PRECISION_NANO).contains(&precision) {
            return handle.fail(PCAP_ERROR_TSTAMP_PRECISION_NOTSUP, "a time stamp has micro- or nanoseconds");
        }
        let nanoseconds = precision == PCAP_TSTAMP_PRECISION_NANO;
        handle.set(|_| handle.shared.nanoseconds.store(nanoseconds, Ordering::Relaxed))
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_get_tstamp_precision(p: *mut pcap_t) -> c_int {
    // SAFETY: the program's handle is open.
    unsafe {
        match Handle::ours(p) {
            Some(handle) => c_int::from(handle.shared.nanoseconds.load(Ordering::Relaxed)),
            None => real::pcap_get_tstamp_precision(p),
        }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_can_set_rfmon(p: *mut pcap_t) -> c_int {
    // SAFETY: the program's handle is open.
    unsafe { if Handle::ours(p).is_some() { 0 } else { real::pcap_can_set_rfmon(p) } }
}

/// Gives the program a list of numbers, which it frees. Returns the number of numbers.
///
/// # Safety
/// `list` is writable.
unsafe fn give_list(list: *mut *mut c_int, values: &[c_int]) -> c_int {
    // SAFETY: plain memory.
    let memory = unsafe { libc::malloc(size_of_val(values)) }.cast::<c_int>();
    if memory.is_null() {
        return PCAP_ERROR;
    }
    // SAFETY: the memory has room for the values, and `list` is writable.
    unsafe {
        std::ptr::copy_nonoverlapping(values.as_ptr(), memory, values.len());
        *list = memory;
    }
    values.len() as c_int
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_list_tstamp_types(p: *mut pcap_t, list: *mut *mut c_int) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        match Handle::ours(p) {
            Some(_) => give_list(list, &[PCAP_TSTAMP_HOST]),
            None => real::pcap_list_tstamp_types(p, list),
        }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_list_datalinks(p: *mut pcap_t, list: *mut *mut c_int) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_list_datalinks(p, list) };
        handle.shared.with_activated(|_| Ok(give_list(list, &[DLT_EN10MB])))
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// The list is one of this library's or of libpcap's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_free_tstamp_types(list: *mut c_int) {
    // SAFETY: libpcap makes its lists by malloc, too.
    unsafe { libc::free(list.cast()) };
}

/// See libpcap's manual page.
///
/// # Safety
/// The list is one of this library's or of libpcap's.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_free_datalinks(list: *mut c_int) {
    // SAFETY: libpcap makes its lists by malloc, too.
    unsafe { libc::free(list.cast()) };
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_findalldevs(devices: *mut *mut pcap_if_t, errbuf: *mut c_char) -> c_int {
    // SAFETY: `devices` is writable, and holds a list of libpcap's after its success.
    unsafe {
        let mut list = std::ptr::null_mut();
        let status = real::pcap_findalldevs(&raw mut list, errbuf);
        if status != 0 {
            list = std::ptr::null_mut();
        }
        devices::append(&mut list);
        *devices = list;
        // Ports can be listed where libpcap cannot list devices.
        if list.is_null() { status } else { 0 }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_freealldevs(devices: *mut pcap_if_t) {
    // SAFETY: the list is one of `pcap_findalldevs`.
    unsafe { devices::free(devices) };
}

/// See libpcap's manual page. A port has neither network nor mask.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_lookupnet(
    name: *const c_char,
    net: *mut c_uint,
    mask: *mut c_uint,
    errbuf: *mut c_char,
) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        if device(name).is_none() {
            return real::pcap_lookupnet(name, net, mask, errbuf);
        }
        (*net, *mask) = (0, 0);
        0
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_geterr(p: *mut pcap_t) -> *mut c_char {
    // SAFETY: the program's handle is open, and nothing else of it is borrowed.
    unsafe {
        match Handle::ours(p) {
            Some(handle) => handle.shared.error(),
            None => real::pcap_geterr(p),
        }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_perror(p: *mut pcap_t, prefix: *const c_char) {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        if Handle::ours(p).is_none() {
            return real::pcap_perror(p, prefix);
        }
        let text = |text: *const c_char| match text.is_null() {
            true => "(null)".to_owned(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        };
        // Nothing is lost but the text if stderr is full.
        let _ = writeln!(std::io::stderr(), "{}: {}", text(prefix), text(pcap_geterr(p)));
    }
}

/// libpcap's text, and a word that says that ports can be opened.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn pcap_lib_version() -> *const c_char {
    static TEXT: std::sync::OnceLock<std::ffi::CString> = std::sync::OnceLock::new();
    let text = TEXT.get_or_init(|| {
        // SAFETY: libpcap's text ends with a zero and stays.
        let real = unsafe { CStr::from_ptr(real::pcap_lib_version()) }.to_string_lossy().into_owned();
        std::ffi::CString::new(format!("{real}, with ports of Ringway {}", env!("CARGO_PKG_VERSION")))
            .unwrap_or_default()
    });
    text.as_ptr()
}
