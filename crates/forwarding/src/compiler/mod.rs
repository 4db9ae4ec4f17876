//! Where modules are compiled: in a process of its own.
//!
//! Compiling a hostile module can take as long and as much memory as it may. `ringway-program-compiler` bounds its own processor time and
//! memory, gives up its privileges, and gives way to other processes. A module on its standard input becomes machine code on its standard
//! output. On its standard error it says first how it is bounded ([`Bounds`]), then what went wrong. If it refuses the module, it ends with
//! [`REFUSED`].
//!
//! - `place`: where the compiler is, and whether others could replace it.
//! - `turns`: how many compile at the same time.
//! - `process`: runs it, within a time, and reads what it writes.
//! - `bounds`: how it is bounded, and what its end means.

mod bounds;
mod place;
mod process;
mod turns;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use bounds::{Bounds, NO_MEMORY, REFUSED, TOO_MUCH_MEMORY};
pub use place::COMPILER;

use ringway_keeper::opener::{Answered, Ask, Opener, Refusal, Reply, Said, of_process};

use crate::limits::{COMPILER_WAIT, MACHINE_CODE_MAX};
use crate::text;
use crate::unacceptable::Unacceptable;
use process::End;
use turns::Turn;

/// Longest wait for the opener to look.
const FOUND_WITHIN: Duration = Duration::from_secs(5);

/// A compiler of modules. Its machine code runs in this process: it is trusted as this program itself is.
#[derive(Clone, Debug)]
pub enum Compiler {
    /// The one that is installed with this program, looked for at each module: in the folder of this program, or in
    /// `../libexec/ringway` from there. Nobody else may be able to replace it.
    Installed,
    /// This executable, whoever can replace it.
    At(PathBuf),
    /// This process.
    #[cfg(feature = "compiler")]
    Here,
}

impl Compiler {
    /// Returns the machine code of a module. Ends early if `stop` becomes true.
    ///
    /// # Errors
    /// The module cannot be compiled, or there is no compiler.
    pub(crate) fn compile(&self, module: &[u8], stop: &AtomicBool) -> Result<Vec<u8>, Unacceptable> {
        match self {
            Compiler::Installed => {
                let opener = of_process();
                // The opener may look into folders that this process may not.
                let program = if opener.is_asked() { found_by(&opener)? } else { place::installed()? };
                run(&program, &opener, module, stop)
            }
            Compiler::At(program) => run(program, &Opener::default(), module, stop),
            #[cfg(feature = "compiler")]
            Compiler::Here => crate::compile::compile(module).map_err(|why| bounds::refused(&why.to_string())),
        }
    }

    /// Says whether there is a compiler to be run.
    ///
    /// # Errors
    /// Why there is none.
    pub fn look(&self) -> Result<(), Unacceptable> {
        match self {
            Compiler::Installed if of_process().is_asked() => found_by(&of_process()).map(drop),
            Compiler::Installed => place::installed().map(drop),
            Compiler::At(program) if program.is_file() => Ok(()),
            Compiler::At(program) => Err(Unacceptable::system(&format!("{}: it is no file", program.display()))),
            #[cfg(feature = "compiler")]
            Compiler::Here => Ok(()),
        }
    }
}

/// Has the opener look for the compiler that is installed. Returns its name: where it is, the opener knows.
fn found_by(opener: &Opener) -> Result<PathBuf, Unacceptable> {
    match opener.ask_done(&Ask::FindCompiler, &[], FOUND_WITHIN) {
        Some(Err(why)) => Err(Unacceptable::system(&why.to_string())),
        _ => Ok(COMPILER.into()),
    }
}

/// Does what the switch asks the opener: looks for the compiler that is installed.
///
/// # Errors
/// There is none.
pub fn find_for_switch() -> Answered {
    let found = place::installed().map(|_| Said::Done.into());
    found.map_err(|why| Refusal { text: why.to_string(), errno: None, kind: None })
}

/// Does what the switch asks the opener: starts the compiler that is installed.
///
/// # Errors
/// There is none, or too many run already.
pub fn start_for_switch() -> Answered {
    let refused = |text: String| Refusal { text, errno: None, kind: None };
    let program = place::installed().map_err(|why| refused(why.to_string()))?;
    let files = process::start_for_switch(&program).map_err(|why| Refusal::from(&why))?;
    Ok(Reply { said: Said::Done, files })
}

/// Has a process compile a module, when it is its turn.
fn run(program: &Path, opener: &Opener, module: &[u8], stop: &AtomicBool) -> Result<Vec<u8>, Unacceptable> {
    let failed = |what: &dyn std::fmt::Display| Unacceptable::system(&format!("{}: {what}", program.display()));
    let stopped = || Unacceptable::system("nobody waits for the program any more");
    let _turn = Turn::wait(stop).ok_or_else(stopped)?;
    let output = process::run(program, opener, module, COMPILER_WAIT, stop).map_err(|error| failed(&error))?;
    match output.end {
        End::Status(status) if status.success() => Ok(output.code),
        End::Status(status) => {
            let messages = String::from_utf8_lossy(&output.messages);
            let (bounds, said) = Bounds::split(&messages);
            Err(bounds::complaint(status, bounds, &text::cut(said.trim_end())).unwrap_or_else(|what| failed(&what)))
        }
        End::TooMuchCode => {
            let what = format!("the module becomes more than {} MiB of machine code", MACHINE_CODE_MAX >> 20);
            Err(Unacceptable::Module(what))
        }
        End::TooLong => {
            let what = format!("compiling the module takes longer than {} s on this machine", COMPILER_WAIT.as_secs());
            // The module is bounded by its processor time: others had the processor.
            Err(Unacceptable::System(what))
        }
        End::Stopped => Err(stopped()),
    }
}
