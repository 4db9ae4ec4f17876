//! The JSON of frames and bytes.

use serde::{Deserialize, Serialize};

/// Frames and their bytes without FCS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Traffic {
    /// The number of frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}
