//! The exported functions of activated handles.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering;

use libc::{FILE, c_char, c_int, c_uchar, timeval};

use crate::abi::*;
use crate::handle::Handle;
use crate::real;
use crate::receiver::{Direction, Receiver, Woken};
use crate::selectable::Selectable;
use crate::shared::Side;

/// What a read did.
enum Read {
    /// It gave so many frames to the callback.
    Frames(c_int),
    /// Its time is over.
    Nothing,
    /// It was asked to end before there was a frame.
    Broken,
    /// The status of a failure.
    Failed(c_int),
}

/// Ends a read however it ends, also where a callback throws or a thread is cancelled: releases its last frame, and prepares the
/// program's own wait.
struct EndOfRead<'a>(&'a Handle);

impl Drop for EndOfRead<'_> {
    fn drop(&mut self) {
        // SAFETY: the read has ended, and with it every borrow of the handle.
        if let Some(receiver) = unsafe { &mut self.0.receiving().receiver } {
            receiver.end_read();
        }
    }
}

/// Gives frames to a callback: those that are there, `most` at most if that is positive, or else the first ones that come.
///
/// # Safety
/// The handle is open, nothing of it is borrowed, and the callback is one for `user`.
unsafe fn read(handle: &Handle, most: c_int, callback: pcap_handler, user: *mut c_uchar) -> Read {
    // SAFETY: by the caller's promise. Every borrow of `receiving` ends before the callback runs.
    unsafe {
        let Some(callback) = callback else {
            return Read::Failed(handle.fail(PCAP_ERROR, "there is no callback"));
        };
        let Some(receiver) = &mut handle.receiving().receiver else {
            return Read::Failed(handle.shared.fail_not_activated(Side::Receiving));
        };
        let shared = &handle.shared;
        let most = if most > 0 { most as usize } else { receiver.source.room() };
        let _end = EndOfRead(handle);
        let (mut given, mut deadline) = (0, None);
        loop {
            if shared.breaker.is_asked() {
                if given == 0 {
                    shared.breaker.take();
                    return Read::Broken;
                }
                break;
            }
            let Some(receiver) = &mut handle.receiving().receiver else { return Read::Nothing };
            if let Some(frame) = receiver.next(shared) {
                let header = receiver.header(&frame);
                callback(user, &raw const header, frame.data);
                given += 1;
                if given == most {
                    break;
                }
                continue;
            }
            if given > 0 {
                break;
            }
            match receiver.wait(shared, &mut deadline) {
                Woken::Ready => {}
                Woken::Timeout => break,
                Woken::Ended(why) => return Read::Failed(handle.fail(PCAP_ERROR, &why)),
            }
        }
        if given == 0 { Read::Nothing } else { Read::Frames(given as c_int) }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_dispatch(
    p: *mut pcap_t,
    count: c_int,
    callback: pcap_handler,
    user: *mut c_uchar,
) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_dispatch(p, count, callback, user) };
        match read(handle, count, callback, user) {
            Read::Frames(frames) => frames,
            Read::Nothing => 0,
            Read::Broken => PCAP_ERROR_BREAK,
            Read::Failed(status) => status,
        }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_loop(
    p: *mut pcap_t,
    count: c_int,
    callback: pcap_handler,
    user: *mut c_uchar,
) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_loop(p, count, callback, user) };
        let mut left = count;
        loop {
            match read(handle, left, callback, user) {
                Read::Frames(frames) if count > 0 => {
                    left -= frames;
                    if left <= 0 {
                        return 0;
                    }
                }
                Read::Frames(_) | Read::Nothing => {}
                Read::Broken => return PCAP_ERROR_BREAK,
                Read::Failed(status) => return status,
            }
        }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_next_ex(
    p: *mut pcap_t,
    header: *mut *mut pcap_pkthdr,
    data: *mut *const c_uchar,
) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires. No callback runs.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_next_ex(p, header, data) };
        let end = EndOfRead(handle);
        let (shared, receiving) = (&handle.shared, handle.receiving());
        let mut deadline = None;
        loop {
            if shared.breaker.take() {
                return PCAP_ERROR_BREAK;
            }
            let Some(receiver) = &mut receiving.receiver else {
                return shared.fail_not_activated(Side::Receiving);
            };
            if let Some(frame) = receiver.next(shared) {
                *data = receiver.keep(&frame);
                *header = &raw mut receiver.header;
                // The program has the frame until its next read.
                std::mem::forget(end);
                return 1;
            }
            match receiver.wait(shared, &mut deadline) {
                Woken::Ready => {}
                Woken::Timeout => return 0,
                Woken::Ended(why) => return handle.fail(PCAP_ERROR, &why),
            }
        }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_next(p: *mut pcap_t, header: *mut pcap_pkthdr) -> *const c_uchar {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        if Handle::ours(p).is_none() {
            return real::pcap_next(p, header);
        }
        let (mut found, mut data) = (std::ptr::null_mut(), std::ptr::null());
        if pcap_next_ex(p, &raw mut found, &raw mut data) != 1 {
            return std::ptr::null();
        }
        *header = *found;
        data
    }
}

