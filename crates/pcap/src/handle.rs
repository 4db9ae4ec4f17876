//! A handle of ours.

use std::cell::UnsafeCell;

use libc::{c_char, c_int};

use crate::abi::{PCAP_ERRBUF_SIZE, PCAP_ERROR_ACTIVATED, PCAP_ERROR_NOT_ACTIVATED, pcap_t};
use crate::active::Active;
use crate::breaker::Breaker;
use crate::device::Device;
use crate::settings::Settings;
use crate::text;

/// Marks handles of ours: the first word of a handle of libpcap's is not the address of this byte.
static MARK: u8 = 0;

/// A handle: what a program's `pcap_t` pointer points to.
///
/// One thread at a time uses a handle, as with libpcap; only `pcap_breakloop` may come at any time. A callback may call other
/// functions with the handle, so nothing of `inner` is borrowed while a callback runs.
#[repr(C)]
pub struct Handle {
    mark: *const u8,
    pub breaker: Breaker,
    inner: UnsafeCell<Inner>,
}

/// What one thread at a time uses.
pub struct Inner {
    pub device: Device,
    pub settings: Settings,
    pub active: Option<Active>,
    /// The text of the last failure.
    error: [c_char; PCAP_ERRBUF_SIZE],
}

impl Handle {
    /// Makes a handle. [`Handle::free`] ends it.
    pub fn create(device: Device) -> *mut pcap_t {
        let inner = Inner { device, settings: Settings::default(), active: None, error: [0; PCAP_ERRBUF_SIZE] };
        let handle = Handle { mark: &raw const MARK, breaker: Breaker::new(), inner: UnsafeCell::new(inner) };
        Box::into_raw(Box::new(handle)).cast()
    }

    /// Returns the handle if it is ours, and `None` if it is libpcap's.
    ///
    /// # Safety
    /// `p` is null or an open handle of this library or of libpcap.
    #[inline]
    pub unsafe fn ours<'a>(p: *mut pcap_t) -> Option<&'a Handle> {
        // SAFETY: an open handle of either library is larger than a word. It stays until the program closes it.
        unsafe { (!p.is_null() && *p.cast::<*const u8>() == &raw const MARK).then(|| &*p.cast::<Handle>()) }
    }

    /// Ends a handle of ours.
    ///
    /// # Safety
    /// `p` is a handle of ours, which nothing uses afterwards.
    pub unsafe fn free(p: *mut pcap_t) {
        // SAFETY: made by `create`.
        drop(unsafe { Box::from_raw(p.cast::<Handle>()) });
    }

    /// The part that one thread uses.
    ///
    /// # Safety
    /// The reference ends before another is made and before the program is called.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub unsafe fn inner(&self) -> &mut Inner {
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.inner.get() }
    }
}

impl Inner {
    /// Keeps the text of a failure. Returns `status`.
    pub fn fail(&mut self, status: c_int, text: &str) -> c_int {
        // SAFETY: the buffer has the size.
        unsafe { text::to_errbuf(self.error.as_mut_ptr(), text) };
        status
    }

    pub fn error(&mut self) -> *mut c_char {
        self.error.as_mut_ptr()
    }

    /// Changes the settings of a handle that is not activated.
    pub fn set(&mut self, change: impl FnOnce(&mut Settings)) -> c_int {
        if self.active.is_some() {
            return self.fail(PCAP_ERROR_ACTIVATED, "can't perform operation on activated capture");
        }
        change(&mut self.settings);
        0
    }

    /// Does something with the activated handle.
    pub fn with_active(&mut self, act: impl FnOnce(&mut Active) -> Result<c_int, String>) -> c_int {
        let Some(active) = &mut self.active else {
            return self.fail(PCAP_ERROR_NOT_ACTIVATED, "this handle hasn't been activated yet");
        };
        match act(active) {
            Ok(result) => result,
            Err(text) => self.fail(crate::abi::PCAP_ERROR, &text),
        }
    }
}
