//! The end of a connection.

/// The name of the fault: the client's call eventfd blocked the thread that wrote it.
pub const CALL_BLOCKED: &str = "call_blocked";

/// Why a connection ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The port is being removed.
    Stop,
    /// The peer disconnected.
    Disconnected,
    /// The peer broke the protocol: the name of the reason in status and metrics, and a text for users.
    Fault(&'static str, String),
}
