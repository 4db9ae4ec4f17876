//! Texts in programs' buffers.

use libc::c_char;

use crate::abi::PCAP_ERRBUF_SIZE;

/// Writes a text into a program's error buffer, as much of it as fits.
///
/// # Safety
/// `errbuf` is null, or has [`PCAP_ERRBUF_SIZE`] writable bytes.
pub unsafe fn to_errbuf(errbuf: *mut c_char, text: &str) {
    if errbuf.is_null() {
        return;
    }
    let mut end = text.len().min(PCAP_ERRBUF_SIZE - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // SAFETY: `end` bytes and a zero fit, by the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), errbuf, end);
        *errbuf.add(end) = 0;
    }
}
