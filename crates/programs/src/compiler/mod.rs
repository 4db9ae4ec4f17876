//! Where modules are compiled: in a process of its own.
//!
//! Compiling a hostile module can take half a minute and a gigabyte. `ringway-program-compiler` bounds its own processor time and memory, and
//! gives way to other processes. A module on its standard input becomes machine code on its standard output; if it refuses the module, it
//! ends with [`REFUSED`] and the reason on its standard error.

use std::env;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::limits::{COMPILER_MEMORY, COMPILER_TIME, MACHINE_CODE_MAX};
use crate::text;
use crate::unacceptable::Unacceptable;

/// The file name of the compiler.
pub const COMPILER: &str = "ringway-program-compiler";
/// Exit code of the compiler if it refuses the module.
pub const REFUSED: u8 = 3;

/// Most bytes of the compiler's messages that are read.
const MESSAGES_MAX: u64 = 4096;

/// A compiler of modules. Its machine code runs in this process: it is trusted as this program itself is.
#[derive(Clone, Debug)]
pub enum Compiler {
    /// The one that is installed with this program, looked for at each module: in the folder of this program, or in
    /// `../libexec/ringway` from there.
    Installed,
    /// This executable.
    At(PathBuf),
    /// This process.
    #[cfg(feature = "compiler")]
    Here,
}

impl Compiler {
    /// Returns the machine code of a module.
    ///
    /// # Errors
    /// The module cannot be compiled, or there is no compiler.
    pub(crate) fn compile(&self, module: &[u8]) -> Result<Vec<u8>, Unacceptable> {
        match self {
            Compiler::Installed => run(&installed()?, module),
            Compiler::At(program) => run(program, module),
            #[cfg(feature = "compiler")]
            Compiler::Here => crate::compile::compile(module).map_err(|why| refused(&why)),
        }
    }
}

fn refused(why: &str) -> Unacceptable {
    Unacceptable::Module(format!("it is no WebAssembly module: {why}"))
}

fn system(what: &str) -> Unacceptable {
    Unacceptable::System(what.to_owned())
}

/// Finds the compiler that belongs to this program.
fn installed() -> Result<PathBuf, Unacceptable> {
    let own = env::current_exe().map_err(|error| system(&format!("this program's folder is not known: {error}")))?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let places = [folder.to_owned(), folder.join("../libexec/ringway")];
    places.iter().map(|place| place.join(COMPILER)).find(|file| file.is_file()).ok_or_else(|| {
        let [beside, libexec] = places.map(|place| place.display().to_string());
        system(&format!(
            "forwarding programs need {COMPILER}, which is neither in {beside} nor in {libexec}: install it from Ringway's sources with \
             \"cargo install --path crates/programs --features compiler\", or with \"make build\" and \"make install\""
        ))
    })
}

/// A running compiler; ended when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the compiler. It reads the whole module before it writes, and its messages are shorter than a pipe.
fn run(program: &Path, module: &[u8]) -> Result<Vec<u8>, Unacceptable> {
    let failed = |what: &dyn std::fmt::Display| system(&format!("{}: {what}", program.display()));
    let mut command = Command::new(program);
    command.env_clear().current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = Running(command.spawn().map_err(|error| failed(&error))?);
    let pipes = (running.0.stdin.take(), running.0.stdout.take(), running.0.stderr.take());
    let (Some(mut stdin), Some(stdout), Some(stderr)) = pipes else { return Err(failed(&"it has no pipes")) };
    // A compiler that has ended says below why.
    let _ = stdin.write_all(module);
    drop(stdin);
    let (mut code, mut messages) = (Vec::new(), Vec::new());
    stdout.take(MACHINE_CODE_MAX as u64 + 1).read_to_end(&mut code).map_err(|error| failed(&error))?;
    if code.len() > MACHINE_CODE_MAX {
        let what = format!("the module becomes more than {} MiB of machine code", MACHINE_CODE_MAX >> 20);
        return Err(Unacceptable::Module(what));
    }
    stderr.take(MESSAGES_MAX).read_to_end(&mut messages).map_err(|error| failed(&error))?;
    let status = running.0.wait().map_err(|error| failed(&error))?;
    if status.success() {
        return Ok(code);
    }
    Err(complaint(status, &String::from_utf8_lossy(&messages)).unwrap_or_else(|what| failed(&what)))
}

/// What is wrong with the module, if the end of the compiler says so.
///
/// # Errors
/// What is wrong with the compiler.
fn complaint(status: ExitStatus, messages: &str) -> Result<Unacceptable, String> {
    let said = text::cut(messages.trim_end());
    if status.code() == Some(i32::from(REFUSED)) {
        return Ok(refused(&said));
    }
    let signal = status.signal().and_then(rustix::process::Signal::from_named_raw);
    match signal {
        Some(rustix::process::Signal::XCPU) => {
            let what = format!("compiling the module takes more than {} s of processor time", COMPILER_TIME.as_secs());
            Ok(Unacceptable::Module(what))
        }
        // Rust ends a process that gets no memory by this signal.
        Some(rustix::process::Signal::ABORT) if said.contains("memory allocation") => {
            let what = format!("compiling the module takes more than {} MiB of memory", COMPILER_MEMORY >> 20);
            Ok(Unacceptable::Module(what))
        }
        _ => Err(format!("it ended with {status}: {said}")),
    }
}
