//! The example programs of the kit for Rust, compiled when they are wanted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::scratch::Scratch;

/// An example of the kit: name and text.
pub(super) struct Example(&'static str, &'static str);

macro_rules! example {
    ($name:literal) => {
        Example($name, include_str!(concat!("../../../../kits/rust/examples/", $name, ".rs")))
    };
}

/// All frames as built in.
pub(super) const NULL: Example = example!("null");
/// A learning bridge.
pub(super) const LEARNING_BRIDGE: Example = example!("learning_bridge");
/// Rules by address, protocol and port, and a table of connections.
pub(super) const ACCESS_LIST: Example = example!("access_list");

const TARGET: &str = "wasm32-unknown-unknown";
/// The compiler in `PATH`, and Debian's.
const COMPILERS: [&str; 2] = ["rustc", "/usr/bin/rustc"];
/// As cargo's profile `release` in a folder that `ringway program new` makes.
const OPTIONS: [&str; 10] =
    ["--edition", "2021", "--target", TARGET, "-C", "opt-level=3", "-C", "panic=abort", "-C", "codegen-units=1"];

/// Compiled programs. Dropping this removes them.
pub(super) struct Modules {
    folder: Scratch,
    compiler: &'static str,
}

impl Modules {
    /// Compiles the kit that is within `ringway`.
    ///
    /// # Errors
    /// `Unsupported`: there is no compiler for WebAssembly; or it reports another error.
    pub(super) fn new(ringway: &Path) -> io::Result<Modules> {
        let has_target = |compiler: &&&str| {
            let folder = Command::new(compiler).args(["--print", "target-libdir", "--target", TARGET]).output();
            folder.is_ok_and(|found| Path::new(String::from_utf8_lossy(&found.stdout).trim()).is_dir())
        };
        let Some(compiler) = COMPILERS.iter().find(has_target) else {
            let what = format!(
                "there is no Rust compiler for {TARGET} (rustup target add {TARGET}, or on Debian: apt-get install rustc \
                 libstd-rust-dev-wasm32 lld)"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        };
        let modules = Modules { folder: Scratch::new("modules")?, compiler };
        run(Command::new(ringway).args(["program", "new"]).arg(modules.folder.path("kit")))?;
        let source = modules.folder.path("kit/ringway-program/src/lib.rs");
        let library = ["--crate-name", "ringway_program", "--crate-type", "rlib"];
        run(Command::new(compiler).args(library).args(OPTIONS).arg("-o").arg(modules.library()).arg(source))?;
        Ok(modules)
    }

    /// Writes a file beside the modules. Returns its path.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let path = self.folder.path(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    fn library(&self) -> PathBuf {
        self.folder.path("libringway_program.rlib")
    }

    /// Compiles an example, once. Returns the module's path.
    ///
    /// # Errors
    /// The compiler reports one.
    pub(super) fn compile(&self, Example(name, text): &Example) -> io::Result<PathBuf> {
        let [source, module] = ["rs", "wasm"].map(|kind| self.folder.path(&format!("{name}.{kind}")));
        if module.exists() {
            return Ok(module);
        }
        fs::write(&source, text)?;
        let library = format!("ringway_program={}", self.library().display());
        let linked = ["--crate-type", "cdylib", "-C", "lto", "-C", "strip=symbols", "--extern", &library];
        run(Command::new(self.compiler).args(OPTIONS).args(linked).arg("-o").arg(&module).arg(&source))?;
        Ok(module)
    }
}

/// Runs a command, which has to succeed.
fn run(command: &mut Command) -> io::Result<()> {
    let said = command.stdin(Stdio::null()).output();
    let failed = |what: &str| Err(io::Error::other(format!("{}: {what}", command.get_program().display())));
    match said {
        Err(error) => failed(&error.to_string()),
        Ok(said) if said.status.success() => Ok(()),
        Ok(said) => failed(String::from_utf8_lossy(&said.stderr).lines().next().unwrap_or("it failed")),
    }
}
