//! A port: attaching, waiting, its end.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::time::Duration;

use ringway_client::{AttachError, ExternalMemory, RxRing, TxRing};

use crate::error::{RINGWAY_E_ARGUMENT, RINGWAY_E_ENDED, RINGWAY_E_NAME, RINGWAY_E_SHAPE, code, copy_text};

/// The socket of the switch if neither the caller nor RINGWAY_ATTACH_SOCKET in the environment names one.
const DEFAULT_SOCKET: &str = "/run/ringway/attach.sock";

/// A process port. ringway_attach() makes it, ringway_detach() ends it.
pub struct Port {
    port: ringway_client::Port,
    /// The rings, which `port` owns. Threads use rings at the same time, so nothing here is made a reference for that.
    tx: *mut TxRing,
    tx_rings: u32,
    rx: *mut RxRing,
    rx_rings: u32,
}

/// Numbers of rings and slots, and number and size of buffers. 0 stands for the default.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Shape {
    /// sizeof(struct ringway_shape), set by RINGWAY_SHAPE_INIT. Later versions of the library may append members.
    pub size: usize,
    /// Transmit rings: 1 to 16 (1).
    pub tx_rings: u32,
    /// Receive rings: 1 to 16 (1). The switch spreads flows over them.
    pub rx_rings: u32,
    /// Slots of each transmit ring: 4 to 32768 (512). One of them is always empty.
    pub tx_slots: u32,
    /// Slots of each receive ring: 4 to 32768 (512). One of them is always empty.
    pub rx_slots: u32,
    /// Bytes of a buffer: 128 to 65472, a multiple of 64 (2112).
    pub buffer_size: u32,
    /// 1: every frame begins with RINGWAY_OFFLOAD_BYTES bytes of offload header, in both directions.
    pub offload: u32,
}

/// No version of a structure that begins with its size is longer.
const LONGEST: usize = 4096;

/// Attaches as `name` (SWITCH:PORT) through the socket of the switch, and stores the port in `*port`. `socket` may be NULL: then it
/// is $RINGWAY_ATTACH_SOCKET, or /run/ringway/attach.sock. `shape` may be NULL for the default shape. After an error `*port` is NULL,
/// and `text` has what was wrong, cut to `text_size` bytes with the NUL. `text` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_attach(
    socket: *const c_char,
    name: *const c_char,
    shape: *const Shape,
    port: *mut *mut Port,
    text: *mut c_char,
    text_size: usize,
) -> c_int {
    // SAFETY: the caller's pointers, as this function's comment describes them.
    unsafe { store(Port::attach(socket, name, shape, None), port, text, text_size) }
}

/// Why there is no port: the code and the text.
pub(crate) type Failure = (c_int, String);

/// Stores an attached port or endpoint, or NULL and the text of the failure. Returns the code.
///
/// # Safety
/// The caller's pointers, as the comment of `ringway_attach` describes them.
pub(crate) unsafe fn store<T>(
    attached: Result<Box<T>, Failure>,
    port: *mut *mut T,
    text: *mut c_char,
    text_size: usize,
) -> c_int {
    let attached =
        if port.is_null() { Err((RINGWAY_E_ARGUMENT, "the place of the result is NULL".to_owned())) } else { attached };
    let (made, result) = match attached {
        Ok(port) => (Box::into_raw(port), Ok(())),
        Err(failure) => (ptr::null_mut(), Err(failure)),
    };
    if !port.is_null() {
        // SAFETY: the caller's.
        unsafe { *port = made };
    }
    match result {
        Ok(()) => 0,
        Err((code, message)) => {
            // SAFETY: the caller's buffer.
            unsafe { copy_text(&message, text, text_size) };
            code
        }
    }
}

