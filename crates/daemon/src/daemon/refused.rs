//! Refusals of requests, and their HTTP status codes.

use std::io::{self, ErrorKind};

use ringway_api::types::{Refusal, UNAVAILABLE};
use ringway_config::LoadError;
use ringway_config::keys::Mistake;
use ringway_config::kinds::CannotOpen;
use rustix::io::Errno;

use super::programs::{CannotLoad, CannotTell, WantedProgram};
use super::wanted_device::WantedDevice;

/// Why a request was refused. It has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Keys or values are wrong.
    #[error("{}", join(.0))]
    Mistakes(Vec<Mistake>),
    /// The request is malformed.
    #[error("{0}")]
    Malformed(String),
    /// The request is larger than the limit.
    #[error("{0}")]
    TooLarge(String),
    /// The configuration file cannot be used.
    #[error(transparent)]
    File(#[from] LoadError),
    /// What the request names does not exist.
    #[error("{0}")]
    Unknown(String),
    /// The request conflicts with the present state.
    #[error("{0}")]
    Conflict(String),
    /// What the request names on this machine is not available: a file of another kind, a missing directory, a busy device, a permission.
    #[error("{0}")]
    Unavailable(String),
    /// Forwarding programs have to be loaded first. Only within the daemon.
    #[error("forwarding programs have to be loaded first")]
    Load(Vec<WantedProgram>),
    /// Network devices have to be opened first. Only within the daemon.
    #[error("network devices have to be opened first")]
    Open(Vec<WantedDevice>),
    /// The system refused, whatever the request named.
    #[error("{0}")]
    Failed(String),
}

impl Refused {
    /// The kernel refused with `why`: because of what the request names, or because the machine is out of memory or descriptors. `what`
    /// says both to users.
    pub fn by_system(what: String, why: &io::Error) -> Self {
        if is_of_the_request(why) { Self::Unavailable(what) } else { Self::Failed(what) }
    }

    /// Returns the HTTP status code of the refusal.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Mistakes(_) | Self::Malformed(_) | Self::File(_) => 400,
            Self::TooLarge(_) => 413,
            Self::Unknown(_) => 404,
            Self::Conflict(_) => 409,
            Self::Unavailable(_) => UNAVAILABLE,
            Self::Failed(_) | Self::Load(_) | Self::Open(_) => 500,
        }
    }
}

/// Returns true if another request could avoid this error. All other errors are of the machine.
fn is_of_the_request(error: &io::Error) -> bool {
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

impl From<CannotLoad> for Refused {
    fn from(why: CannotLoad) -> Self {
        Self::Unavailable(why.to_string())
    }
}

impl From<CannotTell> for Refused {
    fn from(why: CannotTell) -> Self {
        Self::Conflict(why.to_string())
    }
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
        let of_the_request = [
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
        for errno in of_the_request {
            assert_eq!(status(errno), UNAVAILABLE, "{errno}");
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::NOSPC, Errno::IO, Errno::NOBUFS] {
            assert_eq!(status(errno), 500, "{errno}");
        }
    }
}
