//! What a machine does not allow.

/// Why a stage is missing, or less than whole, for users.
pub type Missing = String;
