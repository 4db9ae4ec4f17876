//! What the daemon says, for the fuzzer: reading ends, and nothing is read beyond what has come.

use std::os::fd::OwnedFd;
use std::time::Duration;

use ringway_api::http::{self, Body, Limit};
use rustix::net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair};

use crate::source::Mirror;
use crate::{device, devices};

/// A connection on which these bytes have come, and its end.
fn connection(bytes: &[u8]) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (near, far) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair of sockets");
    // The kernel's buffer has room for all that the fuzzer gives, or what follows is cut off.
    let _ = send(&far, bytes, SendFlags::NOSIGNAL);
    shutdown(&far, Shutdown::Both).expect("the end");
    near
}

fn limit() -> Limit {
    Limit::begin(Duration::from_secs(5))
}

fn body(bytes: &[u8]) -> Option<Body> {
    http::answer(connection(bytes), limit()).ok()?.successful(limit()).ok()
}

/// Reads the bytes as the list of ports.
pub fn list(bytes: &[u8]) {
    let Some(Ok(list)) = body(bytes).map(|mut body| body.whole(limit())) else { return };
    assert!(list.len() <= bytes.len());
    for (name, _, _) in devices::listed(&devices::read(&list)) {
        assert!(device::Device::parse(&name).is_some() && name.len() < 100, "{name:?}");
    }
}

/// Reads the bytes as a capture. `is_selected` says for each frame whether the program asks before it for the wake-up of the next.
pub fn capture(bytes: &[u8], mut is_selected: impl FnMut() -> bool) {
    let Some(mut mirror) = body(bytes).map(Mirror::of) else { return };
    let mut sum = 0usize;
    loop {
        while let Some(frame) = mirror.next() {
            assert!(frame.present <= frame.len);
            // SAFETY: the source keeps `present` bytes until the next frame is asked for.
            let data = unsafe { std::slice::from_raw_parts(frame.data, frame.present) };
            std::hint::black_box(data.iter().map(|&byte| u64::from(byte)).sum::<u64>());
            sum += frame.present;
            assert!(sum <= bytes.len(), "more bytes of frames than bytes");
            if is_selected() {
                mirror.release();
                mirror.arm();
            }
        }
        if !mirror.look() {
            break;
        }
    }
    assert!(mirror.ended().is_some(), "the connection has ended");
}
