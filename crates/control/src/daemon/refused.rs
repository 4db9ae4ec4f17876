//! Reasons for which the daemon refuses a request.

use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::api::types::Refusal;
use crate::config::{LoadError, Mistake};
use crate::kinds::CannotOpen;

/// Status code of an answer that says that what a request names cannot be had.
pub const UNAVAILABLE: u16 = 422;

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
    /// What it names on this machine cannot be had: a file of another kind, a missing directory, a busy device, a permission.
    #[error("{0}")]
    Unavailable(String),
    /// The system did not let the daemon do it.
    #[error("{0}")]
    Failed(String),
}

impl Refused {
    /// `what` was refused by the kernel: because of what the request names, or because the machine has nothing left (memory,
    /// descriptors).
    pub fn by_system(what: String, why: &io::Error) -> Self {
        if is_the_askers(why) { Self::Unavailable(what) } else { Self::Failed(what) }
    }

    /// The status code of an answer that says this.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Mistakes(_) | Self::Malformed(_) | Self::File(_) => 400,
            Self::TooLarge(_) => 413,
            Self::Unknown(_) => 404,
            Self::Conflict(_) => 409,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::Failed(_) => 500,
        }
    }
}

/// Whether another request could avoid this error. Errors that name no kind are the machine's.
fn is_the_askers(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::NotFound,
        ErrorKind::PermissionDenied,
        ErrorKind::AlreadyExists,
        ErrorKind::AddrInUse,
        ErrorKind::AddrNotAvailable,
        ErrorKind::ResourceBusy,
        ErrorKind::InvalidInput,
        ErrorKind::InvalidFilename,
        ErrorKind::NotADirectory,
        ErrorKind::IsADirectory,
        ErrorKind::ReadOnlyFilesystem,
        ErrorKind::Unsupported,
    ];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

impl From<CannotOpen> for Refused {
    fn from(CannotOpen { what, why }: CannotOpen) -> Self {
        Self::by_system(what, &why)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_names_and_cannot_have_is_its_fault_and_an_exhausted_machine_is_not() {
        let status = |errno: Errno| Refused::by_system(String::new(), &errno.into()).http_status();
        let askers = [
            Errno::NOENT,
            Errno::NOTDIR,
            Errno::ACCESS,
            Errno::PERM,
            Errno::EXIST,
            Errno::ADDRINUSE,
            Errno::BUSY,
            Errno::NAMETOOLONG,
            Errno::LOOP,
            Errno::ROFS,
            Errno::INVAL,
            Errno::OPNOTSUPP,
        ];
        for errno in askers {
            assert_eq!(status(errno), UNAVAILABLE, "{errno}");
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::NOSPC, Errno::IO, Errno::NOBUFS] {
            assert_eq!(status(errno), 500, "{errno}");
        }
    }
}
