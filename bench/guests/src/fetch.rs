//! Files that are fetched from Debian once and kept: their folder, and the scripts that fetch them.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::programs::{Program, SETPRIV, find};

/// Returns the folder that the environment variable `variable` names, or else `ringway/NAME` of `$XDG_CACHE_HOME`.
pub fn cache(variable: &str, name: &str) -> Result<PathBuf, String> {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    of(variable)
        .or_else(|| of("XDG_CACHE_HOME").map(|dir| dir.join("ringway").join(name)))
        .or_else(|| of("HOME").map(|dir| dir.join(".cache/ringway").join(name)))
        .ok_or_else(|| "no place to keep it: neither XDG_CACHE_HOME nor HOME is set".to_owned())
}

/// Runs a bash script that does not outlive the calling thread. `failed` makes an error of its output.
pub fn run(script: &str, needs: &[Program], args: &[&str], failed: impl Fn(String) -> Error) -> Result<(), Error> {
    let bash = find(Program::new("bash", "bash"))?;
    for &program in needs {
        find(program)?;
    }
    let mut command = Command::new(find(SETPRIV)?);
    command.args(["--pdeathsig", "TERM"]).arg(bash).args(["-s", "--"]).args(args);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(format!("cannot start bash: {error}")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A script that ends early says why on stderr.
        let _ = stdin.write_all(script.as_bytes());
    }
    let done = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if done.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&done.stderr).trim().into())) }
}