/// Reads a structure that begins with its size, from a program with an older or a newer header. `what` is its name in messages, `init`
/// the macro that sets the size. NULL is `T::default()`, all zero: the default of each member.
///
/// # Safety
/// `from` is NULL, or points to as many bytes as its first member, `size`, says. `T` begins with a `usize`, and any bytes are a `T`.
pub(crate) unsafe fn read_sized<T: Copy + Default>(from: *const T, what: &str, init: &str) -> Result<T, Failure> {
    if from.is_null() {
        return Ok(T::default());
    }
    let first = size_of::<T>();
    // SAFETY: every version begins with its size.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if !(first..=LONGEST).contains(&size) {
        let expected = format!("initialise the {what} with {init}");
        return Err((RINGWAY_E_SHAPE, format!("the size of the {what} is {size}, at least {first}: {expected}")));
    }
    // SAFETY: the caller says that there are `size` bytes.
    let (known, later) = unsafe {
        let later = std::slice::from_raw_parts(from.cast::<u8>().add(first), size - first);
        (from.read_unaligned(), later)
    };
    if later.iter().any(|byte| *byte != 0) {
        let message =
            format!("the {what} has members that this version of the library does not know: update the library");
        return Err((RINGWAY_E_SHAPE, message));
    }
    Ok(known)
}

/// Returns the path of the socket and the name of the port.
///
/// # Safety
/// `socket` and `name` are NULL or strings that end with NUL.
pub(crate) unsafe fn read_names<'a>(
    socket: *const c_char,
    name: *const c_char,
) -> Result<(OsString, &'a str), Failure> {
    if name.is_null() {
        return Err((RINGWAY_E_ARGUMENT, "name is NULL".to_owned()));
    }
    let socket = if socket.is_null() {
        let named = std::env::var_os("RINGWAY_ATTACH_SOCKET").filter(|path| !path.is_empty());
        named.unwrap_or_else(|| DEFAULT_SOCKET.into())
    } else {
        // SAFETY: a string of the caller.
        OsStr::from_bytes(unsafe { CStr::from_ptr(socket) }.to_bytes()).to_owned()
    };
    // SAFETY: a string of the caller, not NULL.
    let name = unsafe { CStr::from_ptr(name) };
    let name = name.to_str().map_err(|_| (RINGWAY_E_NAME, format!("the name {name:?} is not UTF-8")))?;
    Ok((socket, name))
}

/// Reads a shape.
///
/// # Safety
/// As for [`read_sized`].
unsafe fn read_shape(shape: *const Shape) -> Result<ringway_client::Shape, Failure> {
    let default = ringway_client::Shape::default();
    // SAFETY: the caller's; a shape is numbers.
    let known = unsafe { read_sized(shape, "shape", "RINGWAY_SHAPE_INIT") }?;
    let or = |asked: u32, default: u32| if asked == 0 { default } else { asked };
    let rings = |asked: u32, default: u16, what: &str| {
        let message = |_| (RINGWAY_E_SHAPE, format!("{what} {asked} is not possible: 1 to 16"));
        u16::try_from(or(asked, default.into())).map_err(message)
    };
    if known.offload > 1 {
        return Err((RINGWAY_E_SHAPE, format!("offload {} is not possible: 0 or 1", known.offload)));
    }
    Ok(ringway_client::Shape {
        tx_rings: rings(known.tx_rings, default.tx_rings, "tx_rings")?,
        rx_rings: rings(known.rx_rings, default.rx_rings, "rx_rings")?,
        tx_slots: or(known.tx_slots, default.tx_slots),
        rx_slots: or(known.rx_slots, default.rx_slots),
        buffer_size: or(known.buffer_size, default.buffer_size),
        offload: known.offload == 1,
        ..default
    })
}

/// Detaches, and frees what belongs to the port: also the buffers that ringway_reserve() and ringway_peek() returned. `port` may be
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_detach(port: *mut Port) {
    if !port.is_null() {
        // SAFETY: made by `ringway_attach`, and the caller does not use it again.
        drop(unsafe { Box::from_raw(port) });
    }
}

