//! What a message of the front end changes of a session, and so has to be kept for a successor of the switch.

use super::message::Request;

/// What of a session has changed, as bits: one for each queue, and these two.
pub const STATE: u32 = 1 << 16;
pub const MEMORY: u32 = 1 << 17;
pub const ALL: u32 = u32::MAX;

/// What a request changes, if it is not refused.
pub fn changes(request: &Request) -> u32 {
    let queue = |queue: u32| 1u32.checked_shl(queue).unwrap_or(0) & (STATE.wrapping_sub(1));
    match request {
        // They may stop or enable all queues.
        Request::SetFeatures(_) | Request::SetStatus(_) | Request::ResetDevice => ALL,
        Request::SetProtocolFeatures(_)
        | Request::SetLogBase(_)
        | Request::SetInflightFd(..)
        | Request::NetSetMtu(_) => STATE,
        Request::SetMemTable(_) | Request::AddMemReg(..) | Request::RemMemReg(_) => MEMORY | STATE,
        Request::SetVringNum(state)
        | Request::SetVringBase(state)
        | Request::GetVringBase(state)
        | Request::SetVringEnable(state) => queue(state.queue),
        Request::SetVringAddr(address) => queue(address.queue),
        Request::SetVringKick(file) | Request::SetVringCall(file) | Request::SetVringErr(file) => queue(file.queue),
        _ => 0,
    }
}