/// See libpcap's manual page. Signal handlers and other threads may call it.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_breakloop(p: *mut pcap_t) {
    // SAFETY: the program's handle is open.
    unsafe {
        match Handle::ours(p) {
            Some(handle) => handle.shared.break_waits(),
            None => real::pcap_breakloop(p),
        }
    }
}

/// Sends a frame, by another thread than the one that receives or by its callback. Returns its length or a status.
///
/// # Safety
/// There are `len` bytes at `data`, or `data` is null.
#[inline]
unsafe fn inject(handle: &Handle, data: *const c_void, len: usize) -> c_int {
    if len > isize::MAX as usize || data.is_null() {
        let text = format!("send: {len} bytes at {data:p} are no frame");
        return handle.shared.fail(Side::Sending, PCAP_ERROR, &text);
    }
    // SAFETY: by the caller's promise.
    handle.shared.send(unsafe { std::slice::from_raw_parts(data.cast(), len) })
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_inject(p: *mut pcap_t, data: *const c_void, len: usize) -> c_int {
    // SAFETY: the program's frame has `len` bytes.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_inject(p, data, len) };
        inject(handle, data, len)
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_sendpacket(p: *mut pcap_t, data: *const c_uchar, len: c_int) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_sendpacket(p, data, len) };
        let sent = inject(handle, data.cast(), usize::try_from(len).unwrap_or(0));
        if sent < 0 { PCAP_ERROR } else { 0 }
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_setfilter(p: *mut pcap_t, program: *mut bpf_program) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_setfilter(p, program) };
        handle.with_receiver(|receiver| receiver.set_filter(program).map(|()| 0))
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_compile(
    p: *mut pcap_t,
    program: *mut bpf_program,
    filter: *const c_char,
    optimise: c_int,
    mask: c_uint,
) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_compile(p, program, filter, optimise, mask) };
        handle.shared.with_activated(|activated| activated.compile(program, filter, optimise, mask).map(|()| 0))
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_setdirection(p: *mut pcap_t, direction: c_uint) -> c_int {
    // SAFETY: the program's handle is open, and nothing else of it is borrowed.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_setdirection(p, direction) };
        handle.with_receiver(|receiver| {
            receiver.direction = match direction {
                0 => Direction::Both,
                1 => Direction::In,
                2 => Direction::Out,
                other => return Err(format!("{other} is no direction")),
            };
            Ok(0)
        })
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_stats(p: *mut pcap_t, stat: *mut pcap_stat) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_stats(p, stat) };
        handle.shared.with_activated(|activated| {
            *stat = activated.stats(&handle.shared);
            Ok(0)
        })
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_setnonblock(p: *mut pcap_t, nonblock: c_int, errbuf: *mut c_char) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_setnonblock(p, nonblock, errbuf) };
        handle.shared.nonblocking.store(nonblock != 0, Ordering::Relaxed);
        // Threads that wait look again.
        handle.shared.wake();
        0
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_getnonblock(p: *mut pcap_t, errbuf: *mut c_char) -> c_int {
    // SAFETY: the program's arguments are those that the manual page requires.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_getnonblock(p, errbuf) };
        c_int::from(handle.shared.nonblocking.load(Ordering::Relaxed))
    }
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_get_selectable_fd(p: *mut pcap_t) -> c_int {
    // SAFETY: the program's handle is open, and nothing else of it is borrowed.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_get_selectable_fd(p) };
        let Some(receiver) = &mut handle.receiving().receiver else { return PCAP_ERROR };
        match selectable(receiver) {
            Ok(descriptor) => descriptor,
            Err(error) => handle.fail(PCAP_ERROR, &format!("cannot make a descriptor to wait for: {error}")),
        }
    }
}

