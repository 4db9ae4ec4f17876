//! A handle of ours.

use std::cell::UnsafeCell;

use libc::c_int;

use crate::abi::{PCAP_ERROR, PCAP_ERROR_ACTIVATED, pcap_t};
use crate::device::Device;
use crate::receiver::Receiver;
use crate::settings::Settings;
use crate::shared::{Shared, Side};

/// Marks handles of ours: the first word of a handle of libpcap's is not the address of this byte.
static MARK: u8 = 0;

/// A handle: what a program's `pcap_t` pointer points to.
///
/// One thread at a time sets the handle up and receives, as with libpcap: the part `receiving` has no lock. Others may do at the same
/// time what uses `shared` alone: send, ask for counters and texts, and `pcap_breakloop`. A callback may call any function with the
/// handle, so nothing of `receiving` is borrowed while a callback runs.
#[repr(C)]
pub struct Handle {
    mark: *const u8,
    pub shared: Shared,
    receiving: UnsafeCell<Receiving>,
}

/// What one thread at a time uses.
pub struct Receiving {
    pub device: Device,
    pub settings: Settings,
    pub receiver: Option<Receiver>,
}

impl Handle {
    /// Makes a handle. [`Handle::free`] ends it.
    pub fn create(device: Device) -> *mut pcap_t {
        let receiving = Receiving { device, settings: Settings::default(), receiver: None };
        let handle = Handle { mark: &raw const MARK, shared: Shared::new(), receiving: UnsafeCell::new(receiving) };
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
    /// No other thread receives or sets the handle up. The reference ends before another is made and before the program is called.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub unsafe fn receiving(&self) -> &mut Receiving {
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.receiving.get() }
    }

    /// Keeps the text of a failure of the thread that receives or sets the handle up. Returns `status`.
    pub fn fail(&self, status: c_int, text: &str) -> c_int {
        self.shared.fail(Side::Receiving, status, text)
    }

    /// Changes the settings of a handle that is not activated.
    ///
    /// # Safety
    /// As [`Handle::receiving`] requires.
    pub unsafe fn set(&self, change: impl FnOnce(&mut Settings)) -> c_int {
        if self.shared.is_activated() {
            return self.fail(PCAP_ERROR_ACTIVATED, "can't perform operation on activated capture");
        }
        // SAFETY: by the caller's promise.
        change(unsafe { &mut self.receiving().settings });
        0
    }

    /// Does something with the receiving side of an activated handle.
    ///
    /// # Safety
    /// As [`Handle::receiving`] requires.
    pub unsafe fn with_receiver(&self, act: impl FnOnce(&mut Receiver) -> Result<c_int, String>) -> c_int {
        // SAFETY: by the caller's promise.
        let Some(receiver) = (unsafe { &mut self.receiving().receiver }) else {
            return self.shared.fail_not_activated(Side::Receiving);
        };
        act(receiver).unwrap_or_else(|text| self.fail(PCAP_ERROR, &text))
    }
}