impl Port {
    /// Attaches a port, with its buffers in `memory` if there is one.
    ///
    /// # Safety
    /// `socket` and `name` are NULL or strings that end with NUL; `shape` is as for [`read_shape`].
    pub(crate) unsafe fn attach(
        socket: *const c_char,
        name: *const c_char,
        shape: *const Shape,
        memory: Option<&mut ExternalMemory>,
    ) -> Result<Box<Port>, Failure> {
        // SAFETY: strings of the caller, or NULL.
        let (socket, name) = unsafe { read_names(socket, name) }?;
        // SAFETY: NULL or a shape of the caller.
        let shape = unsafe { read_shape(shape) }?;
        let attached = match memory {
            // No port of this library has extra buffers.
            Some(memory) => {
                ringway_client::Port::attach_with_memory(&socket, name, shape, memory).map(|(port, _)| port)
            }
            None => ringway_client::Port::attach(&socket, name, shape),
        };
        let mut port = attached.map_err(|error| (code(&error), error.to_string()))?;
        let (tx, tx_rings) = (port.tx_rings().as_mut_ptr(), port.tx_rings().len() as u32);
        let (rx, rx_rings) = (port.rx_rings().as_mut_ptr(), port.rx_rings().len() as u32);
        Ok(Box::new(Port { port, tx, tx_rings, rx, rx_rings }))
    }

    /// Returns a transmit ring.
    ///
    /// # Safety
    /// `port` is NULL or a port, and no other thread uses this ring for `'a`.
    #[inline]
    pub(crate) unsafe fn tx<'a>(port: *mut Port, ring: u32) -> Option<&'a mut TxRing> {
        // SAFETY: the caller's port; no reference to it is made, as other threads may use other rings.
        (!port.is_null() && ring < unsafe { (*port).tx_rings }).then(|| unsafe { &mut *(*port).tx.add(ring as usize) })
    }

    /// Returns a receive ring.
    ///
    /// # Safety
    /// As for [`Port::tx`].
    #[inline]
    pub(crate) unsafe fn rx<'a>(port: *mut Port, ring: u32) -> Option<&'a mut RxRing> {
        // SAFETY: as in `tx`.
        (!port.is_null() && ring < unsafe { (*port).rx_rings }).then(|| unsafe { &mut *(*port).rx.add(ring as usize) })
    }

    /// Returns the whole port.
    ///
    /// # Safety
    /// `port` is NULL or a port, and no other thread uses it for `'a`.
    #[inline]
    unsafe fn whole<'a>(port: *mut Port) -> Option<&'a mut Port> {
        // SAFETY: the caller's.
        unsafe { port.as_mut() }
    }

    fn wait(
        &mut self,
        timeout_ns: i64,
        wait: fn(&mut ringway_client::Port, Duration) -> Result<bool, AttachError>,
    ) -> c_int {
        let timeout = u64::try_from(timeout_ns).map_or(Duration::MAX, Duration::from_nanos);
        match wait(&mut self.port, timeout) {
            Ok(ready) => ready.into(),
            // While there is something to take, a port that has ended counts as ready.
            Err(AttachError::Refused(_)) => RINGWAY_E_ENDED,
            Err(error) => code(&error),
        }
    }
}

/// Returns the number of transmit rings; 0 if `port` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_tx_rings(port: *const Port) -> u32 {
    // SAFETY: NULL or a port; the number never changes.
    if port.is_null() { 0 } else { unsafe { (*port).tx_rings } }
}

/// Returns the number of receive rings; 0 if `port` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_rx_rings(port: *const Port) -> u32 {
    // SAFETY: NULL or a port; the number never changes.
    if port.is_null() { 0 } else { unsafe { (*port).rx_rings } }
}

/// Stores the MAC address that is bound to the port. Returns 1, or 0 if there is none: then it stores zeroes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_mac(port: *mut Port, mac: *mut [u8; 6]) -> c_int {
    // SAFETY: the caller's port and array.
    let (Some(port), false) = (unsafe { Port::whole(port) }, mac.is_null()) else { return RINGWAY_E_ARGUMENT };
    let bound = port.port.mac();
    // SAFETY: not NULL, and the caller's.
    unsafe { *mac = bound };
    (bound != [0; 6]).into()
}

