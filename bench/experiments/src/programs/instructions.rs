//! Instructions of a program's function, counted by callgrind. The state of the machine does not change them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::daemon::{Daemon, Settings};
use crate::network::Network as _;
use crate::peers::program::find_program;
use crate::placement::Cores;
use crate::trial::Contestant;

/// A run of a program under valgrind, on ports of a daemon. The figure is in instructions per frame.
pub(super) struct Counted {
    daemon: Daemon,
    valgrind: PathBuf,
    /// The function whose instructions count, with all that it calls.
    function: &'static str,
    program: PathBuf,
    /// The program's arguments. It prints the number of frames.
    words: Vec<String>,
}

impl Counted {
    /// Starts a daemon, which is held when this returns.
    ///
    /// # Errors
    /// It does not start; `Unsupported`: valgrind is not installed.
    pub(super) fn new(
        cores: Cores,
        settings: &Settings,
        function: &'static str,
        program: &Path,
        words: &[&str],
    ) -> io::Result<Counted> {
        let valgrind = find_program("valgrind").ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "valgrind is not installed (Debian: apt-get install valgrind)")
        })?;
        let mut daemon = Daemon::start(cores, settings)?;
        daemon.hold()?;
        let words = words.iter().map(|&word| word.to_owned()).collect();
        Ok(Counted { daemon, valgrind, function, program: program.to_owned(), words })
    }
}

impl Contestant for Counted {
    fn resume(&mut self) -> io::Result<()> {
        self.daemon.resume()
    }

    fn hold(&mut self) -> io::Result<()> {
        self.daemon.hold()
    }

    fn depends_on_distance(&self) -> bool {
        false
    }

    fn window(&mut self, _: Duration) -> io::Result<f64> {
        let mut command = self.daemon.exec(&self.valgrind);
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(format!("--toggle-collect={}", self.function)).arg(&self.program).args(&self.words);
        let output = command.stdin(Stdio::null()).output()?;
        let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let failed = || io::Error::other(format!("valgrind: {}", err.lines().last().unwrap_or_default().trim()));
        if !output.status.success() {
            return Err(failed());
        }
        per_frame(&out, &err).ok_or_else(failed)
    }
}

/// Returns the instructions per frame, from the number of frames that the program printed and what callgrind reported.
fn per_frame(printed: &str, reported: &str) -> Option<f64> {
    let frames: u64 = printed.trim().parse().ok()?;
    let collected = reported.lines().find_map(|line| line.split_once("Collected :"))?.1;
    let instructions: u64 = collected.trim().parse().ok()?;
    (frames > 0 && instructions > 0).then(|| instructions as f64 / frames as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_divided_among_the_frames() {
        let reported = "==7== Events    : Ir\n==7== Collected : 5120\n==7== \n==7== I   refs:      5,120\n";
        assert_eq!(per_frame("256\n", reported), Some(20.0));
        for (printed, reported) in [("0", reported), ("", reported), ("256", "==7== nothing"), ("256", "Collected : 0")]
        {
            assert_eq!(per_frame(printed, reported), None, "{printed:?} {reported:?}");
        }
    }
}