/// Returns the descriptor, which is made at the first time.
fn selectable(receiver: &mut Receiver) -> std::io::Result<c_int> {
    if receiver.selectable.is_none() {
        let mut selectable = Selectable::new(&receiver.source)?;
        // The program keeps the frame that it has, if any: the descriptor is readable until it is released.
        selectable.settle(&mut receiver.source);
        receiver.selectable = Some(selectable);
    }
    Ok(receiver.selectable.as_ref().map_or(PCAP_ERROR, Selectable::descriptor))
}

/// See libpcap's manual page. As on Linux, it is the descriptor of [`pcap_get_selectable_fd`].
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_fileno(p: *mut pcap_t) -> c_int {
    // SAFETY: the program's handle is open.
    unsafe { if Handle::ours(p).is_some() { pcap_get_selectable_fd(p) } else { real::pcap_fileno(p) } }
}

/// See libpcap's manual page. The descriptor of a port needs no time limit.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_get_required_select_timeout(p: *mut pcap_t) -> *const timeval {
    // SAFETY: the program's handle is open.
    unsafe { if Handle::ours(p).is_some() { std::ptr::null() } else { real::pcap_get_required_select_timeout(p) } }
}

/// Functions whose answer libpcap's handle without a device has.
macro_rules! answers {
    ($(fn $name:ident() -> $result:ty;)*) => {
        $(
            /// See libpcap's manual page.
            ///
            /// # Safety
            /// As libpcap's manual page requires.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(p: *mut pcap_t) -> $result {
                // SAFETY: the program's handle is open, and nothing else of it is borrowed.
                unsafe {
                    let Some(handle) = Handle::ours(p) else { return real::$name(p) };
                    handle.shared.with_activated(|activated| Ok(real::$name(activated.dead.0)))
                }
            }
        )*
    };
}

answers! {
    fn pcap_datalink() -> c_int;
    fn pcap_datalink_ext() -> c_int;
    fn pcap_snapshot() -> c_int;
    fn pcap_is_swapped() -> c_int;
    fn pcap_major_version() -> c_int;
    fn pcap_minor_version() -> c_int;
    fn pcap_bufsize() -> c_int;
}

/// See libpcap's manual page.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_set_datalink(p: *mut pcap_t, dlt: c_int) -> c_int {
    // SAFETY: the program's handle is open, and nothing else of it is borrowed.
    unsafe {
        let Some(handle) = Handle::ours(p) else { return real::pcap_set_datalink(p, dlt) };
        handle.shared.with_activated(|_| match dlt {
            DLT_EN10MB => Ok(0),
            other => {
                Err(format!("{other} is not one of the DLTs supported by this device: it has {DLT_EN10MB}, Ethernet"))
            }
        })
    }
}

/// See libpcap's manual page. Only handles of files have one.
///
/// # Safety
/// As libpcap's manual page requires.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pcap_file(p: *mut pcap_t) -> *mut FILE {
    // SAFETY: the program's handle is open.
    unsafe { if Handle::ours(p).is_some() { std::ptr::null_mut() } else { real::pcap_file(p) } }
}

/// Functions that make a dump file of libpcap's.
macro_rules! dumps {
    ($(fn $name:ident($argument:ident: $type:ty);)*) => {
        $(
            /// See libpcap's manual page.
            ///
            /// # Safety
            /// As libpcap's manual page requires.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(p: *mut pcap_t, $argument: $type) -> *mut pcap_dumper_t {
                // SAFETY: the program's arguments are those that the manual page requires.
                unsafe {
                    let Some(handle) = Handle::ours(p) else { return real::$name(p, $argument) };
                    let mut dump = std::ptr::null_mut();
                    handle.shared.with_activated(|activated| {
                        dump = real::$name(activated.dead.0, $argument);
                        if dump.is_null() { Err(activated.dead.error()) } else { Ok(0) }
                    });
                    dump
                }
            }
        )*
    };
}

dumps! {
    fn pcap_dump_open(name: *const c_char);
    fn pcap_dump_open_append(name: *const c_char);
    fn pcap_dump_fopen(file: *mut FILE);
}
