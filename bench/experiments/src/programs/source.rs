//! The C programs of these experiments, compiled when they are wanted.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::scratch::Scratch;

/// The programs are written to these headers; the first two are those of the tests of the preload library.
const HEADERS: [(&str, &str); 6] = [
    ("netmap_abi.h", include_str!("../../../../crates/ringway/tests/libraries/netmap/netmap_abi.h")),
    ("port.h", include_str!("../../../../crates/ringway/tests/libraries/netmap/port.h")),
    ("frame.h", include_str!("../../programs/frame.h")),
    ("netmap_end.h", include_str!("../../programs/netmap_end.h")),
    ("packet_end.h", include_str!("../../programs/packet_end.h")),
    ("turns.h", include_str!("../../programs/turns.h")),
];

/// A program in C.
pub(crate) struct Source {
    name: &'static str,
    text: &'static str,
    /// Libraries that it is linked with, or what it is linked as, as arguments of the compiler.
    libraries: &'static [&'static str],
    /// Debian packages that it is compiled with.
    packages: &'static str,
}

/// A sender and a receiver.
pub(crate) const PAIR: Source =
    Source { name: "pair", text: include_str!("../../programs/pair.c"), libraries: &[], packages: "gcc libc6-dev" };
/// A forwarder between two netmap ports.
pub(crate) const FORWARDER: Source = Source {
    name: "forwarder",
    text: include_str!("../../programs/forwarder.c"),
    libraries: &[],
    packages: "gcc libc6-dev",
};
/// A program that starts programs.
pub(crate) const STARTS: Source =
    Source { name: "starts", text: include_str!("../../programs/starts.c"), libraries: &[], packages: "gcc libc6-dev" };
/// A bridge of two devices of libpcap.
pub(crate) const BRIDGE: Source = Source {
    name: "bridge",
    text: include_str!("../../programs/bridge.c"),
    libraries: &["-lpcap"],
    packages: "gcc libc6-dev libpcap0.8-dev",
};

/// Messages by the kernel's sockets.
pub(crate) const SOCKETS: Source = Source {
    name: "sockets",
    text: include_str!("../../programs/sockets.c"),
    libraries: &[],
    packages: "gcc libc6-dev",
};

/// A plugin of QEMU's emulator that counts the instructions of a guest's kernel.
pub(crate) const INSTRUCTIONS: Source = Source {
    name: "instructions",
    text: include_str!("../../programs/instructions.c"),
    libraries: &["-shared", "-fPIC"],
    packages: "gcc libc6-dev",
};

/// A compiled program, or why there is none. Dropping it removes the file.
pub(crate) struct Compiled(Result<(Scratch, PathBuf), (io::ErrorKind, String)>);

impl Compiled {
    /// Compiles a program with `cc`.
    pub(crate) fn of(source: &Source) -> Compiled {
        Compiled(compile(source).map_err(|error| (error.kind(), error.to_string())))
    }

    /// Path of the program.
    ///
    /// # Errors
    /// `Unsupported`: there is no compiler, header or library; or the compiler reports another error.
    pub(crate) fn path(&self) -> io::Result<&Path> {
        self.0.as_ref().map(|(_, path)| path.as_path()).map_err(|(kind, why)| io::Error::new(*kind, why.as_str()))
    }
}

fn compile(source: &Source) -> io::Result<(Scratch, PathBuf)> {
    let scratch = Scratch::new("program")?;
    for (name, text) in HEADERS {
        fs::write(scratch.path(name), text)?;
    }
    let file = scratch.path(&format!("{}.c", source.name));
    fs::write(&file, source.text)?;
    let program = scratch.path(source.name);
    let mut compiler = Command::new("cc");
    compiler
        .env("LC_ALL", "C")
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(&file)
        .args(source.libraries)
        .stdin(Stdio::null());
    let need = |what: &str| {
        format!("{}.c needs a C compiler (Debian: apt-get install {}): {what}", source.name, source.packages)
    };
    let output =
        compiler.output().map_err(|error| io::Error::new(io::ErrorKind::Unsupported, need(&format!("cc: {error}"))))?;
    if output.status.success() {
        return Ok((scratch, program));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| line.contains("error")).unwrap_or_default();
    let is_missing = ["No such file or directory", "cannot find -l"].iter().any(|words| said.contains(words));
    let kind = if is_missing { io::ErrorKind::Unsupported } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, need(first)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::worker::Worker;

    #[test]
    fn a_program_that_cannot_be_compiled_names_what_it_needs() {
        let source =
            Source { name: "bad", text: "#include <no/such.h>\n", libraries: &[], packages: "gcc no-such-dev" };
        let error = Compiled::of(&source).path().unwrap_err();
        let said = error.to_string();
        assert!(said.contains("apt-get install gcc no-such-dev") && said.contains("no/such.h"), "{said}");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        let source = Source { libraries: &["-lno_such"], text: "int main(void) { return 0; }\n", ..source };
        assert_eq!(Compiled::of(&source).path().unwrap_err().kind(), io::ErrorKind::Unsupported);
        let source = Source { libraries: &[], text: "int main(void) { return none; }\n", ..source };
        assert_eq!(Compiled::of(&source).path().unwrap_err().kind(), io::ErrorKind::Other);
    }

    #[test]
    fn every_buffer_is_used_before_the_first_window() {
        let text = "#include \"turns.h\"\n\
                    static uint64_t done;\n\
                    static uint64_t window(uint64_t end) {\n\
                        uint64_t before = done;\n\
                        (void)end;\n\
                        done += 1000;\n\
                        return before < FRAMES_BEFORE ? 1000 : before;\n\
                    }\n\
                    int main(void) { serve(window, FRAMES_BEFORE); }\n";
        let compiled = Compiled::of(&Source { name: "before", text, libraries: &[], packages: "gcc" });
        let core = crate::placement::Cores::choose().map_or(0, |cores| cores.generator);
        let mut worker = Worker::start(&mut Command::new(compiled.path().unwrap()), core).unwrap();
        let frames = worker.work(std::time::Duration::from_millis(1)).unwrap().frames;
        assert!(frames >= 65_536, "{frames}");
    }

    #[test]
    fn compiled_programs_are_removed_with_their_folder() {
        let source = Source { name: "good", text: "int main(void) { return 0; }\n", libraries: &[], packages: "gcc" };
        let compiled = Compiled::of(&source);
        let path = compiled.path().unwrap().to_owned();
        assert!(Command::new(&path).status().unwrap().success());
        drop(compiled);
        assert!(!path.exists());
    }
}