/// Publishes the frames that are queued on all transmit rings, and wakes the switch if it sleeps. Uses all transmit rings: a thread
/// with a ring of its own calls ringway_flush_ring().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_flush(port: *mut Port) -> c_int {
    // SAFETY: the caller's port.
    let Some(port) = (unsafe { Port::whole(port) }) else { return RINGWAY_E_ARGUMENT };
    port.port.flush();
    0
}

/// Sleeps until a frame can be received, for at most `timeout_ns` nanoseconds; without end if it is negative. Returns 1 if there is
/// a frame, 0 after the time, RINGWAY_E_INTERRUPTED after a signal that a handler has taken (whatever its SA_RESTART says) or after
/// the process was stopped and continued, RINGWAY_E_ENDED when the switch has ended the port. Uses all rings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_wait_rx(port: *mut Port, timeout_ns: i64) -> c_int {
    // SAFETY: the caller's port.
    let Some(port) = (unsafe { Port::whole(port) }) else { return RINGWAY_E_ARGUMENT };
    port.wait(timeout_ns, ringway_client::Port::wait_rx_or_signal)
}

/// Sleeps until a frame can be sent, like ringway_wait_rx().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_wait_tx(port: *mut Port, timeout_ns: i64) -> c_int {
    // SAFETY: the caller's port.
    let Some(port) = (unsafe { Port::whole(port) }) else { return RINGWAY_E_ARGUMENT };
    port.wait(timeout_ns, ringway_client::Port::wait_tx_or_signal)
}

/// Returns the descriptor that is readable after a call, for the caller's own event loop. Ask for calls with ringway_want_rx() and
/// ringway_want_tx(), and clear the descriptor with ringway_clear_call(). The port owns it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_call_fd(port: *mut Port) -> c_int {
    // SAFETY: the caller's port.
    unsafe { Port::whole(port) }.map_or(RINGWAY_E_ARGUMENT, |port| port.port.call_fd().as_raw_fd())
}

/// Returns the descriptor that is readable when the switch has ended the port. The port owns it; ringway_ended() reads it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_connection_fd(port: *mut Port) -> c_int {
    // SAFETY: the caller's port.
    unsafe { Port::whole(port) }.map_or(RINGWAY_E_ARGUMENT, |port| port.port.connection_fd().as_raw_fd())
}

/// Asks for a call when frames arrive. Returns 1 if there are frames already: then the caller must not sleep. Uses all rings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_want_rx(port: *mut Port) -> c_int {
    // SAFETY: the caller's port.
    unsafe { Port::whole(port) }.map_or(RINGWAY_E_ARGUMENT, |port| port.port.want_rx().into())
}

/// Asks for a call when there is room to send. Returns 1 if there is room already. Uses all rings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_want_tx(port: *mut Port) -> c_int {
    // SAFETY: the caller's port.
    unsafe { Port::whole(port) }.map_or(RINGWAY_E_ARGUMENT, |port| port.port.want_tx().into())
}

/// Withdraws all requests for calls. Uses all rings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_want_nothing(port: *mut Port) -> c_int {
    // SAFETY: the caller's port.
    let Some(port) = (unsafe { Port::whole(port) }) else { return RINGWAY_E_ARGUMENT };
    port.port.want_nothing();
    0
}

/// Clears the descriptor of ringway_call_fd(). Returns 1 if it was readable, else 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_clear_call(port: *mut Port) -> c_int {
    // SAFETY: the caller's port.
    let Some(port) = (unsafe { Port::whole(port) }) else { return RINGWAY_E_ARGUMENT };
    // The switch has made the eventfd non-blocking.
    rustix::io::read(port.port.call_fd(), &mut [0u8; 8]).is_ok().into()
}

/// Returns 1 if the switch has ended the port, else 0. `text` gets the reason, cut to `text_size` bytes with the NUL. It may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringway_ended(port: *mut Port, text: *mut c_char, text_size: usize) -> c_int {
    // SAFETY: the caller's port.
    let Some(port) = (unsafe { Port::whole(port) }) else { return RINGWAY_E_ARGUMENT };
    let Some(reason) = port.port.ended() else { return 0 };
    // SAFETY: the caller's buffer.
    unsafe { copy_text(&reason, text, text_size) };
    1
}
