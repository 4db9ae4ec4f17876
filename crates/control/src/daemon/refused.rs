//! Why the daemon did not do what it was asked to.

use crate::api::types::Refusal;
use crate::config::{LoadError, Mistake};

/// A request that changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Keys or values are wrong.
    #[error("{}", join(.0))]
    Mistakes(Vec<Mistake>),
    /// The request itself is not one.
    #[error("{0}")]
    Malformed(String),
    /// The request is larger than any can be.
    #[error("{0}")]
    TooLarge(String),
    /// The configuration file cannot be used.
    #[error(transparent)]
    File(#[from] LoadError),
    /// There is no such thing.
    #[error("{0}")]
    Unknown(String),
    /// It collides with what is there.
    #[error("{0}")]
    Conflict(String),
    /// The system did not let the daemon do it.
    #[error("{0}")]
    Failed(String),
}

impl Refused {
    /// The status code of an answer that says this.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Mistakes(_) | Self::Malformed(_) | Self::File(_) => 400,
            Self::TooLarge(_) => 413,
            Self::Unknown(_) => 404,
            Self::Conflict(_) => 409,
            Self::Failed(_) => 500,
        }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let error = refused.to_string();
        let mistakes = match refused {
            Refused::Mistakes(mistakes) => mistakes,
            Refused::File(LoadError::Rejected(rejected)) => rejected.mistakes,
            _ => Vec::new(),
        };
        Self { error, mistakes }
    }
}

fn join(mistakes: &[Mistake]) -> String {
    mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>().join("\n")
}
