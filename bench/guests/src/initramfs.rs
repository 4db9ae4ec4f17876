//! A guest's file system, made of the host's programs.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::archive::Archive;
use crate::bulk;
use crate::driver::{self, OwnDriver};
use crate::error::{Error, at};
use crate::kernel::Kernel;
use crate::programs::{BUSYBOX, IN_GUESTS, LDD, find};

const INIT: &[u8] = include_bytes!("init.sh");

/// Returns the archive for this kernel, with these programs of the host and the driver of Linux guests, too.
pub fn make(kernel: &Kernel, programs: &[PathBuf], own: Option<&OwnDriver>) -> Result<Vec<u8>, Error> {
    let mut tree = Tree::default();
    for directory in ["bin", "dev", "modules", "proc", "sys", "tmp", "usr"] {
        tree.directory(Path::new(directory));
    }
    tree.archive.program("init", INIT);
    // Static, so that the guest's shell does not depend on libraries.
    let busybox = find(BUSYBOX)?;
    if !libraries(&busybox)?.is_empty() {
        return Err(Error::Missing { program: "a static busybox".into(), package: "busybox-static".into() });
    }
    tree.program("bin/busybox", &busybox)?;
    for wanted in IN_GUESTS {
        tree.with_libraries(&find(wanted)?)?;
    }
    for program in programs {
        tree.with_libraries(program)?;
    }
    let mut modules = kernel.modules()?;
    if let Some(own) = own {
        // Before the kernel's e1000, which would take its NICs.
        modules.insert(0, (driver::NAME.to_owned(), kernel.own_driver()?));
        tree.archive.file("modules/own-parameters", own.parameters.as_bytes());
        if own.all {
            tree.archive.file("modules/own-all", b"");
        }
    }
    let mut random = vec![0; bulk::RANDOM_BYTES];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(at("/dev/urandom"))?;
    tree.archive.file(bulk::RANDOM, &random);
    let order: String = modules.iter().map(|(name, _)| format!("{name}\n")).collect();
    tree.archive.file("modules/order", order.as_bytes());
    for (name, content) in modules {
        tree.archive.file(&format!("modules/{name}.ko"), &content);
    }
    Ok(tree.archive.finish())
}

/// An archive under construction, and the paths in it.
#[derive(Default)]
struct Tree {
    archive: Archive,
    has: BTreeSet<PathBuf>,
}

impl Tree {
    fn directory(&mut self, path: &Path) {
        if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
            self.directory(parent);
        }
        if self.has.insert(path.to_owned()) {
            self.archive.directory(&path.to_string_lossy());
        }
    }

    fn program(&mut self, place: &str, file: &Path) -> Result<(), Error> {
        if self.has.insert(place.into()) {
            if let Some(parent) = Path::new(place).parent() {
                self.directory(parent);
            }
            self.archive.program(place, &std::fs::read(file).map_err(at(file))?);
        }
        Ok(())
    }

    /// Adds a program of users, and the libraries that it needs.
    fn with_libraries(&mut self, program: &Path) -> Result<(), Error> {
        for library in libraries(program)? {
            let place = library.strip_prefix("/").unwrap_or(&library).to_owned();
            self.program(&place.to_string_lossy(), &library)?;
        }
        let name = program.file_name().unwrap_or_default();
        self.program(&format!("usr/bin/{}", name.to_string_lossy()), program)
    }
}

/// Returns the shared libraries that a program needs, and its loader. A static program needs none.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, Error> {
    let ldd = find(LDD)?;
    let said = Command::new(&ldd).env("LC_ALL", "C").arg(program).output().map_err(at(&ldd))?;
    // Lines are "NAME => PATH (ADDRESS)" and, for the loader, "PATH (ADDRESS)".
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(|word| word.into()).collect())
}
