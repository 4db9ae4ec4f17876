//! Versions and capabilities (docs/interop/vfio-user.rst of QEMU, "VFIO_USER_VERSION").

use serde_json::{Map, Value, json};

use super::limits::{MOST_DATA, MOST_FDS, MOST_MAPS};

/// The supported version of the protocol: 0.1.
const MAJOR: u16 = 0;
const MINOR: u16 = 1;

/// Why a VERSION is invalid. The text is for users.
#[derive(Debug, thiserror::Error)]
pub enum BadVersion {
    /// Another major version.
    #[error("VERSION {0}.{1}: versions {MAJOR}.x are spoken here")]
    Other(u16, u16),
    /// The capabilities are not valid JSON.
    #[error("VERSION with capabilities that are not as the specification has them: {0}")]
    Json(#[from] serde_json::Error),
    /// The capabilities are not an object.
    #[error("VERSION with capabilities that are not an object")]
    NotObject,
}

/// A proposal of the front end.
#[derive(Debug)]
pub struct Version {
    minor: u16,
    capabilities: Map<String, Value>,
}

impl Version {
    /// Decodes the two numbers of a version and the JSON text after them, which ends with a NUL.
    ///
    /// # Errors
    /// Another major version, or an invalid text.
    pub fn decode(major: u16, minor: u16, text: &[u8]) -> Result<Version, BadVersion> {
        if major != MAJOR {
            return Err(BadVersion::Other(major, minor));
        }
        let text = text.strip_suffix(&[0]).unwrap_or(text);
        let mut said: Map<String, Value> = if text.is_empty() { Map::new() } else { serde_json::from_slice(text)? };
        match said.remove("capabilities") {
            None => Ok(Version { minor, capabilities: Map::new() }),
            Some(Value::Object(capabilities)) => Ok(Version { minor, capabilities }),
            Some(_) => Err(BadVersion::NotObject),
        }
    }

    /// Returns the answer: those of the proposed capabilities that this device has.
    #[must_use]
    pub fn answer(&self) -> Vec<u8> {
        let ours = [
            ("max_msg_fds", json!(MOST_FDS)),
            ("max_data_xfer_size", json!(MOST_DATA)),
            ("max_dma_maps", json!(MOST_MAPS)),
            ("pgsizes", json!(4096)),
            ("write_multiple", json!(true)),
        ];
        let common = ours.into_iter().filter(|(name, _)| self.capabilities.contains_key(*name));
        let common: Map<String, Value> = common.map(|(name, value)| (name.to_owned(), value)).collect();
        let mut answer = Vec::with_capacity(160);
        answer.extend_from_slice(&MAJOR.to_ne_bytes());
        answer.extend_from_slice(&self.minor.min(MINOR).to_ne_bytes());
        answer.extend_from_slice(json!({ "capabilities": common }).to_string().as_bytes());
        answer.push(0);
        answer
    }
}
